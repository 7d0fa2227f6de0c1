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

    pub(super) fn made(&self, object: Range<u64>) {
        let mut known = self.write();
        known.object_made(object.clone());
        // All of the reservation may be meant by an address in it.
        let around = known.around_object(object.start).unwrap_or(object);
        self.within[0].fetch_min(around.start, Relaxed);
        self.within[1].fetch_max(around.end, Relaxed);
    }

    pub(super) fn freed(&self, start: u64) -> Option<Range<u64>> {
        self.write().object_freed(start)
    }

    /// The object at an address.
    #[inline]
    pub(super) fn object(&self, address: u64) -> Option<Range<u64>> {
        if self.is_near(address) { self.read().object(address) } else { None }
    }

    /// The segment that an address is in.
    pub(super) fn around(&self, address: u64) -> Option<Range<u64>> {
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
