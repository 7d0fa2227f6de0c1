//! Threads of ours leave the driver before the end of the process shuts it down.
//!
//! NVIDIA's driver ends in an exit handler, or with its library, and does not wait for calls in
//! other threads: such a call crashes. So each call of a thread of ours is counted. Once exit has
//! begun no new one begins, and the exit waits for the calls in flight.
//!
//! Exit handlers run in reverse: one that was registered before the driver's own runs after it. The
//! driver registers its own with its first calls. So ours is registered again when the first,
//! second, fourth, eighth ... thread of ours starts. A process never forgets a handler, so one for
//! each thread would be a leak.
//!
//! Invariant: a thread of the program is never counted, refused or waited for: its calls at exit
//! behave as without us. Only while it does work that exists with us alone it is as one of ours
//! ([`as_ours`]).

use std::cell::Cell;
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

use wm_abi::CUresult;

/// The pause between two checks for calls in flight. Most driver calls take some microseconds.
const PAUSE: Duration = Duration::from_micros(100);

/// Calls that threads of ours are making.
static INSIDE: AtomicU32 = AtomicU32::new(0);

/// No such call may begin any more.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// The function that the process calls when it ends.
static HANDLER: OnceLock<extern "C" fn()> = OnceLock::new();

thread_local! {
    /// Is this a thread of ours? It has no destructor, so it is valid throughout a thread's life.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread is one of ours.
pub(crate) fn mark_thread() {
    OURS.set(true);
}

/// Does work in this thread whose driver calls count as those of a thread of ours.
pub fn as_ours<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            OURS.set(self.0);
        }
    }
    static FIRST: Once = Once::new();
    // The driver has registered its handler by now.
    FIRST.call_once(register);
    let _restore = Restore(OURS.replace(true));
    work()
}

/// Makes a call of the driver; a thread of ours does so only until [`close`].
#[inline]
pub(crate) fn visit(call: impl FnOnce() -> CUresult) -> CUresult {
    if OURS.get() { counted(call) } else { call() }
}

/// The call is counted before the check, and the exit closes before it counts: one of the two sees
/// the other.
fn counted(call: impl FnOnce() -> CUresult) -> CUresult {
    INSIDE.fetch_add(1, SeqCst);
    let code = if CLOSED.load(SeqCst) { CUresult::DEINITIALIZED } else { call() };
    INSIDE.fetch_sub(1, SeqCst);
    code
}

/// Registers a function that the process calls when it ends, before the functions registered so
/// far. It has to call [`close`], and may be called more than once.
pub fn before_exit(handler: extern "C" fn()) {
    HANDLER.get_or_init(|| handler);
    register();
}

/// Threads of ours that were started.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// A thread of ours is about to start.
pub(crate) fn thread_starts() {
    if (STARTED.fetch_add(1, Relaxed) + 1).is_power_of_two() {
        register();
    }
}

/// Registers the handler again, so that it runs before those that others have registered since.
fn register() {
    if let Some(handler) = HANDLER.get() {
        // SAFETY: a handler without arguments that stays valid, because the library is never
        // unloaded.
        unsafe { libc::atexit(*handler) };
    }
}

/// Ends the driver calls of threads of ours. Waits until those in flight have returned, at most for
/// `limit`: a call may wait for work that never ends. Takes no lock.
pub fn close(limit: Duration) {
    CLOSED.store(true, SeqCst);
    let begin = Instant::now();
    while INSIDE.load(SeqCst) > 0 && begin.elapsed() < limit {
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a thread calls a driver that is gone, or an exit waits for a thread of the program.
    use std::sync::mpsc;

    use super::*;
    use crate::thread;

    /// One test, since it closes the process's driver.
    #[test]
    fn threads_of_ours_are_waited_for_and_refused_afterwards_and_others_never() {
        let (here, there) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let body = move || {
            let first = visit(|| {
                here.send(CUresult::NOT_READY).expect("heard");
                let _ = ended.recv();
                CUresult::SUCCESS
            });
            here.send(first).expect("heard");
            here.send(visit(|| panic!("the driver is gone"))).expect("heard");
        };
        thread::spawn(c"wm-test", 64 << 10, body).expect("a thread");
        assert_eq!(there.recv().expect("it is inside"), CUresult::NOT_READY);
        let begin = Instant::now();
        close(Duration::from_millis(20));
        assert!(begin.elapsed() >= Duration::from_millis(20), "a call is under way");
        drop(end);
        close(Duration::MAX);
        assert_eq!(there.recv().expect("the call is whole"), CUresult::SUCCESS);
        assert_eq!(there.recv().expect("the next one is none"), CUresult::DEINITIALIZED);
        assert_eq!(visit(|| CUresult::NOT_FOUND), CUresult::NOT_FOUND, "this thread is the program's");
        let refused = as_ours(|| visit(|| panic!("the driver is gone")));
        assert_eq!(refused, CUresult::DEINITIALIZED);
        assert_eq!(visit(|| CUresult::NOT_FOUND), CUresult::NOT_FOUND, "and is so again");
    }
}
