//! The moves of one way at a stop: blocks and bytes, in the order in which they were chosen, each
//! block once.

use rustc_hash::FxHashMap;

#[derive(Debug, Default)]
pub(super) struct StopList {
    chosen: Vec<(u64, u64)>,
    index: FxHashMap<u64, usize>,
}

impl StopList {
    pub(super) fn has(&self, block: u64) -> bool {
        self.index.contains_key(&block)
    }

    /// So many bytes more of a block.
    pub(super) fn add(&mut self, block: u64, bytes: u64) {
        let at = *self.index.entry(block).or_insert(self.chosen.len());
        match self.chosen.get_mut(at) {
            Some((_, all)) => *all += bytes,
            None => self.chosen.push((block, bytes)),
        }
    }

    /// Blocks of which bytes move.
    pub(super) fn moving(&self) -> impl Iterator<Item = (u64, u64)> {
        self.chosen.iter().copied().filter(|(_, bytes)| *bytes > 0)
    }
}
