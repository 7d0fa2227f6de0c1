//! Single keys of a terminal, while a table is renewed in place.
//!
//! Invariant: the terminal is as it was whenever this program does not run: when it ends, is ended
//! by a signal, or is stopped.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// The signals that end a program at a terminal.
const ENDS: [c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// The terminal's settings for handlers of signals; null while they are untouched. The settings
/// are never freed.
static SETTINGS: AtomicPtr<TerminalSettings> = AtomicPtr::new(std::ptr::null_mut());

/// The terminal's settings before, and those that give keys one by one and do not show them.
struct TerminalSettings {
    before: Termios,
    single: Termios,
}

/// A terminal that gives keys one by one, until this is dropped.
#[derive(Debug)]
pub(super) struct Keys(());

impl Keys {
    /// `None` where standard input is no terminal, or one that is another program's now.
    pub(super) fn open() -> Option<Self> {
        let before = settings()?;
        let mut single = before.clone();
        single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        let settings = Box::leak(Box::new(TerminalSettings { before, single }));
        SETTINGS.store(settings, Ordering::Release);
        ENDS.into_iter().for_each(|signal| handle(signal, end));
        handle(libc::SIGTSTP, stop);
        set(&settings.single);
        Some(Self(()))
    }

    /// The next key, if one is pressed before `deadline`.
    pub(super) fn next(&self, deadline: Instant) -> Option<u8> {
        while let left = deadline.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            if !is_readable(left) {
                continue;
            }
            let mut key = [0_u8];
            match rustix::io::read(stdin(), &mut key) {
                Ok(1) => return Some(key[0]),
                // The terminal is gone: no key will come.
                Ok(_) => std::thread::sleep(left),
                Err(_) => {}
            }
        }
        None
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        restore();
        SETTINGS.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// A signal that was ignored before, as under `nohup`, stays ignored. The handler makes
/// async-signal-safe calls only.
fn handle(signal: c_int, handler: extern "C" fn(c_int)) {
    // SAFETY: a handler of the right type, that may come at any time.
    unsafe {
        if libc::signal(signal, handler as *const () as libc::sighandler_t) == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// The terminal's settings, if standard input is a terminal and this program is in its foreground.
fn settings() -> Option<Termios> {
    let settings = tcgetattr(stdin()).ok()?;
    let foreground = tcgetpgrp(stdin()).ok()?;
    (foreground == rustix::process::getpgrp()).then_some(settings)
}

/// Async-signal-safe: one system call. A terminal that is gone needs no settings.
fn set(settings: &Termios) {
    let _terminal_is_gone = tcsetattr(stdin(), OptionalActions::Now, settings);
}

/// Async-signal-safe.
fn restore() {
    // SAFETY: null, or settings that are never freed.
    if let Some(settings) = unsafe { SETTINGS.load(Ordering::Acquire).as_ref() } {
        set(&settings.before);
    }
}

extern "C" fn end(signal: c_int) {
    restore();
    // SAFETY: async-signal-safe calls. The signal, blocked in its handler, ends the program when
    // that returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

extern "C" fn stop(_signal: c_int) {
    restore();
    // SAFETY: an async-signal-safe call, which returns when the program goes on.
    unsafe { libc::raise(libc::SIGSTOP) };
    // SAFETY: as in `restore`.
    if let Some(settings) = unsafe { SETTINGS.load(Ordering::Acquire).as_ref() } {
        set(&settings.single);
    }
}

/// Is there something to read within this time? Signals end the wait early.
fn is_readable(limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).ok();
    poll(&mut [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)], limit.as_ref()).is_ok_and(|ready| ready > 0)
}
