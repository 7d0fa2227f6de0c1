//! A set of buffers that a program has set an attribute of, which forgets those that are gone.
//!
//! No free tells this set: frees are on hot paths, and few programs set attributes. It looks for buffers that are gone when it
//! has grown to twice what was left the last time. Pure data.

use std::collections::BTreeMap;

/// So many buffers are kept without a look.
const FEW: usize = 64;

#[derive(Debug)]
pub(in crate::hooks) struct Marked {
    /// First addresses by buffer id: an address comes again, an id does not.
    buffers: BTreeMap<u64, u64>,
    most: usize,
}

impl Marked {
    pub(in crate::hooks) const fn new() -> Self {
        Self { buffers: BTreeMap::new(), most: FEW }
    }

    /// Adds a buffer. `at` says which one is at an address now.
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
    //! Hazard: a program that sets an attribute of every buffer it ever has, and a set that grows with it.
    use super::*;

    #[test]
    fn buffers_that_are_gone_do_not_stay() {
        let mut marked = Marked::new();
        let mut there = [0; 10];
        for buffer in 0..100_000 {
            let base = buffer % 10;
            there[base as usize] = buffer;
            marked.insert(buffer, base, |base| Some(there[base as usize]));
            assert!(marked.buffers.len() <= FEW, "{}", marked.buffers.len());
        }
    }

    #[test]
    fn those_that_live_do() {
        let mut marked = Marked::new();
        (0..1000).for_each(|buffer| marked.insert(buffer, buffer, Some));
        assert!((0..1000).all(|buffer| marked.contains(buffer)));
        marked.remove(5);
        assert!(!marked.contains(5));
    }
}
