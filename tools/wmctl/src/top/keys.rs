//! Single keys of a terminal, while a table is renewed in place.
//!
//! Invariant: the terminal is as it was whenever this program does not run: when it ends, is ended
//! by a signal, or is stopped.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

/// What end a program at a terminal.
const ENDS: [c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// The terminal's settings for handlers of signals; null while they are untouched. What it pointed
/// at is never freed.
static SETTINGS: AtomicPtr<TerminalSettings> = AtomicPtr::new(std::ptr::null_mut());

/// The terminal's settings before, and those that give keys one by one and do not show them.
struct TerminalSettings {
    before: libc::termios,
    single: libc::termios,
}

/// A terminal that gives keys one by one, until this is dropped.
#[derive(Debug)]
pub(super) struct Keys(());

impl Keys {
    /// `None` where standard input is no terminal, or one that is another program's now.
    pub(super) fn open() -> Option<Self> {
        let before = settings()?;
        let mut single = before;
        single.c_lflag &= !(libc::ICANON | libc::ECHO);
        let settings = Box::into_raw(Box::new(TerminalSettings { before, single }));
        SETTINGS.store(settings, Ordering::Release);
        ENDS.into_iter().for_each(|signal| handle(signal, end));
        handle(libc::SIGTSTP, stop);
        set(&single);
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
            let mut key = 0_u8;
            // SAFETY: the kernel writes one byte at most to the place that is given.
            match unsafe { libc::read(input(), (&raw mut key).cast(), 1) } {
                1 => return Some(key),
                // The terminal is gone: no key will come.
                0 => std::thread::sleep(left),
                _ => {}
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

/// What was ignored before, as `nohup` has it, stays so. The handler makes async-signal-safe calls
/// only.
fn handle(signal: c_int, handler: extern "C" fn(c_int)) {
    // SAFETY: a handler of the right type, that may come at any time.
    unsafe {
        if libc::signal(signal, handler as *const () as libc::sighandler_t) == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

fn input() -> RawFd {
    std::io::stdin().as_raw_fd()
}

/// The terminal's settings, if standard input is a terminal and this program is in its foreground.
fn settings() -> Option<libc::termios> {
    // SAFETY: an all-zero `termios` is a valid value to overwrite.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes a `termios` to the place that is given; the others ask questions
    // without arguments.
    let (is_terminal, is_ours) = unsafe {
        let asked = libc::tcgetattr(input(), &raw mut settings);
        (asked == 0, libc::tcgetpgrp(input()) == libc::getpgrp())
    };
    (is_terminal && is_ours).then_some(settings)
}

/// Async-signal-safe.
fn set(settings: &libc::termios) {
    // SAFETY: settings that the terminal gave, with two flags changed.
    unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, settings) };
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
    let mut entry = libc::pollfd { fd: input(), events: libc::POLLIN, revents: 0 };
    let milliseconds = c_int::try_from(limit.as_millis().max(1)).unwrap_or(c_int::MAX);
    // SAFETY: one entry, which lives through the call.
    unsafe { libc::poll(&raw mut entry, 1, milliseconds) > 0 }
}
