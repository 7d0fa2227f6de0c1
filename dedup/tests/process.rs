//! Hazard (resource leak): descriptors stay open after their clients are gone, two brokers serve
//! one folder, or a broker ends too early or never.

mod support;

use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use support::{Folder, PlainClient, RunningBroker, connect, lease, until};
use wm_dedup::broker::{CopyLimits, Limits};
use wm_dedup::protocol::{Offered, Role};
use wm_dedup::server::place::{self, Claimed};
use wm_dedup::server::{BrokerServer, PeerIdentity, ServerSettings};

/// Set for a child of this program that is to be a client until it is killed.
const CHILD: &str = "WMSHIMD_TEST_FOLDER";

#[test]
fn chunks_go_from_process_to_process_and_end_with_their_last_user() {
    let folder = Folder::new();
    let broker = RunningBroker::start(&folder, "60");
    let base = broker.descriptors();
    let (one, other) = (PlainClient::user(&folder), PlainClient::user(&folder));
    let numbers: Vec<u64> = (0..32).collect();
    let leases: Vec<_> = one.offer(&numbers).into_iter().map(lease).collect();
    assert_eq!(other.offer(&[7]), [Offered::Present]);
    let found = other.look_up(&[31, 0, 99]);
    assert_eq!(
        found.iter().map(|found| found.map(|(_, number)| number)).collect::<Vec<_>>(),
        [Some(31), Some(0), None]
    );
    assert_eq!(broker.descriptors(), base + 2 * 2 + 32);

    assert_eq!(one.release(&leases), 32);
    assert_eq!(one.release(&leases), 0, "once is enough");
    assert_eq!(broker.descriptors(), base + 2 * 2 + 2, "two are the other's");
    let report = PlainClient::new(&folder, Role::Observer).report();
    assert_eq!((report.devices[0].chunks, report.devices[0].leases), (2, 2));
    assert_eq!(report.clients.iter().map(|client| client.leases).collect::<Vec<_>>(), [0, 2]);
    assert!(report.clients.iter().all(|client| client.process == std::process::id()));
    assert_eq!(one.look_up(&[0])[0].map(|(_, number)| number), Some(0));
    drop((one, other));
    broker.await_descriptors(base);
}

#[test]
fn two_hundred_clients_are_served() {
    let folder = Folder::new();
    let broker = RunningBroker::start(&folder, "60");
    let base = broker.descriptors();
    let clients: Vec<_> = (0..200).map(|_| PlainClient::user(&folder)).collect();
    for (number, client) in clients.iter().enumerate() {
        assert!(matches!(client.offer(&[number as u64, 1000])[0], Offered::Accepted(_)));
    }
    for (number, client) in clients.iter().enumerate() {
        let next = (number as u64 + 1) % 200;
        assert_eq!(client.look_up(&[next])[0].map(|(_, said)| said), Some(next));
    }
    let report = clients[0].report();
    assert_eq!((report.clients.len(), report.devices[0].chunks), (200, 201));
    drop(clients);
    broker.await_descriptors(base);
}

#[test]
fn of_brokers_that_start_at_once_one_stays() {
    for _ in 0..5 {
        let folder = Folder::new();
        let mut brokers: Vec<_> = (0..4).map(|_| RunningBroker::spawn(&folder, "60")).collect();
        brokers.iter_mut().for_each(RunningBroker::await_ready);
        let client = PlainClient::user(&folder);
        let winner = client.report().process;
        for broker in &mut brokers {
            if broker.pid() != winner {
                assert_eq!(broker.0.wait().expect("waited").code(), Some(0), "it ends, and says no error");
            }
        }
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).expect("read").flatten().map(|e| e.file_name()).collect();
        names.sort();
        assert_eq!(names, ["dedup.lock", "dedup.sock"], "and leaves nothing");
    }
}

#[test]
fn it_ends_when_idle_and_not_before() {
    let folder = Folder::new();
    let mut broker = RunningBroker::start(&folder, "0.3");
    let client = PlainClient::user(&folder);
    std::thread::sleep(Duration::from_secs(1));
    assert!(matches!(client.offer(&[1])[0], Offered::Accepted(_)), "a client is reason enough to stay");
    // A connection that only asks for the report is no client.
    let observer = PlainClient::new(&folder, Role::Observer);
    drop(client);
    assert_eq!(broker.0.wait().expect("waited").code(), Some(0));
    assert!(observer.is_ended());
    assert!(!folder.socket().exists());
    let started = Instant::now();
    let next = RunningBroker::start(&folder, "60");
    assert!(started.elapsed() < Duration::from_secs(60), "what the first one left delays the second one");
    assert_eq!(PlainClient::user(&folder).report().process, next.pid());
}

#[test]
fn a_killed_broker_leaves_room_for_the_next() {
    let folder = Folder::new();
    let mut first = RunningBroker::start(&folder, "60");
    let client = PlainClient::user(&folder);
    client.offer(&[1, 2, 3]);
    first.0.kill().expect("killed");
    first.0.wait().expect("waited");
    assert!(client.is_ended());
    let second = RunningBroker::start(&folder, "60");
    let again = PlainClient::user(&folder);
    assert_eq!(again.report().process, second.pid());
    assert_eq!(again.look_up(&[1])[0], None);
    assert!(again.offer(&[1, 2, 3]).into_iter().all(|outcome| matches!(outcome, Offered::Accepted(_))));
}

