//! Extents: reservations with handles mapped in them, one after the other, and what is mapped where.
//!
//! An extent is named by its first address. Its mappings need not reach its end, and may have gaps where a handle was
//! given back. An extent that was *stitched*, that is made from handles which other extents map as well, is a view:
//! without a block in it, it is only a convenience, kept by least recent use.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::memory::Key;
use crate::order::{Pending, Point};
use crate::sizes::Class;

/// One extent; its first address is its key.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) bytes: u64,
    pub(crate) class: Class,
    pub(crate) stitched: bool,
    /// Made of late memory.
    late: bool,
    /// When it was made.
    made: u64,
    /// Bytes under blocks.
    pub(crate) used: u64,
    /// When the last block left it.
    pub(crate) left: u64,
    /// What may still be touching it through handles that have become active elsewhere. It must be past before
    /// anything here is unmapped.
    pub(crate) echo: Pending,
    /// A mapping that was in the way when the extent was last looked at as a whole: likely, it still is.
    witness: Cell<u64>,
}

/// One mapping; its first address is its key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) bytes: u64,
    pub(crate) key: Key,
}

impl Extent {
    fn is_idle_view(&self) -> bool {
        self.stitched && self.used == 0
    }

    /// Of its free runs.
    pub(crate) fn rank(&self) -> u64 {
        if self.late { self.made } else { 0 }
    }
}

fn at_mut(extents: &mut BTreeMap<u64, Extent>, address: u64) -> Option<(u64, &mut Extent)> {
    let (base, extent) = extents.range_mut(..=address).next_back()?;
    (address - base < extent.bytes).then_some((*base, extent))
}

#[derive(Debug, Default)]
pub(crate) struct Extents {
    extents: BTreeMap<u64, Extent>,
    /// By class and age: first address and size.
    by_age: BTreeMap<(Class, u64), (u64, u64)>,
    mappings: BTreeMap<u64, Mapping>,
    idle_views: BTreeSet<(u64, u64)>,
    clock: u64,
}

impl Extents {
    pub(crate) fn len(&self) -> usize {
        self.extents.len()
    }

    pub(crate) fn idle_views(&self) -> impl ExactSizeIterator<Item = u64> {
        self.idle_views.iter().map(|(_, base)| *base)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, &Extent)> {
        self.extents.iter().map(|(base, extent)| (*base, extent))
    }

    pub(crate) fn insert(&mut self, base: u64, bytes: u64, class: Class, stitched: bool, late: bool) {
        self.clock += 1;
        let extent = Extent {
            bytes,
            class,
            stitched,
            late,
            made: self.clock,
            used: 0,
            left: 0,
            echo: Pending::default(),
            witness: Cell::new(base),
        };
        self.by_age.insert((class, self.clock), (base, bytes));
        if extent.is_idle_view() {
            self.idle_views.insert((extent.left, base));
        }
        self.extents.insert(base, extent);
    }

    /// Forgets an extent that has no mapping any more.
    pub(crate) fn remove(&mut self, base: u64) -> Option<Extent> {
        let extent = self.extents.remove(&base)?;
        self.by_age.remove(&(extent.class, extent.made));
        self.idle_views.remove(&(extent.left, base));
        Some(extent)
    }

    /// The extent that `address` is in.
    pub(crate) fn at(&self, address: u64) -> Option<(u64, &Extent)> {
        let (base, extent) = self.extents.range(..=address).next_back()?;
        (address - base < extent.bytes).then_some((*base, extent))
    }

    pub(crate) fn range(&self, address: u64) -> Option<Range<u64>> {
        self.at(address).map(|(base, extent)| base..base + extent.bytes)
    }

    pub(crate) fn echo(&mut self, address: u64, pending: &Pending) {
        if let Some((_, extent)) = at_mut(&mut self.extents, address) {
            extent.echo.join(pending);
        }
    }

    pub(crate) fn forget(&mut self, is_past: impl Fn(&Point) -> bool) {
        self.extents.values_mut().for_each(|extent| extent.echo.retain(|point| !is_past(point)));
    }

    /// Notes that blocks now use `used` bytes more or less of the extent at `address`.
    pub(crate) fn use_changed(&mut self, address: u64, change: i64) {
        let Some((base, extent)) = at_mut(&mut self.extents, address) else { return };
        self.clock += 1;
        if extent.is_idle_view() {
            self.idle_views.remove(&(extent.left, base));
        }
        extent.used = extent.used.saturating_add_signed(change);
        extent.left = self.clock;
        if extent.is_idle_view() {
            self.idle_views.insert((extent.left, base));
        }
    }

