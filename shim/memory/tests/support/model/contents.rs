//! The contents of physical memory, and copies of them. A copy's bytes move when a call learns that
//! it is over, so that a reader that relies on them earlier reads other bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use wm_driver::LinkWay;

/// A handle, and a byte of it.
type Place = (u64, u64);

struct Copy {
    way: LinkWay,
    addresses: [u64; 2],
    places: [Place; 2],
    bytes: u64,
}

#[derive(Default)]
pub(super) struct Contents {
    words: BTreeMap<Place, u64>,
    /// Copies whose end no call has learned, by event.
    copies: BTreeMap<u64, Copy>,
    /// Events behind copies under way, others than their own.
    behind: BTreeMap<u64, Vec<u64>>,
    /// Copies take longer than anyone waits.
    pub(super) slow: bool,
    /// Those of one way do.
    pub(super) slow_way: Option<LinkWay>,
}

impl Contents {
    pub(super) fn write(&mut self, place: Place, word: u64) {
        self.words.insert(place, word);
    }

    pub(super) fn read(&self, place: Place) -> Option<u64> {
        self.words.get(&place).copied()
    }

    /// The words of a range, by their distance from its begin.
    pub(super) fn words(&self, (handle, at): Place, bytes: u64) -> Vec<(u64, u64)> {
        let words = self.words.range((handle, at)..(handle, at + bytes));
        words.map(|((_, place), word)| (place - at, *word)).collect()
    }

    /// The handle is no more.
    pub(super) fn forget(&mut self, handle: u64) {
        self.words.retain(|place, _| place.0 != handle);
    }

    /// A handle has the bytes of another one.
    pub(super) fn duplicate(&mut self, to: u64, from: u64) {
        let words: Vec<_> =
            self.words.range((from, 0)..(from + 1, 0)).map(|((_, at), word)| ((to, *at), *word)).collect();
        self.words.extend(words);
    }

    /// Target and source, by address and by place.
    pub(super) fn start(
        &mut self,
        event: u64,
        way: LinkWay,
        addresses: [u64; 2],
        places: [Place; 2],
        bytes: u64,
    ) {
        self.copies.insert(event, Copy { way, addresses, places, bytes });
    }

    /// The event comes behind all copies there are.
    pub(super) fn go_behind(&mut self, event: u64) {
        self.behind.insert(event, self.copies.keys().copied().collect());
    }

    /// Are all copies over?
    pub(super) fn settle(&mut self) -> bool {
        let copies: Vec<u64> = self.copies.keys().copied().collect();
        copies.into_iter().all(|copy| self.ends(copy))
    }

    /// Are the copies over that an event is behind, if it is behind any?
    pub(super) fn passes(&mut self, event: u64) -> bool {
        let mut others = self.behind.get(&event).cloned().unwrap_or_default();
        // Copies of one way end in the order in which they were started.
        if let Some(way) = self.copies.get(&event).map(|copy| copy.way) {
            let before = self.copies.range(..event).filter(|(_, copy)| copy.way == way);
            others.extend(before.map(|(event, _)| *event));
        }
        others.into_iter().chain([event]).all(|copy| self.ends(copy))
    }

    fn ends(&mut self, event: u64) -> bool {
        let is_slow = |copy: &Copy| self.slow || self.slow_way == Some(copy.way);
        if self.copies.get(&event).is_some_and(is_slow) {
            return false;
        }
        if let Some(Copy { places: [to, from], bytes, .. }) = self.copies.remove(&event) {
            let source = self.words.range(from..(from.0, from.1 + bytes));
            let moved: Vec<_> = source.map(|((_, at), word)| ((to.0, at - from.1 + to.1), *word)).collect();
            self.words.retain(|place, _| place.0 != to.0 || !(to.1..to.1 + bytes).contains(&place.1));
            self.words.extend(moved);
        }
        true
    }

    /// Panics where a copy is using addresses.
    pub(super) fn check_still(&self, range: &Range<u64>) {
        let meets =
            |copy: &Copy| copy.addresses.iter().any(|at| *at < range.end && range.start < at + copy.bytes);
        assert!(!self.copies.values().any(meets), "{range:x?} is unmapped during a copy");
    }
}
