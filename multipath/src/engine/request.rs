//! What an engine is asked for, and what it answers.

use crate::vocabulary::copy::{HostDeviceCopy, HostMemory};

/// A copy that may take several paths.
#[derive(Debug, Clone, Copy)]
pub struct CopyRequest {
    /// What is copied.
    pub copy: HostDeviceCopy,
    /// What the host end is.
    pub memory: HostMemory,
    /// Does the caller wait for the end anyway?
    pub waits: bool,
}

impl CopyRequest {
    /// Does the call return only when the bytes have arrived? A pageable copy always does: its
    /// memory is the caller's again afterwards.
    pub(super) fn blocks(&self) -> bool {
        self.waits || self.memory == HostMemory::Pageable
    }
}

/// What became of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyOutcome {
    /// It is done, or enqueued.
    Done,
    /// Make the plain call.
    Plain,
}
