//! What tells idle memory apart: a request gets memory of its own kind only.

use wm_abi::CUdevice;

/// What memory must be alike in to stand for other memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MemoryKind {
    pub(crate) device: CUdevice,
    pub(crate) bytes: u64,
    pub(crate) handle_types: u32,
    /// `gpuDirectRDMACapable`.
    pub(crate) rdma: bool,
}
