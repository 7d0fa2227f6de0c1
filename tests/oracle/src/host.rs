//! What streams call on the host. Such a function may not call the driver, and has one word to be told by: the number of its step.
//!
//! Invariant: between two programs no function is under way.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::world::STEPS;

/// Numbers are taken in the order of the calls.
static NEXT: AtomicU64 = AtomicU64::new(1);
static TAKEN: [AtomicU64; STEPS] = [const { AtomicU64::new(0) }; STEPS];
/// The gate that a step's function opens: the address of its word, or 0.
static GATES: [AtomicUsize; STEPS] = [const { AtomicUsize::new(0) }; STEPS];

/// Before a program.
pub(crate) fn reset() {
    TAKEN.iter().for_each(|number| number.store(0, Ordering::Relaxed));
    GATES.iter().for_each(|gate| gate.store(0, Ordering::Relaxed));
}

/// Says which gate a step's function opens.
pub(crate) fn open_at(step: usize, gate: usize) {
    GATES[step].store(gate, Ordering::SeqCst);
}

/// The function, and what it is called with, for a step.
pub(crate) fn call(step: usize) -> (*mut c_void, *mut c_void) {
    let function: extern "C" fn(*mut c_void) = called;
    (function as *mut c_void, step as *mut c_void)
}

extern "C" fn called(step: *mut c_void) {
    let step = step as usize;
    TAKEN[step].store(NEXT.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
    let gate = GATES[step].load(Ordering::SeqCst) as *mut u32;
    if !gate.is_null() {
        // SAFETY: the word of a gate: pinned memory that lives as long as the process, aligned, written as an atomic.
        unsafe { AtomicU32::from_ptr(gate) }.store(1, Ordering::SeqCst);
    }
}

/// The number that a step's function took; 0 if it was not called.
pub(crate) fn taken(step: usize) -> u64 {
    TAKEN[step].load(Ordering::SeqCst)
}
