//! Counters of this crate: calls by hook, copies by direction, and calls that failed open.
//!
//! Relaxed atomics, no locks on any path a program takes. One place to add a counter: a field or
//! row here, and its line in `report`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use wm_driver::lock;
use wm_schema::black_box::CopyCells;

use crate::black_box;

/// Calls of one hooked function.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    made: AtomicU64,
    errors: AtomicU64,
}

impl Calls {
    pub(crate) const fn new() -> Self {
        Self { made: AtomicU64::new(0), errors: AtomicU64::new(0) }
    }

    /// A call was made.
    #[inline]
    pub(crate) fn count(&self) {
        self.made.fetch_add(1, Relaxed);
    }

    /// It did not succeed.
    pub(crate) fn count_error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    /// Calls, and those of them that did not succeed.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.made.load(Relaxed), self.errors.load(Relaxed))
    }
}

/// A hooked function's name, and its counts as [`Calls::read`] gives them.
pub(crate) type Hooked = (&'static str, (u64, u64));

/// Copies of one direction.
#[derive(Debug)]
pub(crate) struct CopyCount {
    /// The direction's name in the statistics.
    pub(crate) direction: &'static str,
    /// Its row in the black box, where the counts are.
    row: usize,
}

impl CopyCount {
    const fn new(direction: &'static str, row: usize) -> Self {
        Self { direction, row }
    }

    /// Counts a copy that a program asked for.
    #[inline]
    pub(crate) fn add(&self, bytes: usize) {
        let cells = self.cells();
        cells.direction.store(self.row as u64 + 1, Relaxed);
        cells.count.fetch_add(1, Relaxed);
        cells.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Number of copies and their bytes.
    pub(crate) fn read(&self) -> (u64, u64) {
        let cells = self.cells();
        (cells.count.load(Relaxed), cells.bytes.load(Relaxed))
    }

    fn cells(&self) -> &'static CopyCells {
        &black_box::current().copies[self.row]
    }
}

/// The counters of a process.
#[derive(Debug)]
pub(crate) struct ProcessCounters {
    started: OnceLock<Instant>,
    hooked: OnceLock<fn() -> Vec<Hooked>>,
    pub(crate) host_to_device: CopyCount,
    pub(crate) device_to_host: CopyCount,
    pub(crate) device_to_device: CopyCount,
    fail_open: Mutex<BTreeMap<&'static str, u64>>,
}

/// The process's counters, a static of this layer: hooks count in it, the report reads it.
pub(crate) static COUNTERS: ProcessCounters = ProcessCounters::new();

impl ProcessCounters {
    pub(crate) const fn new() -> Self {
        Self {
            started: OnceLock::new(),
            hooked: OnceLock::new(),
            host_to_device: CopyCount::new("htod", 0),
            device_to_host: CopyCount::new("dtoh", 1),
            device_to_device: CopyCount::new("dtod", 2),
            fail_open: Mutex::new(BTreeMap::new()),
        }
    }

    /// The uptime counts from the first call of this.
    pub(crate) fn start(&self) {
        self.started.get_or_init(Instant::now);
    }

    /// Seconds since [`ProcessCounters::start`].
    pub(crate) fn uptime(&self) -> f64 {
        self.started.get().map_or(0.0, |start| start.elapsed().as_secs_f64())
    }

    /// Says where the counters of hooked functions are. Once, before the first hook is connected.
    pub(crate) fn set_hooked(&self, read: fn() -> Vec<Hooked>) {
        self.hooked.get_or_init(|| read);
    }

    /// Hooked functions with their counts. Empty before hooks are installed: none can have run.
    pub(crate) fn hooked(&self) -> Vec<Hooked> {
        self.hooked.get().map(|read| read()).unwrap_or_default()
    }

    /// Copies by direction.
    pub(crate) fn copies(&self) -> [&CopyCount; 3] {
        [&self.host_to_device, &self.device_to_host, &self.device_to_device]
    }

    /// A copy or memset that ran past the end of a block was refused.
    pub(crate) fn count_out_of_bounds(&self) {
        black_box::current().process.out_of_bounds.fetch_add(1, Relaxed);
    }

    /// Copies and memsets that were refused for that.
    pub(crate) fn out_of_bounds(&self) -> u64 {
        black_box::current().process.out_of_bounds.load(Relaxed)
    }

    /// The driver serves the call in our place: counted, and logged once a reason.
    pub(crate) fn fail_open(&self, reason: &'static str) {
        self.fail_open_by(reason, String::new);
    }

    /// The same, with details of the first time, in parentheses.
    pub(crate) fn fail_open_by(&self, reason: &'static str, detail: impl FnOnce() -> String) {
        black_box::current().process.fail_open.fetch_add(1, Relaxed);
        let first = {
            let mut reasons = self.reasons();
            let count = reasons.entry(reason).or_insert(0);
            *count += 1;
            *count == 1
        };
        if first {
            log::warn!("stepped aside, the driver serves such calls as without wmshim: {reason}{}", detail());
        }
    }

    /// Reasons to fail open, with their counts.
    pub(crate) fn fail_open_reasons(&self) -> BTreeMap<&'static str, u64> {
        self.reasons().clone()
    }

    fn reasons(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        lock(&self.fail_open)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a call that failed open is not counted, or counts as another.
    use super::*;

    #[test]
    fn each_reason_has_its_own_count() {
        let counters = ProcessCounters::new();
        ["one", "other", "one"].into_iter().for_each(|reason| counters.fail_open(reason));
        assert_eq!(counters.fail_open_reasons(), BTreeMap::from([("one", 2), ("other", 1)]));
    }

    #[test]
    fn a_direction_counts_its_own_copies() {
        let counters = ProcessCounters::new();
        counters.device_to_host.add(7);
        counters.device_to_host.add(8);
        let read: Vec<_> = counters.copies().iter().map(|copies| (copies.direction, copies.read())).collect();
        assert_eq!(read, [("htod", (0, 0)), ("dtoh", (2, 15)), ("dtod", (0, 0))]);
    }

    #[test]
    fn hooks_are_counted_once_they_are_installed() {
        let counters = ProcessCounters::new();
        assert!(counters.hooked().is_empty() && counters.uptime() == 0.0);
        counters.set_hooked(|| vec![("cuInit", (1, 0))]);
        counters.set_hooked(Vec::new);
        assert_eq!(counters.hooked(), [("cuInit", (1, 0))], "the first one stays");
    }
}
