//! Hazard (resource leak): the broker keeps a segment of copies after its last user, or drops one
//! that a process uses. Hazard (privilege boundary): a keeper gets more than copies, or another
//! client gets copies. Hazard (process crash): a process maps a segment that shrinks, and reads
//! beyond its end.

mod support;

#[path = "support/segments.rs"]
mod segments;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use segments::{BYTES, copy_name, said_at, sealed, segment, unsealed};
use support::{Folder, PlainClient, RunningBroker, connect, memory, name};
use wm_dedup::broker::{CopyPlace, LeaseNumber, SegmentNumber};
use wm_dedup::chunk::CopyName;
use wm_dedup::protocol::{self, BATCH, BrokerAnswer, BrokerRequest, Role, VERSION};
use wm_dedup::turns::message::TurnReport;

/// A keeper that keeps to the protocol.
struct Keeper(PlainClient);

impl Keeper {
    fn new(folder: &Folder) -> Self {
        Self(PlainClient::new(folder, Role::Keeper))
    }

    fn offer_file(&self, file: OwnedFd, copies: Vec<(CopyName, u64)>) -> (Option<SegmentNumber>, Vec<bool>) {
        match self.0.ask(&BrokerRequest::OfferCopies(copies), &[file]).expect("an answer").0 {
            BrokerAnswer::CopiesOffered { segment, accepted } => (segment, accepted),
            other => panic!("{other:?}"),
        }
    }

    fn offer(&self, numbers: &[u64]) -> (Option<SegmentNumber>, Vec<bool>) {
        let (file, copies) = segment(numbers);
        self.offer_file(file, copies)
    }

    fn find(&self, numbers: &[u64]) -> (Vec<Option<CopyPlace>>, Vec<(SegmentNumber, OwnedFd)>) {
        let names = numbers.iter().copied().map(copy_name).collect();
        match self.0.ask(&BrokerRequest::FindCopies(names), &[]).expect("an answer") {
            (BrokerAnswer::CopiesFound { places, segments }, descriptors) => {
                (places, segments.into_iter().zip(descriptors).collect())
            }
            (other, _) => panic!("{other:?}"),
        }
    }

    fn has(&self, number: u64) -> bool {
        self.find(&[number]).0[0].is_some()
    }

