//! Hazard (stream order): messages of the simulated NCCL arrive with other bytes, out of the
//! order of a stream, or before the end of their group.

mod common;

use std::ffi::c_void;

use common::*;

#[test]
fn a_ring_moves_random_sizes_in_both_orders_of_a_group() {
    ranks(3, &[("SIMCUDA_SEED", "7")], |rank| {
        let (communicator, stream, (next, last)) = (rank.communicator(), stream(), rank.neighbours());
        for round in 0..40 {
            // The length follows from the sender and the round, so that both sides know it.
            let length = |from: usize| fastrand::Rng::with_seed((from * 64 + round) as u64).usize(0..300_000);
            let (mine, theirs) = (length(rank.rank), length(last));
            let (from, to) = (uploaded(&message(rank.rank, next, round, mine)), allocate(theirs));
            ok!(ncclGroupStart());
            if (round + rank.rank).is_multiple_of(2) {
                assert_eq!(send(from, mine, next, communicator, stream), Code::SUCCESS);
                assert_eq!(receive(to, theirs, last, communicator, stream), Code::SUCCESS);
            } else {
                assert_eq!(receive(to, theirs, last, communicator, stream), Code::SUCCESS);
                assert_eq!(send(from, mine, next, communicator, stream), Code::SUCCESS);
            }
            ok!(ncclGroupEnd());
            synchronize(stream);
            assert!(downloaded(to, theirs) == message(last, rank.rank, round, theirs), "round {round}");
            free(&[from, to]);
        }
        ok!(ncclCommDestroy(communicator));
    });
}

#[test]
fn an_all_to_all_with_seeded_delays_has_the_right_bytes_a_hundred_times() {
    for seed in ["1", "2"] {
        let variables = [("SIMNCCL_SEED", seed), ("SIMNCCL_DELAY_US", "2000"), ("SIMCUDA_RACES", "1")];
        ranks(4, &variables, |rank| {
            let (communicator, stream, length) = (rank.communicator(), stream(), 1000);
            let (from, to) = (allocate(length * 4), allocate(length * 4));
            for round in 0..100 {
                all_to_all(rank, communicator, stream, (from, to), length, round);
            }
            let (mut messages, mut bytes) = (0, 0);
            ok!(simnccl_counters(communicator, &raw mut messages, &raw mut bytes));
            assert_eq!((messages, bytes), (300, 300 * length as u64), "to itself a rank sends nothing");
            ok!(ncclCommDestroy(communicator));
        });
    }
}

fn all_to_all(
    rank: &Rank,
    communicator: Handle,
    stream: CUstream,
    (from, to): (CUdeviceptr, CUdeviceptr),
    length: usize,
    round: usize,
) {
    let whole: Vec<u8> = (0..rank.size).flat_map(|peer| message(rank.rank, peer, round, length)).collect();
    assert_eq!(cu!(cuMemcpyHtoD_v2(from, whole.as_ptr().cast(), whole.len())), CUresult::SUCCESS);
    ok!(ncclGroupStart());
    for peer in 0..rank.size {
        let at = (peer * length) as u64;
        assert_eq!(send(from + at, length, peer, communicator, stream), Code::SUCCESS);
        assert_eq!(receive(to + at, length, peer, communicator, stream), Code::SUCCESS);
    }
    ok!(ncclGroupEnd());
    synchronize(stream);
    let expected = (0..rank.size).flat_map(|peer| message(peer, rank.rank, round, length));
    assert!(downloaded(to, whole.len()).into_iter().eq(expected), "round {round}");
}

#[test]
fn work_behind_a_receive_sees_its_bytes_and_another_stream_does_not_wait() {
    ranks(2, &[("SIMCUDA_SEED", "3"), ("SIMCUDA_RACES", "1")], |rank| {
        let (communicator, ordered, other) = (rank.communicator(), stream(), stream());
        const LENGTH: usize = 100_000;
        if rank.rank == 0 {
            let (to, copy, aside) = (allocate(LENGTH), allocate(LENGTH), allocate(4));
            assert_eq!(receive(to, LENGTH, 1, communicator, ordered), Code::SUCCESS);
            assert_eq!(cu!(cuMemcpyDtoDAsync_v2(copy, to, LENGTH, ordered)), CUresult::SUCCESS);
            assert_eq!(cu!(cuMemsetD8Async(aside, 5, 4, other)), CUresult::SUCCESS);
            synchronize(other);
            assert!(!is_idle(ordered), "nothing was sent so far");
            rank.shared.store(1, std::sync::atomic::Ordering::SeqCst);
            synchronize(ordered);
            assert!(downloaded(copy, LENGTH) == message(1, 0, 0, LENGTH));
        } else {
            let from = allocate(LENGTH);
            until("the other stream did not wait", || {
                rank.shared.load(std::sync::atomic::Ordering::SeqCst) == 1
            });
            // The copy that fills the message is in the stream, not before it.
            let bytes = message(1, 0, 0, LENGTH);
            let pinned = pinned(&bytes);
            assert_eq!(cu!(cuMemcpyHtoDAsync_v2(from, pinned, LENGTH, ordered)), CUresult::SUCCESS);
            assert_eq!(send(from, LENGTH, 0, communicator, ordered), Code::SUCCESS);
            // What overwrites the message stands behind it.
            assert_eq!(cu!(cuMemsetD8Async(from, 0, LENGTH, ordered)), CUresult::SUCCESS);
            synchronize(ordered);
        }
        ok!(ncclCommDestroy(communicator));
    });
}

