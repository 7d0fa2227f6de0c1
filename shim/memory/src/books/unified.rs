//! The blocks that the CPU and the GPU use in turn: the holder of each, and whether it changes now.
//!
//! Invariant: the CPU has access to no block that is the GPU's. One thread at a time changes a
//! block.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::vocabulary::unified::Processor;

/// One such block.
#[derive(Debug, Clone, Copy)]
struct UnifiedBlock {
    bytes: u64,
    /// The block's, so that an earlier one at the address is not taken for it.
    id: u64,
    /// `None`: the CPU may have access to a part of it, since a change failed half way.
    holder: Option<Processor>,
    is_changing: bool,
}

/// By first address.
#[derive(Debug, Default)]
pub(crate) struct UnifiedBlocks(BTreeMap<u64, UnifiedBlock>);

impl UnifiedBlocks {
    /// A new block, the GPU's.
    pub(crate) fn insert(&mut self, address: u64, bytes: u64, id: u64) {
        self.0.insert(address, UnifiedBlock { bytes, id, holder: Some(Processor::Gpu), is_changing: false });
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn remove(&mut self, address: u64) {
        self.0.remove(&address);
    }

    #[inline]
    pub(crate) fn begins_at(&self, address: u64) -> bool {
        !self.0.is_empty() && self.0.contains_key(&address)
    }

    /// The whole range of the block that a range lies in.
    pub(crate) fn around(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let (address, block) = self.0.range(..=range.start).next_back()?;
        let whole = *address..*address + block.bytes;
        (range.start < range.end && range.end <= whole.end).then_some(whole)
    }

    /// `None`: no such block begins there. The inner one: neither has all of it.
    pub(crate) fn holder(&self, address: u64) -> Option<Option<Processor>> {
        self.0.get(&address).map(|block| block.holder)
    }

    pub(crate) fn is_changing(&self, address: u64) -> bool {
        self.0.get(&address).is_some_and(|block| block.is_changing)
    }

    /// From now on one thread changes the block's holder, until it ends the change. Returns the
    /// block's id.
    pub(crate) fn begin_change(&mut self, address: u64) -> Option<u64> {
        let block = self.0.get_mut(&address)?;
        block.is_changing = true;
        Some(block.id)
    }

    pub(crate) fn end_change(&mut self, address: u64, id: u64) {
        self.change(address, id, |block| block.is_changing = false);
    }

    pub(crate) fn give(&mut self, address: u64, id: u64, holder: Option<Processor>) {
        self.change(address, id, |block| block.holder = holder);
    }

    /// Is it still that block?
    pub(crate) fn has(&self, address: u64, id: u64) -> bool {
        self.0.get(&address).is_some_and(|block| block.id == id)
    }

    fn change(&mut self, address: u64, id: u64, change: impl FnOnce(&mut UnifiedBlock)) {
        if let Some(block) = self.0.get_mut(&address).filter(|block| block.id == id) {
            change(block);
        }
    }

    /// May the CPU have access to a block that a range touches?
    pub(crate) fn may_be_on_cpu(&self, range: &Range<u64>) -> bool {
        let before = self.0.range(..range.end).next_back();
        before.is_some_and(|(address, block)| {
            range.start < address + block.bytes && block.holder != Some(Processor::Gpu)
        })
    }

    /// The blocks that are the CPU's, all of them or a part.
    pub(crate) fn on_cpu(&self) -> impl Iterator<Item = Range<u64>> {
        let on_cpu = self.0.iter().filter(|(_, block)| block.holder != Some(Processor::Gpu));
        on_cpu.map(|(address, block)| *address..address + block.bytes)
    }
}
