//! The request for a copy, and its outcome.

use crate::vocabulary::copy::{HostDeviceCopy, HostMemory};

/// A copy that may take several paths.
#[derive(Debug, Clone, Copy)]
pub struct CopyRequest {
    /// The copy.
    pub copy: HostDeviceCopy,
    /// The kind of memory at the host end.
    pub memory: HostMemory,
    /// Does the caller wait for the end anyway?
    pub waits: bool,
}

impl CopyRequest {
    /// Does the call return only when the bytes have arrived? A pageable copy always does: after it
    /// the caller may change the memory.
    pub(super) fn blocks(&self) -> bool {
        self.waits || self.memory == HostMemory::Pageable
    }
}

/// The outcome of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyOutcome {
    /// It is done, or enqueued.
    Done,
    /// The caller has to make the plain call.
    Plain,
}
