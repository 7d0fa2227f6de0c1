//! Neighbouring blocks that launches use as one, because they hold one tensor: a *group*.
//!
//! To the past a group is a block of its own, with a key and one event a launch. Without that a
//! tensor of many blocks would have an event for each of them, and two launches of one tensor would
//! pass for a period.
//!
//! Invariants: the members of a group are live; the groups that begin at a block are at most
//! [`MOST`].

use smallvec::SmallVec;

use super::keys::{BlockKey, BlockKeys, BySlot};

/// Groups that begin at one block: a program whose tensors vary in length has ever new ones.
const MOST: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Groups {
    members: BySlot<Vec<BlockKey>>,
    /// The groups that a block is in.
    of_block: BySlot<Vec<BlockKey>>,
    /// The groups that begin at a block, by their number of members.
    lengths: BySlot<SmallVec<[(usize, BlockKey); 2]>>,
    /// When a group is used next, or a block by itself that is in groups, if that is foretold.
    foretold: BySlot<u64>,
}

impl Groups {
    /// The blocks that an event of this key is of: the members, or the block itself.
    pub(super) fn members<'a>(&'a self, key: &'a BlockKey) -> &'a [BlockKey] {
        self.members.get(*key).map_or(std::slice::from_ref(key), Vec::as_slice)
    }

    /// The group of these live neighbours, which are two or more, if it is known.
    pub(super) fn find(&self, blocks: &[BlockKey]) -> Option<BlockKey> {
        let lengths = self.lengths.get(*blocks.first()?)?;
        lengths.iter().find(|(length, _)| *length == blocks.len()).map(|(_, group)| *group)
    }

    /// The oldest group that begins with this block, if one has to end before another begins.
    pub(super) fn oldest(&self, first: BlockKey) -> Option<BlockKey> {
        let lengths = self.lengths.get(first).filter(|lengths| lengths.len() >= MOST)?;
        lengths.first().map(|(_, group)| *group)
    }

    /// Adds a group. Returns its key.
    pub(super) fn add(&mut self, blocks: &[BlockKey], keys: &mut BlockKeys) -> Option<BlockKey> {
        let first = *blocks.first()?;
        let group = keys.give_unnamed();
        self.members.insert(group, blocks.to_vec());
        for block in blocks {
            entry(&mut self.of_block, *block).push(group);
        }
        entry(&mut self.lengths, first).push((blocks.len(), group));
        Some(group)
    }

    /// The groups that a block is in: they end with it.
    pub(super) fn of(&self, block: BlockKey) -> Vec<BlockKey> {
        self.of_block.get(block).cloned().unwrap_or_default()
    }

    /// A block, by itself or with all of `used`, its group, is used now and next at that time.
    /// Returns when the block is used next in any way: with another group that may be sooner.
    #[inline]
    pub(super) fn next_use(
        &self,
        block: BlockKey,
        used: BlockKey,
        next: Option<u64>,
        now: u64,
    ) -> Option<u64> {
        let Some(groups) = self.of_block.get(block) else { return next };
        let others = groups.iter().copied().chain([block]).filter(|other| *other != used);
        let foretold =
            others.filter_map(|other| self.foretold.get(other).copied()).filter(|next| *next > now);
        foretold.chain(next).min()
    }

    /// A group, or a block that is in groups, is used next at that time.
    #[inline]
    pub(super) fn foretell(&mut self, used: BlockKey, next: Option<u64>) {
        if self.members.get(used).is_none() && self.of_block.get(used).is_none() {
            return;
        }
        match (self.foretold.get_mut(used), next) {
            (Some(foretold), Some(next)) => *foretold = next,
            (None, Some(next)) => self.foretold.insert(used, next),
            (Some(_), None) => drop(self.foretold.remove(used)),
            (None, None) => {}
        }
    }

    /// A group ends. `false`: it has ended before.
    pub(super) fn remove(&mut self, group: BlockKey) -> bool {
        let Some(members) = self.members.remove(group) else { return false };
        self.foretold.remove(group);
        for block in &members {
            self.of_block
                .get_mut(*block)
                .into_iter()
                .for_each(|groups| groups.retain(|other| *other != group));
        }
        let lengths = members.first().and_then(|first| self.lengths.get_mut(*first));
        lengths.into_iter().for_each(|lengths| lengths.retain(|(_, other)| *other != group));
        true
    }

    /// A block is freed that is in no group any more.
    pub(super) fn forget(&mut self, block: BlockKey) {
        self.of_block.remove(block);
        self.lengths.remove(block);
        self.foretold.remove(block);
    }
}

/// The value of a key, which is made if there is none.
fn entry<T: Default>(values: &mut BySlot<T>, key: BlockKey) -> &mut T {
    if values.get(key).is_none() {
        values.insert(key, T::default());
    }
    values.get_mut(key).expect("it was inserted")
}
