//! The end of the process: `cuInit` registers an exit handler of the driver, which takes the driver
//! down. Calls that begin later return `DEINITIALIZED`.
//!
//! NVIDIA's driver does not wait for other threads' calls. A thread inside a call at that time, or
//! in a later one, may use freed objects. With `SIMCUDA_EXIT=crash` such a call always ends the
//! process with `SIGSEGV` and one line.

use std::sync::{Mutex, MutexGuard, PoisonError};

use wm_abi::symbol;

use crate::settings::{complain, settings};
use crate::state;

/// Threads and their calls, for the crash at exit.
#[derive(Debug)]
struct Book {
    /// The thread that took the driver down.
    ender: Option<i32>,
    /// Threads that are inside calls, and the functions' positions.
    inside: Vec<(i32, usize)>,
}

static BOOK: Mutex<Book> = Mutex::new(Book { ender: None, inside: Vec::new() });

fn book() -> MutexGuard<'static, Book> {
    BOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call in flight; it is over when this is dropped.
pub(crate) struct Inside(i32, usize);

impl Inside {
    /// The calling thread enters a function. `None` without `SIMCUDA_EXIT=crash`, and in a forked
    /// child.
    pub(crate) fn enter(index: usize) -> Option<Self> {
        if !settings().exit_crashes || state::is_forked() {
            return None;
        }
        let me = thread();
        let mut book = book();
        if book.ender.is_some_and(|ender| ender != me) {
            crash(me, index, "calls after the driver has gone");
        }
        book.inside.push((me, index));
        Some(Self(me, index))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut book = book();
        if let Some(position) = book.inside.iter().rposition(|call| *call == (self.0, self.1)) {
            book.inside.remove(position);
        }
    }
}

/// The driver's exit handler.
pub(crate) extern "C" fn take_down() {
    if !state::end() || !settings().exit_crashes {
        return;
    }
    let me = thread();
    let mut book = book();
    book.ender = Some(me);
    if let Some((thread, index)) = book.inside.iter().find(|(thread, _)| *thread != me) {
        crash(*thread, *index, "is inside while the driver goes");
    }
}

fn thread() -> i32 {
    // SAFETY: a plain query.
    unsafe { libc::gettid() }
}

fn crash(thread: i32, index: usize, what: &str) -> ! {
    let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
    let function = symbol::NAMES[index].to_string_lossy();
    // One write: the process may end during it.
    complain(&format!("{function}: thread {} {what}", name.trim_end()));
    // SAFETY: restores the default action, then this thread gets the signal at once.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::raise(libc::SIGSEGV);
    }
    std::process::abort()
}
