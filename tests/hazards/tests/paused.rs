//! Hazard (wrong result): bytes change while a process is paused, or a call uses memory that has
//! left. Hazard (deadlock): a call, an exit or a client waits for a pause that does not end.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hazards::paused::{PATIENCE, Served, paused};
use hazards::{Outcome, Scratch};
use serde_json::Value;

const ON: (&str, &str) = ("WMSHIM_PAUSE", "on");
const AUTO: (&str, &str) = ("WMSHIM_PAUSE", "auto");

/// Codes of the driver.
const NOT_SUPPORTED: i64 = 801;

fn figures(outcome: &Outcome) -> Value {
    let line = outcome.expect_success().lines().last().expect("a line");
    serde_json::from_str(line).expect("JSON")
}

#[test]
fn what_threads_write_is_what_they_read_over_fifty_pauses() {
    let run = |seed: &str, count: &str, more: &[(&str, &str)]| {
        let scratch = Scratch::new();
        let races = [ON, ("SIMCUDA_RACES", "1"), ("SIMCUDA_SEED", seed)];
        let outcome = paused(&scratch, &["threads", seed, "3", count], &[&races, more].concat()).run();
        let figures = figures(&outcome);
        let moves = &figures["devices"][0]["moves"];
        let bytes = |name: &str| moves[name].as_u64().expect("bytes");
        assert_eq!(figures["pause"]["pauses"].to_string(), count, "{figures}");
        assert!(bytes("out_bytes") > 50 << 20 && bytes("in_bytes") > 50 << 20, "{moves}");
    };
    run("1", "50", &[]);
    run("2", "12", &[("WMSHIM_VERIFY", "moves"), ("WMSHIM_KEPT_COPIES", "on")]);
}

/// With moves beside them, on a device that is too small.
#[test]
fn pauses_and_moves_get_along() {
    let scratch = Scratch::new();
    let variables = [ON, ("WMSHIM_MIGRATE", "on"), ("SIMCUDA_MEMORY", "64MiB"), ("SIMCUDA_RACES", "1")];
    let outcome = paused(&scratch, &["threads", "5", "3", "20"], &variables).run();
    assert_eq!(figures(&outcome)["pause"]["pauses"], 20);
}

#[test]
fn memory_goes_to_the_driver_and_comes_back_and_a_launch_waits_meanwhile() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON, ("SIMCUDA_MEMORY", "256MiB")]);
    for words in ["block 40", "block 3", "piece", "block 1", "graph"] {
        assert!(program.say(words) >= 0);
    }
    assert_eq!(program.place(), ("running".to_owned(), 52, 0));
    assert_eq!(program.say("pause"), 0);
    assert_eq!(program.place(), ("paused".to_owned(), 0, 52));
    let paused = program.stats()["pause"].clone();
    assert!(paused["stayed_bytes"] == 0 && paused["out_bytes"].as_u64() >= Some(52 << 20), "{paused}");
    let held = program.stats()["devices"][0]["memory"]["device"]["reserved_bytes"].clone();
    assert_eq!(held, 0, "the driver has the rest of the device");
    assert_eq!(program.say("pause"), 0, "it is paused already");
    assert_eq!(program.say("touch"), 0);
    let begin = Instant::now();
    while program.stats()["pause"]["is_awaited"] != true {
        assert!(begin.elapsed() < PATIENCE, "no call waits");
    }
    assert_eq!(program.say("touched"), 0, "the launch waits");
    assert_eq!(program.say("resume"), 0);
    assert_eq!(program.say("join"), 0);
    assert_eq!((program.say("check"), program.place()), (1, ("running".to_owned(), 52, 0)));
    assert_eq!(program.say("resume"), 0, "it runs");
    // The graph finds the block where it was captured.
    assert_eq!((program.say("replay"), program.say("check")), (0, 1));
    assert_eq!(program.stats()["pause"]["pauses"], 1);
    program.end();
}

