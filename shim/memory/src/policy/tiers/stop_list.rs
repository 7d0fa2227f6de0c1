//! The moves of one way at a stop: blocks and bytes, in the order in which they were chosen, each
//! block once.

use rustc_hash::FxHashMap;

use super::keys::BlockKey;

#[derive(Debug, Default)]
pub(super) struct StopList {
    chosen: Vec<(BlockKey, u64)>,
    index: FxHashMap<BlockKey, usize>,
}

impl StopList {
    pub(super) fn has(&self, block: BlockKey) -> bool {
        self.index.contains_key(&block)
    }

    /// So many bytes more of a block.
    pub(super) fn add(&mut self, block: BlockKey, bytes: u64) {
        let at = *self.index.entry(block).or_insert(self.chosen.len());
        match self.chosen.get_mut(at) {
            Some((_, all)) => *all += bytes,
            None => self.chosen.push((block, bytes)),
        }
    }

    /// Blocks of which bytes move.
    pub(super) fn moving(&self) -> impl Iterator<Item = (BlockKey, u64)> {
        self.chosen.iter().copied().filter(|(_, bytes)| *bytes > 0)
    }
}