    fn release(&self, segments: &[SegmentNumber]) -> u32 {
        match self.0.ask(&BrokerRequest::ReleaseCopies(segments.to_vec()), &[]).expect("an answer").0 {
            BrokerAnswer::CopiesReleased(count) => count,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_segment_lives_as_long_as_its_users() {
    let folder = Folder::new();
    let broker = RunningBroker::start(&folder, "60");
    let observer = PlainClient::new(&folder, Role::Observer);
    let base = broker.descriptors();
    let [one, other, third] = [(); 3].map(|()| Keeper::new(&folder));
    let (first, accepted) = one.offer(&[1, 2, 3, 1]);
    assert_eq!((first.is_some(), accepted), (true, vec![true, true, true, false]));
    assert_eq!(other.offer(&[2, 3]), (None, vec![false; 2]), "another one's copies are there");
    let (second, accepted) = other.offer(&[3, 4]);
    assert_eq!((second.is_some(), accepted), (true, vec![false, true]));
    assert_eq!(broker.descriptors(), base + 3 + 2, "a segment without a name is not kept");
    let report = observer.report();
    assert_eq!((report.segments, report.copy_bytes, report.clients.len()), (2, 4 * BYTES, 0));

    let (places, segments) = third.find(&[3, 9, 1]);
    let place = |segment: Option<SegmentNumber>, offset| segment.map(|segment| CopyPlace { segment, offset });
    assert_eq!(places, [place(first, 2 * BYTES), None, place(first, 0)]);
    assert_eq!(segments.len(), 1, "it gets what it asked for, once");
    assert_eq!((said_at(&segments[0].1, 2 * BYTES), said_at(&segments[0].1, 0)), (3, 1));
    assert!(third.find(&[1, 2]).1.is_empty(), "it has the segment");
    assert!(one.find(&[1]).1.is_empty(), "and so has its maker");

    drop(one);
    support::until("a process is gone", || broker.descriptors() == base + 2 + 2);
    assert!(other.has(1), "others use it");
    let first = first.expect("accepted");
    assert_eq!(third.release(&[first, first, SegmentNumber(0)]), 1);
    assert!(third.has(1), "it is used anew");
    assert_eq!((third.release(&[first]), other.release(&[first])), (1, 1));
    assert_eq!((third.has(1), third.has(4)), (false, true));
    assert_eq!(observer.report().copy_bytes, BYTES);
    drop((other, third));
    broker.await_descriptors(base);
    assert_eq!((observer.report().segments, observer.report().copy_bytes), (0, 0));
}

#[test]
fn one_answer_has_as_many_new_segments_as_a_packet_takes() {
    let folder = Folder::new();
    let _broker = RunningBroker::start(&folder, "60");
    let (one, other) = (Keeper::new(&folder), Keeper::new(&folder));
    let numbers: Vec<u64> = (0..BATCH as u64 + 8).collect();
    assert!(numbers.iter().all(|number| one.offer(&[*number]).0.is_some()));
    let (places, segments) = other.find(&numbers);
    assert_eq!((places.iter().flatten().count(), segments.len()), (BATCH, BATCH));
    let (places, segments) = other.find(&numbers);
    assert_eq!((places.iter().flatten().count(), segments.len()), (numbers.len(), 8));
}

#[test]
fn copies_that_could_vanish_or_lie_elsewhere_are_not_accepted() {
    let folder = Folder::new();
    let broker = RunningBroker::start(&folder, "60");
    let base = broker.descriptors();
    let keeper = Keeper::new(&folder);
    let at = |offset| vec![(copy_name(1), offset)];
    let disk = std::fs::File::create(folder.path().join("file")).expect("a file");
    disk.set_len(BYTES).expect("there is room");
    let files = [unsealed(BYTES), disk.into(), std::fs::File::open("/dev/zero").expect("a device").into()];
    for file in files {
        assert_eq!(keeper.offer_file(file, at(0)), (None, vec![false]), "it may shrink");
    }
    for offset in [1, 4095, BYTES, 2 * BYTES, u64::MAX - 4095, u64::MAX - 4095 - BYTES] {
        assert_eq!(keeper.offer_file(sealed(BYTES), at(offset)), (None, vec![false]), "{offset}");
    }
    let long = |bytes| (CopyName { bytes, ..copy_name(2) }, 0);
    let copies = vec![long(0), (copy_name(1), 1), (copy_name(1), 4096), long(3 * 4096 + 1), long(u64::MAX)];
    let (segment, accepted) = keeper.offer_file(sealed(3 * 4096), copies);
    assert_eq!((segment.is_some(), accepted), (true, vec![false, false, true, false, false]));
    assert_eq!(keeper.find(&[1]).0[0].map(|place| place.offset), Some(4096));
    assert_eq!(broker.descriptors(), base + 2);
}

#[test]
fn an_offer_that_is_no_file_ends_that_connection_and_no_other() {
    let folder = Folder::new();
    let broker = RunningBroker::start(&folder, "60");
    let victim = Keeper::new(&folder);
    let (first, _) = victim.offer(&[1]);
    let base = broker.descriptors();
    let (pipe, _writer) = rustix::pipe::pipe().expect("a pipe");
    let (socket, copies) = (connect(&folder).expect("connected"), vec![(copy_name(5), 0)]);
    let offer = BrokerRequest::OfferCopies(copies);
    for files in [vec![], vec![sealed(BYTES), sealed(BYTES)], vec![pipe], vec![socket]] {
        let hostile = Keeper::new(&folder);
        assert!(hostile.0.ask(&offer, &files).is_err());
    }
    let find = BrokerRequest::FindCopies(vec![copy_name(1)]);
    assert!(Keeper::new(&folder).0.ask(&find, &[memory(1)]).is_err());
    let release = BrokerRequest::ReleaseCopies(vec![SegmentNumber(1)]);
    assert!(Keeper::new(&folder).0.ask(&release, &[memory(1)]).is_err());
    let forged: Vec<_> = (0..256).map(SegmentNumber).collect();
    assert_eq!(Keeper::new(&folder).release(&forged), 0, "it is another one's");
    assert!(victim.find(&[1]).1.is_empty());
    assert_eq!(victim.release(&Vec::from_iter(first)), 1);
    broker.await_descriptors(base - 1);
}

#[test]
fn each_client_keeps_to_its_role() {
    let folder = Folder::new();
    let broker = RunningBroker::start(&folder, "60");
    let base = broker.descriptors();
    let hello = BrokerRequest::Hello { version: VERSION, role: Role::Keeper };
    let lease = BrokerRequest::Release(vec![LeaseNumber(1)]);
    let (offer, look_up) = (
        BrokerRequest::Offer { again: false, names: vec![name(1)] },
        BrokerRequest::LookUp { again: false, names: vec![name(1)] },
    );
    let turn = BrokerRequest::Turn(TurnReport::default());
    let (note, back) = (BrokerRequest::Note { anew: true, names: Vec::new() }, BrokerRequest::TakeBack);
    for request in [hello, lease, offer, look_up, BrokerRequest::Report, note, back, turn] {
        let files: Vec<_> = (0..request.descriptors()).map(|_| memory(1)).collect();
        assert!(Keeper::new(&folder).0.ask(&request, &files).is_err(), "{request:?}");
    }
    let (find, release) =
        (BrokerRequest::FindCopies(vec![copy_name(1)]), BrokerRequest::ReleaseCopies(vec![SegmentNumber(1)]));
    for request in [find, release, BrokerRequest::OfferCopies(vec![(copy_name(1), 0)])] {
        let files = || (0..request.descriptors()).map(|_| sealed(BYTES)).collect::<Vec<_>>();
        for role in [Role::User, Role::Observer, Role::Member] {
            let hostile = PlainClient::new(&folder, role);
            assert!(hostile.ask(&request, &files()).is_err(), "{role:?}: {request:?}");
        }
        let stranger = PlainClient(connect(&folder).expect("connected"));
        assert!(stranger.ask(&request, &files()).is_err());
    }
    broker.await_descriptors(base);
}

/// With a limit on open files that leaves room for two segments.
#[test]
fn limits_are_answers() {
    let small = rustix::process::Rlimit { current: Some(912), maximum: Some(912) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, small).expect("lowered");
    let folder = Folder::new();
    let _broker = RunningBroker::start(&folder, "60");
    let [one, other, third] = [(); 3].map(|()| Keeper::new(&folder));
    let first = one.offer(&[1]).0.expect("there is room");
    assert_eq!(one.offer(&[2]), (None, vec![false]), "one takes no more than half");
    assert!(other.offer(&[2]).0.is_some());
    assert_eq!(third.offer(&[3]), (None, vec![false]), "all are taken");
    assert_eq!((third.has(1), third.has(2)), (true, false), "it may use one");
    assert_eq!(third.release(&[first]), 1);
    assert!(third.has(2) && !third.has(1));
    assert_eq!((one.release(&[first]), one.offer(&[3]).0.is_some()), (1, true), "there is room again");
}

#[test]
fn one_keeper_too_many_is_told_and_takes_no_other_clients_place() {
    let folder = Folder::new();
    let _broker = RunningBroker::start(&folder, "60");
    let crowd: Vec<_> = (0..256).map(|_| Keeper::new(&folder)).collect();
    let late = PlainClient(connect(&folder).expect("connected"));
    let hello = BrokerRequest::Hello { version: VERSION, role: Role::Keeper };
    assert_eq!(late.ask(&hello, &[]).expect("an answer").0, BrokerAnswer::Refused);
    let sharers: Vec<_> = (0..256).map(|_| PlainClient::user(&folder)).collect();
    PlainClient::new(&folder, Role::Observer).report();
    drop((crowd, sharers));
}

#[test]
fn the_broker_stays_while_a_keeper_is_connected() {
    let folder = Folder::new();
    let mut broker = RunningBroker::start(&folder, "0.3");
    let keeper = Keeper::new(&folder);
    keeper.offer(&[1]);
    std::thread::sleep(Duration::from_secs(1));
    assert!(keeper.has(1));
    drop(keeper);
    assert_eq!(broker.0.wait().expect("waited").code(), Some(0));
}

/// A keeper that asks without end and never reads has no more than a packet of descriptors under
/// way, and delays no other.
#[test]
fn a_keeper_that_does_not_read_delays_no_other() {
    let folder = Folder::new();
    let broker = RunningBroker::start(&folder, "60");
    let keeper = Keeper::new(&folder);
    let (first, _) = keeper.offer(&[1]);
    let base = broker.descriptors();
    let flood = Keeper::new(&folder);
    let timeout = Some(Duration::from_millis(20));
    rustix::net::sockopt::set_socket_timeout(&flood.0.0, rustix::net::sockopt::Timeout::Send, timeout)
        .expect("set");
    let (find, release) = (
        BrokerRequest::FindCopies(vec![copy_name(1)]).encode(),
        BrokerRequest::ReleaseCopies(Vec::from_iter(first)).encode(),
    );
    let send = |bytes: &[u8]| protocol::send(flood.0.0.as_fd(), bytes, &[]);
    let refused = (0..100_000).find_map(|_| send(&find).and_then(|()| send(&release)).err());
    assert_eq!(refused.map(|error| error.kind()), Some(std::io::ErrorKind::WouldBlock));
    assert!((0..100).all(|_| keeper.has(1)));
    assert_eq!(broker.descriptors(), base + 1);
    drop(flood);
    broker.await_descriptors(base);
}
