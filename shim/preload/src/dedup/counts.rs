//! Counts of this process, for the statistics.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use wm_dedup::policy::advice::SharingAdvice;
use wm_driver::lock;

/// See above.
#[derive(Debug)]
pub(super) struct SharingCounts {
    pub(super) copied_back_bytes: AtomicU64,
    pub(super) faults_avoided: AtomicU64,
    pub(super) launches: AtomicU64,
    pub(super) passes: AtomicU64,
    /// As it was counted last.
    advice: Mutex<SharingAdvice>,
}

impl SharingCounts {
    pub(super) const fn new() -> Self {
        Self {
            copied_back_bytes: AtomicU64::new(0),
            faults_avoided: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            passes: AtomicU64::new(0),
            advice: Mutex::new(SharingAdvice { duplicated: 0, saved: 0 }),
        }
    }

    pub(super) fn set_advice(&self, advice: SharingAdvice) {
        *lock(&self.advice) = advice;
    }

    pub(super) fn advice(&self) -> SharingAdvice {
        *lock(&self.advice)
    }
}
