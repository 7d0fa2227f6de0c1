//! Hazard (resource leak): a process keeps copies in use that it has given back, or believes
//! numbers of a broker that is gone. Hazard (deadlock): it waits for a broker that does not answer.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use wm_dedup::broker::SegmentNumber;
use wm_dedup::client::{BrokerHome, CopyClient, CopyPlace, FoundCopies, StartError};
use wm_dedup::protocol::{self, BrokerAnswer, BrokerRequest, SOCKET, VERSION};

#[path = "support/segments.rs"]
mod segments;
#[path = "support/stage.rs"]
mod stage;

use segments::{BYTES, copy_name, said_at, segment};
use stage::Stage;

fn stage() -> Stage {
    Stage::new(PathBuf::from(env!("CARGO_BIN_EXE_wmshimd")), start)
}

/// As a program that minds no children would: the library has a way of its own.
fn start(home: &BrokerHome) -> Result<(), StartError> {
    let program = home.program.clone().ok_or(StartError::NotInstalled)?;
    let mut command = Command::new(&program);
    command.args(["--foreground", "--idle-seconds", "30", "--folder"]).arg(&home.folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let started = command.spawn().and_then(|child| {
        let mut output = child.stdout.ok_or(std::io::ErrorKind::BrokenPipe)?;
        std::io::Read::read_to_end(&mut output, &mut Vec::new())
    });
    started.map(drop).map_err(|error| StartError::Failed { program, error })
}

fn keeper(stage: &Stage) -> CopyClient {
    let mut client = CopyClient::new(stage.home.clone(), start);
    assert!(client.is_lost() && client.connect() && client.connect() && !client.is_lost());
    client
}

fn offer(client: &mut CopyClient, numbers: &[u64]) -> Option<SegmentNumber> {
    let (file, copies) = segment(numbers);
    client.offer(file.as_fd(), &copies).expect("an answer").segment
}

fn find(client: &mut CopyClient, numbers: &[u64]) -> FoundCopies {
    client.find(&numbers.iter().copied().map(copy_name).collect::<Vec<_>>()).expect("an answer")
}

fn has(client: &mut CopyClient, number: u64) -> bool {
    find(client, &[number]).places[0].is_some()
}

fn until_due(client: &CopyClient) {
    let due = client.retry_at().expect("there is an attempt");
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
}

#[test]
fn copies_are_offered_found_and_released() {
    let mut stage = stage();
    let _sharer = stage.client();
    let [mut one, mut other] = [(); 2].map(|()| keeper(&stage));
    let first = offer(&mut one, &[1, 2]).expect("they are new");
    assert_eq!(offer(&mut other, &[2]), None);
    let found = find(&mut other, &[2, 3]);
    assert_eq!(found.places, [Some(CopyPlace { segment: first, offset: BYTES }), None]);
    let [(segment, file)] = &found.segments[..] else { panic!("{found:?}") };
    assert_eq!((*segment, said_at(file.get().expect("open"), BYTES)), (first, 2));
    assert!(find(&mut other, &[1]).segments.is_empty(), "it has the segment");
    drop(one);
    assert!(has(&mut other, 1), "it is used still");
    other.release(&[first, SegmentNumber(77)]);
    let mut third = keeper(&stage);
    assert!(!has(&mut third, 1), "its last user is gone");
}

#[test]
fn many_copies_and_segments_go_in_one_call_each() {
    let mut stage = stage();
    let _sharer = stage.client();
    let mut one = keeper(&stage);
    let numbers: Vec<u64> = (0..=CopyClient::BATCH as u64).collect();
    let (file, copies) = segment(&numbers);
    assert!(one.offer(file.as_fd(), &copies).is_err() && !one.is_lost(), "too many at once");
    assert!(one.find(&vec![copy_name(1); numbers.len()]).is_err() && !one.is_lost());
    let offered = one.offer(file.as_fd(), &copies[1..]).expect("an answer");
    assert!(offered.accepted.iter().all(|accepted| *accepted));
    assert!(find(&mut one, &numbers[1..]).places.iter().all(Option::is_some));
    let nothing = one.offer(file.as_fd(), &[]).expect("no question");
    assert_eq!((nothing.segment, nothing.accepted.len(), find(&mut one, &[]).places.len()), (None, 0, 0));
    // Each gives its segments back in as many packets as it takes.
    let mut segments: Vec<_> = (0..300).map(SegmentNumber).collect();
    segments.push(offered.segment.expect("accepted"));
    one.release(&segments);
    assert!(!one.is_lost() && !has(&mut one, 1));
}

#[test]
fn a_lost_broker_takes_the_copies_along_and_the_next_one_begins_anew() {
    let mut stage = stage();
    let sharer = stage.client();
    let mut client = keeper(&stage);
    assert!(offer(&mut client, &[1]).is_some());
    stage.kill();
    drop(sharer);
    assert!(client.find(&[copy_name(1)]).is_err() && client.is_lost());
    let (file, copies) = segment(&[1]);
    assert!(client.offer(file.as_fd(), &copies).is_err());
    client.release(&[SegmentNumber(1)]);
    assert!(!client.connect(), "not at once");
    until_due(&client);
    assert!(client.connect() && client.connections() == 2);
    let _sharer = stage.client();
    assert!(!has(&mut client, 1));
    assert!(offer(&mut client, &[1]).is_some());
}

#[test]
fn a_broker_that_is_stopped_costs_a_second() {
    let mut stage = stage();
    let sharer = stage.client();
    let mut client = keeper(&stage);
    let pid = rustix::process::Pid::from_raw(sharer.broker().expect("a broker") as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    let started = Instant::now();
    client.release(&[SegmentNumber(1)]);
    assert!(client.is_lost());
    assert!(client.find(&[copy_name(1)]).is_err() && !client.connect());
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[test]
fn without_a_program_there_is_one_attempt() {
    let mut stage = stage();
    stage.home.program = None;
    let mut client = CopyClient::new(stage.home.clone(), start);
    assert!(!client.connect() && client.retry_at().is_none() && !client.connect());
    assert!(client.find(&[copy_name(1)]).is_err());
}

/// A listener that greets, and answers the next request with something else.
fn impostor(stage: &Stage, answer: BrokerAnswer) -> std::thread::JoinHandle<OwnedFd> {
    let (listener, _file) =
        wm_sockets::file::bind_path(&stage.home.folder.join(SOCKET), rustix::net::SocketType::SEQPACKET, 8)
            .expect("it listens");
    std::thread::spawn(move || {
        // The listener does not block, and the client may connect later than this thread begins.
        poll(&mut [PollFd::new(&listener, PollFlags::IN)], None).expect("a client");
        let socket = rustix::net::accept(&listener).expect("it connects");
        for answer in [BrokerAnswer::Hello { version: VERSION, process: 1 }, answer] {
            let asked = protocol::receive(socket.as_fd()).expect("a request");
            BrokerRequest::decode(&asked.bytes).expect("of the protocol");
            protocol::send(socket.as_fd(), &answer.encode(), &[]).expect("sent");
        }
        socket
    })
}

/// Hazard (corrupt input): an answer to another question is believed.
#[test]
fn an_answer_to_another_question_ends_the_connection() {
    let stage = stage();
    let place = CopyPlace { segment: SegmentNumber(1), offset: 0 };
    let found = |count, segments| BrokerAnswer::CopiesFound { places: vec![Some(place); count], segments };
    let offered = BrokerAnswer::CopiesOffered { segment: Some(SegmentNumber(1)), accepted: vec![true; 2] };
    let answers = [
        BrokerAnswer::CopiesReleased(1),
        found(2, Vec::new()),
        // Its descriptor is missing.
        found(1, vec![SegmentNumber(1)]),
        offered,
    ];
    let (file, copies) = segment(&[1]);
    for (turn, answer) in answers.into_iter().enumerate() {
        let broker = impostor(&stage, answer);
        let mut client = keeper(&stage);
        let is_err = match turn {
            3 => client.offer(file.as_fd(), &copies).is_err(),
            _ => client.find(&[copy_name(1)]).is_err(),
        };
        assert!(is_err && client.is_lost(), "answer {turn}");
        drop(broker.join().expect("joined"));
        std::fs::remove_file(stage.home.folder.join(SOCKET)).expect("removed");
    }
}
