//! Hazard (wrong report): a slow machine counts as a slow library, or each machine counts as slow.
//!
//! A bound of milliseconds on one call says something about the library only where the machine
//! itself keeps pace. A virtual machine on which pages take several times as long, or threads wait
//! for a processor, breaks each such bound.

use std::panic::{UnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::skip;

/// A sample is the time from the moment when a thread should wake until it has written to each page
/// of so many fresh bytes.
const FRESH: usize = 1 << 20;

/// The sleep between two samples. It is no multiple of common periods of schedulers.
const BETWEEN: Duration = Duration::from_millis(17);

/// Nine of ten samples are no longer where the machine keeps pace. Beside tests they take 0.6 to
/// 1.6 ms on two cores; 8 ms where others take seven tenths of each core.
const LONGEST: Duration = Duration::from_micros(2500);

/// Runs the bounds of a test. If they do not hold, the test fails where the machine kept pace
/// meanwhile, and is skipped where it did not.
pub fn bounded(bounds: impl FnOnce() + UnwindSafe) {
    let watch = Watch::begin();
    let Err(failure) = catch_unwind(bounds) else { return };
    if keeps_pace(watch.end()) {
        resume_unwind(failure);
    }
    skip("needs a machine that keeps pace");
}

/// Samples that a thread takes while a test runs.
struct Watch {
    stop: Sender<()>,
    samples: JoinHandle<Vec<Duration>>,
}

impl Watch {
    fn begin() -> Watch {
        let (stop, stopped) = channel();
        let samples = std::thread::spawn(move || {
            let (mut samples, mut due) = (Vec::new(), Instant::now());
            loop {
                touch_fresh_pages();
                samples.push(due.elapsed());
                due = Instant::now() + BETWEEN;
                if stopped.recv_timeout(BETWEEN) != Err(RecvTimeoutError::Timeout) {
                    return samples;
                }
            }
        });
        Watch { stop, samples }
    }

    fn end(self) -> Vec<Duration> {
        drop(self.stop);
        self.samples.join().expect("the samples")
    }
}

fn touch_fresh_pages() {
    // SAFETY: a private mapping of no file, at an address of the system's choice, is written and
    // unmapped; nothing else knows it.
    unsafe {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let memory = libc::mmap(std::ptr::null_mut(), FRESH, protection, flags, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED, "a MiB");
        libc::madvise(memory, FRESH, libc::MADV_NOHUGEPAGE);
        memory.write_bytes(1, FRESH);
        libc::munmap(memory, FRESH);
    }
}

/// Whether samples are those of a machine on which bounds of milliseconds hold. There is at least
/// one.
fn keeps_pace(mut samples: Vec<Duration>) -> bool {
    samples.sort_unstable();
    samples[(samples.len() * 9 - 1) / 10] <= LONGEST
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, Watch, keeps_pace};

    #[test]
    fn a_machine_on_which_a_thread_waits_now_and_then_keeps_pace() {
        let samples = |slow: usize| (0..20).map(|at| if at < slow { 2 * LONGEST } else { LONGEST }).collect();
        assert!(keeps_pace(samples(2)));
        assert!(!keeps_pace(samples(3)));
    }

    #[test]
    fn a_watch_has_a_sample_however_short_it_is() {
        assert!(!Watch::begin().end().is_empty());
    }
}
