//! What tells idle memory apart: a request gets memory of its own kind only.

use wm_abi::CUdevice;
use wm_driver::Tier;

/// What memory must be alike in to stand for other memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MemoryKind {
    pub(crate) device: CUdevice,
    /// The device, or the host where that was full.
    pub(crate) tier: Tier,
    pub(crate) bytes: u64,
    pub(crate) handle_types: u32,
    /// `gpuDirectRDMACapable`.
    pub(crate) rdma: bool,
}

impl MemoryKind {
    /// The same on another tier. Memory of the host takes no part in RDMA to devices.
    pub(crate) fn on(self, tier: Tier) -> Self {
        Self { tier, rdma: self.rdma && tier == Tier::Device, ..self }
    }
}
