//! The primitives that threads meet at, named in one place.
//!
//! Every lock and condition variable of the crate, and every atomic of the directory, is imported
//! from here, so that `tests/interleavings.rs` can compile the same sources against shuttle's
//! primitives and try schedules that a real machine shows once a year.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}
