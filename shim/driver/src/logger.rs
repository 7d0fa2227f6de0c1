//! Log lines to stderr or a file: one `write` a line, nothing buffered, no lock held, nothing
//! allocated. A line at the exit may come from a handler of a signal that has interrupted the
//! allocator.
//!
//! `libwmshim.so` and `libwholegraph.so` have one each, with the same settings: `WMSHIM_LOG`,
//! `WMSHIM_LOG_FILE` and `WMSHIM_LOG_FORMAT`. The `log` crate's global logger inside each of them
//! is our own copy: a host that uses the crate has another.
//!
//! The file is opened for each line and closed behind it: a program that closes all descriptors, or
//! forks, has none of ours, and a file that was renamed is made again. Lines are few.

use std::ffi::{CStr, OsStr};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Write as _};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use log::{Level, LevelFilter, Log, Metadata, Record};
use wm_trust::{environment, user};

use crate::thread::Uncancelled;

static SINK: OnceLock<LogSink> = OnceLock::new();

/// Where lines go, and in which form.
#[derive(Debug)]
pub struct LogSink {
    /// The file's name, in which `%p` is the process: a fork changes it. `None`: stderr.
    file: Option<Vec<u8>>,
    /// Each line is an object.
    json: bool,
}

impl LogSink {
    /// `file`: `None` for stderr. A relative name is one from the program's folder of now.
    #[must_use]
    pub fn new(file: Option<&Path>, json: bool) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { file: file.map(|path| absolute(path).into_os_string().into_encoded_bytes()), json }
    }
}

/// The level of a value of `WMSHIM_LOG`. `None`: the value is not understood.
#[must_use]
pub fn level(text: &str) -> Option<LevelFilter> {
    if environment::switch(text) == Some(false) { Some(LevelFilter::Off) } else { text.parse().ok() }
}

/// Is a value of `WMSHIM_LOG_FORMAT` the one for objects? `None`: the value is not understood.
#[must_use]
pub fn is_json(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "text" => Some(false),
        "json" => Some(true),
        _ => None,
    }
}

/// The name in a value of `WMSHIM_LOG_FILE`. `None`: stderr.
#[must_use]
pub fn file(value: &OsStr) -> Option<&Path> {
    let is_off = value.to_str().and_then(environment::switch) == Some(false);
    (!is_off).then(|| Path::new(value))
}

/// The name at the beginning of a line of text.
struct Logger(&'static str);

impl Log for Logger {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        let _whole = Uncancelled::new();
        let (name, json) = SINK.get().map_or((None, false), |sink| (sink.file.as_deref(), sink.json));
        let file = name
            .and_then(|name| open(name).inspect_err(|error| explain(self.0, name, error.kind(), json)).ok());
        let write = |bytes: &[u8]| match &file {
            None => stderr(bytes),
            Some(file) => append(file, bytes).unwrap_or_else(|error| {
                explain(self.0, name.unwrap_or_default(), error.kind(), json);
                stderr(bytes);
            }),
        };
        say(write, self.0, record.level(), record.args(), json);
    }

    fn flush(&self) {}
}

/// Puts a line together. An argument that cannot be formatted leaves a shorter line.
fn say(write: impl FnMut(&[u8]), library: &str, level: Level, message: &fmt::Arguments<'_>, json: bool) {
    let mut line = LogLine { bytes: [0; LogLine::LONGEST], used: 0, write };
    let (id, level) = (std::process::id(), label(level));
    let _ = if json {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, micros) = (time.as_secs(), time.subsec_micros());
        let begin =
            format_args!(r#"{{"time":{seconds}.{micros:06},"pid":{id},"level":"{level}","message":""#);
        line.write_fmt(begin)
            .and_then(|()| Escaped(&mut line).write_fmt(*message))
            .and_then(|()| line.write_str("\"}\n"))
    } else {
        writeln!(line, "{library}[{id}] {level}: {message}")
    };
    line.end();
}

/// A line that is put together on the stack.
struct LogLine<W: FnMut(&[u8])> {
    bytes: [u8; LogLine::LONGEST],
    used: usize,
    write: W,
}

impl LogLine<fn(&[u8])> {
    /// Of a longer line each so many bytes are a `write`. Pipes keep no more than 4096 bytes
    /// together, and threads of programs may have little stack.
    const LONGEST: usize = 2048;
}

impl<W: FnMut(&[u8])> LogLine<W> {
    fn end(&mut self) {
        (self.write)(&self.bytes[..self.used]);
        self.used = 0;
    }
}

