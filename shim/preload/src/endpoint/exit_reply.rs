//! The last answer: clients that asked for `final` get the statistics when the process exits.
//!
//! An exit handler cannot join a thread, and the thread dies with the process. So
//! [`ExitReply::wait`] pauses the exit until the thread has answered, at most [`LIMIT`], and only
//! if a client, or the user by naming a file, has asked for the last statistics. It is one atomic
//! and two futex calls: a thread that is stopped half-way holds nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::thread::futex;

/// Longest pause of an exit. The thread is ready to run; on a loaded machine it may still have to
/// wait for its turn.
const LIMIT: Duration = Duration::from_secs(3);

/// Answers that are due at the exit. The exit sleeps on the word.
#[derive(Debug)]
pub(super) struct ExitReply(AtomicU32);

impl ExitReply {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Sets how many answers are due.
    pub(super) fn expect(&self, answers: usize) {
        self.0.store(answers as u32, Ordering::Release);
    }

    /// Every answer has been sent: the exit may go on.
    pub(super) fn done(&self) {
        self.0.store(0, Ordering::Release);
        // An exit that is not woken goes on when its time is up.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    /// Pauses until [`ExitReply::done`], if any answer is due.
    pub(super) fn wait(&self) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let answers = self.0.load(Ordering::Acquire);
            let left = deadline.saturating_duration_since(Instant::now());
            if answers == 0 || left.is_zero() {
                return;
            }
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            // Sleeps while the word has the value that was read. The next round sees why the sleep
            // ended.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, answers, Some(&left));
        }
    }
}
