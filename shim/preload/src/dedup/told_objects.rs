//! Objects of which the program's own allocator tells: PyTorch's tensors in its segments.
//!
//! A kernel names an object by one address and may reach all of it from there, but no other object.
//! In a segment that holds many, an address alone does not say which pieces that are.
//!
//! Invariant: the lock is held for moments, and no other is taken while it is held.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use wm_dedup::policy::reservations::Reservations;

use super::sharing::Sharing;
use super::tracked_blocks::TrackedBlock;

/// See above.
pub(super) struct ToldObjects {
    reservations: RwLock<Reservations>,
    /// No object was ever told of below or beyond these.
    within: [AtomicU64; 2],
}

impl ToldObjects {
    pub(super) const fn new() -> Self {
        let within = [AtomicU64::new(u64::MAX), AtomicU64::new(0)];
        Self { reservations: RwLock::new(Reservations::new()), within }
    }

    /// The program has reserved a range. Returns ranges that were of one object each until now.
    pub(super) fn reserved(&self, range: Range<u64>, is_placed: bool) -> Vec<Range<u64>> {
        self.write().reserved(range, is_placed)
    }

    pub(super) fn unreserved(&self, start: u64) {
        self.write().freed(start);
    }

    /// Do the objects in a range end where it ends, or are they known?
    pub(super) fn holds_whole(&self, range: &Range<u64>) -> bool {
        let known = self.read();
        known.is_whole(range) || known.has_objects(range)
    }

    fn made(&self, object: Range<u64>) {
        let mut known = self.write();
        known.object_made(object.clone());
        // All of the reservation may be meant by an address in it.
        let around = known.around_object(object.start).unwrap_or(object);
        self.within[0].fetch_min(around.start, Relaxed);
        self.within[1].fetch_max(around.end, Relaxed);
    }

    fn freed(&self, start: u64) {
        self.write().object_freed(start);
    }

    /// The object at an address.
    #[inline]
    fn object(&self, address: u64) -> Option<Range<u64>> {
        if self.is_near(address) { self.read().object(address) } else { None }
    }

    /// The segment that an address is in.
    fn around(&self, address: u64) -> Option<Range<u64>> {
        self.read().around_object(address)
    }

    /// A range that ends at most `most` bytes before its object does, up to that end.
    pub(super) fn with_rest(&self, range: Range<u64>, most: u64) -> Range<u64> {
        let object = self.object(range.start);
        let end = object
            .map(|object| object.end)
            .filter(|end| (range.end..=range.end.saturating_add(most)).contains(end));
        range.start..end.unwrap_or(range.end)
    }

    /// May an address be in a segment with such objects?
    #[inline]
    pub(super) fn is_near(&self, address: u64) -> bool {
        self.within[0].load(Relaxed) <= address && address < self.within[1].load(Relaxed)
    }

    fn read(&self) -> RwLockReadGuard<'_, Reservations> {
        self.reservations.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Reservations> {
        self.reservations.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sharing {
    /// An allocator that tells of all objects in its segments has made one.
    pub(crate) fn object_made(&self, object: Range<u64>) {
        if self.is_on() {
            self.objects.made(object);
        }
    }

    /// The object that begins at an address is freed.
    pub(crate) fn object_freed(&self, start: u64) {
        if self.is_on() {
            self.objects.freed(start);
        }
    }

    /// The addresses that a kernel may reach from one, where the allocator tells of objects: those
    /// of the object that it is in. What is freed may be used still: an address in a tracked piece,
    /// but in no object, stands for the whole segment. `None`: it is in neither. Numbers that look
    /// like addresses of a segment, which is larger than the device, mostly are.
    #[inline]
    pub(super) fn reach(&self, address: u64) -> Option<Range<u64>> {
        let object = self.objects.object(address);
        let is_tracked = || self.objects.is_near(address) && self.blocks.find(address).is_some();
        object.or_else(|| is_tracked().then(|| self.objects.around(address)).flatten())
    }

    /// May a kernel reach a block from an address?
    pub(super) fn reaches(&self, address: u64, block: &TrackedBlock) -> bool {
        match self.reach(address) {
            Some(object) => object.start < block.range.end && block.range.start < object.end,
            None => block.reach().contains(&address),
        }
    }
}
