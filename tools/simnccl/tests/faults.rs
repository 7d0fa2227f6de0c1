//! Hazard (deadlock): a rank that dies, a network that drops, or messages that differ leave a
//! stream of the simulated NCCL blocked without an error, or blocked after an abort.

mod common;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::*;

/// Sends to and receives from every other rank, without a wait.
fn exchange(rank: &Rank, communicator: Handle, stream: CUstream, place: CUdeviceptr, length: usize) -> Code {
    ok!(ncclGroupStart());
    for peer in (0..rank.size).filter(|peer| *peer != rank.rank) {
        let at = (peer * length) as u64;
        // A refused call refuses the group, whose end says so.
        let _ = send(place, length, peer, communicator, stream);
        let _ = receive(place + (rank.size * length) as u64 + at, length, peer, communicator, stream);
    }
    nccl!(ncclGroupEnd())
}

/// Waits for an error, and returns it.
fn error_of(communicator: Handle) -> Code {
    until("an error is reported", || state(communicator) != Code::SUCCESS);
    state(communicator)
}

#[test]
fn a_killed_rank_is_an_error_at_the_others_and_abort_frees_their_streams() {
    let found = statuses(3, &[], |rank| {
        let (communicator, stream, length) = (rank.communicator(), stream(), 5000);
        let place = allocate(length * 6);
        for round in 0.. {
            if rank.rank == 2 && round == 20 {
                rank.shared.store(now(), Ordering::SeqCst);
                // SAFETY: ends this process.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            let launched = exchange(rank, communicator, stream, place, length);
            let ended = || is_idle(stream) || state(communicator) != Code::SUCCESS;
            until("the exchange ends or fails", ended);
            if state(communicator) != Code::SUCCESS || launched != Code::SUCCESS {
                break;
            }
        }
        assert_eq!(error_of(communicator), Code::REMOTE);
        assert!(seconds_since(rank.shared) < 1.0, "{} s", seconds_since(rank.shared));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!is_idle(stream), "the stream stays blocked until the abort");
        assert_eq!(send(place, 1, 0, communicator, stream), Code::REMOTE, "nothing is taken after an error");
        abort(communicator, stream);
        assert_eq!(nccl!(ncclCommAbort(communicator)), Code::INVALID_ARGUMENT, "the handle is stale");
    });
    assert_eq!(found, [0, 0, -libc::SIGKILL]);
}

#[test]
fn an_abort_of_one_rank_is_an_error_at_the_other() {
    ranks(2, &[], |rank| {
        let (communicator, stream, place) = (rank.communicator(), stream(), allocate(64));
        assert_eq!(receive(place, 64, 1 - rank.rank, communicator, stream), Code::SUCCESS);
        if rank.rank == 1 {
            assert_eq!(error_of(communicator), Code::REMOTE);
        }
        abort(communicator, stream);
    });
}

#[test]
fn an_abort_ends_a_finalization_that_waits() {
    ranks(2, &[], |rank| {
        let (communicator, stream, place) = (rank.communicator(), stream(), allocate(64));
        assert_eq!(receive(place, 64, 1 - rank.rank, communicator, stream), Code::SUCCESS);
        let finalizing = std::thread::spawn(move || nccl!(ncclCommFinalize(communicator)));
        until("the finalization waits", || state(communicator) != Code::SUCCESS);
        abort(communicator, stream);
        until("the finalization ends", || finalizing.is_finished());
        let code = finalizing.join().expect("no panic");
        // The other rank's end may come first.
        assert!(matches!(code, Code::INTERNAL | Code::REMOTE), "{code:?}");
    });
}

