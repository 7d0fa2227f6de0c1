//! Threads of this library: they have names, and take none of the program's signals.

use std::thread::JoinHandle;

use crate::abi::{Code, Outcome};
use crate::report::error;

/// Starts a thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Outcome<JoinHandle<()>> {
    let quiet = move || {
        block_signals();
        body();
    };
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(quiet);
    started.map_err(|reason| error(Code::SYSTEM, &format!("cannot start a thread: {reason}")))
}

fn block_signals() {
    // SAFETY: a set of this frame, filled before it is read. Only this thread's mask changes.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}
