//! The terminal while the screen is on it: single keys, the alternate screen, and the signals that
//! end, stop or resize it.
//!
//! Invariants: the terminal is as it was whenever this program does not run: when it ends, is ended
//! by a signal or a panic, or is stopped. The thread that draws handles the signals.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

use super::keys::{self, TerminalKey};

/// The signals that end a program at a terminal.
const ENDS: [c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// To the alternate screen, without a cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
/// Back, with the cursor and without colours. The cursor goes to the last line first: tmux 3.3 puts
/// lines of the alternate screen onto the other one if the window was made larger and the cursor
/// stands higher.
const LEAVE: &[u8] = b"\x1b[0m\x1b[999H\x1b[?25h\x1b[?1049l";

/// How long the rest of a key may take that the terminal sends in parts.
const REST_OF_KEY: Duration = Duration::from_millis(50);

/// The terminal's settings for handlers of signals; null while they are untouched. The settings
/// are never freed.
static SETTINGS: AtomicPtr<TerminalSettings> = AtomicPtr::new(std::ptr::null_mut());
/// The writing end of the pipe that ends a wait; -1 while there is none. It is never closed.
static WAKE: AtomicI32 = AtomicI32::new(-1);
/// The program was stopped, and another one may have written over the screen.
static WAS_STOPPED: AtomicBool = AtomicBool::new(false);

/// The terminal's settings before, and those that give keys one by one and do not show them.
struct TerminalSettings {
    before: Termios,
    single: Termios,
}

/// A terminal that is this program's, until this is dropped.
#[derive(Debug)]
pub(super) struct Terminal {
    /// A byte comes when something has changed beside the keys.
    awaited: OwnedFd,
}

/// Ends a wait of [`Terminal::wait`], from any thread and from a handler of a signal.
pub(super) fn wake() {
    let pipe = WAKE.load(Ordering::Acquire);
    // SAFETY: an async-signal-safe call with one byte; a full pipe wakes as well, and a pipe that
    // is not there is an error.
    unsafe { libc::write(pipe, b"x".as_ptr().cast(), 1) };
}

/// Starts a thread that handles no signal of the terminal: a handler that gives the terminal back
/// in one thread would race with the thread that draws.
pub(super) fn starting<T>(start: impl FnOnce() -> T) -> T {
    let all = ENDS.into_iter().chain([libc::SIGTSTP, libc::SIGWINCH]);
    // SAFETY: all-zero sets are valid and are written before they are read; the calls change this
    // thread's mask alone.
    let before = unsafe {
        let (mut blocked, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut blocked);
        for signal in all {
            libc::sigaddset(&raw mut blocked, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
        before
    };
    let started = start();
    // SAFETY: the mask of before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    started
}

impl Terminal {
    /// `None` where standard input is no terminal, or one that is another program's now, or where
    /// the terminal cannot place its cursor.
    pub(super) fn open() -> Option<Self> {
        let before = settings()?;
        let (awaited, wakes) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        WAKE.store(wakes.as_raw_fd(), Ordering::Release);
        std::mem::forget(wakes);
        let mut single = before.clone();
        single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        let settings = Box::leak(Box::new(TerminalSettings { before, single }));
        SETTINGS.store(settings, Ordering::Release);
        ENDS.into_iter().for_each(|signal| handle(signal, end));
        handle(libc::SIGTSTP, stop);
        handle(libc::SIGWINCH, resized);
        restore_at_panic();
        enter(settings);
        Some(Self { awaited })
    }

    /// Waits for keys or for [`wake`]. `None`: the terminal is gone.
    pub(super) fn wait(&self) -> Option<Vec<TerminalKey>> {
        let mut ready =
            [PollFd::from_borrowed_fd(stdin(), PollFlags::IN), PollFd::new(&self.awaited, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Some(Vec::new()),
            Err(_) => return None,
        }
        let [typed, woken] = ready.map(|one| !one.revents().is_empty());
        if woken {
            // One wait may be woken by several: what is left wakes the next one.
            let _nothing_more = rustix::io::read(self.awaited.as_fd(), &mut [0_u8; 64]);
        }
        if typed { typed_keys() } else { Some(Vec::new()) }
    }

    /// Has the screen to be drawn anew, because the program was stopped?
    pub(super) fn was_stopped(&self) -> bool {
        WAS_STOPPED.swap(false, Ordering::AcqRel)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
    }
}

fn typed_keys() -> Option<Vec<TerminalKey>> {
    let mut bytes = [0_u8; 256];
    let mut length = 0;
    loop {
        match rustix::io::read(stdin(), &mut bytes[length..]) {
            Ok(0) => return None,
            Ok(count) => length += count,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        if length == bytes.len() || !keys::is_cut(&bytes[..length]) || !has_more() {
            return Some(keys::keys(&bytes[..length]));
        }
    }
}

fn has_more() -> bool {
    let limit = Timespec::try_from(REST_OF_KEY).ok();
    poll(&mut [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)], limit.as_ref()).is_ok_and(|ready| ready > 0)
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
    let places_cursor = std::env::var_os("TERM").is_none_or(|name| name != "dumb");
    (places_cursor && foreground == rustix::process::getpgrp()).then_some(settings)
}

/// A panic's message belongs on the screen that stays.
fn restore_at_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            shown(panic);
        }));
    });
}

