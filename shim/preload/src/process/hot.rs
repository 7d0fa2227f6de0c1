//! The two cache lines that every hooked call reads: one of the process, one of the thread.
//!
//! Between two calls a program fills the caches with its own data, so the price of a hit is the
//! number of cache lines that it touches. A value here belongs to the module that its comment
//! names: only that module writes it, and documents its meaning.
//!
//! Invariants: the process's line is written when something changes (a fork, a capture, a context's
//! end) and not by every call; both lines are written without a lock, and need no initialisation at
//! run time.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

use libc::c_int;
use wm_abi::symbol;
use wm_driver::streams::Streams;

use super::driver::CachedFn;
use super::errno::errno;
use super::site::LastSite;

/// The process's line: all but the end of [`Streams`], whose first fields are those that calls
/// read.
#[repr(C, align(64))]
pub(crate) struct ProcessHot {
    /// `process::forked`.
    pub(super) forked: AtomicBool,
    /// `process::record_first_call`: the first CUDA call of the process has been made.
    pub(super) calls_cuda: AtomicBool,
    /// `process::exiting`.
    pub(super) exiting: AtomicBool,
    /// `process::detached`.
    pub(super) detached: AtomicBool,
    /// `process::sticky_error`: some context may have failed.
    pub(super) suspect: AtomicBool,
    /// The mode of `guard`; 0 is off.
    pub(crate) guard: AtomicU8,
    /// `events`: a subsystem wants to know of blocks that are given out and freed.
    pub(crate) blocks_observed: AtomicBool,
    /// `launches`: the subscribers to kernel launches, a bit each.
    pub(crate) launches: AtomicU8,
    /// `hooks/memory/pool.rs`, a bit a device: the program chose another pool.
    pub(crate) replaced: AtomicU64,
    /// The same: the default pool has been allocated from.
    pub(crate) used: AtomicU64,
    /// Which context is current: asked at every allocation.
    pub(crate) current: CachedFn<symbol::cuCtxGetCurrent>,
    /// [`streams`].
    streams: Streams,
}

pub(crate) static PROCESS_HOT: ProcessHot = ProcessHot {
    forked: AtomicBool::new(false),
    calls_cuda: AtomicBool::new(false),
    exiting: AtomicBool::new(false),
    detached: AtomicBool::new(false),
    suspect: AtomicBool::new(false),
    guard: AtomicU8::new(0),
    blocks_observed: AtomicBool::new(false),
    launches: AtomicU8::new(0),
    replaced: AtomicU64::new(0),
    used: AtomicU64::new(0),
    current: CachedFn::new(),
    streams: Streams::new(),
};

/// Every stream the process has shown us.
#[inline]
pub(crate) fn streams() -> &'static Streams {
    &PROCESS_HOT.streams
}

/// The thread's line.
#[repr(C, align(64))]
pub(crate) struct ThreadHot {
    /// `hooks/call/boundary.rs`: the thread is in a handler.
    pub(crate) inside: Cell<bool>,
    errno: Cell<Option<&'static Cell<c_int>>>,
    /// `registry/sites.rs`: where the thread's last call acted.
    pub(crate) last: Cell<Option<LastSite>>,
}

const _: () = assert!(size_of::<ThreadHot>() == 64, "a thread's line is one line");
const _: () = assert!(std::mem::offset_of!(ProcessHot, streams) + Streams::SEEN <= 64, "so is the process's");

thread_local! {
    /// No destructor, so there at any time of a thread's life.
    pub(crate) static THREAD_HOT: ThreadHot =
        const { ThreadHot { inside: Cell::new(false), errno: Cell::new(None), last: Cell::new(None) } };
}

impl ThreadHot {
    /// The thread's `errno`, whose address the C library is asked for once.
    #[inline]
    pub(crate) fn errno(&self) -> &'static Cell<c_int> {
        self.errno.get().unwrap_or_else(|| self.find_errno())
    }

    #[cold]
    #[inline(never)]
    fn find_errno(&self) -> &'static Cell<c_int> {
        let errno = errno();
        self.errno.set(Some(errno));
        errno
    }
}
