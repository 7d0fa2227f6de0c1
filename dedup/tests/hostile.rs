//! Hazard (privilege boundary): a client that violates the protocol reads another client's chunks,
//! delays other clients, or ends the broker.
//!
//! It is a process of the same user, so it may connect; everything else it is to be kept from.

mod support;

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair, sockopt};
use support::{Folder, PlainClient, RunningBroker, connect, lease, memory, name, until};
use wm_dedup::broker::{CopyLimits, LeaseNumber, Limits};
use wm_dedup::protocol::{self, BATCH, BrokerAnswer, BrokerRequest, Offered, Role, VERSION};
use wm_dedup::server::place::{self, Claimed};
use wm_dedup::server::{BrokerServer, PeerIdentity, ServerSettings};

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair")
}

/// A broker with a client that holds chunk 1, and the descriptors of both.
fn scene(folder: &Folder) -> (RunningBroker, PlainClient, LeaseNumber, usize) {
    let broker = RunningBroker::start(folder, "60");
    let victim = PlainClient::user(folder);
    let held = lease(victim.offer(&[1])[0]);
    let base = broker.descriptors();
    (broker, victim, held, base)
}

fn still_serves(victim: &PlainClient) {
    let found = victim.look_up(&[1])[0].expect("the chunk is there");
    assert_eq!(found.1, 1);
    assert_eq!(victim.release(&[found.0]), 1);
}

#[test]
fn leases_of_others_and_forged_ones_change_nothing() {
    let folder = Folder::new();
    let (_broker, victim, held, _) = scene(&folder);
    let hostile = PlainClient::user(&folder);
    let forged: Vec<_> = (0..256).map(LeaseNumber).collect();
    assert_eq!(hostile.release(&forged), 0);
    assert_eq!(hostile.release(&[held, LeaseNumber(u64::MAX), LeaseNumber(0)]), 0);
    let own = hostile.look_up(&[1])[0].expect("known").0;
    assert_eq!(hostile.release(&[own, own, held]), 1);
    still_serves(&victim);
    assert_eq!(victim.release(&[held]), 1);
}

#[test]
fn what_is_not_understood_ends_that_connection_and_no_other() {
    let folder = Folder::new();
    let (broker, victim, _, base) = scene(&folder);
    let hello = |version, role| BrokerRequest::Hello { version, role }.encode();
    let opening: [Vec<u8>; 5] = [
        vec![0],
        vec![0xff; 4000],
        BrokerRequest::LookUp { again: false, names: vec![name(1)] }.encode(),
        BrokerRequest::Report.encode(),
        hello(VERSION, Role::User)[..12].to_vec(),
    ];
    for bytes in opening {
        let stranger = PlainClient(connect(&folder).expect("connected"));
        protocol::send(stranger.0.as_fd(), &bytes, &[]).expect("sent");
        assert!(stranger.is_ended());
    }
    let later: [(Vec<u8>, usize); 6] = [
        (hello(VERSION, Role::User), 0),
        (BrokerRequest::Offer { again: false, names: vec![name(5)] }.encode(), 0),
        (BrokerRequest::Offer { again: false, names: vec![name(5)] }.encode(), 2),
        (BrokerRequest::LookUp { again: false, names: vec![name(5)] }.encode(), 1),
        (BrokerRequest::Release(vec![LeaseNumber(1); 256]).encode()[..1000].to_vec(), 0),
        (vec![0; protocol::LONGEST + 1], 0),
    ];
    for (bytes, descriptors) in later {
        let hostile = PlainClient::user(&folder);
        let files: Vec<_> = (0..descriptors).map(|_| memory(5)).collect();
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        protocol::send(hostile.0.as_fd(), &bytes, &files).expect("sent");
        assert!(hostile.is_ended());
    }
    let observer = PlainClient::new(&folder, Role::Observer);
    assert!(
        observer.ask(&BrokerRequest::LookUp { again: false, names: vec![name(1)] }, &[]).is_err(),
        "who looks on gets no memory"
    );
    drop(observer);
    still_serves(&victim);
    broker.await_descriptors(base);
}