fn pinned(bytes: &[u8]) -> *const c_void {
    let mut place: *mut c_void = std::ptr::null_mut();
    assert_eq!(cu!(cuMemHostAlloc(&raw mut place, bytes.len(), 0)), CUresult::SUCCESS);
    // SAFETY: new memory of this size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), bytes.len()) };
    place
}

#[test]
fn nothing_begins_before_the_outermost_end_of_a_group() {
    ranks(2, &[], |rank| {
        let (communicator, stream, peer) = (rank.communicator(), stream(), 1 - rank.rank);
        let (from, to) = (uploaded(&[rank.rank as u8; 64]), allocate(64));
        ok!(ncclGroupStart());
        ok!(ncclGroupStart());
        assert_eq!(receive(to, 64, peer, communicator, stream), Code::SUCCESS);
        ok!(ncclGroupEnd());
        assert!(is_idle(stream), "the receive waits for the outer group");
        assert_eq!(send(from, 64, peer, communicator, stream), Code::SUCCESS);
        ok!(ncclGroupEnd());
        synchronize(stream);
        assert_eq!(downloaded(to, 64), [peer as u8; 64]);
        assert_eq!(nccl!(ncclGroupEnd()), Code::INVALID_USAGE);
        ok!(ncclCommDestroy(communicator));
    });
}

#[test]
fn a_group_over_two_streams_orders_both() {
    ranks(2, &[("SIMCUDA_SEED", "5"), ("SIMCUDA_RACES", "1")], |rank| {
        let (communicator, peer) = (rank.communicator(), 1 - rank.rank);
        let streams = [stream(), stream()];
        let (from, to) = ([allocate(4096), allocate(4096)], [allocate(4096), allocate(4096)]);
        for (at, stream) in streams.into_iter().enumerate() {
            assert_eq!(
                cu!(cuMemsetD8Async(from[at], (at * 2 + rank.rank) as u8, 4096, stream)),
                CUresult::SUCCESS
            );
        }
        ok!(ncclGroupStart());
        for (at, stream) in streams.into_iter().enumerate() {
            assert_eq!(send(from[at], 4096, peer, communicator, stream), Code::SUCCESS);
            assert_eq!(receive(to[at], 4096, peer, communicator, stream), Code::SUCCESS);
        }
        ok!(ncclGroupEnd());
        for (at, stream) in streams.into_iter().enumerate() {
            assert_eq!(cu!(cuMemcpyDtoDAsync_v2(from[at], to[at], 4096, stream)), CUresult::SUCCESS);
        }
        streams.into_iter().for_each(synchronize);
        for (at, place) in from.into_iter().enumerate() {
            assert_eq!(downloaded(place, 4096), [(at * 2 + peer) as u8; 4096]);
        }
        ok!(ncclCommDestroy(communicator));
    });
}

#[test]
fn collectives_combine_the_ranks_in_the_order_of_their_numbers() {
    ranks(3, &[("SIMNCCL_DELAY_US", "500"), ("SIMCUDA_RACES", "1")], |rank| {
        let (communicator, stream) = (rank.communicator(), stream());
        let own: Vec<u8> =
            [rank.rank as i64 + 1, -5].iter().flat_map(|number| number.to_le_bytes()).collect();
        let (from, gathered, reduced, told) = (uploaded(&own), allocate(48), allocate(16), allocate(16));
        let place = |address: u64| address as *mut c_void;
        ok!(ncclAllGather(place(from), place(gathered), 2, 4, communicator, stream));
        ok!(ncclAllReduce(place(from), place(reduced), 2, 4, 0, communicator, stream));
        ok!(ncclBroadcast(place(from), place(told), 2, 4, 2, communicator, stream));
        // In place: the result overwrites the input, behind the operations that read it.
        ok!(ncclAllReduce(place(from), place(from), 2, 4, 2, communicator, stream));
        synchronize(stream);
        let numbers = |address, count: usize| -> Vec<i64> {
            let bytes = downloaded(address, count * 8);
            bytes.chunks(8).map(|it| i64::from_le_bytes(it.try_into().expect("eight"))).collect()
        };
        assert_eq!(numbers(gathered, 6), [1, -5, 2, -5, 3, -5]);
        assert_eq!(numbers(reduced, 2), [6, -15]);
        assert_eq!(numbers(told, 2), [3, -5]);
        assert_eq!(numbers(from, 2), [3, -5]);
        ok!(ncclCommDestroy(communicator));
    });
}

