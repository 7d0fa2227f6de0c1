//! The unit that is shared, and its name among processes.

use std::ops::Range;

/// Bytes of a chunk: a chunk is a handle of physical memory, and begins where the handle is mapped.
pub const CHUNK_BYTES: u64 = 2 << 20;

/// 128 bits that tell chunks apart. Equal bytes have equal fingerprints; the opposite is never
/// relied on: the bytes are compared before a chunk is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u128);

/// The name of a chunk, which all processes of a user know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkName {
    /// The GPU's UUID, as the driver tells it.
    pub device: [u8; 16],
    /// Of its bytes.
    pub fingerprint: Fingerprint,
}

/// The name of a copy in host memory: of its bytes, and how many these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyName {
    /// Of the bytes.
    pub fingerprint: Fingerprint,
    /// How many.
    pub bytes: u64,
}

/// A handle's worth of a process's memory that other processes may have, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharableMemory {
    /// Its addresses.
    pub range: Range<u64>,
    /// Of its bytes.
    pub name: CopyName,
    /// Other processes use the same device memory.
    pub is_shared: bool,
}
