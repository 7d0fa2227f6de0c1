//! Log lines to stderr: one `write` a line, nothing buffered, no lock held.
//!
//! The level is `WMSHIM_LOG` (error, warn, info, debug, trace, off; default warn), read at the first CUDA call. The
//! `log` crate's global logger inside this library is our own copy: a host that uses the crate has another.

use std::io::Write;

use log::{LevelFilter, Log, Metadata, Record};

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

/// Past Rust's own stderr handle, whose lock a thread that forked or was ended may have kept.
fn write(line: &[u8]) {
    // SAFETY: file descriptor 2 is borrowed for one write and not closed; a closed one gives an error, ignored.
    let stderr = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(2) };
    let mut stderr = std::mem::ManuallyDrop::new(stderr);
    let _ = stderr.write_all(line);
}

/// Sets the logger up at its default level.
pub(crate) fn install() {
    let _ = log::set_logger(&Stderr);
    log::set_max_level(LevelFilter::Warn);
}
