//! Marks: lines of the program's own, such as `step 12`, in a ring of the black box.
//!
//! Any thread writes, by plain stores and without a lock. A place has its mark's number twice: the
//! writer stores `ended` before the text and `begun` after it, and a file is read from its front to
//! its end, so a place that was read while it was written has two numbers, and is left out.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::time::Duration;

use super::TextCells;
use super::words::FileWords;

/// Words of a mark's text.
const TEXT: usize = 7;

/// A place for a mark.
#[derive(Debug)]
#[repr(C)]
pub(super) struct MarkCells {
    /// The mark's number, and one; stored last.
    begun: AtomicU64,
    /// Nanoseconds since the box was made.
    at_ns: AtomicU64,
    text: TextCells<TEXT>,
    /// The number again; stored first.
    ended: AtomicU64,
}

impl MarkCells {
    const fn new() -> Self {
        let [begun, at_ns, ended] = [const { AtomicU64::new(0) }; 3];
        Self { begun, at_ns, text: TextCells::new(), ended }
    }

    fn write(&self, number: u64, at_ns: u64, text: &str) {
        self.ended.store(number, Relaxed);
        fence(Release);
        self.at_ns.store(at_ns, Relaxed);
        self.text.store(text);
        self.begun.store(number, Release);
    }
}

/// The last marks.
#[derive(Debug)]
#[repr(C)]
pub struct MarkRing {
    /// Marks so far.
    count: AtomicU64,
    /// The rest of a cache line: the file has no gaps that no word fills.
    _unused: [AtomicU64; 7],
    places: [MarkCells; Self::PLACES],
}

impl MarkRing {
    /// Marks that are kept.
    pub const PLACES: usize = 64;

    pub(super) const fn new() -> Self {
        let places = [const { MarkCells::new() }; Self::PLACES];
        Self { count: AtomicU64::new(0), _unused: [const { AtomicU64::new(0) }; 7], places }
    }

    /// Writes a mark in the place of the oldest one. A text that is too long is cut.
    pub fn note(&self, at_ns: u64, text: &str) {
        let number = self.count.fetch_add(1, Relaxed);
        self.places[(number % Self::PLACES as u64) as usize].write(number + 1, at_ns, text);
    }

    /// Copies the marks of a ring that nothing writes any more.
    pub fn take_over(&self, earlier: &Self) {
        self.count.store(earlier.count.load(Relaxed), Relaxed);
        for (to, from) in self.places.iter().zip(&earlier.places) {
            let texts = to.text.0.iter().zip(&from.text.0);
            let numbers = [(&to.begun, &from.begun), (&to.at_ns, &from.at_ns), (&to.ended, &from.ended)];
            texts.chain(numbers).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        }
    }

    /// The words of the ring, in the order of the file.
    #[cfg(test)]
    pub(super) fn cells(&self) -> Vec<AtomicU64> {
        let place = |place: &MarkCells| {
            let mut words = vec![place.begun.load(Relaxed), place.at_ns.load(Relaxed)];
            words.extend(place.text.0.iter().map(|word| word.load(Relaxed)));
            words.push(place.ended.load(Relaxed));
            words
        };
        let words = self.places.iter().flat_map(place);
        let head = [self.count.load(Relaxed), 0, 0, 0, 0, 0, 0, 0];
        head.into_iter().chain(words).map(AtomicU64::new).collect()
    }
}

/// A mark that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PastMark {
    /// When, from the time that the box was made.
    pub at: Duration,
    /// What the program said.
    pub text: String,
}

/// Reads a ring. The oldest mark is first.
pub(super) fn read(words: &mut FileWords<'_>) -> Vec<PastMark> {
    let _count_and_unused: [u64; 8] = std::array::from_fn(|_| words.next());
    let mut marks: Vec<(u64, PastMark)> = (0..MarkRing::PLACES).filter_map(|_| read_place(words)).collect();
    marks.sort_by_key(|(number, _)| *number);
    marks.into_iter().map(|(_, mark)| mark).collect()
}

/// `None` for a place that is empty, or was being written.
fn read_place(words: &mut FileWords<'_>) -> Option<(u64, PastMark)> {
    let begun = words.next();
    let at = Duration::from_nanos(words.next());
    let text = words.text(TEXT);
    (words.next() == begun && begun > 0).then_some((begun, PastMark { at, text }))
}
