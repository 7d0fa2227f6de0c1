//! The last answer: clients that asked for `final` get the statistics when the process exits.
//!
//! An exit handler cannot join a thread, and the thread dies with the process. So [`wait`] lets the exit pause until
//! the thread has answered, at most [`LIMIT`], and only if a client or the user (by naming a file) has asked for it. One atomic and two futex
//! calls: nothing that a thread stopped half-way could hold.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest pause of an exit. The thread is ready to run; on a loaded machine it may still have to wait for its turn.
const LIMIT: Duration = Duration::from_secs(3);

const WAIT: i32 = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
const WAKE: i32 = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;

/// How many wait for the end. The word that the exit sleeps on.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Notes how many wait now.
pub(super) fn expect(clients: usize) {
    WAITING.store(clients as u32, Ordering::Release);
}

/// All have been answered: the exit may go on.
pub(super) fn done() {
    WAITING.store(0, Ordering::Release);
    // SAFETY: wakes whoever sleeps on the word; its address is valid for the process's life.
    unsafe { libc::syscall(libc::SYS_futex, WAITING.as_ptr(), WAKE, i32::MAX) };
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
        let left = libc::timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        // SAFETY: sleeps while the word has the value read; a valid timeout bounds the sleep.
        unsafe { libc::syscall(libc::SYS_futex, WAITING.as_ptr(), WAIT, clients, &raw const left) };
    }
}