/// Hazard: the second pause of a server copies what nothing has written.
#[test]
fn what_was_not_written_since_is_not_copied_again() {
    let scratch = Scratch::new();
    let mut program =
        Served::start(&scratch, &[ON, ("WMSHIM_KEPT_COPIES", "on"), ("WMSHIM_VERIFY", "moves")]);
    program.say("block 32");
    program.say("block 32");
    let mut cycle = |is_written: bool| {
        if is_written {
            program.say("touch");
            program.say("join");
        }
        assert_eq!((program.say("pause"), program.say("resume")), (0, 0));
        let pause = program.stats()["pause"].clone();
        let of = |name: &str| pause[name].as_u64().expect("bytes") >> 20;
        (of("out_bytes"), of("clean_bytes"))
    };
    assert_eq!(cycle(false), (64, 0));
    assert_eq!(cycle(false), (64, 64));
    assert_eq!(cycle(true), (64, 0));
    assert_eq!(cycle(false), (64, 64));
    assert_eq!(program.say("check"), 1);
    program.end();
}

/// Another process gets the memory of a paused one.
#[test]
fn another_process_may_have_the_device() {
    let scratch = Scratch::new();
    let other = Scratch::new();
    let shared = scratch.path().join("machine").to_string_lossy().into_owned();
    let machine = [ON, ("SIMCUDA_MEMORY", "128MiB"), ("SIMCUDA_SHARED", &shared), ("WMSHIM_HEADROOM", "0")];
    let mut first = Served::start(&scratch, &machine);
    assert_eq!(first.say("block 96"), 1);
    assert_eq!(first.say("pause"), 0);
    let mut second = Served::start(&other, &machine);
    assert_eq!(second.say("block 96"), 1);
    assert_eq!(second.place(), ("running".to_owned(), 96, 0));
    // A resume does not fail: what does not fit stays on the host, and its bytes are right.
    assert_eq!(first.say("resume"), 0);
    let (state, on_device, on_host) = first.place();
    assert!(
        state == "running" && on_device + on_host == 96 && on_host >= 32,
        "{on_device} and {on_host} MiB"
    );
    first.say("touch");
    first.say("join");
    assert_eq!(first.say("check"), 1);
    assert_eq!(second.say("check"), 1);
    second.end();
    // Another resume brings the rest.
    assert_eq!(first.request("resume")["pause"]["state"], "running");
    assert_eq!(first.place(), ("running".to_owned(), 96, 0));
    assert_eq!((first.say("pause"), first.say("resume"), first.say("check")), (0, 0, 1));
    assert_eq!(first.place(), ("running".to_owned(), 96, 0));
    first.end();
}

/// What waits is the first request for memory, and not the process's look at the driver.
#[test]
fn a_program_that_starts_paused_waits_until_it_is_resumed() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[("WMSHIM_PAUSE", "paused")]);
    program.say("touched");
    assert_eq!(program.ask("pause_state")["pause"]["state"], "paused");
    program.say("ask 8");
    while program.ask("pause_state")["pause"]["is_awaited"] != true {}
    assert_eq!(program.request("resume")["pause"]["state"], "running");
    assert_eq!((program.say("join"), program.say("check")), (0, 1));
    assert_eq!(program.place(), ("running".to_owned(), 8, 0));
    program.end();
}

#[test]
fn a_process_ends_in_the_middle_of_a_pause() {
    for request in ["pause", "resume"] {
        let scratch = Scratch::new();
        let mut program =
            Served::start(&scratch, &[ON, ("SIMCUDA_EXIT", "crash"), ("SIMCUDA_LINKS", "pcie=1GB/s")]);
        for _ in 0..8 {
            program.say("block 32");
        }
        if request == "resume" {
            program.say("pause");
        }
        program.ask(request);
        program.end();
    }
}

#[test]
fn a_stream_that_waits_for_the_host_is_an_error_and_nothing_changes() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON]);
    program.say("block 16");
    program.say("hold");
    let answer = program.request("{\"request\":\"pause\",\"deadline_s\":0.2}");
    let problem = answer["pause"]["problem"].as_str().expect("a problem").to_owned();
    assert!(problem.contains("waits for the host"), "{problem}");
    assert_eq!(program.place(), ("running".to_owned(), 16, 0));
    assert_eq!(program.stats()["devices"][0]["moves"]["out_bytes"], 0);
    program.say("touch");
    program.say("release");
    assert_eq!((program.say("join"), program.say("check")), (0, 1));
    assert_eq!(program.request("pause")["pause"]["state"], "paused");
    assert_eq!(program.request("resume")["pause"]["state"], "running");
    assert_eq!(program.say("check"), 1);
    program.end();
}

