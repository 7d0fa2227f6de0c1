//! How often, and when last, a block was used. Each use counts one, and half as much after so many further launches.

use std::collections::{BTreeSet, HashMap};

/// Launches after which a use counts half.
const HALF_LIFE: f64 = 4096.0;

#[derive(Debug, Default)]
pub(super) struct Heat {
    entries: HashMap<u64, HeatEntry>,
    /// By the last use, or the allocation: the coldest first.
    ages: BTreeSet<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct HeatEntry {
    value: f64,
    at: u64,
}

impl HeatEntry {
    fn at(&self, now: u64) -> f64 {
        self.value * (-(now.saturating_sub(self.at) as f64) / HALF_LIFE).exp2()
    }
}

impl Heat {
    /// A new block: nobody has used it, and somebody soon will.
    pub(super) fn allocated(&mut self, block: u64, now: u64) {
        self.set(block, 0.0, now);
    }

    pub(super) fn used(&mut self, block: u64, now: u64) {
        self.set(block, self.of(block, now) + 1.0, now);
    }

    fn set(&mut self, block: u64, value: f64, now: u64) {
        if let Some(old) = self.entries.insert(block, HeatEntry { value, at: now }) {
            self.ages.remove(&(old.at, block));
        }
        self.ages.insert((now, block));
    }

    pub(super) fn of(&self, block: u64, now: u64) -> f64 {
        self.entries.get(&block).map_or(0.0, |entry| entry.at(now))
    }

    /// Blocks, the longest unused first.
    pub(super) fn oldest(&self) -> impl Iterator<Item = u64> {
        self.ages.iter().map(|(_, block)| *block)
    }

    pub(super) fn remove(&mut self, block: u64) {
        if let Some(old) = self.entries.remove(&block) {
            self.ages.remove(&(old.at, block));
        }
    }
}
