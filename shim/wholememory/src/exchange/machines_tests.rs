//! Hazards: a rank that waits for one of another machine which has ended, or gets another round's
//! parts; a descriptor that is taken for another machine's; a stranger that is let in by TCP.
//!
//! Ranks are threads that say they are on different machines, and meet over loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::tests::outlives;
use super::*;

const SOON: Duration = Duration::from_secs(5);

/// A new key whose door this process keeps.
fn door(at: IpAddr) -> (Key, SocketAddr) {
    let key = Key::of(&key::random().expect("random bytes").to_le_bytes());
    let (listener, door) = listen(at).expect("a port");
    keep_door(key, listener).expect("kept");
    (key, door)
}

fn local() -> IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

fn invitation((key, door): (Key, SocketAddr), machine: usize) -> Invitation {
    Invitation { key, node: format!("machine {machine}"), door: Some(door), is_home: true }
}

/// A rank of so many comes to the door from a machine, on a thread of its own.
fn come<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    place: (Key, SocketAddr),
    machine: usize,
    (rank, size): (usize, usize),
    patience: Duration,
) -> thread::ScopedJoinHandle<'scope, Result> {
    scope.spawn(move || RankExchange::meet(&invitation(place, machine), rank, size, patience).map(drop))
}

/// Runs every rank on a thread, each on its machine; returns their results, by rank.
fn ranks<T: Send>(
    place: (Key, SocketAddr),
    machines: &[usize],
    patience: Duration,
    body: impl Fn(RankExchange) -> T + Sync,
) -> Vec<Result<T>> {
    thread::scope(|scope| {
        let body = &body;
        let run = |(rank, machine): (usize, &usize)| {
            let invitation = invitation(place, *machine);
            scope.spawn(move || RankExchange::meet(&invitation, rank, machines.len(), patience).map(body))
        };
        let threads: Vec<_> = machines.iter().enumerate().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn all_well<T>(told: &[Result<T>]) {
    for (rank, outcome) in told.iter().enumerate() {
        assert!(outcome.is_ok(), "rank {rank}: {:?}", outcome.as_ref().err());
    }
}

const MACHINES: [&[usize]; 5] =
    [&[0, 1], &[0, 1, 0], &[0, 0, 1, 1, 2], &[2, 1, 0], &[0, 1, 2, 3, 0, 1, 2, 3]];

#[test]
fn every_rank_gets_all_parts_and_descriptors_of_its_machine() {
    for machines in MACHINES {
        let told = ranks(door(local()), machines, RankExchange::PATIENCE, |exchange| {
            let file = rustix::fs::memfd_create("part", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
            for round in 0..10_usize {
                let own = vec![exchange.rank() as u8; round * 1000 + exchange.rank()];
                let parts = exchange.round("round", &own, &[file.as_fd()]).expect("a round");
                assert_eq!(parts.len(), machines.len());
                for (rank, part) in parts.iter().enumerate() {
                    assert_eq!(part.bytes, vec![rank as u8; round * 1000 + rank]);
                    let is_here = machines[rank] == machines[exchange.rank()];
                    assert_eq!(part.descriptors.len(), usize::from(is_here));
                }
            }
            for (rank, machine) in machines.iter().enumerate() {
                let is_here = *machine == machines[exchange.rank()];
                assert_eq!(exchange.roster().are_together(rank, exchange.rank()), is_here);
            }
        });
        all_well(&told);
    }
}

/// More than the streams' buffers hold.
#[test]
fn large_parts_arrive() {
    let told = ranks(door(local()), &[0, 1, 1, 2], RankExchange::PATIENCE, |exchange| {
        let own = vec![exchange.rank() as u8; 20 << 20];
        // One rank comes late: the others' bytes wait in the streams, and no machine is lost.
        if exchange.rank() == 0 {
            thread::sleep(SOON);
        }
        let parts = exchange.round("large", &own, &[]).expect("a round");
        assert!(parts.iter().enumerate().all(|(rank, part)| part.bytes == vec![rank as u8; 20 << 20]));
    });
    all_well(&told);
}

#[test]
fn ranks_meet_over_the_newer_protocol() {
    if listen(Ipv6Addr::LOCALHOST.into()).is_err() {
        return eprintln!("skipped: no IPv6");
    }
    let told = ranks(door(Ipv6Addr::LOCALHOST.into()), &[0, 1], RankExchange::PATIENCE, |exchange| {
        exchange.barrier("first").expect("a round");
    });
    all_well(&told);
}

#[test]
fn different_calls_are_an_error_of_every_rank_and_the_next_round_is_sound() {
    for machines in MACHINES {
        let told = ranks(door(local()), machines, RankExchange::PATIENCE, |exchange| {
            for strange in 0..exchange.size() {
                let call = if exchange.rank() == strange { "free" } else { "malloc" };
                let error = exchange.round(call, &[], &[]).expect_err("they differ");
                assert_eq!(error.code(), 3, "{error}");
                exchange.barrier("after").expect("sound again");
            }
        });
        all_well(&told);
    }
}

#[test]
fn a_rank_that_ends_is_an_error_of_all_others_soon() {
    for machines in MACHINES {
        for ends in 0..machines.len() {
            let begin = Instant::now();
            let told =
                ranks(door(local()), machines, RankExchange::PATIENCE, |exchange| outlives(&exchange, ends));
            all_well(&told);
            assert!(begin.elapsed() < SOON, "{machines:?}, rank {ends} ends: {:?}", begin.elapsed());
        }
    }
}

/// A leader sees at any time that another machine's leader has left, without a round.
#[test]
fn a_link_tells_that_its_other_end_has_left() {
    let (listener, at) = listen(local()).expect("a port");
    let here = tcp::connect(at, SOON).expect("connected");
    let here = RankLink::remote(forked::closed_in_child(here).expect("a slot"), SOON).expect("a link");
    let there = loop {
        match rustix::net::accept(&listener) {
            Ok(there) => {
                break RankLink::remote(forked::closed_in_child(there).expect("a slot"), SOON)
                    .expect("a link");
            }
            Err(error) => assert_eq!(error, rustix::io::Errno::WOULDBLOCK),
        }
    };
    assert!(!here.has_ended());
    drop(there);
    let begin = Instant::now();
    while !here.has_ended() {
        assert!(begin.elapsed() < SOON);
        thread::yield_now();
    }
}

/// Meets as ranks with sizes of their own. Each error's code, and the time until all have one.
fn sizes(said: &[(usize, usize)]) -> (Vec<Option<u32>>, Duration) {
    let (place, begin) = (door(local()), Instant::now());
    let outcomes: Vec<_> = thread::scope(|scope| {
        let meet = |(machine, (rank, size)): (usize, &(usize, usize))| {
            let (invitation, rank, size) = (invitation(place, machine), *rank, *size);
            scope.spawn(move || {
                let exchange = RankExchange::meet(&invitation, rank, size, RankExchange::PATIENCE);
                exchange.and_then(|exchange| exchange.barrier("first").map(|()| exchange))
            })
        };
        let threads: Vec<_> = said.iter().enumerate().map(meet).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let codes = outcomes.iter().map(|outcome| outcome.as_ref().err().map(Error::code)).collect();
    (codes, begin.elapsed())
}

#[test]
fn ranks_that_do_not_fit_each_other_are_all_told_soon() {
    for said in [[(0, 3), (1, 3), (2, 4)], [(0, 2), (1, 3), (2, 3)], [(0, 3), (1, 3), (1, 3)]] {
        let (codes, took) = sizes(&said);
        assert!(codes.iter().all(Option::is_some), "{said:?}: {codes:?}");
        assert!(took < SOON, "{said:?}: {took:?}");
    }
}

/// Rank 1, on another machine, fails while ranks meet: a second rank 1 comes there.
#[test]
fn a_failure_on_one_machine_is_told_on_the_others() {
    let (place, begin) = (door(local()), Instant::now());
    thread::scope(|scope| {
        let come = |machine, rank| come(scope, place, machine, (rank, 4), RankExchange::PATIENCE);
        let all = [come(0, 0), come(1, 1), come(1, 1), come(2, 2)];
        assert!(all.into_iter().all(|rank| rank.join().expect("no panic").is_err()));
    });
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

/// The root answers when the ranks of another machine have failed already: two ranks 1 came there.
#[test]
fn a_root_that_answers_late_is_told_why_ranks_do_not_come() {
    let (listener, at) = listen(local()).expect("a port");
    let place = (Key::of(b"late root"), at);
    let (told, hears) = mpsc::channel();
    thread::scope(|scope| {
        for told in [told.clone(), told] {
            scope.spawn(move || {
                let met = RankExchange::meet(&invitation(place, 1), 1, 3, RankExchange::PATIENCE);
                told.send(met.map(drop).map_err(|error| error.code())).expect("it is heard");
            });
        }
        assert_eq!(hears.recv_timeout(SOON), Ok(Err(5)), "the second is told by the first");
        let (begin, mut guests) = (Instant::now(), guests::Guests::default());
        let leader = loop {
            guests.admit(listener.as_fd(), true).expect("it listens");
            if let Some(leader) = guests.known(place.0, terms::Terms::new(3)).pop() {
                break RankLink::remote(leader.socket, SOON).expect("a link");
            }
            assert!(begin.elapsed() < SOON, "the leader has gone");
            thread::yield_now();
        };
        let refusal = RankFrame::receive(&leader).expect("a word").refused().expect_err("a refusal");
        assert!(refusal.code() == 5 && refusal.reason().contains("came twice"), "{refusal}");
        assert_eq!(hears.recv_timeout(SOON), Ok(Err(5)));
    });
}

#[test]
fn ranks_that_stay_away_are_given_up() {
    let patience = Duration::from_millis(400);
    let place = door(local());
    thread::scope(|scope| {
        let come = |machine, rank| come(scope, place, machine, (rank, 4), patience);
        for rank in [come(0, 0), come(1, 1), come(1, 3)] {
            assert_eq!(rank.join().expect("no panic").map_err(|error| error.code()), Err(5));
        }
    });
}

/// The library of rank 1 is another version, which the id says.
#[test]
fn a_rank_of_another_version_is_an_error_of_all() {
    let (place, begin) = (door(local()), Instant::now());
    thread::scope(|scope| {
        let come = |machine, rank| come(scope, place, machine, (rank, 3), RankExchange::PATIENCE);
        let waiting = [come(0, 0), come(1, 2)];
        // Rank 1 is where no marker of these ranks is seen.
        let socket = tcp::connect(place.1, SOON).expect("the door");
        let terms = terms::Terms::of_version(3, VERSION + 1);
        let mut caller = greeting::Caller::new(socket, 1, terms).expect("a slot");
        let root = greeting::talk(&mut caller, place.0, Instant::now() + SOON).expect("a root");
        assert!(root.compare(1, terms).is_err());
        for rank in waiting {
            assert_eq!(rank.join().expect("no panic").map_err(|error| error.code()), Err(5));
        }
    });
    let late = RankExchange::meet(&invitation(place, 2), 1, 3, RankExchange::PATIENCE).map(drop);
    assert_eq!(late.map_err(|error| error.code()), Err(5));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

#[test]
fn ranks_that_wait_learn_that_one_of_another_version_was_turned_away() {
    let (place, begin) = (door(local()), Instant::now());
    thread::scope(|scope| {
        let come = |machine, rank| come(scope, place, machine, (rank, 3), RankExchange::PATIENCE);
        let waiting = [come(0, 0), come(1, 2)];
        turn_away(&invitation(place, 2), 1, 3, VERSION + 1);
        for rank in waiting {
            assert_eq!(rank.join().expect("no panic").map_err(|error| error.code()), Err(5));
        }
    });
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

/// The door's keeper has ended, and the rank is elsewhere.
#[test]
fn a_rank_that_reaches_no_door_is_told_at_once() {
    let (listener, door) = listen(local()).expect("a port");
    drop(listener);
    let key = Key::of(b"no door");
    let invitation = Invitation { key, node: "elsewhere".to_owned(), door: Some(door), is_home: false };
    let begin = Instant::now();
    let error = RankExchange::meet(&invitation, 1, 2, RankExchange::PATIENCE).expect_err("nobody is there");
    assert!(error.code() == 5 && error.to_string().contains("does not reach"), "{error}");
    assert!(begin.elapsed() < SOON);
}

/// The system refuses streams to this address, as it does without a route.
const NO_ROUTE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::BROADCAST), 9);

fn without_a_route(key: &[u8]) -> Invitation {
    Invitation { key: Key::of(key), node: String::new(), door: Some(NO_ROUTE), is_home: false }
}

#[test]
fn a_root_without_a_route_is_told_at_once() {
    let error = tcp::begin(NO_ROUTE).expect_err("no route");
    assert_eq!(error.kind(), std::io::ErrorKind::NetworkUnreachable);
    let begin = Instant::now();
    let error = RankExchange::meet(&without_a_route(b"no route"), 1, 2, RankExchange::PATIENCE);
    let error = error.expect_err("no route");
    assert!(error.code() == 5 && error.to_string().contains("does not reach"), "{error}");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

#[test]
fn a_call_that_is_lost_is_made_again() {
    let listener = TcpListener::bind((local(), 0)).expect("a port");
    let place = (Key::of(b"lost"), listener.local_addr().expect("its address"));
    let (told, hears) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            drop(stream);
            let _ = told.send(());
        }
    });
    let error = RankExchange::meet(&invitation(place, 1), 1, 2, Duration::from_secs(2));
    assert_eq!(error.expect_err("no root").code(), 5);
    for _ in 0..2 {
        hears.recv_timeout(SOON).expect("a call");
    }
}

#[test]
fn strangers_at_the_door_hold_nobody_up() {
    let place = door(local());
    let strange = |count: usize| -> Vec<TcpStream> {
        (0..count).map(|_| TcpStream::connect(place.1).expect("the door")).collect()
    };
    let silent = strange(300);
    for mut stream in strange(20) {
        std::io::Write::write_all(&mut stream, &[7; 64]).expect("room");
    }
    let begin = Instant::now();
    all_well(&ranks(place, &[0, 1, 2], RankExchange::PATIENCE, |exchange| {
        exchange.barrier("first").expect("a round");
    }));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    drop(silent);
}

/// One step of all ranks.
#[derive(Debug, Clone)]
enum Step {
    /// Each rank's byte.
    Round(Vec<u8>),
    /// A rank makes another call.
    Strange(usize),
    /// Each rank's color and key; then a round of the part.
    Split(Vec<(i32, i32)>),
}

fn step(size: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), size).prop_map(Step::Round),
        (0..size).prop_map(Step::Strange),
        prop::collection::vec((-1_i32..3, -2_i32..2), size).prop_map(Step::Split),
    ]
}

fn play(exchange: &RankExchange, step: &Step, number: u64) {
    let own = exchange.rank();
    match step {
        Step::Round(bytes) => {
            let told = exchange.round("bytes", &[bytes[own]], &[]).expect("a round");
            assert_eq!(told.iter().map(|part| part.bytes[0]).collect::<Vec<_>>(), *bytes);
        }
        Step::Strange(rank) => {
            let call = if own == *rank { "free" } else { "malloc" };
            let outcome = exchange.barrier(call).map_err(|error| error.code());
            assert_eq!(outcome, if exchange.size() == 1 { Ok(()) } else { Err(3) });
        }
        Step::Split(colors) => {
            exchange.can_split().expect("descriptors");
            let key = Key::of(&number.to_le_bytes());
            let part = exchange.part("split", colors, key).expect("a part");
            let wanted = parts::ranks_of(colors, colors[own].0);
            assert_eq!(part.is_none(), colors[own].0 == parts::NO_COLOR);
            let Some(part) = part else { return };
            assert_eq!((part.size(), wanted[part.rank()]), (wanted.len(), own));
            let told = part.round("ranks", &[own as u8], &[]).expect("a round");
            assert_eq!(told.iter().map(|part| usize::from(part.bytes[0])).collect::<Vec<_>>(), wanted);
            for (rank, parent) in wanted.iter().enumerate() {
                let together = exchange.roster().are_together(*parent, own);
                assert_eq!(part.roster().are_together(rank, part.rank()), together);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn two_levels_do_what_one_does(
        (machines, steps) in prop::collection::vec(0_usize..4, 1..7).prop_flat_map(|machines| {
            let steps = prop::collection::vec(step(machines.len()), 1..8);
            (Just(machines), steps)
        })
    ) {
        let told = ranks(door(local()), &machines, RankExchange::PATIENCE, |exchange| {
            for (number, step) in steps.iter().enumerate() {
                play(&exchange, step, number as u64);
            }
        });
        all_well(&told);
    }
}