/// Async-signal-safe.
fn enter(settings: &TerminalSettings) {
    set(&settings.single);
    write(ENTER);
}

/// Gives the terminal back, once. Async-signal-safe.
fn leave() {
    // SAFETY: null, or settings that are never freed.
    if let Some(settings) = unsafe { SETTINGS.swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() } {
        write(LEAVE);
        set(&settings.before);
    }
}

/// Async-signal-safe: one system call. A terminal that is gone needs no settings.
fn set(settings: &Termios) {
    let _terminal_is_gone = tcsetattr(stdin(), OptionalActions::Now, settings);
}

/// Async-signal-safe: one system call, of fewer bytes than a terminal cuts.
fn write(bytes: &[u8]) {
    let _terminal_is_gone = rustix::io::write(stdout(), bytes);
}

extern "C" fn end(signal: c_int) {
    leave();
    // SAFETY: async-signal-safe calls. The signal, blocked in its handler, ends the program when
    // that returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

extern "C" fn stop(_signal: c_int) {
    // SAFETY: null, or settings that are never freed.
    let Some(settings) = (unsafe { SETTINGS.load(Ordering::Acquire).as_ref() }) else { return };
    write(LEAVE);
    set(&settings.before);
    // SAFETY: an async-signal-safe call, which returns when the program goes on.
    unsafe { libc::raise(libc::SIGSTOP) };
    enter(settings);
    WAS_STOPPED.store(true, Ordering::Release);
    wake();
}

extern "C" fn resized(_signal: c_int) {
    wake();
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a panic's message stays on a screen that is gone, and the terminal
    //! shows no letters that are typed.
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::FromRawFd;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// Set: this process is the one at the terminal.
    const AT_TERMINAL: &str = "WMCTL_TEST_AT_TERMINAL";

    fn pair() -> (File, OwnedFd) {
        let (mut ours, mut theirs) = (-1, -1);
        let (name, settings, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
        // SAFETY: two places for new descriptors; the rest is optional.
        unsafe {
            assert_eq!(libc::openpty(&raw mut ours, &raw mut theirs, name, settings, size), 0);
            (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
        }
    }

    #[test]
    fn a_panic_is_told_on_the_terminal_as_it_was() {
        if std::env::var_os(AT_TERMINAL).is_some() {
            let _terminal = Terminal::open().expect("a terminal");
            panic!("told afterwards");
        }
        let (mut ours, theirs) = pair();
        let before = tcgetattr(&theirs).expect("settings").local_modes;
        let end = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        let name = std::thread::current().name().expect("the test's").to_owned();
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", &name, "--nocapture", "--test-threads", "1"])
            .env(AT_TERMINAL, "1")
            .env("TERM", "xterm")
            .env("RUST_BACKTRACE", "0");
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: plain system calls between fork and exec: a session whose terminal standard input
        // is.
        unsafe {
            command.pre_exec(|| {
                assert!(libc::setsid() > 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0);
                Ok(())
            });
        }
        assert!(!command.status().expect("ran").success());
        assert_eq!(tcgetattr(&theirs).expect("settings").local_modes, before);
        let (mut seen, mut buffer) = (String::new(), [0; 4096]);
        while !seen.contains("told afterwards") {
            let count = ours.read(&mut buffer).expect("what it wrote");
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        let at = |text: &[u8]| seen.find(std::str::from_utf8(text).expect("text")).expect("written");
        assert!(at(ENTER) < at(LEAVE) && at(LEAVE) < at(b"told afterwards"), "{seen}");
        assert_eq!(seen.matches("[?1049l").count(), 1, "given back once");
    }
}
