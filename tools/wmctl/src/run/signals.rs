//! Signals of a parent that waits: the program decides what they mean, and the parent outlives it.
//!
//! The terminal sends its signals (Ctrl-C) to the program too, so this process ignores them. A
//! signal to this process alone (a job system's SIGTERM) is forwarded. One that comes before the
//! program starts is forwarded then.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

const FROM_THE_TERMINAL: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
const PASSED_ON: [c_int; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// The program's process id; 0 before it is started and after it has ended.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// A signal that came before there was a program to pass it on to.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// Gets ready, before the program is started. Handlers do not survive its `exec`, so it starts with
/// the defaults.
pub(super) fn prepare() {
    for signal in PASSED_ON {
        // SAFETY: `pass_on` is async-signal-safe and has the type of a handler.
        unsafe { libc::signal(signal, pass_on as *const () as libc::sighandler_t) };
    }
}

/// Leaves this process's signals to a program that has been started.
pub(super) fn leave_to(program: u32) {
    for signal in FROM_THE_TERMINAL {
        // SAFETY: ignoring a signal installs no code. Done after the start, since a child
        // inherits ignored signals.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    PROGRAM.store(program as i32, Ordering::SeqCst);
    match EARLY.swap(0, Ordering::SeqCst) {
        0 => {}
        signal => pass_on(signal),
    }
}

/// The program has ended: its number may soon be another's.
pub(super) fn forget() {
    PROGRAM.store(0, Ordering::SeqCst);
}

extern "C" fn pass_on(signal: c_int) {
    match PROGRAM.load(Ordering::SeqCst) {
        0 => EARLY.store(signal, Ordering::SeqCst),
        // SAFETY: sends a signal to our own child.
        program => drop(unsafe { libc::kill(program, signal) }),
    }
}
