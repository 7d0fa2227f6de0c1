//! Hazard (resource leak): leases are lost with a broker, or a client waits for a stopped one for
//! ever.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use wm_dedup::chunk::{ChunkName, Fingerprint};
use wm_dedup::client::{
    BrokerHome, Client, ConnectError, Lease, LinkError, LookUpAnswer, OfferAnswer, StartError,
};
use wm_dedup::protocol::SOCKET;
use wm_sockets::descriptor::Descriptor;

#[path = "support/stage.rs"]
mod stage;

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

fn name(number: u64) -> ChunkName {
    ChunkName { device: [7; 16], fingerprint: Fingerprint(number.into()) }
}

fn memory(number: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("chunk", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::io::pwrite(&file, &number.to_le_bytes(), 0).expect("written");
    file
}

fn said(file: &Descriptor) -> u64 {
    let mut number = [0; 8];
    rustix::io::pread(file.get().expect("open"), &mut number, 0).expect("read");
    u64::from_le_bytes(number)
}

fn offer(client: &mut Client, number: u64) -> OfferAnswer {
    let file = memory(number);
    client.offer(&[(name(number), file.as_fd())]).expect("an answer")[0]
}

/// The chunk of a name, if another process has one. This process does not wait for it.
fn look_up(client: &mut Client, number: u64) -> Option<(Lease, u64)> {
    match client.look_up(&[name(number)]).expect("an answer").remove(0) {
        LookUpAnswer::Chunk(lease, file) => Some((lease, said(&file))),
        LookUpAnswer::Waiting(lease) => {
            client.release(&[lease]);
            None
        }
        other => panic!("{other:?}"),
    }
}

/// Hazard (process crash): a process that is alone with its bytes is asked to give them, or
/// is never told that another one has them.
#[test]
fn a_process_that_waits_is_told_when_another_one_has_the_bytes() {
    let mut stage = stage();
    let (mut one, mut other) = (stage.client(), stage.client());
    let waiting = |answer: LookUpAnswer| match answer {
        LookUpAnswer::Waiting(lease) => lease,
        answer => panic!("{answer:?}"),
    };
    let ask = |client: &mut Client| client.look_up(&[name(1)]).expect("an answer").remove(0);
    let lease = waiting(ask(&mut one));
    let twice = waiting(ask(&mut one));
    one.release(&[twice]);
    assert!(one.arrivals().expect("an answer").is_empty());
    assert!(matches!(ask(&mut other), LookUpAnswer::Wanted), "the first one waits");
    assert!(matches!(offer(&mut other, 1), OfferAnswer::Accepted(_)));
    assert_eq!(one.arrivals().expect("an answer"), [name(1)]);
    assert!(one.arrivals().expect("an answer").is_empty(), "it is told once");
    one.release(&[lease]);
    assert_eq!(look_up(&mut one, 1).map(|(_, said)| said), Some(1));
    // A broker that is lost has forgotten what the process waits for.
    waiting(one.look_up(&[name(2)]).expect("an answer").remove(0));
    stage.kill();
    assert!(one.look_up(&[name(3)]).is_err());
    until_due(&one);
    assert!(one.reconnect(|_, _| None));
    stage.brokers.extend(one.broker());
    assert_eq!(one.arrivals().expect("an answer"), [name(2)]);
}

/// Hazard (data race): a process writes memory that another one maps, which has lost its
/// connection or was told of by an earlier broker.
#[test]
fn only_a_chunk_that_no_other_process_can_map_is_taken_back() {
    let mut stage = stage();
    let [mut one, mut other, mut third] = [(); 3].map(|()| stage.client());
    let OfferAnswer::Accepted(own) = offer(&mut one, 1) else { panic!("there was none") };
    assert_eq!(one.take_back().expect("an answer"), [], "the process that wants it may come");
    let (theirs, _) = look_up(&mut other, 1).expect("offered");
    assert_eq!(one.take_back().expect("an answer"), [], "another process maps it");
    other.release(&[theirs]);
    assert_eq!(one.take_back().expect("an answer"), [own]);
    assert_eq!(look_up(&mut other, 1), None, "it cannot be found any more");
    // A process that has lost its connection lives.
    assert!(matches!(offer(&mut one, 2), OfferAnswer::Accepted(_)));
    look_up(&mut third, 2).expect("offered");
    drop(third);
    // The count has a note of this process's own beside the uses.
    until("the connection has ended", || one.count(&[name(2)]).expect("an answer") == [2]);
    assert_eq!(one.take_back().expect("an answer"), []);
    // After a broker was lost, other processes may not have told the next one of their chunks.
    let (held, _) = look_up(&mut other, 2).expect("offered");
    stage.kill();
    assert!(one.take_back().is_err());
    until_due(&one);
    assert!(one.reconnect(|_, name| Descriptor::adopt(memory(name.fingerprint.0 as u64)).ok()));
    stage.brokers.extend(one.broker());
    let mut fourth = stage.client();
    let (late, _) = look_up(&mut fourth, 2).expect("told again");
    fourth.release(&[late]);
    assert_eq!(one.take_back().expect("an answer"), [], "the other one has it still");
    other.release(&[held]);
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !happened() {
        assert!(begin.elapsed() < Duration::from_secs(60), "in vain: {what}");
    }
}

/// As the programs of one job do.
#[test]
fn processes_that_start_brokers_at_once_meet_at_one() {
    let mut stage = stage();
    let homes: Vec<_> = (0..8).map(|_| stage.home.clone()).collect();
    let threads: Vec<_> =
        homes.into_iter().map(|home| std::thread::spawn(|| Client::connect(home, start))).collect();
    let clients: Vec<_> =
        threads.into_iter().map(|thread| thread.join().expect("joined").expect("a broker")).collect();
    stage.brokers.extend(clients[0].broker());
    assert!(clients.iter().all(|client| client.broker() == clients[0].broker()));
}

#[test]
fn chunks_are_offered_found_and_released() {
    let mut stage = stage();
    let (mut one, mut other) = (stage.client(), stage.client());
    assert_eq!(one.broker(), other.broker(), "one broker serves both");
    let OfferAnswer::Accepted(own) = offer(&mut one, 1) else { panic!("there was none") };
    assert_eq!(offer(&mut other, 1), OfferAnswer::Present);
    let (theirs, number) = look_up(&mut other, 1).expect("offered");
    assert_eq!((number, look_up(&mut other, 2)), (1, None));
    one.release(&[own, own]);
    assert!(look_up(&mut one, 1).is_some_and(|(lease, _)| {
        one.release(&[lease]);
        true
    }));
    other.release(&[theirs]);
    assert_eq!(look_up(&mut one, 1), None, "its last user is gone");
    assert!(one.look_up(&[name(1); 33]).is_err() && !one.is_lost(), "too many at once are refused here");
}

#[test]
fn nothing_is_lost_with_a_broker() {
    let mut stage = stage();
    let (mut one, mut other) = (stage.client(), stage.client());
    let numbers: Vec<u64> = (0..40).collect();
    let leases: Vec<_> = numbers.iter().map(|number| offer(&mut one, *number)).collect();
    let shared =
        numbers.iter().map(|number| look_up(&mut other, *number).expect("offered").0).collect::<Vec<_>>();
    let twice = look_up(&mut other, 0).expect("offered").0;
    stage.kill();
    assert!(other.look_up(&[name(0)]).is_err() && other.is_lost());
    assert!(!other.reconnect(|_, _| None), "not at once");
    other.release(&[shared[1]]);
    until_due(&other);
    // The other one is first, and knows its chunks.
    assert!(other.reconnect(|_, name| Descriptor::adopt(memory(name.fingerprint.0 as u64)).ok()));
    stage.brokers.extend(other.broker());
    assert!(one.look_up(&[name(0)]).is_err());
    until_due(&one);
    assert!(one.reconnect(|_, name| Descriptor::adopt(memory(name.fingerprint.0 as u64)).ok()));
    assert_eq!(one.broker(), other.broker());
    for number in numbers {
        assert_eq!(look_up(&mut one, number).map(|(_, said)| said), Some(number));
    }
    // Leases are still the same: the chunk stays until all of them are gone.
    drop(one);
    other.release(&[twice]);
    assert!(look_up(&mut other, 0).is_some_and(|(lease, _)| {
        other.release(&[lease]);
        true
    }));
    other.release(&shared);
    assert_eq!((look_up(&mut other, 0), look_up(&mut other, 5)), (None, None));
    assert_eq!(leases.len(), 40);
}

fn until_due(client: &Client) {
    std::thread::sleep(
        client.retry_at().expect("there is an attempt").saturating_duration_since(Instant::now()),
    );
}

#[test]
fn a_broker_that_is_stopped_costs_a_second() {
    let mut stage = stage();
    let mut client = stage.client();
    let pid = rustix::process::Pid::from_raw(client.broker().expect("a broker") as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    let started = Instant::now();
    assert!(client.look_up(&[name(1)]).is_err() && client.is_lost());
    assert!(started.elapsed() < Duration::from_secs(3));
    assert!(client.look_up(&[name(1)]).is_err(), "and nothing after that");
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[test]
fn the_reasons_for_no_broker_say_whether_another_attempt_is_useful() {
    let mut stage = stage();
    stage.home.program = None;
    let error = Client::connect(stage.home.clone(), start).expect_err("no program");
    assert!(error.is_final() && error.to_string().contains("set WMSHIM_BROKER"), "{error}");
    stage.home.program = Some("/nonexistent/wmshimd".into());
    let error = Client::connect(stage.home.clone(), start).expect_err("no such program");
    assert!(error.is_final() && error.to_string().contains("No such file"), "{error}");
    stage.home.program = Some("/bin/true".into());
    let client = Client::connect(stage.home.clone(), start).expect("a broker may come");
    assert!(
        client.is_lost()
            && client.retry_at().is_some_and(|at| at > Instant::now())
            && client.broker().is_none()
    );
    stage.home.folder = stage.home.folder.join("long".repeat(64));
    let error = Client::connect(stage.home.clone(), start).expect_err("no address");
    assert!(matches!(error, ConnectError::Link(LinkError::Address { .. })) && error.is_final());
    stage.home.folder.pop();
}

/// A listener that does not answer, and one that answers with another protocol's packets.
#[test]
fn a_listener_that_is_no_broker_costs_a_second_and_nothing_more() {
    let stage = stage();
    let path = stage.home.folder.join(SOCKET);
    let kind = rustix::net::SocketType::SEQPACKET;
    let (listener, _file) = wm_sockets::file::bind_path(&path, kind, 8).expect("it listens");
    let started = Instant::now();
    let mut client = Client::connect(stage.home.clone(), start).expect("it may answer later");
    assert!(client.is_lost() && started.elapsed() < Duration::from_secs(3));
    assert!(!client.reconnect(|_, _| None), "not before the back-off is over");
    let peer = std::thread::spawn(move || {
        let _silent = rustix::net::accept(&listener);
        rustix::event::poll(&mut [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)], None)
            .expect("a second client");
        let socket = rustix::net::accept(&listener).expect("it connects");
        wm_sockets::packet::send(socket.as_fd(), b"garbage", &[]).expect("sent");
        std::thread::sleep(Duration::from_millis(100));
    });
    until_due(&client);
    assert!(!client.reconnect(|_, _| None) && client.is_lost());
    peer.join().expect("joined");
}
