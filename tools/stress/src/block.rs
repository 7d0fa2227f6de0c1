//! A block of device memory, with its two properties: the owner whose mark is in it, and the work
//! behind which its next use comes.

use wm_abi::CUdeviceptr;

/// Where a block came from, which says how it may be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// `cuMemAlloc`.
    Plain,
    /// `cuMemAllocAsync`, or the device's pool by name.
    Ordered,
    /// A pool of the program's own.
    Pool,
}

/// The stream whose order a block's uses follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// The stream in this slot.
    Slot(usize),
    /// The default stream of the thread that holds the block.
    Thread,
}

/// One allocation.
#[derive(Debug)]
pub(crate) struct Block {
    /// The device, by position.
    pub(crate) place: usize,
    pub(crate) address: CUdeviceptr,
    pub(crate) bytes: u64,
    pub(crate) source: Source,
    pub(crate) home: Home,
    /// Repeated through the block.
    pub(crate) mark: u32,
}

impl Block {
    /// The mark as a word of 64 bits.
    pub(crate) fn owner(&self) -> u64 {
        owner(self.mark)
    }
}

/// A mark, twice.
pub(crate) fn owner(mark: u32) -> u64 {
    u64::from(mark) << 32 | u64::from(mark)
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn a_mark_reads_the_same_from_every_fourth_byte() {
        let word = owner(0x0102_0304).to_le_bytes();
        assert_eq!(word[..4], word[4..]);
    }
}