#[test]
fn another_version_is_told_ours() {
    let folder = Folder::new();
    let (_broker, victim, ..) = scene(&folder);
    let newer = PlainClient(connect(&folder).expect("connected"));
    let (answer, _) =
        newer.ask(&BrokerRequest::Hello { version: VERSION + 1, role: Role::User }, &[]).expect("an answer");
    assert!(matches!(answer, BrokerAnswer::Hello { version: VERSION, .. }));
    assert!(newer.is_ended());
    still_serves(&victim);
}

#[test]
fn sockets_and_pipes_are_no_memory() {
    let folder = Folder::new();
    let (broker, victim, _, base) = scene(&folder);
    let (pipe, _writer) = rustix::pipe::pipe().expect("a pipe");
    let loops = connect(&folder).expect("a connection to the broker itself");
    for descriptor in [pair().0, pipe, loops] {
        let hostile = PlainClient::user(&folder);
        assert!(
            hostile.ask(&BrokerRequest::Offer { again: false, names: vec![name(9)] }, &[descriptor]).is_err()
        );
    }
    still_serves(&victim);
    broker.await_descriptors(base);
}

#[test]
fn more_descriptors_than_belong_are_closed() {
    let folder = Folder::new();
    let (broker, victim, _, base) = scene(&folder);
    for _ in 0..50 {
        let hostile = PlainClient::user(&folder);
        let file = memory(2);
        send_many(
            &hostile.0,
            &BrokerRequest::Offer { again: false, names: vec![name(2)] }.encode(),
            &[file.as_fd(); 200],
        );
        assert!(hostile.is_ended());
    }
    still_serves(&victim);
    broker.await_descriptors(base);
}

/// As many as the kernel lets through, where the protocol has 32.
fn send_many(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(descriptors)));
    let bytes = [std::io::IoSlice::new(bytes)];
    rustix::net::sendmsg(socket, &bytes, &mut control, SendFlags::NOSIGNAL).expect("sent");
}

/// A client asks without end and never reads. Others are answered meanwhile, and few bytes are
/// under way to it.
#[test]
fn a_flood_and_a_slow_reader_delay_no_other_client() {
    let folder = Folder::new();
    let (broker, victim, _, base) = scene(&folder);
    let names: Vec<u64> = (100..100 + BATCH as u64).collect();
    victim.offer(&names);
    let floods: Vec<_> = (0..20).map(|_| PlainClient::user(&folder)).collect();
    let request =
        BrokerRequest::LookUp { again: false, names: names.iter().copied().map(name).collect() }.encode();
    for flood in &floods {
        sockopt::set_socket_timeout(&flood.0, sockopt::Timeout::Send, Some(Duration::from_millis(20)))
            .expect("set");
        let outcome = (0..100_000).find_map(|_| protocol::send(flood.0.as_fd(), &request, &[]).err());
        assert_eq!(
            outcome.map(|error| error.kind()),
            Some(ErrorKind::WouldBlock),
            "its requests wait unread"
        );
    }
    let started = Instant::now();
    for _ in 0..100 {
        still_serves(&victim);
    }
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    assert_eq!(broker.descriptors(), base + 2 * floods.len() + BATCH, "no copies pile up in the broker");
    // The slow one that reads at last is answered, in order.
    let (answer, descriptors) = floods[0].answer().expect("an answer");
    assert_eq!((answer.descriptors(), descriptors.len()), (BATCH, BATCH));
    let lives = floods.len();
    drop(floods);
    // They have left the victim's chunks behind, and their process lives.
    broker.await_descriptors(base + BATCH + lives);
    assert_eq!(victim.report().clients.len(), 1);
}

#[test]
fn who_says_nothing_is_not_waited_for() {
    let folder = Folder::new();
    let (broker, victim, _, base) = scene(&folder);
    let silent: Vec<_> = (0..100).map(|_| connect(&folder).expect("connected")).collect();
    still_serves(&victim);
    broker.await_descriptors(base);
    assert!(silent.into_iter().all(|socket| PlainClient(socket).is_ended()));
}