#[test]
fn what_others_rely_on_stays_and_the_answer_says_why() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON]);
    program.say("block 8");
    program.say("block 10");
    assert_eq!(program.say("shared"), 0);
    program.say("block 12");
    assert_eq!(program.say("named"), 0);
    assert_eq!(program.say("pause"), 0);
    let pause = program.stats()["pause"].clone();
    let stayed = pause["stayed"].as_array().expect("reasons");
    let of = |part: &str| {
        let reason = stayed.iter().find(|one| one["reason"].as_str().is_some_and(|it| it.contains(part)));
        reason.map_or(0, |one| one["bytes"].as_u64().expect("bytes") >> 20)
    };
    assert_eq!((of("others rely"), of("a graph names")), (10, 12), "{pause}");
    assert_eq!(pause["out_bytes"].as_u64().map(|bytes| bytes >> 20), Some(8), "{pause}");
    assert_eq!((program.say("resume"), program.say("check")), (0, 1));
    program.end();
}

/// Hazard: the host has no room in the middle, and memory is lost or the program hangs.
#[test]
fn without_room_on_the_host_all_comes_back() {
    // Of small blocks many lie on one handle, and begin in the middle of it.
    for (limit, size, count) in [("20MiB", 8, 4), ("5MiB", 1, 20), ("7MiB", 3, 9)] {
        let scratch = Scratch::new();
        let mut program = Served::start(&scratch, &[ON, ("WMSHIM_HOST_LIMIT", limit)]);
        for _ in 0..count {
            program.say(&format!("block {size}"));
        }
        assert_eq!(program.say("pause"), 2);
        assert_eq!(program.place(), ("running".to_owned(), size * count, 0));
        let problem = program.stats()["pause"]["problem"].as_str().expect("a problem").to_owned();
        assert!(problem.contains("WMSHIM_HOST_LIMIT"), "{problem}");
        program.say("touch");
        assert_eq!((program.say("join"), program.say("check")), (0, 1));
        program.end();
    }
}

/// Hazard (error handling): a call of the driver fails in the middle of a pause or a resume, and
/// bytes are lost, or the program hangs.
#[test]
fn a_call_of_the_driver_that_fails_loses_no_byte() {
    let functions = ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemcpyDtoDAsync"];
    let run = |failing: &str| {
        let scratch = Scratch::new();
        let mut program = Served::start(&scratch, &[ON, ("SIMCUDA_FAIL", failing)]);
        for words in ["block 9", "block 1", "piece", "block 20"] {
            assert!(program.say(words) > 0, "{failing}: {words}");
        }
        let calls = program.stats()["driver_calls"].clone();
        for _ in 0..2 {
            program.say("pause");
            assert_eq!(program.say("resume"), 0, "{failing}");
            assert_eq!(program.say("check"), 1, "{failing}");
            program.say("touch");
            assert_eq!((program.say("join"), program.say("check")), (0, 1), "{failing}");
        }
        // What a failed move has left on the host comes back when it is asked for again.
        assert_eq!((program.say("resume"), program.place()), (0, ("running".to_owned(), 38, 0)), "{failing}");
        let refused = program.stats()["devices"][0]["moves"]["refused"].as_array().map_or(0, Vec::len);
        program.end();
        (calls, refused)
    };
    let (before, _) = run("");
    let mut refused = 0;
    for function in functions {
        let made = before.as_array().expect("calls").iter().find(|call| call["name"] == function);
        // The program makes one of each for its piece.
        let made = made.map_or(0, |call| call["count"].as_u64().expect("a count")) + 1;
        for later in [1, 4, 11] {
            refused += run(&format!("{function}:{}", made + later)).1;
        }
    }
    assert!(refused > 5, "calls failed in {refused} moves");
}

