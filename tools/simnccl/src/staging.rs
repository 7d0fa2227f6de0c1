//! Pinned host memory through which operations move their bytes.
//!
//! Blocks are reused and never freed: `cuMemFreeHost` waits for the whole device, which may be
//! blocked by an operation that an abort has still to end.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::abi::Outcome;
use crate::driver::Driver;

/// The smallest block, in bytes.
const SMALLEST: usize = 64 << 10;

/// A block of pinned memory. Its size is a power of two.
#[derive(Debug)]
pub(crate) struct Block {
    place: *mut u8,
    size: usize,
}

// SAFETY: the memory has no thread of its own; its holder alone uses it.
unsafe impl Send for Block {}
// SAFETY: a shared block gives out its address only; each use of the bytes states its own reason.
unsafe impl Sync for Block {}

impl Block {
    /// The address of the byte at `at`.
    pub(crate) fn at(&self, at: usize) -> *mut u8 {
        assert!(at <= self.size, "{at} is outside of a block of {} bytes", self.size);
        self.place.wrapping_add(at)
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

/// The blocks that no operation uses, by size.
#[derive(Debug)]
pub(crate) struct Pool(Mutex<BTreeMap<usize, Vec<Block>>>);

impl Pool {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// A block of at least this size.
    pub(crate) fn get(&self, driver: &Driver, bytes: usize) -> Outcome<Block> {
        let size = bytes.next_power_of_two().max(SMALLEST);
        let free = crate::lock(&self.0).get_mut(&size).and_then(Vec::pop);
        free.map_or_else(|| Ok(Block { place: driver.pin(size)?, size }), Ok)
    }

    /// Gives a block back, for the next operation.
    pub(crate) fn put(&self, block: Block) {
        crate::lock(&self.0).entry(block.size).or_default().push(block);
    }
}