#[test]
fn one_client_too_many_is_told() {
    let folder = Folder::new();
    let (_broker, victim, ..) = scene(&folder);
    let crowd: Vec<_> = (1..256).map(|_| PlainClient::user(&folder)).collect();
    let late = PlainClient(connect(&folder).expect("connected"));
    let hello = BrokerRequest::Hello { version: VERSION, role: Role::User };
    assert_eq!(late.ask(&hello, &[]).expect("an answer").0, BrokerAnswer::Refused);
    PlainClient::new(&folder, Role::Observer).report();
    drop(crowd);
    still_serves(&victim);
    until("room", || victim.report().clients.len() == 1);
    PlainClient::user(&folder);
}

/// With a limit on open files as small as it may be.
#[test]
fn a_full_broker_says_so() {
    let files = rustix::process::Resource::Nofile;
    let small = rustix::process::Rlimit { current: Some(912), maximum: Some(912) };
    rustix::process::setrlimit(files, small).expect("lowered");
    let folder = Folder::new();
    let (broker, victim, held, base) = scene(&folder);
    let greedy = PlainClient::user(&folder);
    let outcomes: Vec<_> = (10..40).flat_map(|number| greedy.offer(&[number])).collect();
    let accepted = outcomes.iter().filter(|outcome| matches!(outcome, Offered::Accepted(_))).count();
    assert_eq!(accepted, 912 - 3 * 256 - 128 - 2 - 1);
    assert_eq!(outcomes.last(), Some(&Offered::Full));
    still_serves(&victim);
    assert_eq!(victim.release(&[held]), 1);
    assert!(matches!(greedy.offer(&[50])[0], Offered::Accepted(_)), "there is room again");
    drop((greedy, victim));
    broker.await_descriptors(base - 3);
}

const ROLES: &[Role] = &[Role::User, Role::Observer, Role::Member, Role::Keeper];

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_packets_leave_the_others_alone(
        role in proptest::option::of(proptest::sample::select(ROLES)),
        packets in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 1..300), 0..15_u8, 0..35_u8, 0..4_usize), 1..12),
    ) {
        let folder = Folder::new();
        let (broker, victim, _, base) = scene(&folder);
        let stranger = || PlainClient(connect(&folder).expect("connected"));
        let hostile = role.map_or_else(stranger, |role| PlainClient::new(&folder, role));
        for (bytes, kind, count, descriptors) in packets {
            let bytes = [&[kind, 0, 0, 0, count, 0, 0, 0], &bytes[..]].concat();
            let files: Vec<_> = (0..descriptors).map(|number| memory(number as u64)).collect();
            let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            if protocol::send(hostile.0.as_fd(), &bytes, &files).is_err() {
                break;
            }
        }
        still_serves(&victim);
        drop(hostile);
        broker.await_descriptors(base);
    }
}

/// The kernel reports the peer's user; here it reports another user.
#[test]
fn another_users_process_is_refused() {
    let folder = Folder::new();
    let Claimed::Won(place) = place::claim(folder.path()).expect("claimed") else { panic!("nobody is here") };
    let limits = Limits { clients: 4, chunks: 4, leases: 4, leases_of_one: 4, copies: CopyLimits::NONE };
    let user = rustix::process::geteuid().as_raw() + 1;
    let ask_peer = |_: BorrowedFd<'_>| Ok(PeerIdentity { process: 1, user: 4711 });
    let settings = ServerSettings {
        idle: Duration::from_millis(100),
        check: Duration::from_secs(10),
        limits,
        user,
        ask_peer,
    };
    let server = BrokerServer::listen(place, settings).expect("listens");
    let stranger = PlainClient(connect(&folder).expect("connected"));
    server.run().expect("no client keeps it");
    assert!(stranger.is_ended());
    assert!(!folder.socket().exists());
}