#[test]
fn a_folder_of_anybody_is_refused() {
    let folder = Folder::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("opened to others");
    let mut broker = RunningBroker::spawn(&folder, "60");
    assert_eq!(broker.0.wait().expect("waited").code(), Some(1));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("closed again");
    fs::write(folder.socket(), "not a socket").expect("written");
    let mut broker = RunningBroker::spawn(&folder, "60");
    assert_eq!(broker.0.wait().expect("waited").code(), Some(1));
    assert_eq!(fs::read(folder.socket()).expect("untouched"), b"not a socket");
}

/// In this process, which looks more often than the program does.
fn watchful(folder: &Folder) -> std::thread::JoinHandle<std::io::Result<()>> {
    let path = folder.path().to_owned();
    std::thread::spawn(move || {
        let Claimed::Won(place) = place::claim(&path)? else { panic!("nobody is here") };
        let limits = Limits { clients: 4, chunks: 4, leases: 4, leases_of_one: 4, copies: CopyLimits::NONE };
        let user = rustix::process::geteuid().as_raw();
        let ask_peer = move |_: BorrowedFd<'_>| Ok(PeerIdentity { process: 1, user: 0 });
        let (idle, check) = (Duration::from_secs(60), Duration::from_millis(20));
        BrokerServer::listen(place, ServerSettings { idle, check, limits, user, ask_peer })?.run()
    })
}

#[test]
fn a_socket_that_was_removed_comes_back_unless_another_broker_has_the_place() {
    let folder = Folder::new();
    let broker = watchful(&folder);
    until("a socket", || folder.socket().exists());
    let early = PlainClient::user(&folder);
    early.offer(&[1]);
    fs::remove_file(folder.socket()).expect("removed");
    until("a new socket", || folder.socket().exists());
    let late = PlainClient::user(&folder);
    assert!(late.look_up(&[1])[0].is_some(), "of the same broker");
    for name in ["dedup.lock", "dedup.sock"] {
        fs::remove_file(folder.path().join(name)).expect("removed");
    }
    let second = RunningBroker::start(&folder, "60");
    assert!(early.look_up(&[1])[0].is_some(), "clients of the first one are served");
    assert_eq!(PlainClient::user(&folder).report().process, second.pid());
    drop((early, late));
    broker.join().expect("joined").expect("it ends without clients");
    assert_eq!(PlainClient::user(&folder).report().process, second.pid(), "and leaves the other's socket");
}

/// Without `--foreground`, as the library and a shell start it: in a session of its own, without
/// descriptors of ours.
#[test]
fn a_daemon_keeps_no_descriptor_of_its_starter() {
    let folder = Folder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_wmshimd"));
    command.args(["--idle-seconds", "0.2", "--folder"]).arg(folder.path());
    let (mut reader, closed) = std::io::pipe().expect("a pipe");
    // It has this pipe at a number that it was not told.
    let writer = rustix::io::dup(&closed).expect("a copy without close-on-exec");
    drop(closed);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // The first process of a group, as a shell makes it.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().expect("started");
    drop(writer);
    let mut output = child.stdout.take().expect("a pipe");
    std::io::Read::read_to_end(&mut output, &mut Vec::new()).expect("read");
    assert_eq!(child.wait().expect("waited").code(), Some(0), "the shell goes on");
    let client = PlainClient::user(&folder);
    let pid = client.report().process;
    let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).expect("it runs");
    assert_eq!(link("cwd"), std::path::Path::new("/"));
    for number in 0..3 {
        assert_eq!(link(&format!("fd/{number}")), std::path::Path::new("/dev/null"));
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let session = stat.rsplit_once(") ").expect("a name").1.split(' ').nth(3).expect("a session").to_owned();
    assert_eq!(session, pid.to_string(), "a session of its own");
    // It has closed the pipe that it was not told of: the other end hears of the end while it
    // lives.
    assert_eq!(std::io::Read::read(&mut reader, &mut [0]).expect("read"), 0);
    drop(client);
    until("its end", || connect(&folder).is_err());
}

/// Not a test: a client that holds chunks until it is killed.
#[test]
#[ignore = "started by the test below"]
fn child_that_shares() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let folder = std::mem::ManuallyDrop::new(Folder::at(path.into()));
    let client = PlainClient::user(&folder);
    for number in 0.. {
        let numbers: Vec<u64> = (0..8).map(|step| (number * 3 + step) % 64).collect();
        client.offer(&numbers);
        let leases: Vec<_> = client.look_up(&numbers).into_iter().flatten().map(|(lease, _)| lease).collect();
        if number % 3 != 0 {
            client.release(&leases);
        }
    }
}

fn child(folder: &Folder) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "child_that_shares", "--ignored", "--nocapture"]).env(CHILD, folder.path());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn killed_clients_leave_nothing(waits in proptest::collection::vec(0..60_u64, 6)) {
        let folder = Folder::new();
        let broker = RunningBroker::start(&folder, "60");
        let base = broker.descriptors();
        let witness = PlainClient::user(&folder);
        witness.offer(&[1_000_000]);
        for wait in waits {
            let mut children = [child(&folder), child(&folder)];
            std::thread::sleep(Duration::from_millis(wait));
            for child in &mut children {
                child.kill().expect("killed");
                child.wait().expect("waited");
            }
        }
        broker.await_descriptors(base + 3);
        let report = witness.report();
        prop_assert_eq!(report.clients.len(), 1);
        prop_assert_eq!((report.devices[0].chunks, report.devices[0].leases), (1, 1));
        prop_assert_eq!(witness.look_up(&[1_000_000])[0].map(|(_, said)| said), Some(1_000_000));
    }
}
