//! Where a copy runs: a context of the program, its device, and one of its streams.
//!
//! The driver gives a context's handle out again once the context has ended, and a primary context
//! has the same one in each of its lives. So everything that is made in a context of the program is
//! kept under its [`Home`], which never comes again.
//!
//! Invariant of this crate: an object that was made in a home is used only by calls of the program
//! that copy in that home, since the program may end the context at any other time.

use wm_abi::{CUcontext, CUdevice, CUstream};

/// A context of the program in one of its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Home {
    /// Its handle.
    pub context: CUcontext,
    /// Its number, as the driver counts contexts (`cuCtxGetId`).
    pub life: u64,
}

/// How a stream is ordered with the others of its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamOrdering {
    /// By nothing but events (`CU_STREAM_NON_BLOCKING`).
    Alone,
    /// Its work waits for the legacy default stream's, which waits for it.
    Blocking,
    /// The legacy default stream.
    Legacy,
}

/// Where a copy begins and ends on the program's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramStream {
    /// The target's context, in which the program made the call.
    pub home: Home,
    /// The target.
    pub device: CUdevice,
    /// The program's stream. Default streams under their own names, never null.
    pub stream: CUstream,
    /// What kind of stream it is.
    pub kind: StreamOrdering,
}
