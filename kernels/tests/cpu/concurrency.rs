//! Hazard (data race): two launches share state. Streams run on their own threads, and a fault in
//! one must not end another.

use std::thread;

use wm_kernels::cpu::Fault;
use wm_kernels::diagnostics::{FillU32, ScanTilesU32, VerifyPatternU64};

use crate::support::{launch, read, run, words, written};

fn scans_are_exact(seed: u64) {
    for round in 0..50 {
        let (x, mut out) = (words(3000, seed + round), vec![0u32; 3000]);
        run((3, 1000), &ScanTilesU32 { out: written(&mut out), x: read(&x), n: 3000 });
        let sum = |tile: &[u32]| tile.iter().fold(0u32, |sum, word| sum.wrapping_add(*word));
        assert!(x.chunks(1000).zip(out.chunks(1000)).all(|(x, out)| out[999] == sum(x)), "round {round}");
    }
}

fn faults_stay_here() {
    for _ in 0..200 {
        let fault = launch([1; 3], [32, 1, 1], &FillU32 { dst: 16, n: 1, value: 1 });
        assert_eq!(fault, Err(Fault::IllegalAddress(16)));
    }
}

#[test]
fn four_threads_launch_at_once() {
    thread::scope(|scope| {
        for seed in [1000, 2000, 3000] {
            scope.spawn(move || scans_are_exact(seed));
        }
        scope.spawn(faults_stay_here);
    });
}

#[test]
fn atomics_of_different_launches_add_up() {
    let (memory, mut mismatches) = (vec![0u64; 64], [0u64]);
    let (src, mismatches_pointer) = (read(&memory), written(&mut mismatches));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..500 {
                    run((1, 64), &VerifyPatternU64 { src, n: 64, seed: 1, mismatches: mismatches_pointer });
                }
            });
        }
    });
    assert_eq!(mismatches[0], 4 * 500 * 64);
}

#[test]
fn engines_move_between_threads() {
    // Each thread ends before the next starts, so that they use the same stacks one after another.
    for seed in 0..4 {
        thread::spawn(move || scans_are_exact(seed * 100)).join().expect("the thread's launches work");
    }
}
