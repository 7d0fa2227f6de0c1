//! Counters of this crate: calls by hook, copies by path, and the times we stepped aside.
//!
//! Relaxed atomics, no locks on any path a program takes. One place to add a counter: a field or
//! row here, and its line in `report`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Calls of one hooked function.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    count: AtomicU64,
    errors: AtomicU64,
}

impl Calls {
    pub(crate) const fn new() -> Self {
        Self { count: AtomicU64::new(0), errors: AtomicU64::new(0) }
    }

    /// A call was made.
    #[inline]
    pub(crate) fn note(&self) {
        self.count.fetch_add(1, Relaxed);
    }

    /// It did not succeed.
    pub(crate) fn note_error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    /// Calls, and those of them that did not succeed.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.count.load(Relaxed), self.errors.load(Relaxed))
    }
}

/// A hooked function's name, and its counts as [`Calls::read`] gives them.
pub(crate) type Hooked = (&'static str, (u64, u64));

static HOOKED: OnceLock<fn() -> Vec<Hooked>> = OnceLock::new();

/// Says where the counters of hooked functions are. Once, before the first hook is connected.
pub(crate) fn set_hooked(read: fn() -> Vec<Hooked>) {
    HOOKED.get_or_init(|| read);
}

/// Hooked functions with their counts. Empty before hooks are installed: none can have run.
pub(crate) fn hooked() -> Vec<Hooked> {
    HOOKED.get().map(|read| read()).unwrap_or_default()
}

/// Copies of one direction.
#[derive(Debug)]
pub(crate) struct CopyCount {
    /// The direction's name in the statistics.
    pub(crate) direction: &'static str,
    count: AtomicU64,
    bytes: AtomicU64,
}

impl CopyCount {
    const fn new(direction: &'static str) -> Self {
        Self { direction, count: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Counts a copy that a program asked for.
    #[inline]
    pub(crate) fn add(&self, bytes: usize) {
        self.count.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Number of copies and their bytes.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.count.load(Relaxed), self.bytes.load(Relaxed))
    }
}

pub(crate) static HOST_TO_DEVICE: CopyCount = CopyCount::new("htod");
pub(crate) static DEVICE_TO_HOST: CopyCount = CopyCount::new("dtoh");
pub(crate) static DEVICE_TO_DEVICE: CopyCount = CopyCount::new("dtod");

/// Copies by direction.
pub(crate) static COPIES: [&CopyCount; 3] = [&HOST_TO_DEVICE, &DEVICE_TO_HOST, &DEVICE_TO_DEVICE];

static OUT_OF_BOUNDS: AtomicU64 = AtomicU64::new(0);

/// A copy or memset that ran past the end of a block was refused.
pub(crate) fn out_of_bounds() {
    OUT_OF_BOUNDS.fetch_add(1, Relaxed);
}

/// How many were.
pub(crate) fn refused_out_of_bounds() -> u64 {
    OUT_OF_BOUNDS.load(Relaxed)
}

static FAIL_OPEN: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// We stepped aside and the driver served the call: counted, and logged once a reason.
pub(crate) fn fail_open(reason: &'static str) {
    fail_open_by(reason, String::new);
}

/// The same, with what is worth telling of the first time, in parentheses.
pub(crate) fn fail_open_by(reason: &'static str, detail: impl FnOnce() -> String) {
    let first = {
        let mut reasons = FAIL_OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let count = reasons.entry(reason).or_insert(0);
        *count += 1;
        *count == 1
    };
    if first {
        log::warn!("stepped aside, the driver serves such calls as without wmshim: {reason}{}", detail());
    }
}

/// Reasons to step aside, with their counts.
pub(crate) fn fail_open_reasons() -> BTreeMap<&'static str, u64> {
    FAIL_OPEN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
