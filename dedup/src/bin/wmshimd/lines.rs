//! The output of `wmshimd --foreground`: one line an event, on stderr.

use log::{LevelFilter, Log, Metadata, Record};

/// Writes records to stderr.
struct StderrLines;

impl Log for StderrLines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        eprintln!("wmshimd: {}", record.args());
    }

    fn flush(&self) {}
}

/// From now on.
pub(super) fn to_stderr() {
    if log::set_logger(&StderrLines).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}
