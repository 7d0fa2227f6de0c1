//! Hazard: a kernel with a bug hangs the test that runs it, or overflows into a neighbour's stack.
//! No kernel that is shipped has such bugs, so these are written here. Frames that a fault skips
//! own nothing.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

unsafe extern "C" {
    fn wm_cpu_sync_threads();
    fn wm_cpu_exchange(mask: u32, value: u64, source: u32) -> u64;
}

/// Runs `thunk` for `threads` threads; its one argument counts the threads that have started.
fn run(thunk: Thunk, threads: u32) -> Result<(), Fault> {
    let started = AtomicU32::new(0);
    let arguments = [(&raw const started).cast::<c_void>()];
    let launch =
        CpuLaunch { grid: [1; 3], block: [threads, 1, 1], shared_bytes: 0, arguments: arguments.as_ptr() };
    // SAFETY: the thunks below take one argument, a pointer to an AtomicU32 that outlives the
    // launch.
    unsafe { CpuKernel { name: "test", parameters: &[4], alignments: &[4], words: &[], thunk }.run(&launch) }
}

/// How many threads started before the caller.
unsafe fn arrival(arguments: *const *const c_void) -> u32 {
    // SAFETY: see `run`.
    unsafe { (**arguments.cast::<*const AtomicU32>()).fetch_add(1, Ordering::Relaxed) }
}

unsafe extern "C" fn one_waits_at_a_barrier_one_in_a_shuffle(arguments: *const *const c_void) {
    // SAFETY: called by the engine, on a CUDA thread.
    unsafe {
        if arrival(arguments) == 0 {
            wm_cpu_sync_threads();
        } else {
            wm_cpu_exchange(0b11, 0, 0);
        }
    }
}

unsafe extern "C" fn lanes_disagree_who_shuffles(arguments: *const *const c_void) {
    // SAFETY: called by the engine, on a CUDA thread.
    unsafe {
        let mask = if arrival(arguments) == 0 { 0b111 } else { 0b011 };
        wm_cpu_exchange(mask, 0, 0);
    }
}

unsafe extern "C" fn only_the_first_waits(arguments: *const *const c_void) {
    // SAFETY: called by the engine, on a CUDA thread.
    unsafe {
        if arrival(arguments) == 0 {
            wm_cpu_sync_threads();
            wm_cpu_exchange(u32::MAX, 0, 5);
        }
    }
}

unsafe extern "C" fn recurses_for_ever(_: *const *const c_void) {
    #[expect(unconditional_recursion, reason = "that is the bug")]
    fn deeper(from: &[u8; 256]) -> u8 {
        let frame = black_box([from[0].wrapping_add(1); 256]);
        deeper(&frame).wrapping_add(black_box(frame)[1])
    }
    black_box(deeper(&[0; 256]));
}

#[test]
fn threads_that_wait_for_each_other_end_the_launch() {
    for _ in 0..10 {
        assert_eq!(run(one_waits_at_a_barrier_one_in_a_shuffle, 2), Err(Fault::Divergence));
        assert_eq!(run(lanes_disagree_who_shuffles, 2), Err(Fault::Divergence));
    }
}

#[test]
fn threads_that_ended_are_not_waited_for() {
    assert_eq!(run(only_the_first_waits, 100), Ok(()));
}

#[test]
fn a_stack_overflow_is_a_fault() {
    for _ in 0..10 {
        assert!(matches!(run(recurses_for_ever, 3), Err(Fault::IllegalAddress(_))));
        assert_eq!(run(only_the_first_waits, 3), Ok(()));
    }
}

#[test]
fn a_stack_overflow_is_a_fault_where_no_signal_stack_was_set() {
    // SAFETY: takes this test thread's alternate stack away; Rust's runtime has it for its overflow
    // message only.
    unsafe {
        let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        assert_eq!(libc::sigaltstack(&none, std::ptr::null_mut()), 0);
    }
    a_stack_overflow_is_a_fault();
}