#[test]
fn messages_of_different_lengths_are_an_error_in_both_directions() {
    for (sent, expected) in [(100, 99), (99, 100), (0, 1), (1, 0)] {
        ranks(2, &[], move |rank| {
            let (communicator, stream, place) = (rank.communicator(), stream(), uploaded(&[7; 128]));
            if rank.rank == 0 {
                assert_eq!(send(place, sent, 1, communicator, stream), Code::SUCCESS);
                until("the other rank is done", || rank.shared.load(Ordering::SeqCst) == 1);
            } else {
                assert_eq!(receive(place, expected, 0, communicator, stream), Code::SUCCESS);
                assert_eq!(error_of(communicator), Code::INVALID_USAGE);
                assert!(!is_idle(stream));
                // SAFETY: a string of the library, with an end.
                let text = unsafe { std::ffi::CStr::from_ptr(ncclGetLastError(communicator)) };
                let text = text.to_string_lossy();
                assert!(text.contains(&format!("{sent} bytes")) && text.contains("rank 0"), "{text}");
                rank.shared.store(1, Ordering::SeqCst);
            }
            abort(communicator, stream);
        });
    }
}

#[test]
fn a_collective_does_not_take_the_bytes_of_a_send() {
    ranks(2, &[], |rank| {
        let (communicator, stream, place) = (rank.communicator(), stream(), allocate(64));
        let at = place as *mut std::ffi::c_void;
        if rank.rank == 0 {
            assert_eq!(send(place, 16, 1, communicator, stream), Code::SUCCESS);
            until("the other rank is done", || rank.shared.load(Ordering::SeqCst) == 1);
        } else {
            ok!(ncclBroadcast(at, at, 16, BYTE, 0, communicator, stream));
            assert_eq!(error_of(communicator), Code::INVALID_USAGE);
            rank.shared.store(1, Ordering::SeqCst);
        }
        abort(communicator, stream);
    });
}

/// Each rank has the bytes that it expects, of another broadcast.
#[test]
fn broadcasts_in_different_orders_are_an_error() {
    ranks(2, &[], |rank| {
        let (communicator, stream, place) = (rank.communicator(), stream(), allocate(64));
        let at = place as *mut std::ffi::c_void;
        for root in [rank.rank, 1 - rank.rank] {
            ok!(ncclBroadcast(at, at, 16, BYTE, root as i32, communicator, stream));
        }
        assert_eq!(error_of(communicator), Code::INVALID_USAGE);
        rank.shared.fetch_add(1, Ordering::SeqCst);
        until("both ranks have seen it", || rank.shared.load(Ordering::SeqCst) == 2);
        abort(communicator, stream);
    });
}

