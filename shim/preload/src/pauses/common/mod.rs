//! Copies of paused memory that several processes have in common: what all of them have on the GPU
//! lies in memory of the host once, however many of them are paused.
//!
//! Names find a copy, and bytes decide: a process gives memory up for a copy of another process
//! once it has compared them, behind its closed gate. It remembers where the copy lies, and the
//! keyed fingerprints of the bytes. So its next pause need not look at the copy again: what was not
//! written since is where it was.
//!
//! Invariants: a copy never changes ([`segment`]); a process that is paused maps the copies of all
//! its memory, so it needs no broker and no other process to resume; what a process does not need
//! any more it forgets while it runs, and a segment lives as long as one process uses it.

mod groups;
pub(super) mod keeping;
mod kept;
pub(super) mod leaving;
pub(super) mod segment;
mod verified;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use wm_dedup::client::{CopyClient, SegmentNumber};
use wm_driver::lock;

use kept::{RememberedCopies, SegmentKey};
use segment::MappedSegment;

/// How often the copies are looked at that a running process keeps.
const LOOK: Duration = Duration::from_secs(2);

/// The copies of this process.
pub(super) struct CommonCopies {
    /// `None` before there is one, and while a pause uses it. Held while the broker is told what is
    /// not used any more, for which a pause waits.
    book: Mutex<Option<Box<CommonBook>>>,
}

/// The copies that this process knows of, and the broker that knows of others.
struct CommonBook {
    client: CopyClient,
    segments: HashMap<SegmentKey, UsedSegment>,
    numbers: HashMap<SegmentNumber, SegmentKey>,
    last: u64,
    kept: RememberedCopies,
}

/// A segment that this process maps.
struct UsedSegment {
    memory: Arc<MappedSegment>,
    /// `None`: the broker does not know it.
    number: Option<SegmentNumber>,
}

impl CommonCopies {
    pub(super) const fn new() -> Self {
        Self { book: Mutex::new(None) }
    }

    /// The copies, for a pause. `client` is asked for if there were none before.
    fn take(&self, client: impl FnOnce() -> Option<CopyClient>) -> Option<Box<CommonBook>> {
        let kept = lock(&self.book).take();
        kept.or_else(|| client().map(|client| Box::new(CommonBook::new(client))))
    }

    fn put_back(&self, book: Box<CommonBook>) {
        *lock(&self.book) = Some(book);
    }

    /// Forgets copies that no block needs any more, or all where the host is short of memory.
    /// `None`: none is left.
    fn forget_some(&self) -> Option<Instant> {
        let mut book = lock(&self.book);
        let book = book.as_mut()?;
        book.forget_useless();
        (!book.kept.is_empty()).then(|| Instant::now() + LOOK)
    }

    /// Forgets all copies of a process that runs.
    fn forget_all(&self) {
        if let Some(book) = lock(&self.book).as_mut() {
            book.kept = RememberedCopies::default();
            book.release_unused();
        }
    }
}

impl CommonBook {
    fn new(client: CopyClient) -> Self {
        Self {
            client,
            segments: HashMap::new(),
            numbers: HashMap::new(),
            last: 0,
            kept: RememberedCopies::default(),
        }
    }

    /// A segment is mapped from now on.
    fn add(&mut self, memory: MappedSegment, number: Option<SegmentNumber>) -> SegmentKey {
        self.last += 1;
        let key = SegmentKey(self.last);
        self.segments.insert(key, UsedSegment { memory: Arc::new(memory), number });
        self.numbers.extend(number.map(|number| (number, key)));
        key
    }

    /// Bytes of all segments that are mapped.
    fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.memory.bytes()).sum()
    }

    /// Of a process that runs.
    fn forget_useless(&mut self) {
        if kept::is_host_short(self.bytes()) {
            self.kept = RememberedCopies::default();
        } else {
            self.kept.forget_freed();
        }
        self.release_unused();
    }

    /// Segments in which this process keeps nothing are other processes' alone.
    fn release_unused(&mut self) {
        let used = self.kept.segments();
        let over = self.segments.extract_if(|key, _| !used.contains(key));
        let numbers: Vec<SegmentNumber> = over.filter_map(|(_, segment)| segment.number).collect();
        self.numbers.retain(|number, _| !numbers.contains(number));
        if !numbers.is_empty() {
            self.client.release(&numbers);
        }
    }

    /// The broker of before has ended, and the numbers are none of the next one's.
    fn forget_numbers(&mut self) {
        self.numbers.clear();
        self.segments.values_mut().for_each(|segment| segment.number = None);
    }
}
