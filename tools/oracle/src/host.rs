//! The host functions that streams call. Such a function may not call the driver, and its argument
//! is one word: the number of its step.
//!
//! Invariants: between two programs no function is running; the task of a function is stored before
//! a stream is told to call it.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::program::STEPS;

/// Numbers are assigned in the order of the calls.
static NEXT: AtomicU64 = AtomicU64::new(1);
static TAKEN: [AtomicU64; STEPS] = [const { AtomicU64::new(0) }; STEPS];
/// The gate that a step's function opens: the address of its word, or 0.
static GATES: [AtomicUsize; STEPS] = [const { AtomicUsize::new(0) }; STEPS];
/// The task of a step's function.
static TASKS: Mutex<BTreeMap<usize, Task>> = Mutex::new(BTreeMap::new());
/// Wrong words that a step's function found.
static WRONG: [AtomicU64; STEPS] = [const { AtomicU64::new(0) }; STEPS];

/// Some host memory, and the word that fills it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) address: usize,
    pub(crate) bytes: u64,
    pub(crate) mark: u32,
}

/// A task in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Task {
    Write(Span),
    Look(Span),
}

impl Span {
    /// Writes the word, a page of words at a time.
    pub(crate) fn write(self) {
        let page = [self.mark; 1024];
        // SAFETY: memory of the world, aligned and long enough; by the program's order no other
        // code uses it now.
        let words =
            unsafe { std::slice::from_raw_parts_mut(self.address as *mut u32, self.bytes as usize / 4) };
        words.chunks_mut(page.len()).for_each(|part| part.copy_from_slice(&page[..part.len()]));
    }

    /// The number of other words.
    pub(crate) fn wrong(self) -> u64 {
        // SAFETY: as above.
        let words =
            unsafe { std::slice::from_raw_parts(self.address as *const u32, self.bytes as usize / 4) };
        // If all words are equal, one comparison of memory is enough.
        if words.first() == Some(&self.mark) && words[1..] == words[..words.len() - 1] {
            return 0;
        }
        words.iter().filter(|word| **word != self.mark).count() as u64
    }
}

fn tasks() -> MutexGuard<'static, BTreeMap<usize, Task>> {
    TASKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called before a program.
pub(crate) fn reset() {
    TAKEN.iter().chain(&WRONG).for_each(|number| number.store(0, Ordering::Relaxed));
    GATES.iter().for_each(|gate| gate.store(0, Ordering::Relaxed));
    tasks().clear();
}

/// Stores the gate that a step's function opens.
pub(crate) fn open_at(step: usize, gate: usize) {
    GATES[step].store(gate, Ordering::SeqCst);
}

/// Stores the task of a step's function.
pub(crate) fn task_at(step: usize, task: Task) {
    tasks().insert(step, task);
}

/// The function and its argument, for a step.
pub(crate) fn call(step: usize) -> (*mut c_void, *mut c_void) {
    let function: extern "C" fn(*mut c_void) = called;
    (function as *mut c_void, step as *mut c_void)
}

extern "C" fn called(step: *mut c_void) {
    let step = step as usize;
    TAKEN[step].store(NEXT.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
    let task = tasks().get(&step).copied();
    match task {
        Some(Task::Write(span)) => span.write(),
        Some(Task::Look(span)) => WRONG[step].store(span.wrong(), Ordering::SeqCst),
        None => {}
    }
    let gate = GATES[step].load(Ordering::SeqCst) as *mut u32;
    if !gate.is_null() {
        // SAFETY: the word of a gate: pinned memory that stays until the process ends, aligned,
        // written as an atomic.
        unsafe { AtomicU32::from_ptr(gate) }.store(1, Ordering::SeqCst);
    }
}

/// The number that a step's function got; 0 if it was not called.
pub(crate) fn taken(step: usize) -> u64 {
    TAKEN[step].load(Ordering::SeqCst)
}

/// Wrong words that a step's function found.
pub(crate) fn wrong(step: usize) -> u64 {
    WRONG[step].load(Ordering::SeqCst)
}
