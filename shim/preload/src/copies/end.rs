//! One end of a copy.

use std::cell::OnceCell;
use std::ops::Range;

use super::strided::{CopySize, StridedRange};
use crate::addresses::{self, AddressedMemory};

/// The kind of an end's memory, as the call says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndKind {
    Host,
    Device,
    /// Either: the address tells.
    Unified,
}

/// One end of a copy: the bytes that the copy touches there, and the memory they lie in.
pub(crate) struct CopyEnd {
    pub(crate) bytes: StridedRange,
    pub(crate) kind: EndKind,
    memory: OnceCell<AddressedMemory>,
}

impl CopyEnd {
    pub(crate) fn new(bytes: StridedRange, kind: EndKind) -> Self {
        Self { bytes, kind, memory: OnceCell::new() }
    }

    /// An end of consecutive bytes.
    #[inline]
    pub(crate) fn linear(address: u64, kind: EndKind) -> Self {
        Self::new(StridedRange::linear(address), kind)
    }

    /// The first byte that the copy touches.
    pub(crate) fn address(&self) -> u64 {
        self.bytes.address
    }

    /// The range from the first byte that a copy of this size touches to the last.
    pub(crate) fn range(&self, size: &CopySize) -> Range<u64> {
        self.bytes.range(size)
    }

    /// The memory that the first byte lies in. Looked up at the first call.
    pub(crate) fn memory(&self) -> &AddressedMemory {
        self.memory.get_or_init(|| addresses::memory_at(self.address()))
    }
}
