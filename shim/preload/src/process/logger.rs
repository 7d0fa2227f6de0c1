//! Log lines to stderr or a file: one `write` a line, nothing buffered, no lock held.
//!
//! The level is `WMSHIM_LOG` (error, warn, info, debug, trace, off; default warn), read at the
//! first CUDA call. The `log` crate's global logger inside this library is our own copy: a host
//! that uses the crate has another.
//!
//! The file is opened for each line and closed behind it: a program that closes all descriptors, or
//! forks, has none of ours, and a file that was renamed is made again. Lines are few.

use std::fmt::Arguments;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use log::{Level, LevelFilter, Log, Metadata, Record};
use serde_json::json;
use wm_driver::thread::Uncancelled;
use wm_trust::user;

static SINK: OnceLock<LogSink> = OnceLock::new();

/// Where lines go, and in which form.
pub(crate) struct LogSink {
    /// The file's name for a process, which a fork changes. `None`: stderr.
    pub(crate) file: Option<Box<dyn Fn(u32) -> PathBuf + Send + Sync>>,
    /// Each line is an object.
    pub(crate) json: bool,
}

struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        let sink = SINK.get();
        let line = line(record.level(), record.args(), sink.is_some_and(|sink| sink.json));
        let _whole = Uncancelled::new();
        match sink.and_then(|sink| sink.file.as_ref()) {
            None => stderr(&line),
            Some(file) => append(&file(std::process::id()), &line, sink.is_some_and(|sink| sink.json)),
        }
    }

    fn flush(&self) {}
}

fn line(level: Level, message: &Arguments<'_>, as_json: bool) -> String {
    let (pid, level) = (std::process::id(), label(level));
    if !as_json {
        return format!("wmshim[{pid}] {level}: {message}\n");
    }
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let (time, message) = ((time * 1e6).round() / 1e6, message.to_string());
    format!("{}\n", json!({ "time": time, "pid": pid, "level": level, "message": message }))
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
fn stderr(line: &str) {
    // SAFETY: file descriptor 2 is borrowed for one write and not closed; a closed one gives an
    // error, ignored.
    let mut stderr = ManuallyDrop::new(unsafe { File::from_raw_fd(2) });
    let _nowhere_to_say = without_signals(|| stderr.write_all(line.as_bytes()));
}

/// A line that the file does not take goes to stderr, the first one behind the reason.
fn append(path: &Path, line: &str, as_json: bool) {
    static EXPLAINED: AtomicBool = AtomicBool::new(false);
    let written = open(path).and_then(|mut file| without_signals(|| file.write_all(line.as_bytes())));
    let Err(error) = written else { return };
    if !EXPLAINED.swap(true, Ordering::Relaxed) {
        let place = path.display();
        let reason = format_args!("WMSHIM_LOG_FILE: {place}: {error}. The lines go to standard error");
        stderr(&self::line(Level::Warn, &reason, as_json));
    }
    stderr(line);
}

/// A file of this user for one more line. Opening a device or a pipe could do something, so it is
/// looked at first.
fn open(path: &Path) -> io::Result<File> {
    let refusal = |text| Err(io::Error::other(text));
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => return refusal("this is no plain file"),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != user::effective() {
        return refusal("the file is another user's");
    }
    Ok(file)
}

/// Writes with the signals of a failed write blocked: if the reader of the pipe is gone, or the
/// limit on a file's size is reached, a log line of ours must not end the host. The signal that the
/// write raises for this thread is taken away again; one that was pending before is the host's, and
/// stays.
fn without_signals(write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: all zero is a valid set to be filled; every pointer is to a live local or null.
    unsafe {
        let (mut signals, mut before, mut pending) =
            std::mem::zeroed::<(libc::sigset_t, libc::sigset_t, libc::sigset_t)>();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, libc::SIGPIPE);
        libc::sigaddset(&mut signals, libc::SIGXFSZ);
        libc::sigpending(&mut pending);
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals, &mut before);
        let written = write();
        let raised = match written.as_ref().err().and_then(io::Error::raw_os_error) {
            Some(libc::EPIPE) => Some(libc::SIGPIPE),
            Some(libc::EFBIG) => Some(libc::SIGXFSZ),
            _ => None,
        };
        if let Some(signal) = raised.filter(|signal| libc::sigismember(&pending, *signal) == 0) {
            libc::sigemptyset(&mut signals);
            libc::sigaddset(&mut signals, signal);
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&signals, std::ptr::null_mut(), &now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        written
    }
}

/// Sets the logger up at its default level. A panic of ours, which the boundary stops, is a log
/// line like any other.
pub(crate) fn install() {
    let _ = log::set_logger(&Logger);
    log::set_max_level(LevelFilter::Warn);
    std::panic::set_hook(Box::new(|panic| log::error!("internal error, please report it: {panic}")));
}

/// From now on lines go there. The first choice stays.
pub(crate) fn choose(sink: LogSink) {
    let _ = SINK.set(sink);
}

#[cfg(test)]
mod tests {
    //! Hazard (process lifecycle): a line of ours ends the host by the signal of a failed write.
    use super::*;

    /// One process a test; the signal has its default action, which ends the process.
    #[test]
    fn a_file_that_has_reached_its_limit_takes_no_line_and_ends_nothing() {
        let path = std::env::temp_dir().join(format!("wm-log-{}", std::process::id()));
        append(&path, "one\n", false);
        let limit = libc::rlimit { rlim_cur: 4, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a live local.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
        append(&path, "two\n", false);
        let text = fs::read_to_string(&path).expect("the log");
        fs::remove_file(&path).expect("there");
        assert_eq!(text, "one\n");
        // SAFETY: all zero is a valid set to be filled, and both pointers are to a live local.
        let waits = unsafe {
            let mut pending = std::mem::zeroed();
            libc::sigpending(&raw mut pending);
            libc::sigismember(&raw const pending, libc::SIGXFSZ)
        };
        assert_eq!(waits, 0, "the signal is not left to the host");
    }

    #[test]
    fn a_line_is_an_object_if_that_is_wanted() {
        let text = line(Level::Warn, &format_args!("of \"two\"\nlines"), true);
        let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(object["message"], "of \"two\"\nlines");
        assert_eq!((text.lines().count(), object["pid"].as_u64()), (1, Some(std::process::id().into())));
        assert!(line(Level::Error, &format_args!("x"), false).ends_with("] error: x\n"));
    }
}