#[test]
fn ranks_of_one_process_are_made_in_a_group_and_move_together() {
    ranks(1, &[("SIMCUDA_DEVICES", "2")], |_| {
        let mut id = UniqueId([0; 128]);
        ok!(ncclGetUniqueId(&raw mut id));
        let mut communicators = [Handle(0); 2];
        ok!(ncclGroupStart());
        for (rank, communicator) in communicators.iter_mut().enumerate() {
            use_device(rank as i32);
            ok!(ncclCommInitRank(std::ptr::from_mut(communicator), 2, id, rank as i32));
            assert_eq!(state(*communicator), Code::IN_PROGRESS);
        }
        ok!(ncclGroupEnd());
        let mut places = Vec::new();
        ok!(ncclGroupStart());
        for (rank, communicator) in communicators.into_iter().enumerate() {
            use_device(rank as i32);
            let (stream, from, to) = (stream(), uploaded(&[rank as u8; 100]), allocate(100));
            assert_eq!(send(from, 100, 1 - rank, communicator, stream), Code::SUCCESS);
            assert_eq!(receive(to, 100, 1 - rank, communicator, stream), Code::SUCCESS);
            places.push((stream, to));
        }
        ok!(ncclGroupEnd());
        for (rank, (stream, to)) in places.into_iter().enumerate() {
            synchronize(stream);
            assert_eq!(downloaded(to, 100), [1 - rank as u8; 100]);
        }
        communicators.into_iter().for_each(|communicator| ok!(ncclCommDestroy(communicator)));
    });
}

/// Hazard (stream order): the preloaded library, between the simulated NCCL and the driver, changes
/// the order.
#[test]
fn the_same_holds_under_the_preloaded_library() {
    let tests = [
        "a_group_over_two_streams_orders_both",
        "an_all_to_all_with_seeded_delays_has_the_right_bytes_a_hundred_times",
        "collectives_combine_the_ranks_in_the_order_of_their_numbers",
        "work_behind_a_receive_sees_its_bytes_and_another_stream_does_not_wait",
    ];
    let program = std::env::current_exe().expect("this test has a path");
    let run = std::process::Command::new(program)
        .args(["--test-threads", "1", "--exact"])
        .args(tests)
        .env("LD_PRELOAD", hazards::places::shim())
        .env("WMSHIM_DRIVER", hazards::places::simulated_driver())
        .env("WMSHIM_STATS_SOCKET", "off")
        .output()
        .expect("the tests run");
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && text.contains("4 passed"), "{}", hazards::said(&run));
}

#[test]
fn two_communicators_of_two_threads_do_not_mix_their_messages() {
    ranks(2, &[("SIMNCCL_DELAY_US", "300"), ("SIMCUDA_SEED", "9")], |rank| {
        let first = rank.communicator();
        let id = told(rank, first);
        let mut second = Handle(0);
        ok!(ncclCommInitRank(&raw mut second, 2, id, rank.rank as i32));
        let work = |communicator: Handle, offset: usize| {
            use_device(rank.rank as i32);
            let (stream, peer) = (stream(), 1 - rank.rank);
            for round in offset..offset + 40 {
                let (from, to) = (uploaded(&message(rank.rank, peer, round, 2000)), allocate(2000));
                ok!(ncclGroupStart());
                assert_eq!(send(from, 2000, peer, communicator, stream), Code::SUCCESS);
                assert_eq!(receive(to, 2000, peer, communicator, stream), Code::SUCCESS);
                ok!(ncclGroupEnd());
                synchronize(stream);
                assert!(downloaded(to, 2000) == message(peer, rank.rank, round, 2000), "round {round}");
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| work(first, 0));
            scope.spawn(|| work(second, 1000));
        });
        ok!(ncclCommDestroy(second));
        ok!(ncclCommDestroy(first));
    });
}

/// A second id, from the first rank, by a broadcast.
fn told(rank: &Rank, communicator: Handle) -> UniqueId {
    let (mut id, stream) = (UniqueId([0; 128]), stream());
    if rank.rank == 0 {
        ok!(ncclGetUniqueId(&raw mut id));
    }
    let place = uploaded(&id.0);
    let at = place as *mut c_void;
    ok!(ncclBroadcast(at, at, 128, BYTE, 0, communicator, stream));
    synchronize(stream);
    UniqueId(downloaded(place, 128).try_into().expect("an id's length"))
}
