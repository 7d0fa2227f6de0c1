//! Hazards: a rank that waits for ever for one that has ended, or gets another round's parts; a
//! stranger that is let in.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

use super::*;

const SHORT: Duration = Duration::from_millis(400);

fn key(name: &str) -> Key {
    Key::of(format!("{name}{}", std::process::id()).as_bytes())
}

/// Runs every rank of an exchange on a thread; returns their results, by rank.
fn ranks<T: Send>(
    key: Key,
    size: usize,
    patience: Duration,
    body: impl Fn(RankExchange) -> T + Sync,
) -> Vec<Result<T>> {
    thread::scope(|scope| {
        let body = &body;
        let run = |rank| {
            scope.spawn(move || RankExchange::meet(&Invitation::here(key), rank, size, patience).map(body))
        };
        let threads: Vec<_> = (0..size).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn every_rank_gets_everybodys_part_round_after_round() {
    for size in [1, 2, 3, 8] {
        let told = ranks(key("parts"), size, RankExchange::PATIENCE, |exchange| {
            for round in 0..20_usize {
                let own = vec![exchange.rank() as u8; round * 1000 + exchange.rank()];
                let parts = exchange.round("round", &own, &[]).expect("a round");
                assert_eq!(parts.len(), size);
                for (rank, part) in parts.iter().enumerate() {
                    assert_eq!(part.bytes, vec![rank as u8; round * 1000 + rank]);
                }
            }
        });
        assert!(told.iter().all(Result::is_ok));
    }
}

#[test]
fn descriptors_arrive_open_and_are_the_senders() {
    let told = ranks(key("descriptors"), 4, RankExchange::PATIENCE, |exchange| {
        let file = rustix::fs::memfd_create("part", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
        rustix::io::pwrite(&file, &[exchange.rank() as u8 + 1], 0).expect("written");
        let count = exchange.rank() * 3;
        let parts = exchange.round("files", &[], &vec![file.as_fd(); count]).expect("a round");
        for (rank, part) in parts.iter().enumerate() {
            assert_eq!(part.descriptors.len(), rank * 3);
            for descriptor in &part.descriptors {
                let mut byte = [0];
                rustix::io::pread(descriptor, &mut byte, 0).expect("read");
                assert_eq!(usize::from(byte[0]), rank + 1);
            }
        }
    });
    assert!(told.iter().all(Result::is_ok));
}

#[test]
fn different_calls_are_an_error_of_every_rank_and_the_next_round_is_sound() {
    let told = ranks(key("calls"), 3, RankExchange::PATIENCE, |exchange| {
        let call = if exchange.rank() == 2 { "free" } else { "malloc" };
        let error = exchange.round(call, &[], &[]).expect_err("they differ");
        assert_eq!(error.code(), 3, "{error}");
        exchange.barrier("after").expect("sound again");
    });
    assert!(told.iter().all(Result::is_ok));
}

/// One rank ends after the first barrier, and each other one is told by the next.
pub(super) fn outlives(exchange: &RankExchange, ends: usize) {
    exchange.barrier("before").expect("all are there");
    if exchange.rank() == ends {
        return;
    }
    let error = exchange.barrier("after").expect_err("one has ended");
    assert_eq!(error.code(), 5, "{error}");
    assert_eq!(exchange.barrier("later").map_err(|error| error.code()), Err(5));
}

#[test]
fn a_rank_that_ends_is_an_error_of_the_others_at_once() {
    for ends in 0..3 {
        let begin = Instant::now();
        let told = ranks(key(&format!("ends{ends}")), 3, RankExchange::PATIENCE, |exchange| {
            outlives(&exchange, ends)
        });
        assert!(told.iter().all(Result::is_ok));
        assert!(begin.elapsed() < RankExchange::PATIENCE / 10);
    }
}

#[test]
fn a_rank_that_stays_away_is_given_up() {
    let told = ranks(key("away"), 2, SHORT, |exchange| {
        if exchange.rank() == 0 {
            assert_eq!(exchange.barrier("call").map_err(|error| error.code()), Err(5));
            return None;
        }
        Some(exchange)
    });
    assert!(told.iter().all(Result::is_ok));
    let nobody = RankExchange::meet(&Invitation::here(key("nobody")), 1, 2, SHORT).map(drop);
    assert_eq!(nobody.map_err(|error| error.code()), Err(5));
    let alone = RankExchange::meet(&Invitation::here(key("alone")), 0, 2, SHORT).map(drop);
    assert_eq!(alone.map_err(|error| error.code()), Err(5));
}

#[test]
fn who_does_not_have_the_key_is_not_let_in() {
    let [ours, other] = [key("ours"), key("other")];
    assert_ne!(ours.id(), other.id());
    let told = ranks(ours, 2, RankExchange::PATIENCE, |exchange| exchange.barrier("call").is_ok());
    assert!(told.into_iter().all(|outcome| outcome.is_ok_and(|well| well)));
    assert_ne!(ours.of_part(1, 0), ours.of_part(1, 1));
    assert_ne!(ours.of_part(1, 0), ours.of_part(2, 0));
}

/// Another user's process. `None` where this one is not root's: root alone can become another user.
fn as_stranger<T: Send>(body: impl FnOnce() -> T + Send) -> Option<T> {
    let user = rustix::process::Uid::from_raw(65_431);
    thread::scope(|scope| {
        let run = || rustix::thread::set_thread_res_uid(user, user, user).is_ok().then(body);
        scope.spawn(run).join().expect("no panic")
    })
}

/// Connects to rank 0 as often, as soon as it listens, and says nothing.
fn silent(key: Key, count: usize) -> Vec<UnixStream> {
    let address = key.address("").expect("an abstract name");
    let mut open = Vec::new();
    while open.len() < count {
        match UnixStream::connect_addr(&address) {
            Ok(socket) => open.push(socket),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => thread::yield_now(),
            Err(error) => panic!("{} connections: {error}", open.len()),
        }
    }
    open
}

/// Two ranks meet while these connections are silent. How long that takes.
fn met_beside(key: Key, connect: impl FnOnce() -> Vec<UnixStream> + Send) -> Duration {
    thread::scope(|scope| {
        let meet = |rank| RankExchange::meet(&Invitation::here(key), rank, 2, RankExchange::PATIENCE);
        let hub = scope.spawn(move || meet(0));
        let open = connect();
        let begin = Instant::now();
        let joined = meet(1);
        let took = begin.elapsed();
        // If rank 0 waits for the silent guests, it goes on now.
        drop(open);
        assert!(joined.and(hub.join().expect("no panic")).is_ok());
        took
    })
}

/// Descriptors for both ends of many connections.
fn raise_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit })
        .expect("up to the hard limit");
}

const MANY: usize = 1000;

#[test]
fn silent_connections_of_this_user_hold_nobody_up() {
    raise_limit();
    let key = key("silent");
    let took = met_beside(key, || silent(key, MANY));
    assert!(took < key::GREETING / 2, "{took:?}");
}

#[test]
fn silent_connections_of_another_user_hold_nobody_up() {
    raise_limit();
    let key = key("strangers");
    let mut is_tested = true;
    let took = met_beside(key, || {
        as_stranger(|| silent(key, MANY)).unwrap_or_else(|| {
            is_tested = false;
            Vec::new()
        })
    });
    if !is_tested {
        return eprintln!("skipped: needs root");
    }
    assert!(took < key::GREETING / 2, "{took:?}");
}

/// The bytes of a stranger are not read: its connection is closed before.
#[test]
fn a_stranger_is_sent_away_before_it_is_told_anything() {
    let key = key("told");
    thread::scope(|scope| {
        let hub = scope
            .spawn(move || RankExchange::meet(&Invitation::here(key), 0, 2, RankExchange::PATIENCE).is_ok());
        let told = as_stranger(|| {
            let mut socket = silent(key, 1).remove(0);
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut socket, &mut bytes).map(|_| bytes)
        });
        match told {
            Some(told) => assert_eq!(told.expect("closed"), [0; 0]),
            None => eprintln!("skipped: needs root"),
        }
        assert!(
            RankExchange::meet(&Invitation::here(key), 1, 2, RankExchange::PATIENCE).is_ok()
                && hub.join().expect("no panic")
        );
    });
}

