//! The set of buffers for which a program has set an attribute, without those that have been freed.
//!
//! A free does not tell this set: frees are on hot paths, and few programs set attributes. The set
//! drops freed buffers when it has grown to twice its size after the last drop. Pure data.

use std::collections::BTreeMap;

/// Up to this many buffers the set drops none.
const FEW: usize = 64;

#[derive(Debug)]
pub(in crate::hooks) struct AttributeSet {
    /// First address of each buffer, by buffer id: an address returns with a later buffer, an id
    /// does not.
    buffers: BTreeMap<u64, u64>,
    most: usize,
}

impl AttributeSet {
    pub(in crate::hooks) const fn new() -> Self {
        Self { buffers: BTreeMap::new(), most: FEW }
    }

    /// Adds a buffer. `at` gives the id of the buffer that begins at an address now.
    pub(in crate::hooks) fn insert(&mut self, buffer: u64, base: u64, at: impl Fn(u64) -> Option<u64>) {
        if self.buffers.len() >= self.most {
            self.buffers.retain(|buffer, base| at(*base) == Some(*buffer));
            self.most = FEW.max(self.buffers.len() * 2);
        }
        self.buffers.insert(buffer, base);
    }

    pub(in crate::hooks) fn remove(&mut self, buffer: u64) {
        self.buffers.remove(&buffer);
    }

    pub(in crate::hooks) fn contains(&self, buffer: u64) -> bool {
        self.buffers.contains_key(&buffer)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (resource leak): a program sets an attribute of every buffer, and the set grows
    //! without bound.
    use super::*;

    #[test]
    fn freed_buffers_are_dropped() {
        let mut set = AttributeSet::new();
        let mut live = [0; 10];
        for buffer in 0..100_000 {
            let base = buffer % 10;
            live[base as usize] = buffer;
            set.insert(buffer, base, |base| Some(live[base as usize]));
            assert!(set.buffers.len() <= FEW, "{}", set.buffers.len());
        }
    }

    #[test]
    fn live_buffers_stay() {
        let mut set = AttributeSet::new();
        (0..1000).for_each(|buffer| set.insert(buffer, buffer, Some));
        assert!((0..1000).all(|buffer| set.contains(buffer)));
        set.remove(5);
        assert!(!set.contains(5));
    }
}
