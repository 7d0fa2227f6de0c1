//! The last answer: clients that asked for `final` get the statistics when the process exits.
//!
//! An exit handler cannot join a thread, and the thread dies with the process. So [`wait`] lets the exit pause until
//! the thread has answered, at most [`LIMIT`], and only if a client or the user (by naming a file) has asked for it. One atomic and two futex
//! calls: nothing that a thread stopped half-way could hold.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::thread::futex;

/// Longest pause of an exit. The thread is ready to run; on a loaded machine it may still have to wait for its turn.
const LIMIT: Duration = Duration::from_secs(3);

/// How many wait for the end. The word that the exit sleeps on.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Notes how many wait now.
pub(super) fn expect(clients: usize) {
    WAITING.store(clients as u32, Ordering::Release);
}

/// All have been answered: the exit may go on.
pub(super) fn done() {
    WAITING.store(0, Ordering::Release);
    // An exit that is not woken goes on when its time is up.
    let _ = futex::wake(&WAITING, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// Pauses until [`done`], if anything waits for the reply.
pub(super) fn wait() {
    let deadline = Instant::now() + LIMIT;
    loop {
        let clients = WAITING.load(Ordering::Acquire);
        let left = deadline.saturating_duration_since(Instant::now());
        if clients == 0 || left.is_zero() {
            return;
        }
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        // Sleeps while the word has the value that was read. Why the sleep ended is seen in the next round.
        let _ = futex::wait(&WAITING, futex::Flags::PRIVATE, clients, Some(&left));
    }
}
