//! Signals of a parent that waits: the program decides what they mean, and the parent outlives it.
//!
//! What the terminal sends (Ctrl-C) reaches the program by itself and is ignored here. What is sent to this process
//! alone (a job system's SIGTERM) is passed on.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

const FROM_THE_TERMINAL: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
const PASSED_ON: [c_int; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// The program's process id.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// Leaves this process's signals to a program that has been started.
pub(super) fn leave_to(program: u32) {
    PROGRAM.store(program as i32, Ordering::Release);
    for signal in FROM_THE_TERMINAL {
        // SAFETY: ignoring a signal installs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    for signal in PASSED_ON {
        // SAFETY: `pass_on` is async-signal-safe and has the type of a handler.
        unsafe { libc::signal(signal, pass_on as *const () as libc::sighandler_t) };
    }
}

/// The program has ended: its number may soon be another's.
pub(super) fn forget() {
    PROGRAM.store(0, Ordering::Release);
}

extern "C" fn pass_on(signal: c_int) {
    let program = PROGRAM.load(Ordering::Acquire);
    if program > 0 {
        // SAFETY: sends a signal to our own child, which is not reaped before `forget`.
        unsafe { libc::kill(program, signal) };
    }
}
