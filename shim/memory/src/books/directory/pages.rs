//! From an address to the slot of the piece that may be around it: tables as a processor's own,
//! made where they are needed.
//!
//! Four levels of 512 entries cover 57 bits of address in granules of 2 MiB. A granule knows where
//! in it pieces begin, and which piece reaches into it from before. So the last piece that begins
//! at or before an address is found in the address's own granule: the last begin at or below it, or
//! else the piece that reaches in.
//!
//! The piece that reaches in is written when it is entered, and its entry is not taken back: the
//! entry is read only where no begin is nearer, and a piece that lies there later has written
//! itself.

use std::ops::Range;

use super::lazy_slice::LazySlice;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::vocabulary::sizes::UNIT;

const GRANULE: u64 = 2 << 20;

/// Entries of a table.
const FAN: usize = 512;

/// Units of a word, and words of a granule.
const BITS: usize = 64;

/// Tables of tables of spans.
#[derive(Debug, Default)]
pub(super) struct Pages(LazySlice<LazySlice<LazySlice<Span>>>);

/// A table of granules. A block of a GiB reaches into all of them: that is one range of memory to
/// write.
#[derive(Debug, Default)]
struct Span {
    /// By granule, slot of the piece that began before, and has the granule's first byte.
    reaching_in: LazySlice<AtomicU32>,
    granules: LazySlice<Granule>,
}

/// 2 MiB of addresses.
#[derive(Debug, Default)]
struct Granule {
    /// A bit for each word with a begin in it.
    begun: AtomicU64,
    words: LazySlice<Word>,
}

/// Where in 64 units pieces begin, and their slots.
#[derive(Debug, Default)]
struct Word {
    begins: AtomicU64,
    slots: LazySlice<AtomicU32>,
}

impl Pages {
    /// The only slot whose piece can be around an address.
    pub(super) fn find(&self, address: u64) -> Option<u32> {
        let [one, two, three, four] = path(address / GRANULE);
        let span = self.0.get(one)?.get(two)?.get(three)?;
        let near = span.granules.get(four).and_then(|granule| granule.last(unit(address)));
        near.or_else(|| Some(span.reaching_in.get(four)?.load(Relaxed)))
    }

    /// Notes where a piece begins, and where it reaches into.
    pub(super) fn insert(&self, address: u64, bytes: u64, slot: u32) {
        let (first, end) = (address / GRANULE, (address + bytes).div_ceil(GRANULE));
        let Some(mut span) = self.span(first) else { return };
        if let Some(granule) = span.granule(first) {
            granule.begin(unit(address), slot);
        }
        let mut next = first + 1;
        while next < end {
            if next % FAN as u64 == 0 {
                let Some(following) = self.span(next) else { return };
                span = following;
            }
            next = span.reach(next..end, slot);
        }
    }

    /// The piece that begins at `address` is no more.
    pub(super) fn remove(&self, address: u64) {
        let number = address / GRANULE;
        if let Some(granule) = self.span(number).and_then(|span| span.granule(number)) {
            granule.end(unit(address));
        }
    }

    /// The span that a granule is in; `None` beyond 57 bits.
    fn span(&self, number: u64) -> Option<&Span> {
        let [one, two, three, _] = path(number);
        self.0.make(FAN, one)?.make(FAN, two)?.make(FAN, three)
    }
}

impl Span {
    fn granule(&self, number: u64) -> Option<&Granule> {
        self.granules.make(FAN, number as usize % FAN)
    }

    /// Notes a slot for those of some granules that are in this span, as the first one is; returns
    /// the first one behind them.
    fn reach(&self, granules: Range<u64>, slot: u32) -> u64 {
        let begin = granules.start as usize % FAN;
        let some = FAN.min(begin + (granules.end - granules.start) as usize) - begin;
        let row = &self.reaching_in.make_all(FAN)[begin..begin + some];
        row.iter().for_each(|granule| granule.store(slot, Relaxed));
        granules.start + some as u64
    }
}

/// The index in each table, the first beyond its end where the number is too large.
fn path(number: u64) -> [usize; 4] {
    let index = |level: u32| (number as usize) >> (level * FAN.ilog2());
    [index(3), index(2) % FAN, index(1) % FAN, index(0) % FAN]
}

fn unit(address: u64) -> usize {
    (address % GRANULE / UNIT) as usize
}

impl Granule {
    fn begin(&self, unit: usize, slot: u32) {
        let (index, bit) = (unit / BITS, unit % BITS);
        let Some(word) = self.words.make(BITS, index) else { return };
        if let Some(place) = word.slots.make(BITS, bit) {
            place.store(slot, Relaxed);
        }
        word.begins.fetch_or(1 << bit, Relaxed);
        self.begun.fetch_or(1 << index, Relaxed);
    }

    fn end(&self, unit: usize) {
        let (index, bit) = (unit / BITS, 1 << (unit % BITS));
        let Some(word) = self.words.get(index) else { return };
        if word.begins.fetch_and(!bit, Relaxed) == bit {
            self.begun.fetch_and(!(1 << index), Relaxed);
        }
    }

    /// Slot of the last piece that begins at or below a unit.
    fn last(&self, unit: usize) -> Option<u32> {
        let (index, bit) = (unit / BITS, unit % BITS);
        let word = self.words.get(index)?;
        let near = highest(word.begins.load(Relaxed) & (u64::MAX >> (BITS - 1 - bit)));
        let (word, bit) = match near {
            Some(bit) => (word, bit),
            None => self.last_before(index)?,
        };
        Some(word.slots.get(bit)?.load(Relaxed))
    }

    /// The last begin in the words before one.
    fn last_before(&self, index: usize) -> Option<(&Word, usize)> {
        let index = highest(self.begun.load(Relaxed) & ((1 << index) - 1))?;
        let word = self.words.get(index)?;
        Some((word, highest(word.begins.load(Relaxed))?))
    }
}

fn highest(bits: u64) -> Option<usize> {
    bits.checked_ilog2().map(|bit| bit as usize)
}
