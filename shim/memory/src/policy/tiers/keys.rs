//! Keys of the live blocks: the name that a user gave, and a small number by which each part of the
//! policy finds its value for the block.
//!
//! A launch looks a name up once, however many parts there are. Numbers of freed blocks are given
//! out again. Invariant: a key of a freed block finds nothing, whichever block has its number by
//! now, unless that block has the same name.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

/// A live block. Keys are ordered by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct BlockKey {
    pub(super) name: u64,
    pub(super) slot: u32,
}

impl Ord for BlockKey {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.name, self.slot).cmp(&(other.name, other.slot))
    }
}

impl PartialOrd for BlockKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The keys that are given out.
#[derive(Debug, Default)]
pub(super) struct BlockKeys {
    slots: FxHashMap<u64, u32>,
    spare: Vec<u32>,
    /// The numbers below were given out.
    next: u32,
    unnamed: u64,
}

impl BlockKeys {
    #[inline]
    pub(super) fn of(&self, name: u64) -> Option<BlockKey> {
        self.slots.get(&name).map(|slot| BlockKey { name, slot: *slot })
    }

    /// The key of a block that is allocated. No live block has the name.
    pub(super) fn give(&mut self, name: u64) -> BlockKey {
        let slot = self.slot();
        self.slots.insert(name, slot);
        BlockKey { name, slot }
    }

    /// A key that no name leads to.
    pub(super) fn give_unnamed(&mut self) -> BlockKey {
        self.unnamed += 1;
        BlockKey { name: u64::MAX - self.unnamed, slot: self.slot() }
    }

    fn slot(&mut self) -> u32 {
        self.spare.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// A key without a name is not used any more.
    pub(super) fn take_back_unnamed(&mut self, key: BlockKey) {
        self.spare.push(key.slot);
    }

    /// The block is freed.
    pub(super) fn take_back(&mut self, key: BlockKey) {
        if self.slots.remove(&key.name).is_some() {
            self.spare.push(key.slot);
        }
    }
}

/// A value for each of some live blocks.
#[derive(Debug)]
pub(super) struct BySlot<T>(Vec<Option<(u64, T)>>);

impl<T> Default for BySlot<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> BySlot<T> {
    #[inline]
    pub(super) fn get(&self, key: BlockKey) -> Option<&T> {
        self.at(key.slot).filter(|(there, _)| there.name == key.name).map(|(_, value)| value)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: BlockKey) -> Option<&mut T> {
        let (name, value) = self.0.get_mut(key.slot as usize)?.as_mut()?;
        (*name == key.name).then_some(value)
    }

    /// The block that has the number, and its value.
    #[inline]
    pub(super) fn at(&self, slot: u32) -> Option<(BlockKey, &T)> {
        let (name, value) = self.0.get(slot as usize)?.as_ref()?;
        Some((BlockKey { name: *name, slot }, value))
    }

    pub(super) fn insert(&mut self, key: BlockKey, value: T) {
        let slot = key.slot as usize;
        if slot >= self.0.len() {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some((key.name, value));
    }

    pub(super) fn remove(&mut self, key: BlockKey) -> Option<T> {
        self.get(key)?;
        self.0.get_mut(key.slot as usize)?.take().map(|(_, value)| value)
    }

    /// All values.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flatten().map(|(_, value)| value)
    }

    /// By number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (BlockKey, &T)> {
        (0..).map_while(|slot| (slot < self.0.len() as u32).then(|| self.at(slot))).flatten()
    }
}

#[cfg(test)]
impl From<u64> for BlockKey {
    /// A small name is its own number.
    fn from(name: u64) -> Self {
        Self { name, slot: name as u32 }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (use after free): a key of a freed block finds the block that has its number by now.
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The model is a map by names.
        #[test]
        fn values_are_found_by_the_names_of_live_blocks(
            steps in proptest::collection::vec((any::<bool>(), 0..12_u64), 0..200),
        ) {
            let (mut keys, mut values, mut model) = (BlockKeys::default(), BySlot::default(), BTreeMap::new());
            let mut given = Vec::new();
            for (step, (is_free, name)) in steps.into_iter().enumerate() {
                let key = keys.of(name);
                prop_assert_eq!(key.is_some(), model.contains_key(&name));
                match key {
                    Some(key) if is_free => {
                        prop_assert_eq!(values.remove(key), model.remove(&name));
                        keys.take_back(key);
                    }
                    Some(key) => values.get_mut(key).into_iter().for_each(|value| *value = step),
                    None => {
                        given.push(keys.give(name));
                        values.insert(given[given.len() - 1], step);
                    }
                }
                if keys.of(name).is_some() {
                    model.insert(name, step);
                }
                for key in &given {
                    let is_live = keys.of(key.name) == Some(*key);
                    prop_assert!(values.get(*key).is_none() || model.contains_key(&key.name), "{key:?}");
                    prop_assert!(!is_live || values.get(*key) == model.get(&key.name), "{key:?}");
                }
            }
            let found: BTreeMap<_, _> = values.iter().map(|(key, value)| (key.name, *value)).collect();
            prop_assert_eq!(found, model);
            prop_assert!(keys.slots.len() + keys.spare.len() <= 12, "numbers are given out again");
        }
    }
}