impl<W: FnMut(&[u8])> fmt::Write for LogLine<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            if self.used == self.bytes.len() {
                self.end();
            }
            let free = &mut self.bytes[self.used..];
            let (now, later) = rest.split_at(rest.len().min(free.len()));
            free[..now.len()].copy_from_slice(now);
            self.used += now.len();
            rest = later;
        }
        Ok(())
    }
}

/// Text inside a string of JSON.
struct Escaped<'a, W>(&'a mut W);

impl<W: fmt::Write> fmt::Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_special = |c: char| c == '"' || c == '\\' || c < ' ';
        for part in text.split_inclusive(is_special) {
            let plain = part.trim_end_matches(is_special);
            self.0.write_str(plain)?;
            for special in part[plain.len()..].chars() {
                write!(self.0, "\\u{:04x}", u32::from(special))?;
            }
        }
        Ok(())
    }
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
fn stderr(bytes: &[u8]) {
    // SAFETY: file descriptor 2 is borrowed for one write and not closed; a closed one gives an
    // error, ignored.
    let stderr = ManuallyDrop::new(unsafe { File::from_raw_fd(2) });
    let _nowhere_to_say = append(&stderr, bytes);
}

fn append(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    without_signals(|| file.write_all(bytes))
}

/// The first line that the file does not take goes to stderr behind the reason.
fn explain(library: &str, name: &[u8], reason: io::ErrorKind, json: bool) {
    static EXPLAINED: AtomicBool = AtomicBool::new(false);
    if EXPLAINED.swap(true, Ordering::Relaxed) {
        return;
    }
    let name = name.escape_ascii();
    let is_foreign = reason == io::ErrorKind::InvalidInput;
    let reason: &dyn fmt::Display = if is_foreign { &"it is no plain file of this user" } else { &reason };
    let message = format_args!("WMSHIM_LOG_FILE: {name}: {reason}. The lines go to standard error");
    say(stderr, library, Level::Warn, &message, json);
}

/// A file of this user for one more line. Opening a device or a pipe could do something, so it is
/// looked at first.
fn open(name: &[u8]) -> io::Result<File> {
    let mut place = [0; FilePlace::LONGEST];
    let path =
        FilePlace { bytes: &mut place, used: 0 }.of_process(name).ok_or(io::ErrorKind::InvalidFilename)?;
    // SAFETY: all zero is a valid value of a plain structure of integers.
    let mut found = unsafe { std::mem::zeroed::<libc::stat>() };
    // SAFETY: a C string, and a live local.
    if unsafe { libc::lstat(path.as_ptr(), &raw mut found) } == 0
        && found.st_mode & libc::S_IFMT != libc::S_IFREG
    {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = libc::O_WRONLY
        | libc::O_APPEND
        | libc::O_CREAT
        | libc::O_CLOEXEC
        | libc::O_NOFOLLOW
        | libc::O_NONBLOCK;
    // SAFETY: a C string.
    let descriptor = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was opened here.
    let file = unsafe { File::from_raw_fd(descriptor) };
    // SAFETY: an open descriptor, and a live local.
    let is_known = unsafe { libc::fstat(descriptor, &raw mut found) } == 0;
    if !is_known || found.st_mode & libc::S_IFMT != libc::S_IFREG || found.st_uid != user::effective() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(file)
}

/// A path that is put together on the stack.
struct FilePlace<'a> {
    bytes: &'a mut [u8; FilePlace::LONGEST],
    used: usize,
}

impl FilePlace<'_> {
    const LONGEST: usize = 1024;
}

impl<'a> FilePlace<'a> {
    /// The name with each `%p` replaced. `None`: it is too long.
    fn of_process(mut self, name: &[u8]) -> Option<&'a CStr> {
        let mut rest = name;
        while let Some(at) = rest.windows(2).position(|mark| mark == b"%p") {
            self.push(&rest[..at])?;
            write!(self, "{}", std::process::id()).ok()?;
            rest = &rest[at + 2..];
        }
        self.push(rest)?;
        self.push(&[0])?;
        CStr::from_bytes_with_nul(&self.bytes[..self.used]).ok()
    }

    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.used..self.used + bytes.len())?.copy_from_slice(bytes);
        self.used += bytes.len();
        Some(())
    }
}

impl fmt::Write for FilePlace<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes()).ok_or(fmt::Error)
    }
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