#[test]
fn a_call_resumes_the_process_where_that_is_wanted_or_it_would_wait_for_itself() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[AUTO]);
    program.say("block 16");
    assert_eq!(program.say("pause"), 0);
    assert_eq!(program.place().0, "paused");
    program.say("touch");
    assert_eq!((program.say("join"), program.say("check")), (0, 1));
    assert_eq!(program.place(), ("running".to_owned(), 16, 0));
    program.end();
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON]);
    program.say("block 16");
    assert_eq!((program.say("own"), program.say("check")), (0, 1));
    assert_eq!(program.place(), ("running".to_owned(), 16, 0));
    let log = program.end();
    assert!(log.contains("it is resumed"), "{log}");
}

#[test]
fn an_allocation_waits_too() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON]);
    program.say("block 16");
    assert_eq!(program.request("pause")["pause"]["state"], "paused");
    program.say("ask 8");
    while program.ask("pause_state")["pause"]["is_awaited"] != true {}
    assert_eq!((program.say("touched"), program.place().1), (0, 0));
    assert_eq!(program.request("resume")["pause"]["state"], "running");
    assert_eq!((program.say("join"), program.say("check")), (0, 1));
    program.end();
}

/// Hazard (process lifecycle): the exit of a paused process hangs, or a forked child waits for its
/// parent's pause.
#[test]
fn a_paused_process_exits_and_its_children_do_not_wait() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON, ("SIMCUDA_EXIT", "crash")]);
    program.say("block 16");
    assert_eq!(program.request("pause")["pause"]["state"], "paused");
    program.tell("fork");
    let answers = program.hear();
    assert!(answers.starts_with("3 3 "), "{answers}");
    program.say("touch");
    while program.ask("pause_state")["pause"]["is_awaited"] != true {}
    // The thread that waits does not run into the driver's end.
    program.end();
}

/// Hazard (deadlock): an exit handler waits for a thread that waits for the resume. Hazard (wrong
/// result): a call in one reads memory that is mapped nowhere.
#[test]
fn an_exit_brings_back_what_an_exit_handler_needs() {
    for joins in [false, true] {
        let scratch = Scratch::new();
        let mut program = Served::start(&scratch, &[ON]);
        program.say("block 16");
        program.say("piece");
        assert_eq!(program.request("pause")["pause"]["state"], "paused");
        if joins {
            program.say("ask 8");
            while program.ask("pause_state")["pause"]["is_awaited"] != true {}
            program.say("joined");
        }
        let begin = Instant::now();
        program.end();
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }
}

/// Hazard: a client that is killed, or many that ask at once, leave the process in between.
#[test]
fn clients_that_come_and_go_leave_it_where_the_last_request_wanted_it() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON]);
    program.say("block 64");
    for round in 0..20 {
        for request in ["pause", "resume", "pause"] {
            let mut stream = UnixStream::connect(&program.socket).expect("the socket answers");
            writeln!(stream, "{request}").expect("the endpoint listens");
            if round % 2 == 0 {
                BufReader::new(&stream).read_line(&mut String::new()).expect("an answer");
            }
        }
        program.say("touched");
    }
    assert_eq!(program.request("resume")["pause"]["state"], "running");
    assert_eq!(program.say("check"), 1);
    program.end();
}

#[test]
fn a_process_that_cannot_be_paused_says_so() {
    for variables in
        [&[("WMSHIM_MIGRATE", "off")][..], &[ON, ("WMSHIM_STITCH", "off")], &[ON, ("WMSHIM_OVERFLOW", "off")]]
    {
        let scratch = Scratch::new();
        let mut program = Served::start(&scratch, variables);
        program.say("block 8");
        assert_eq!(program.say("pause"), NOT_SUPPORTED, "{variables:?}");
        let answer = program.request("pause");
        let state =
            if variables.len() == 2 && variables[1].0 == "WMSHIM_OVERFLOW" { "running" } else { "off" };
        assert_eq!(answer["pause"]["state"], state, "{answer}");
        program.end();
    }
}
