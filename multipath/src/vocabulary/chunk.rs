//! A part of a copy: by its offset, and by its addresses.

/// A part of a copy, as an offset from its start. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// First byte.
    pub offset: usize,
    /// Length.
    pub bytes: usize,
}

impl Chunk {
    /// One past the last byte.
    pub fn end(&self) -> usize {
        self.offset + self.bytes
    }
}

/// One chunk of a copy, by its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkAddrs {
    /// The end in pinned host memory.
    pub host: u64,
    /// The end in the target's memory.
    pub device: u64,
    /// Length.
    pub bytes: usize,
}