/// Makes the library's logger ours, at its default level. `library`: the beginning of its lines.
/// The first call counts.
pub fn install(library: &'static str) {
    static LOGGER: OnceLock<Logger> = OnceLock::new();
    if log::set_logger(LOGGER.get_or_init(|| Logger(library))).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

/// From now on lines go there. The first choice stays.
pub fn choose(sink: LogSink) {
    let _ = SINK.set(sink);
}

#[cfg(test)]
mod tests {
    //! Hazard (process lifecycle): a line of ours ends the host by the signal of a failed write.
    //! Hazard (wrong report): the end of a long line is missing.
    use super::*;

    /// One process a test; the signal has its default action, which ends the process.
    #[test]
    fn a_file_that_has_reached_its_limit_takes_no_line_and_ends_nothing() {
        let path = std::env::temp_dir().join(format!("wm-log-{}", std::process::id()));
        let name = path.with_file_name("wm-log-%p").into_os_string().into_encoded_bytes();
        append(&open(&name).expect("a file"), b"one\n").expect("written");
        let limit = libc::rlimit { rlim_cur: 4, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a live local.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
        let written = append(&open(&name).expect("a file"), b"two\n");
        let text = std::fs::read_to_string(&path).expect("the log");
        std::fs::remove_file(&path).expect("there");
        assert_eq!(
            (text.as_str(), written.map_err(|error| error.kind())),
            ("one\n", Err(io::ErrorKind::FileTooLarge))
        );
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
        let said = |level, message: &fmt::Arguments<'_>, json| {
            let mut written = Vec::new();
            say(|bytes| written.extend_from_slice(bytes), "wmshim", level, message, json);
            String::from_utf8(written).expect("text")
        };
        let message = "of \"two\"\nlines, \\ and \t\u{1b}[31m\u{e9}\u{1f980}\"";
        let text = said(Level::Warn, &format_args!("{message}"), true);
        let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(object["message"], message);
        assert_eq!(
            (object["level"].as_str(), object["pid"].as_u64()),
            (Some("warning"), Some(std::process::id().into()))
        );
        assert!(text.ends_with("}\n") && text.lines().count() == 1 && object["time"].as_f64() > Some(1e9));
        let line = format!("wmshim[{}] error: x\n", std::process::id());
        assert_eq!(said(Level::Error, &format_args!("x"), false), line);
    }

    #[test]
    fn values_of_the_settings_are_understood_alike_in_all_libraries() {
        let levels = [("off", Some(LevelFilter::Off)), ("0", Some(LevelFilter::Off)), ("loud", None)];
        levels.iter().for_each(|(text, expected)| assert_eq!(level(text), *expected, "{text}"));
        assert_eq!((level("Debug"), level("")), (Some(LevelFilter::Debug), None));
        assert_eq!(["JSON", "text", "yaml"].map(is_json), [Some(true), Some(false), None]);
        assert_eq!((file(OsStr::new("no")), file(OsStr::new("a/no"))), (None, Some(Path::new("a/no"))));
        let sink = LogSink::new(Some(Path::new("a.log")), true);
        assert!(sink.file.is_some_and(|name| name.starts_with(b"/") && name.ends_with(b"/a.log")));
    }

    #[test]
    fn a_name_that_is_too_long_is_no_file() {
        let long = [b"/tmp/%p".as_slice(), &[b'a'; FilePlace::LONGEST]].concat();
        assert_eq!(open(&long).map_err(|error| error.kind()).err(), Some(io::ErrorKind::InvalidFilename));
        let mut place = [0; FilePlace::LONGEST];
        let path = FilePlace { bytes: &mut place, used: 0 }.of_process(b"/a%p.%p/%").expect("short");
        let id = std::process::id();
        assert_eq!(path.to_str(), Ok(format!("/a{id}.{id}/%").as_str()));
    }

    #[test]
    fn a_line_is_whole_however_long_it_is() {
        for length in [0, 1, 2047, 2048, 2049, 5000] {
            let text: String = ('a'..='z').cycle().take(length).collect();
            let mut written: Vec<Vec<u8>> = Vec::new();
            let write = |bytes: &[u8]| written.push(bytes.to_vec());
            let mut line = LogLine { bytes: [0; 2048], used: 0, write };
            assert!(text.split_inclusive('e').all(|part| line.write_str(part).is_ok()));
            line.end();
            assert_eq!(written.concat(), text.as_bytes());
            assert_eq!(written.len(), length.div_ceil(2048).max(1), "a line of {length} bytes");
        }
    }
}
