//! The place where a copy runs: a context of the program, its device, and one of its streams.
//!
//! The driver reuses a context's handle once the context has ended, and a primary context has the
//! same handle in each of its lives. So every object in a context of the program is stored under
//! its [`Home`], which is never reused.
//!
//! Invariant of this crate: only calls of the program that copy in a home use the objects of that
//! home, since the program may end the context at any other time.

use wm_abi::{CUcontext, CUdevice, CUstream};

/// A context of the program in one of its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Home {
    /// Its handle.
    pub context: CUcontext,
    /// Its number, as the driver counts contexts (`cuCtxGetId`).
    pub life: u64,
}

/// The order of a stream with the others of its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamOrdering {
    /// By nothing but events (`CU_STREAM_NON_BLOCKING`).
    Alone,
    /// Its work waits for the legacy default stream's, which waits for it.
    Blocking,
    /// The legacy default stream.
    Legacy,
}

/// The place where a copy begins and ends on the program's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramStream {
    /// The target's context, in which the program made the call.
    pub home: Home,
    /// The target.
    pub device: CUdevice,
    /// The program's stream. Default streams under their own names, never null.
    pub stream: CUstream,
    /// The kind of the stream.
    pub kind: StreamOrdering,
}

#[cfg(test)]
impl ProgramStream {
    /// A stream of device 0's only context, for tests.
    pub(crate) fn of_test(stream: usize, kind: StreamOrdering) -> Self {
        let home = Home { context: CUcontext(1), life: 1 };
        Self { home, device: 0, stream: CUstream(stream), kind }
    }
}
