//! A hash table whose look-up reads one cache line. `hashbrown` reads two, and finds the second by
//! the first (ADR 0025 has the measurement).
//!
//! A program evicts these lines from the CPU's caches between two calls, so cache misses are the
//! cost of the hit path. Values hold their own key. Open addressing with linear probing: a value
//! lies in the cell that its hash names or in one of the full cells behind it, and a removal moves
//! values back so that no empty cell lies between. At most half of the cells are full. The table is
//! meant for values of one cache line, aligned to one.

use std::hash::{BuildHasher, Hash};

use rustc_hash::FxBuildHasher;

/// A value that knows the key by which it is found; the key does not change while it is in a table.
pub(crate) trait Keyed {
    type Key: Copy + Eq + Hash;

    fn key(&self) -> Self::Key;
}

/// A full table has this many cells at least.
const LEAST: usize = 8;

/// One with fewer than one value in so many cells is rehashed into fewer: eight times as many as a
/// fresh one has at most.
const SPARSE: usize = 64;

#[derive(Debug)]
pub(crate) struct ProbingTable<T> {
    /// None, or a power of two.
    cells: Box<[Option<T>]>,
    full: usize,
}

impl<T> Default for ProbingTable<T> {
    fn default() -> Self {
        Self { cells: Box::default(), full: 0 }
    }
}

impl<T: Keyed> ProbingTable<T> {
    /// Will the next new value rehash the table?
    pub(crate) fn is_full(&self) -> bool {
        self.full * 2 >= self.cells.len()
    }

    pub(crate) fn get(&self, key: T::Key) -> Option<&T> {
        self.cells.get(self.place(key))?.as_ref()
    }

    /// For changes of the value. Its key must stay.
    pub(crate) fn get_mut(&mut self, key: T::Key) -> Option<&mut T> {
        self.cells.get_mut(self.place(key))?.as_mut()
    }

    pub(crate) fn get_or_insert(&mut self, key: T::Key, new: impl FnOnce() -> T) -> &mut T {
        let mut at = self.place(key);
        if self.cells.get(at).is_none_or(Option::is_none) {
            if self.is_full() {
                self.retain(|_| true);
                at = self.place(key);
            }
            self.full += 1;
        }
        self.cells[at].get_or_insert_with(new)
    }

    /// In the place of one with the same key, if there is one.
    pub(crate) fn insert(&mut self, value: T) {
        if self.is_full() {
            self.retain(|_| true);
        }
        let at = self.place(value.key());
        self.full += usize::from(self.cells[at].is_none());
        self.cells[at] = Some(value);
    }

    pub(crate) fn remove(&mut self, key: T::Key) -> Option<T> {
        let at = self.place(key);
        let removed = self.cells.get_mut(at)?.take()?;
        self.full -= 1;
        self.close(at);
        // A walk over all values is a walk over all cells.
        if self.cells.len() > LEAST.max(self.full * SPARSE) {
            self.retain(|_| true);
        }
        Some(removed)
    }

    /// Moves values back into the hole that a removal left, as far as their hashes let them.
    fn close(&mut self, mut hole: usize) {
        let mut at = self.after(hole);
        while let Some(value) = &self.cells[at] {
            if self.steps(self.first_cell(value.key()), at) >= self.steps(hole, at) {
                self.cells.swap(hole, at);
                hole = at;
            }
            at = self.after(at);
        }
    }

    /// In no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.cells.iter().flatten()
    }

    /// All values, for changes. Their keys must stay.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.cells.iter_mut().flatten()
    }

    /// Drops the values that `keep` refuses, and rehashes the others into a table of fitting size.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.full = self.iter().filter(|value| keep(value)).count();
        let cells = (self.full * 4).next_power_of_two().max(LEAST);
        let cells = (0..cells).map(|_| None).collect();
        let old = std::mem::replace(&mut self.cells, cells);
        for value in old.into_iter().flatten().filter(keep) {
            let at = self.place(value.key());
            self.cells[at] = Some(value);
        }
    }

    /// Index of the value of a key, or of the empty cell where it would be; beyond the cells, if
    /// there are none.
    fn place(&self, key: T::Key) -> usize {
        let mut at = self.first_cell(key);
        while let Some(Some(value)) = self.cells.get(at)
            && value.key() != key
        {
            at = self.after(at);
        }
        at
    }

    /// By the low bits of the hash: `FxHasher` puts its best mixed bits there.
    fn first_cell(&self, key: T::Key) -> usize {
        FxBuildHasher.hash_one(key) as usize & self.cells.len().wrapping_sub(1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.cells.len() - 1)
    }

    fn steps(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.cells.len() - 1)
    }
}
