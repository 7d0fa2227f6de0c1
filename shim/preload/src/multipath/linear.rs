//! A copy of consecutive bytes, as a hook sees it.

use wm_abi::CUstream;

/// A copy between two addresses, as a hook sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linear {
    pub(crate) to: u64,
    pub(crate) from: u64,
    pub(crate) bytes: usize,
    /// The program's stream; a null one has been replaced by what it stands for.
    pub(crate) stream: CUstream,
    /// The call returns when the copy is done.
    pub(crate) waits: bool,
}