const AT_ONCE: Duration = Duration::from_secs(2);

/// Meets as a rank with a size of its own, and stays until all have an outcome.
fn sizes(name: &str, said: &[(usize, usize)]) -> (Vec<Option<u32>>, Duration) {
    let (key, begin) = (key(name), Instant::now());
    let outcomes: Vec<_> = thread::scope(|scope| {
        let meet = |(rank, size): &(usize, usize)| {
            let (rank, size) = (*rank, *size);
            scope.spawn(move || {
                let exchange = RankExchange::meet(&Invitation::here(key), rank, size, RankExchange::PATIENCE);
                exchange.and_then(|exchange| exchange.barrier("first").map(|()| exchange))
            })
        };
        let threads: Vec<_> = said.iter().map(meet).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let codes = outcomes.iter().map(|outcome| outcome.as_ref().err().map(Error::code)).collect();
    (codes, begin.elapsed())
}

#[test]
fn ranks_that_say_different_sizes_are_told_at_once() {
    for (number, said) in
        [[(0, 2), (1, 3)], [(0, 3), (1, 2)], [(0, 3), (2, 4)], [(0, 2), (2, 3)]].iter().enumerate()
    {
        let (codes, took) = sizes(&format!("sizes{number}"), said);
        assert_eq!(codes, [Some(6), Some(6)], "{said:?}");
        assert!(took < AT_ONCE, "{said:?}: {took:?}");
    }
    let (codes, took) = sizes("sizes of three", &[(0, 3), (1, 2), (2, 3)]);
    assert!(codes.iter().all(Option::is_some) && took < AT_ONCE, "{codes:?} {took:?}");
}

/// The first ranks have met already: ranks that count more of them learn it.
#[test]
fn ranks_that_count_more_than_have_met_are_told_at_once() {
    let key = key("met");
    let first =
        RankExchange::meet(&Invitation::here(key), 0, 1, RankExchange::PATIENCE).expect("a rank of its own");
    let begin = Instant::now();
    let late = RankExchange::meet(&Invitation::here(key), 1, 2, RankExchange::PATIENCE);
    assert_eq!(late.map(drop).map_err(|error| error.code()), Err(6));
    assert!(begin.elapsed() < AT_ONCE);
    drop(first);
}

#[test]
fn a_rank_that_comes_after_the_meeting_has_failed_is_told_at_once() {
    let (codes, _) = sizes("twice", &[(0, 3), (1, 3), (1, 3)]);
    assert_eq!(codes[0], Some(5));
    let begin = Instant::now();
    let late = RankExchange::meet(&Invitation::here(key("twice")), 2, 3, RankExchange::PATIENCE).map(drop);
    assert_eq!(late.map_err(|error| error.code()), Err(5));
    assert!(begin.elapsed() < AT_ONCE);
}

/// The rank's next call is compared with that which the others still make.
#[test]
fn a_part_that_is_too_large_is_an_error_of_all_and_the_next_round_is_sound() {
    let told = ranks(key("large"), 3, RankExchange::PATIENCE, |exchange| {
        let code = |outcome: Result<Vec<Part>>| outcome.map(drop).map_err(|error| error.code());
        if exchange.rank() == 1 {
            assert_eq!(code(exchange.round("round", &vec![0; (64 << 20) + 1], &[])), Err(7));
            assert_eq!(code(exchange.round("next", &[], &[])), Err(3));
        } else {
            assert_eq!(code(exchange.round("round", &[], &[])), Err(3));
        }
        exchange.barrier("after").expect("sound again");
    });
    assert!(told.iter().all(Result::is_ok));
}

#[test]
fn an_error_names_its_kind_once() {
    let told = ranks(key("texts"), 3, RankExchange::PATIENCE, |exchange| {
        let call = if exchange.rank() == 2 { "free" } else { "malloc" };
        exchange.round(call, &[], &[]).expect_err("they differ").to_string()
    });
    for text in told.into_iter().flatten() {
        assert_eq!(text.matches("logic:").count(), 1, "{text}");
    }
}

#[test]
fn parts_have_their_own_connections() {
    let told = ranks(key("split"), 5, RankExchange::PATIENCE, |exchange| {
        let colors = [(1, 0), (2, 9), (1, -3), (parts::NO_COLOR, 0), (2, 1)];
        exchange.can_split().expect("descriptors");
        let part = exchange.part("split", &colors, key("a part")).expect("a part");
        let Some(part) = part else {
            assert_eq!(exchange.rank(), 3);
            return;
        };
        let told = part.round("ranks", &[exchange.rank() as u8], &[]).expect("a round");
        let told: Vec<_> = told.iter().map(|part| part.bytes[0]).collect();
        assert_eq!(told, if colors[exchange.rank()].0 == 1 { [2, 0] } else { [4, 1] });
    });
    assert!(told.iter().all(Result::is_ok));
}