    pub(crate) fn map(&mut self, address: u64, bytes: u64, key: Key) {
        self.mappings.insert(address, Mapping { bytes, key });
    }

    pub(crate) fn unmap(&mut self, address: u64) -> Option<Mapping> {
        self.mappings.remove(&address)
    }

    /// Mappings that start in a range.
    pub(crate) fn mappings(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Mapping)> {
        self.mappings.range(range).map(|(address, mapping)| (*address, *mapping))
    }

    /// First address of the mapping that an address lies in.
    pub(crate) fn mapping_around(&self, address: u64) -> Option<u64> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address < start + mapping.bytes).then_some(*start)
    }

    /// The mapping that an address lies in: its first address, the one behind it, and the handle.
    pub(crate) fn mapping_of(&self, address: u64) -> Option<(u64, u64, Key)> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        let end = start + mapping.bytes;
        (address < end).then_some((*start, end, mapping.key))
    }

    /// Extents of a class and at least `bytes` without a block, the oldest first.
    pub(crate) fn unused(&self, class: Class, bytes: u64) -> impl Iterator<Item = u64> {
        let is_unused = |base: &u64| self.extents.get(base).is_some_and(|extent| extent.used == 0);
        self.by_age(class, bytes).map(|extent| extent.start).filter(is_unused)
    }

    /// Mappings that a stretch touches, each with the touched part.
    pub(crate) fn touched(&self, address: u64, bytes: u64) -> impl Iterator<Item = (Range<u64>, Key)> {
        let first = self.mappings.range(..=address).next_back().map_or(address, |(start, _)| *start);
        let part = move |(start, mapping): (u64, Mapping)| {
            (start.max(address)..(start + mapping.bytes).min(address + bytes), mapping.key)
        };
        self.mappings(first..address + bytes).map(part).filter(|(range, _)| !range.is_empty())
    }

    /// Extents of a class and at least `bytes`, the oldest first.
    fn by_age(&self, class: Class, bytes: u64) -> impl Iterator<Item = Range<u64>> {
        let ages = self.by_age.range((class, 0)..=(class, u64::MAX));
        ages.filter(move |(_, (_, size))| *size >= bytes).map(|(_, (base, size))| *base..base + size)
    }

    /// The oldest extent of `class` and at least `bytes` that is mapped from end to end and all of whose mappings are
    /// `free`. One look at each extent mostly tells that it is not.
    pub(crate) fn whole(
        &self,
        class: Class,
        bytes: u64,
        free: impl Fn(u64, Key) -> bool,
    ) -> Option<Range<u64>> {
        self.by_age(class, bytes).find(|range| self.is_free_throughout(range, &free))
    }

    fn is_free_throughout(&self, range: &Range<u64>, free: &impl Fn(u64, Key) -> bool) -> bool {
        let Some(extent) = self.extents.get(&range.start) else { return false };
        let is_free = |address| self.mappings.get(&address).filter(|mapping| free(address, mapping.key));
        if is_free(extent.witness.get()).is_none() {
            return false;
        }
        let mut next = range.start;
        while let Some(mapping) = is_free(next).filter(|_| next < range.end) {
            next += mapping.bytes;
        }
        extent.witness.set(if next < range.end { next } else { range.start });
        next >= range.end
    }

    /// First address of a stretch of at least `bytes` inside one extent of `class`, all of whose mappings are `free`.
    /// The oldest come first; at most `visits` mappings are looked at.
    pub(crate) fn window(
        &self,
        class: Class,
        bytes: u64,
        visits: usize,
        free: impl Fn(u64, Key) -> bool,
    ) -> Option<Range<u64>> {
        let mut left = visits;
        for extent in self.by_age(class, bytes) {
            let mut stretch = extent.start..extent.start;
            for (start, mapping) in self.mappings(extent) {
                left = left.checked_sub(1)?;
                let end = start + mapping.bytes;
                stretch = match (free(start, mapping.key), start == stretch.end) {
                    (true, true) => stretch.start..end,
                    (true, false) => start..end,
                    (false, _) => end..end,
                };
                if stretch.end - stretch.start >= bytes {
                    return Some(stretch);
                }
            }
        }
        None
    }

    /// Stretches that are mapped throughout.
    pub(crate) fn mapped_stretches(&self) -> Vec<Range<u64>> {
        let mut stretches: Vec<Range<u64>> = Vec::new();
        for (start, mapping) in &self.mappings {
            let end = start + mapping.bytes;
            match stretches.last_mut() {
                Some(last) if last.end == *start && !self.extents.contains_key(start) => last.end = end,
                _ => stretches.push(*start..end),
            }
        }
        stretches
    }
}
