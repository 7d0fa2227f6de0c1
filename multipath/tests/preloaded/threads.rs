//! Hazard (data race): two threads put copies into one stream, and the destination holds a mixture
//! of both. Either of the plain copies would have been whole.
//!
//! Both threads begin at once, again and again. In any order, every byte of a result comes from one
//! of them.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};

use wm_abi::*;

use super::support::{
    BYTES, CORES, MIB, Machine, Program, alone, bytes, cu, on_machine, relayed, threads_called,
};

const ROUNDS: u8 = 25;

/// The work of one of two threads in a round; they differ by the number.
type Work<'a> = &'a (dyn Fn(usize, u8) + Sync);

/// Runs both in all rounds. After each round, when all its work is done, `look` checks the result
/// and returns the fault, if there is one.
fn together(program: &Program, work: [Work<'_>; 2], look: impl Fn() -> Option<String> + Sync) {
    let mut context = CUcontext::NULL;
    cu!(cuCtxGetCurrent(&mut context));
    let (begin, end, wrong) = (Barrier::new(2), Barrier::new(2), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for (number, work) in work.into_iter().enumerate() {
            let (begin, end, look, wrong) = (&begin, &end, &look, &wrong);
            let stream = program.stream;
            scope.spawn(move || {
                cu!(cuCtxSetCurrent(context));
                for round in 0..ROUNDS {
                    begin.wait();
                    work(number, round);
                    end.wait();
                    if number == 0 {
                        cu!(cuStreamSynchronize(stream));
                        cu!(cuCtxSynchronize());
                        let found = look().map(|text| format!("round {round}: {text}"));
                        wrong.lock().expect("no panic").extend(found);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{} of {ROUNDS} results are mixtures: {wrong:?}", wrong.len());
}

/// A value of a thread in a round, and of no other.
fn value(number: usize, round: u8) -> u8 {
    1 + 2 * round + number as u8
}

/// The fault, if the bytes are not all alike.
fn mixture(bytes: &[u8]) -> Option<String> {
    let at = || (1..bytes.len()).find(|at| bytes[*at] != bytes[0]).unwrap_or(0);
    (bytes[1..] != bytes[..bytes.len() - 1])
        .then(|| format!("{} and, from byte {}, {}", bytes[0], at(), bytes[at()]))
}

fn read(device: u64) -> Vec<u8> {
    let mut bytes = vec![0_u8; BYTES];
    for part in (0..BYTES).step_by(MIB) {
        // A copy so small that the driver makes it.
        cu!(cuMemcpyDtoH_v2(bytes[part..].as_mut_ptr().cast(), device + part as u64, MIB));
    }
    bytes
}

fn pinned_in() {
    let p = &Program::warm();
    let from = [p.from, p.to];
    let load = |number: usize, round: u8| {
        bytes(from[number]).fill(value(number, round));
        cu!(cuMemcpyHtoDAsync_v2(p.device, from[number] as *const c_void, BYTES, p.stream));
    };
    together(p, [&load, &load], || mixture(&read(p.device)));
    assert!(relayed() >= u64::from(ROUNDS), "{} copies took the relay", relayed());
}

fn pinned_out() {
    let p = &Program::warm();
    let other = Program::buffers(p.stream);
    let blocks = [p.device, other.device];
    let store = |number: usize, round: u8| {
        cu!(cuMemsetD8Async(blocks[number], value(number, round), BYTES, p.stream));
        cu!(cuMemcpyDtoHAsync_v2(p.to as *mut c_void, blocks[number], BYTES, p.stream));
    };
    together(p, [&store, &store], || mixture(bytes(p.to)));
    assert!(relayed() >= u64::from(ROUNDS), "{} copies took the relay", relayed());
}

/// If another thread puts work into the stream while threads of ours carry a pageable copy, that
/// work comes behind all of the copy.
fn behind(work: impl Fn(&Program, &Program, u64) + Sync, look: impl Fn(&Program, &Program) -> u64) {
    let (p, q) = (&Program::warm(), &Program::new());
    let mut context = CUcontext::NULL;
    cu!(cuCtxGetCurrent(&mut context));
    let (mut source, mut second) = (vec![0_u8; BYTES], vec![0_u8; BYTES]);
    for round in 0..3 {
        source.fill(value(0, round));
        second.fill(value(1, round));
        let second = second.as_ptr() as u64;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (is_over, work) = (&is_over, &work);
            scope.spawn(move || {
                cu!(cuCtxSetCurrent(context));
                while threads_called("wm-copy").is_empty() && !is_over.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                work(p, q, second);
            });
            cu!(cuMemcpyHtoD_v2(p.device, source.as_ptr().cast(), BYTES));
            is_over.store(true, Ordering::Relaxed);
        });
        cu!(cuCtxSynchronize());
        let wrong = mixture(&read(look(p, q)));
        assert!(wrong.is_none(), "round {round}: {wrong:?}");
    }
}

fn plain_behind_pageable() {
    // It reads the block in the default stream.
    let read_block =
        |p: &Program, q: &Program, _| cu!(cuMemcpyDtoDAsync_v2(q.device, p.device, BYTES, CUstream::NULL));
    behind(read_block, |_, q| q.device);
    // It writes the block, in a stream that waits for the default stream.
    let set_block = |p: &Program, _: &Program, _| cu!(cuMemsetD8Async(p.device, 200, BYTES, p.stream));
    behind(set_block, |p, _| p.device);
}

fn pageable_behind_pageable() {
    let load =
        |p: &Program, _: &Program, from: u64| cu!(cuMemcpyHtoD_v2(p.device, from as *const c_void, BYTES));
    behind(load, |p, _| p.device);
}

#[test]
fn pinned_copies_into_one_block_do_not_mix() {
    for seed in ["3", "11"] {
        alone(
            "threads::pinned_copies_into_one_block_do_not_mix",
            "0,1",
            &[("SIMCUDA_SEED", seed)],
            pinned_in,
        );
    }
}

#[test]
fn pinned_copies_into_one_buffer_of_the_host_do_not_mix() {
    let name = "threads::pinned_copies_into_one_buffer_of_the_host_do_not_mix";
    alone(name, "0,1", &[("SIMCUDA_SEED", "5")], pinned_out);
}

/// Links on which the other thread's work meets the copy.
const LINKS: (&str, &str) = ("SIMCUDA_LINKS", "pcie=80MB/s,nvlink=20GB/s");

fn pageable(name: &str, body: fn()) {
    on_machine(name, "0,1,2,3", Some(Machine { devices: 4, rate: 6e9 }), &[CORES, LINKS], body);
}

#[test]
fn plain_work_comes_behind_a_pageable_copy_that_is_under_way() {
    pageable("threads::plain_work_comes_behind_a_pageable_copy_that_is_under_way", plain_behind_pageable);
}

#[test]
fn a_pageable_copy_comes_behind_another_one_that_is_under_way() {
    pageable("threads::a_pageable_copy_comes_behind_another_one_that_is_under_way", pageable_behind_pageable);
}
