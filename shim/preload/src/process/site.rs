//! Where a call acts, as values. Every call needs the answer, so a thread caches its last one in
//! its hot cache line.
//!
//! The look-up itself is `registry/sites.rs`.

use wm_abi::{CUcontext, CUdevice, CUstream};
use wm_driver::{Device, StreamId};
use wm_memory::Manager;

/// Where a call acts: a context, its device, and the device's manager.
#[derive(Clone, Copy)]
pub(crate) struct Site {
    pub(crate) manager: &'static Manager<Device>,
    pub(crate) context: CUcontext,
    pub(crate) device: CUdevice,
}

/// Where a thread's last call acted. True in its epoch only: contexts and streams end, and their
/// handles come again.
#[derive(Clone, Copy)]
pub(crate) struct LastSite {
    pub(crate) site: Site,
    /// A stream of the site's context; null, where the call named none.
    pub(crate) stream: CUstream,
    /// The stream's id.
    pub(crate) id: StreamId,
    /// The epoch of the streams when this was looked up.
    pub(crate) epoch: u32,
    pub(crate) kind: StreamKind,
}

/// How a stream takes part in the order of its context's legacy default stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// It is that stream: its work comes after the earlier work of the blocking streams, and before
    /// their later work.
    Legacy,
    /// A thread's own default stream: blocking, and no other thread can name it.
    PerThread,
    /// Its work comes after the earlier work of the legacy default stream.
    Blocking,
    NonBlocking,
}
