//! A copy between host and device, as the program asked for it.
//!
//! A part of a copy goes the same way in the same stream. The caller that names the part ensures
//! that it lies within the copy.

use crate::vocabulary::chunk::{Chunk, ChunkAddrs};
use crate::vocabulary::stream::ProgramStream;

/// The direction of a copy over its PCIe link, as the device sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkDirection {
    /// Host to device.
    In,
    /// Device to host.
    Out,
}

/// The kind of memory at the host end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostMemory {
    /// Page-locked: the devices reach it by themselves.
    Pinned,
    /// Ordinary memory: it passes through pinned buffers of ours.
    Pageable,
}

/// A copy, as the program asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostDeviceCopy {
    /// The stream that orders it.
    pub user: ProgramStream,
    /// Its direction.
    pub direction: LinkDirection,
    /// First byte in host memory.
    pub host: u64,
    /// First byte in the target's memory.
    pub device: u64,
    /// Length.
    pub bytes: usize,
}

impl HostDeviceCopy {
    /// A part of it, as a copy.
    pub fn part(&self, chunk: Chunk) -> Self {
        let ChunkAddrs { host, device, bytes } = self.addrs(chunk);
        Self { host, device, bytes, ..*self }
    }

    /// The addresses of a chunk of it.
    pub fn addrs(&self, chunk: Chunk) -> ChunkAddrs {
        let offset = chunk.offset as u64;
        ChunkAddrs { host: self.host + offset, device: self.device + offset, bytes: chunk.bytes }
    }
}