#[test]
fn a_network_that_drops_leaves_operations_in_flight_until_the_abort() {
    // The first rank's network ends in the third round.
    let found = statuses(3, &[("SIMNCCL_DROP", "4@0")], |rank| {
        let (communicator, stream, length) = (rank.communicator(), stream(), 3000);
        let place = allocate(length * 6);
        for _ in 0..2 {
            assert_eq!(exchange(rank, communicator, stream, place, length), Code::SUCCESS);
            synchronize(stream);
        }
        assert_eq!(exchange(rank, communicator, stream, place, length), Code::SUCCESS);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(500) {
            assert!(!is_idle(stream) && state(communicator) == Code::SUCCESS);
            std::thread::sleep(Duration::from_millis(5));
        }
        if rank.rank == 0 {
            // Its end is not seen either: no packet arrives any more.
            // SAFETY: ends this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(500));
        assert!(!is_idle(stream) && state(communicator) == Code::SUCCESS);
        abort(communicator, stream);
    });
    assert_eq!(found, [-libc::SIGKILL, 0, 0]);
}

#[test]
fn an_operation_that_shall_fail_does_at_its_rank_only() {
    ranks(2, &[("SIMNCCL_FAIL", "send@1:3")], |rank| {
        let (communicator, stream, place) = (rank.communicator(), stream(), allocate(3000));
        for _ in 0..2 {
            assert_eq!(exchange(rank, communicator, stream, place, 500), Code::SUCCESS);
            synchronize(stream);
        }
        assert_eq!(
            exchange(rank, communicator, stream, place, 500),
            Code::SUCCESS,
            "the call itself succeeds"
        );
        if rank.rank == 1 {
            assert_eq!(error_of(communicator), Code::SYSTEM);
            std::thread::sleep(Duration::from_millis(100));
            rank.shared.store(1, Ordering::SeqCst);
        } else {
            until("the other rank has failed", || rank.shared.load(Ordering::SeqCst) == 1);
        }
        assert!(!is_idle(stream));
        abort(communicator, stream);
    });
}

#[test]
fn operations_behind_a_blocked_one_are_freed_with_it() {
    ranks(2, &[], |rank| {
        let (communicator, streams, place) = (rank.communicator(), [stream(), stream()], allocate(64));
        for stream in streams {
            assert_eq!(receive(place, 64, 1 - rank.rank, communicator, stream), Code::SUCCESS);
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!streams.into_iter().any(is_idle));
        ok!(ncclCommAbort(communicator));
        until("both streams are free", || streams.into_iter().all(is_idle));
        // Another communicator of the process is not touched: memory of the aborted one is reused.
        until("the ranks abort together", || rank.shared.fetch_add(1, Ordering::SeqCst) > 0);
    });
}

#[test]
fn a_wrong_address_is_an_error_and_not_a_crash() {
    ranks(2, &[], |rank| {
        let (communicator, stream) = (rank.communicator(), stream());
        assert_eq!(send(16, 64, 1 - rank.rank, communicator, stream), Code::CUDA);
        assert_eq!(state(communicator), Code::SUCCESS, "nothing was queued");
        ok!(ncclCommAbort(communicator));
    });
}

#[test]
fn a_rank_that_sends_only_does_not_see_the_end_of_a_dropped_network() {
    let found = statuses(3, &[("SIMNCCL_DROP", "0@0")], |rank| {
        let (communicator, stream) = (rank.communicator(), stream());
        // More than the kernel buffers, so that the send is in flight when the other side ends.
        let (large, small) = (64 << 20, 8);
        match rank.rank {
            0 => assert_eq!(send(allocate(small), small, 2, communicator, stream), Code::SUCCESS),
            1 => assert_eq!(send(allocate(large), large, 0, communicator, stream), Code::SUCCESS),
            _ => assert_eq!(receive(allocate(small), small, 0, communicator, stream), Code::SUCCESS),
        }
        std::thread::sleep(Duration::from_millis(300));
        if rank.rank == 0 {
            // SAFETY: ends this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(300));
        assert!(!is_idle(stream));
        assert_eq!(state(communicator), Code::SUCCESS);
        abort(communicator, stream);
    });
    assert_eq!(found, [-libc::SIGKILL, 0, 0]);
}

#[test]
fn an_operation_behind_a_failed_one_does_not_begin() {
    ranks(2, &[("SIMNCCL_FAIL", "send@0:1")], |rank| {
        let (communicator, streams, place) = (rank.communicator(), [stream(), stream()], allocate(64));
        let gate = allocate(4);
        assert_eq!(cu!(cuMemsetD32_v2(gate, 0, 1)), CUresult::SUCCESS);
        if rank.rank == 0 {
            // Both sends are queued before the first one begins.
            assert_eq!(cu!(cuStreamWaitValue32_v2(streams[0], gate, 1, 1)), CUresult::SUCCESS);
            for stream in streams {
                assert_eq!(send(place, 64, 1, communicator, stream), Code::SUCCESS);
            }
            assert_eq!(cu!(cuMemsetD32_v2(gate, 1, 1)), CUresult::SUCCESS);
            assert_eq!(error_of(communicator), Code::SYSTEM);
        } else {
            assert_eq!(receive(place, 64, 0, communicator, streams[1]), Code::SUCCESS);
        }
        std::thread::sleep(Duration::from_millis(200));
        assert!(!is_idle(streams[1]), "nothing was sent");
        rank.shared.fetch_add(1, Ordering::SeqCst);
        until("both ranks have seen it", || rank.shared.load(Ordering::SeqCst) == 2);
        abort(communicator, streams[1]);
    });
}
