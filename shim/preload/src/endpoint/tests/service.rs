//! Hazard (corrupt input): a client misbehaves, and the endpoint does not answer the next client.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::{Client, Fake, Scratch, serve};
use crate::endpoint::connection::LINE_LIMIT;
use crate::endpoint::server::CONNECTION_LIMIT;

fn still_answers(socket: &Path) {
    assert_eq!(Client::connect(socket).ask("stats")["schema"], "wmshim-stats/2");
}

#[test]
fn answers_every_request_as_json_and_as_a_word() {
    let scratch = Scratch::new("requests");
    let mut client = Client::connect(&serve(&scratch, Fake { block_count: 2, ..Fake::default() }));
    assert_eq!(client.ask(r#"{"request":"stats"}"#)["asked"], 1);
    assert_eq!(client.ask("stats")["asked"], 2);
    assert_eq!(client.ask(r#"{"request":"blocks"}"#).as_array().map(Vec::len), Some(2));
    assert_eq!(client.ask("config\r")["WMSHIM_STITCH"], "on");
    assert_eq!(scratch.dumps().len(), 0);
    let path = client.ask(r#"{"request":"dump"}"#)["path"].clone();
    let dump = std::fs::read_to_string(path.as_str().expect("a path")).expect("the dump");
    let dump: serde_json::Value = serde_json::from_str(&dump).expect("JSON");
    assert_eq!((&dump["schema"], &dump["stats"]["asked"]), (&json!("wmshim-dump/1"), &json!(3)));
}

#[test]
fn garbage_is_answered_with_what_is_valid() {
    let scratch = Scratch::new("garbage");
    let socket = serve(&scratch, Fake::default());
    let mut client = Client::connect(&socket);
    for garbage in
        [&b"\xff\xfe\x00\n"[..], b"{\n", b"{\"request\":7}\n", b"GET / HTTP/1.1\n", b"\n", b"[[[[\n"]
    {
        client.send(garbage);
        let answer = client.answer();
        let valid = [
            "stats",
            "blocks",
            "config",
            "dump",
            "final",
            "pause",
            "pause_prepare",
            "pause_deep",
            "pause_restored",
            "resume",
            "pause_state",
            "limit",
            "trim",
            "detach",
            "attach",
        ];
        assert_eq!(answer["valid"], json!(valid), "to {garbage:?}");
        assert!(answer["error"].is_string());
    }
    assert_eq!(client.ask("stats")["schema"], "wmshim-stats/2");
}

/// Hazard (out of memory): a request with a mistake limits the program.
#[test]
fn a_change_is_made_as_it_was_asked_for_or_not_at_all() {
    let scratch = Scratch::new("change");
    let socket = serve(&scratch, Fake::default());
    let mut client = Client::connect(&socket);
    client.send(b"{\"request\":\"limit\",\"bytes\":4096}\n");
    assert_eq!(client.answer()["made"], "Limit(LimitRequest { device: None, bytes: Some(4096) })");
    assert_eq!(client.ask("trim")["made"], "Trim");
    client.send(b"{\"request\":\"limit\",\"bytes\":\"much\"}\n");
    assert!(client.answer()["error"].as_str().expect("an error").contains("number of bytes"));
}

#[test]
fn a_pause_has_the_deadline_of_its_request() {
    let scratch = Scratch::new("pause");
    let socket = serve(&scratch, Fake::default());
    let mut client = Client::connect(&socket);
    for (request, deadline) in [
        ("pause", json!(null)),
        ("{\"request\":\"pause\",\"deadline_s\":2.5}", json!(2.5)),
        ("{\"request\":\"pause\",\"deadline_s\":-1}", json!(null)),
        ("{\"request\":\"pause\",\"deadline_s\":1e300}", json!(null)),
        ("{\"request\":\"pause\",\"deadline_s\":1e9}", json!(3600.0)),
    ] {
        assert_eq!(client.ask(request)["deadline_s"], deadline, "{request}");
    }
    assert_eq!(client.ask("resume")["pause"]["state"], "resuming");
    assert_eq!(client.ask("pause_state")["pause"]["state"], "running");
}

#[test]
fn a_line_without_end_is_refused_and_its_connection_closed() {
    let scratch = Scratch::new("long");
    let socket = serve(&scratch, Fake::default());
    let mut client = Client::connect(&socket);
    client.send(&vec![b'x'; LINE_LIMIT + 1]);
    assert!(client.answer()["error"].as_str().expect("an error").contains("longer than 4096 bytes"));
    assert_eq!(client.stream().read(&mut [0]).expect("the end"), 0);
    still_answers(&socket);
}

#[test]
fn requests_in_one_packet_and_a_request_cut_in_pieces_are_answered_in_order() {
    let scratch = Scratch::new("pieces");
    let mut client = Client::connect(&serve(&scratch, Fake::default()));
    client.send(b"stats\nstats\nsta");
    assert_eq!((client.answer()["asked"].clone(), client.answer()["asked"].clone()), (json!(1), json!(2)));
    client.send(b"ts");
    client.stream().shutdown(Shutdown::Write).expect("half closed");
    assert_eq!(client.answer()["asked"], 3, "the last line needs no end");
}

#[test]
fn a_reader_that_never_reads_holds_up_nobody() {
    let scratch = Scratch::new("slow");
    let socket = serve(&scratch, Fake { block_count: 60_000, ..Fake::default() });
    let mut slow = Client::connect(&socket);
    slow.send(b"blocks\nblocks\nblocks\n");
    still_answers(&socket);
    assert_eq!(slow.answer().as_array().map(Vec::len), Some(60_000), "and gets its answer when it does read");
}

#[test]
fn a_peer_that_closes_during_an_answer_is_forgotten() {
    let scratch = Scratch::new("vanish");
    let socket = serve(&scratch, Fake { block_count: 30_000, ..Fake::default() });
    for _ in 0..2 * CONNECTION_LIMIT {
        let mut client = Client::connect(&socket);
        client.send(b"blocks\n");
        client.stream().read_exact(&mut [0; 16]).expect("the answer has begun");
    }
    still_answers(&socket);
}

#[test]
fn an_answer_beyond_the_cap_is_refused_with_the_remedy() {
    let scratch = Scratch::new("huge");
    let socket = serve(&scratch, Fake { block_count: 600_000, ..Fake::default() });
    let mut client = Client::connect(&socket);
    assert!(client.ask("blocks")["error"].as_str().expect("an error").contains("ask for a dump"));
    assert!(client.ask("dump")["path"].is_string());
}

#[test]
fn a_source_that_panics_becomes_an_answer() {
    let scratch = Scratch::new("panic");
    let mut client = Client::connect(&serve(&scratch, Fake { panics: true, ..Fake::default() }));
    assert!(client.ask("stats")["error"].as_str().expect("an error").contains("internal failure"));
    assert_eq!(client.ask("config")["WMSHIM_STITCH"], "on");
}

#[test]
fn few_clients_may_wait_for_the_end_and_they_wait_in_silence() {
    let scratch = Scratch::new("parked");
    let socket = serve(&scratch, Fake::default());
    let mut parked: Vec<_> = (0..8).map(|_| Client::connect(&socket)).collect();
    parked.iter_mut().for_each(|client| client.send(b"final\n"));
    let mut late = Client::connect(&socket);
    assert!(late.ask("final")["error"].as_str().expect("an error").contains("too many clients"));
    drop(parked.pop());
    // The round that answers this has seen the other one go.
    assert!(late.ask("stats").is_object());
    late.send(b"final\n");
    late.stream().set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    assert!(late.stream().read(&mut [0]).is_err(), "the free place is taken: silence");
    still_answers(&socket);
}

#[test]
fn a_thousand_connections_are_all_answered() {
    let scratch = Scratch::new("thousand");
    let socket = serve(&scratch, Fake::default());
    // A silent crowd fills every place but one; the thousand pass through that one.
    let silent: Vec<_> = (1..CONNECTION_LIMIT).map(|_| Client::connect(&socket)).collect();
    for _ in 0..10 {
        let mut crowd: Vec<_> = (0..100).map(|_| UnixStream::connect(&socket).expect("connected")).collect();
        crowd.iter_mut().for_each(|stream| stream.write_all(b"stats\n").expect("sent"));
        for stream in &mut crowd {
            stream.shutdown(Shutdown::Write).expect("half closed");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            assert!(answer.contains("wmshim-stats/2"), "{answer:?}");
        }
    }
    drop(silent);
    still_answers(&socket);
}
