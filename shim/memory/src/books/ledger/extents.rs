//! Extents: reservations with handles mapped in them, one after the other, and the address of each
//! mapping.
//!
//! An extent is named by its first address. Its mappings need not reach its end, and may have gaps
//! where a handle was given back. An extent that was *stitched*, that is made from handles which
//! other extents map as well, is a view: without a block in it, it is only a convenience, kept by
//! least recent use.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use smallvec::SmallVec;

use super::extent::{Extent, Mapping};
use super::keys::HandleKey;
use crate::vocabulary::order::{Pending, Point};
use crate::vocabulary::sizes::Class;

#[derive(Debug, Default)]
pub(crate) struct Extents {
    extents: BTreeMap<u64, Extent>,
    /// By class and age: first address and size.
    by_age: BTreeMap<(Option<Class>, u64), (u64, u64)>,
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

    pub(crate) fn insert(&mut self, base: u64, bytes: u64, class: Option<Class>, stitched: bool, late: bool) {
        self.clock += 1;
        let extent = Extent {
            bytes,
            class,
            stitched,
            late,
            made: self.clock,
            used: 0,
            left: 0,
            retired_uses: Pending::default(),
            blocking_hint: Cell::new(base),
            mappings: SmallVec::new(),
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

    pub(crate) fn at_mut(&mut self, address: u64) -> Option<(u64, &mut Extent)> {
        let (base, extent) = self.extents.range_mut(..=address).next_back()?;
        (address - base < extent.bytes).then_some((*base, extent))
    }

    /// Does a range share addresses with an extent?
    pub(super) fn meet(&self, range: &Range<u64>) -> bool {
        self.at(range.start).is_some() || self.extents.range(range.clone()).next().is_some()
    }

    pub(crate) fn range(&self, address: u64) -> Option<Range<u64>> {
        self.at(address).map(|(base, extent)| base..base + extent.bytes)
    }

    pub(crate) fn forget(&mut self, is_past: impl Fn(&Point) -> bool) {
        self.extents.values_mut().for_each(|extent| extent.retired_uses.retain(|point| !is_past(point)));
    }

    /// Notes that blocks now use `used` bytes more or less of the extent at `address`; returns it.
    pub(crate) fn use_changed(&mut self, address: u64, change: i64) -> Option<(u64, &Extent)> {
        let (base, extent) = self.extents.range_mut(..=address).next_back()?;
        let base = (address - base < extent.bytes).then_some(*base)?;
        self.clock += 1;
        if extent.is_idle_view() {
            self.idle_views.remove(&(extent.left, base));
        }
        extent.used = extent.used.saturating_add_signed(change);
        extent.left = self.clock;
        if extent.is_idle_view() {
            self.idle_views.insert((extent.left, base));
        }
        Some((base, extent))
    }

    /// Notes a mapping in an extent.
    pub(crate) fn map(&mut self, address: u64, bytes: u64, key: HandleKey) {
        let Some((_, extent)) = self.at_mut(address) else {
            debug_assert!(false, "no extent at {address:#x}");
            return;
        };
        let index = extent.from(address);
        extent.mappings.insert(index, (address, Mapping { bytes, key }));
    }

    /// The mapping at an address is another handle's from now on.
    pub(super) fn rename(&mut self, address: u64, key: HandleKey) {
        let Some((_, extent)) = self.at_mut(address) else { return };
        let index = extent.from(address);
        if let Some((_, mapping)) = extent.mappings.get_mut(index).filter(|(start, _)| *start == address) {
            mapping.key = key;
        }
    }

    pub(crate) fn unmap(&mut self, address: u64) -> Option<Mapping> {
        let (_, extent) = self.at_mut(address)?;
        extent.mapping(address)?;
        let index = extent.from(address);
        Some(extent.mappings.remove(index).1)
    }

    /// Mappings that start in a range of one extent.
    pub(crate) fn mappings(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Mapping)> {
        let extent = self.at(range.start).map(|(_, extent)| extent);
        extent.into_iter().flat_map(move |extent| extent.mappings(range.clone()))
    }

    /// First address of the mapping that an address lies in.
    pub(crate) fn mapping_around(&self, address: u64) -> Option<u64> {
        let (_, extent) = self.at(address)?;
        let (start, mapping) = extent.mappings.get(extent.near(address))?;
        (*start..start + mapping.bytes).contains(&address).then_some(*start)
    }

    /// Mappings that a range of one extent touches, each with the touched part.
    pub(crate) fn touched(&self, address: u64, bytes: u64) -> impl Iterator<Item = (Range<u64>, HandleKey)> {
        self.at(address).into_iter().flat_map(move |(_, extent)| extent.touched(address, bytes))
    }

    /// Extents of a class and at least `bytes`, the oldest first.
    fn by_age(&self, class: Class, bytes: u64) -> impl Iterator<Item = Range<u64>> {
        let ages = self.by_age.range((Some(class), 0)..=(Some(class), u64::MAX));
        ages.filter(move |(_, (_, size))| *size >= bytes).map(|(_, (base, size))| *base..base + size)
    }

    /// The oldest extent of `class` and at least `bytes` that is mapped from end to end and all of
    /// whose mappings are `free`. For most extents one mapping shows that it is not.
    pub(crate) fn whole(
        &self,
        class: Class,
        bytes: u64,
        free: impl Fn(u64, HandleKey) -> bool,
    ) -> Option<Range<u64>> {
        self.by_age(class, bytes).find(|range| self.is_free_throughout(range, &free))
    }

    fn is_free_throughout(&self, range: &Range<u64>, free: &impl Fn(u64, HandleKey) -> bool) -> bool {
        let Some(extent) = self.extents.get(&range.start) else { return false };
        let is_free = |address| extent.mapping(address).filter(|mapping| free(address, mapping.key));
        if is_free(extent.blocking_hint.get()).is_none() {
            return false;
        }
        let mut next = range.start;
        for (start, mapping) in &extent.mappings {
            if *start != next || !free(next, mapping.key) {
                break;
            }
            next += mapping.bytes;
        }
        extent.blocking_hint.set(if next < range.end { next } else { range.start });
        next >= range.end
    }

    /// A range of at least `bytes` inside one extent of `class`, all of whose mappings are `free`.
    /// The oldest come first; at most `visits` mappings are looked at.
    pub(crate) fn window(
        &self,
        class: Class,
        bytes: u64,
        visits: usize,
        free: impl Fn(u64, HandleKey) -> bool,
    ) -> Option<Range<u64>> {
        let mut left = visits;
        for extent in self.by_age(class, bytes) {
            let mut found = extent.start..extent.start;
            for (start, mapping) in self.mappings(extent) {
                left = left.checked_sub(1)?;
                let end = start + mapping.bytes;
                found = match (free(start, mapping.key), start == found.end) {
                    (true, true) => found.start..end,
                    (true, false) => start..end,
                    (false, _) => end..end,
                };
                if found.end - found.start >= bytes {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Ranges that are mapped without a gap, and whether their handles are apart: neighbours that
    /// differ in that are not one range. Extents at addresses of the program's are left out.
    pub(crate) fn mapped_ranges(
        &self,
        is_apart: impl Fn(HandleKey) -> bool,
        is_adopted: impl Fn(HandleKey) -> bool,
    ) -> Vec<(Range<u64>, bool)> {
        let mut ranges: Vec<(Range<u64>, bool)> = Vec::new();
        for (base, extent) in &self.extents {
            for (start, mapping) in extent.mappings.iter().filter(|(_, mapping)| !is_adopted(mapping.key)) {
                let (end, apart) = (start + mapping.bytes, is_apart(mapping.key));
                match ranges.last_mut() {
                    Some((last, before)) if last.end == *start && start != base && *before == apart => {
                        last.end = end;
                    }
                    _ => ranges.push((*start..end, apart)),
                }
            }
        }
        ranges
    }
}
