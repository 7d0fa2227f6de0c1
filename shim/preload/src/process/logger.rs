//! Log lines to stderr: one `write` a line, nothing buffered, no lock held.
//!
//! The level is `WMSHIM_LOG` (error, warn, info, debug, trace, off; default warn), read at the
//! first CUDA call. The `log` crate's global logger inside this library is our own copy: a host
//! that uses the crate has another.

use std::io::Write;

use log::{LevelFilter, Log, Metadata, Record};
use wm_driver::thread::Uncancelled;

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        let line = format!("wmshim[{}] {}: {}\n", std::process::id(), label(record.level()), record.args());
        write(line.as_bytes());
    }

    fn flush(&self) {}
}

fn label(level: log::Level) -> &'static str {
    match level {
        log::Level::Error => "error",
        log::Level::Warn => "warning",
        log::Level::Info => "info",
        log::Level::Debug => "debug",
        log::Level::Trace => "trace",
    }
}

/// Not through Rust's own stderr handle: a thread that forked or was cancelled may still hold its
/// lock.
fn write(line: &[u8]) {
    // SAFETY: file descriptor 2 is borrowed for one write and not closed; a closed one gives an
    // error, ignored.
    let stderr = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(2) };
    let mut stderr = std::mem::ManuallyDrop::new(stderr);
    let _whole = Uncancelled::new();
    without_sigpipe(|| stderr.write_all(line));
}

/// Writes with SIGPIPE blocked: if the reader of the pipe is gone, a log line of ours must not end
/// the host. The signal that the write raises for this thread is taken away again; one that was
/// pending before is the host's, and stays.
fn without_sigpipe(write: impl FnOnce() -> std::io::Result<()>) {
    // SAFETY: all zero is a valid set to be filled; every pointer is to a live local or null.
    unsafe {
        let (mut pipe, mut before, mut pending) =
            std::mem::zeroed::<(libc::sigset_t, libc::sigset_t, libc::sigset_t)>();
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::sigpending(&mut pending);
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
        let raised = write().is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe);
        if raised && libc::sigismember(&pending, libc::SIGPIPE) == 0 {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&pipe, std::ptr::null_mut(), &now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    }
}

/// Sets the logger up at its default level. A panic of ours, which the boundary stops, is a log
/// line like any other.
pub(crate) fn install() {
    let _ = log::set_logger(&Stderr);
    log::set_max_level(LevelFilter::Warn);
    std::panic::set_hook(Box::new(|panic| log::error!("internal error, please report it: {panic}")));
}
