//! Work that several threads do slice by slice, for a time.
//!
//! Ranks wait for each other for a bounded time. Work that may take longer is done in phases,
//! between which they meet.
//!
//! Invariants: each slice is taken once; each phase takes one at least, if any is left; after an
//! error none is taken. No thread outlives a phase.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::communicator::Communicator;
use crate::error::{Error, Result};

/// Of a thread that works on files, in bytes: it calls the driver.
const STACK: usize = 1 << 20;

/// The work that is left.
#[derive(Debug)]
pub struct Slices {
    all: u64,
    step: u64,
    next: AtomicU64,
    has_failed: AtomicBool,
}

impl Slices {
    /// So many things, of which one takes `step` at a time.
    pub fn new(all: u64, step: u64) -> Self {
        Self { all, step: step.max(1), next: AtomicU64::new(0), has_failed: AtomicBool::new(false) }
    }

    /// Is all done, or has it failed?
    pub fn is_over(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.all || self.has_failed.load(Ordering::Relaxed)
    }

    /// Works on slices until none is left or the time is over, on this thread and on others. Each
    /// of them calls the function that `begin` returns with slices: the first thing and the number
    /// of things.
    ///
    /// # Errors
    /// One of the workers'.
    pub fn work<W: FnMut(u64, u64) -> Result>(
        &self,
        threads: usize,
        until: Instant,
        begin: impl Fn() -> Result<W> + Sync,
    ) -> Result {
        let left = self.all.saturating_sub(self.next.load(Ordering::Relaxed)).div_ceil(self.step);
        let others = left.min(threads as u64).saturating_sub(1);
        let ended = Mutex::new(Ok(()));
        let run = || {
            let own = catch_unwind(AssertUnwindSafe(|| self.run(until, &begin))).unwrap_or_else(|_| {
                self.has_failed.store(true, Ordering::Relaxed);
                Err(Error::System("a thread that works on files has panicked".to_owned()))
            });
            let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
            *ended = std::mem::replace(&mut *ended, Ok(())).and(own);
        };
        // If no more threads can be started, those that run do all the work.
        wm_driver::thread::beside(c"wm-files", STACK, (0..others).map(|_| run), run);
        ended.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn run<W: FnMut(u64, u64) -> Result>(&self, until: Instant, begin: impl Fn() -> Result<W>) -> Result {
        let ended = begin().and_then(|mut work| {
            while !self.is_over() {
                let first = self.next.fetch_add(self.step, Ordering::Relaxed);
                if first < self.all {
                    work(first, self.step.min(self.all - first))?;
                }
                if Instant::now() >= until {
                    break;
                }
            }
            Ok(())
        });
        if ended.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        ended
    }
}

/// Is something so on all ranks? A collective call.
pub(super) fn are_all(communicator: &Communicator, call: &str, own: bool) -> Result<bool> {
    let told = communicator.round(call, &[u8::from(own)])?;
    Ok(told.iter().all(|part| part.bytes == [1]))
}

#[cfg(test)]
mod tests {
    //! Hazard: a slice that is left out or done twice, where time runs out or threads meet.
    use std::time::Duration;

    use super::*;

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    fn phases(all: u64, step: u64, threads: usize, until: Instant) -> (Vec<u64>, usize) {
        let (slices, done, mut phases) = (Slices::new(all, step), Mutex::new(Vec::new()), 0);
        while !slices.is_over() {
            let begin = || {
                Ok(|first, count| {
                    done.lock().expect("no panic").extend(first..first + count);
                    Ok(())
                })
            };
            slices.work(threads, until, begin).expect("nothing fails");
            phases += 1;
        }
        let mut done = done.into_inner().expect("no panic");
        done.sort_unstable();
        (done, phases)
    }

    #[test]
    fn each_slice_is_done_once() {
        for (all, step, threads) in
            [(0, 5, 3), (1, 1, 8), (1000, 7, 1), (1000, 7, 8), (10, u64::MAX, 4), (9, 0, 2)]
        {
            let wanted: Vec<_> = (0..all).collect();
            assert_eq!(phases(all, step, threads, far()), (wanted.clone(), usize::from(all > 0)));
            // No time at all.
            assert_eq!(phases(all, step, threads, Instant::now()).0, wanted);
        }
    }

    #[test]
    fn a_phase_ends_in_time() {
        assert_eq!(phases(10, 1, 1, Instant::now()).1, 10);
    }

    #[test]
    fn nothing_is_taken_after_an_error() {
        let (slices, done) = (Slices::new(100, 1), AtomicU64::new(0));
        let begin = || {
            Ok(|first, _| {
                done.fetch_add(1, Ordering::Relaxed);
                if first == 10 { Err(Error::Memory(String::new())) } else { Ok(()) }
            })
        };
        assert!(matches!(slices.work(1, far(), begin), Err(Error::Memory(_))));
        assert_eq!((slices.is_over(), done.into_inner()), (true, 11));
    }

    #[test]
    fn a_worker_that_cannot_begin_is_an_error() {
        let slices = Slices::new(100, 1);
        let begin = || if true { Err(Error::Memory(String::new())) } else { Ok(|_, _| Ok(())) };
        assert!(matches!(slices.work(3, far(), begin), Err(Error::Memory(_))));
        assert!(slices.is_over());
    }

    /// A signal handler of the program, and its cancellation, do not run on the threads.
    #[test]
    fn threads_are_ours_and_a_panic_of_one_is_an_error() {
        let (slices, names) = (Slices::new(100, 1), Mutex::new(Vec::new()));
        let begin = || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
            names.lock().expect("no panic").push(name.trim_end().to_owned());
            Ok(|first, _| {
                assert_ne!(first, 10, "on purpose");
                Ok(())
            })
        };
        assert!(matches!(slices.work(3, far(), begin), Err(Error::System(_))));
        assert!(slices.is_over());
        let names = names.into_inner().expect("no panic");
        assert_eq!(names.iter().filter(|name| *name == "wm-files").count(), 2, "{names:?}");
    }
}
