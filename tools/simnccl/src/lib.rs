//! An NCCL for machines without a GPU.
//!
//! Built as a shared object with NCCL's SONAME. Ranks are processes or threads, on one machine or
//! in several network namespaces; messages between them are TCP. Operations work in stream order on
//! the CUDA driver that the process has, such as the simulated one.
//!
//! | part | files |
//! |---|---|
//! | the boundary: types, exports, the text of the last error | `abi` `exports` `operations` `report` |
//! | what a program asks for: groups, operations, their plan | `group` `operation` `reduce` |
//! | order: a group's work in a stream | `job` `staging` `driver` |
//! | communicators: their state and their thread | `communicator` `state` `thread` `registry` `process` |
//! | the network: meeting, connections, messages | `address` `wire` `rendezvous` `link` `transport` |
//! | faults on demand, settings | `faults` `settings` |
//!
//! Invariants: no thread before the first call that needs one; nothing is printed unless
//! `SIMNCCL_LOG` asks for it; a message is never shortened; after an error only an abort frees a
//! stream.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod abi;
mod address;
mod communicator;
mod driver;
mod exports;
mod faults;
mod group;
mod job;
mod link;
mod operation;
mod operations;
mod process;
mod reduce;
mod registry;
mod rendezvous;
mod report;
mod settings;
mod staging;
mod state;
mod thread;
mod transport;
mod wire;

pub use exports::*;
pub use operations::*;

/// A lock whose data stay usable if a thread panicked under it: every change is one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
