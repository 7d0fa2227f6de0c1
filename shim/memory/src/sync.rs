//! The primitives that threads meet at, named in one place.
//!
//! Every lock and condition variable of the crate is imported from here, so that `tests/interleavings.rs` can compile
//! the same sources against shuttle's primitives and try schedules that a real machine shows once a year.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
