//! Whether this process shares, and why not.
//!
//! Sharing ends in two steps. When the program does something that excludes sharing, no further
//! memory is shared. Calls are observed until the last block is private.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// See above.
#[derive(Debug, Default)]
pub struct SharingStatus {
    /// Calls are observed.
    on: AtomicBool,
    /// Chunks are shared, and not only counted.
    shares: AtomicBool,
    /// There is a process to share with, or it does not matter.
    awake: AtomicBool,
    /// Blocks of the library's memory are left alone.
    leaves_blocks: AtomicBool,
    ending: AtomicBool,
    end_reason: OnceLock<&'static str>,
}

impl SharingStatus {
    /// Off.
    pub const fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            shares: AtomicBool::new(false),
            awake: AtomicBool::new(false),
            leaves_blocks: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            end_reason: OnceLock::new(),
        }
    }

    /// Sharing begins, or only its advice.
    pub fn begin(&self, shares: bool) {
        self.on.store(true, Relaxed);
        self.shares.store(shares, Relaxed);
        self.awake.store(true, Relaxed);
    }

    /// Sharing begins when it is [woken](Self::wake), of memory that the program made itself. Until
    /// then calls are observed, and nothing is done.
    pub fn begin_asleep(&self) {
        self.on.store(true, Relaxed);
        self.shares.store(true, Relaxed);
        self.leaves_blocks.store(true, Relaxed);
    }

    /// May blocks of the library's memory be shared, too?
    pub fn takes_blocks(&self) -> bool {
        !self.leaves_blocks.load(Relaxed)
    }

    /// There is a process to share with.
    pub fn wake(&self) {
        self.awake.store(true, Relaxed);
    }

    /// Is there a process to share with, or does it not matter?
    #[inline]
    pub fn is_awake(&self) -> bool {
        self.awake.load(Relaxed)
    }

    /// Are calls observed?
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Are chunks shared now?
    pub fn shares(&self) -> bool {
        self.shares.load(Relaxed)
    }

    /// Are the chunks that could be shared only counted?
    pub fn advises(&self) -> bool {
        self.is_on() && !self.shares() && !self.is_ending()
    }

    /// No further memory is shared for the rest of the process. Returns `true` at the first call.
    pub fn end(&self, why: &'static str) -> bool {
        let is_first = self.is_on() && !self.ending.swap(true, Relaxed);
        if is_first {
            self.shares.store(false, Relaxed);
            let _is_set = self.end_reason.set(why);
            log::info!("memory is not shared with other processes any more: {why}");
        }
        is_first
    }

    /// Are shared blocks to become private, and no others shared?
    pub fn is_ending(&self) -> bool {
        self.ending.load(Relaxed)
    }

    /// All blocks are private, or freed: no call is observed any more.
    pub fn retire(&self) {
        self.on.store(false, Relaxed);
    }

    /// Why sharing ended.
    pub fn end_reason(&self) -> Option<&'static str> {
        self.end_reason.get().copied()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): sharing goes on after the program excluded it, or its end is
    //! forgotten while blocks are shared.
    use super::*;

    fn flags(status: &SharingStatus) -> [bool; 4] {
        [status.is_on(), status.shares(), status.advises(), status.is_ending()]
    }

    #[test]
    fn sharing_is_off_until_it_is_chosen() {
        let status = SharingStatus::new();
        assert_eq!(flags(&status), [false; 4]);
        assert!(!status.end("a reason") && status.end_reason().is_none(), "there is nothing to end");
        status.begin(false);
        assert_eq!(flags(&status), [true, false, true, false]);
        status.begin(true);
        assert_eq!(flags(&status), [true, true, false, false]);
    }

    #[test]
    fn sharing_that_sleeps_observes_and_can_end() {
        let status = SharingStatus::new();
        status.begin_asleep();
        assert_eq!(flags(&status), [true, true, false, false]);
        assert!(!status.is_awake());
        status.wake();
        assert!(status.is_awake() && status.end("a reason"));
        assert_eq!(flags(&status), [true, false, false, true]);
    }

    #[test]
    fn the_first_reason_ends_sharing_and_calls_stay_observed() {
        let status = SharingStatus::new();
        status.begin(true);
        assert!(status.end("the first") && !status.end("the second"));
        assert_eq!(flags(&status), [true, false, false, true]);
        assert_eq!(status.end_reason(), Some("the first"));
        status.retire();
        assert_eq!(flags(&status), [false, false, false, true]);
    }
}
