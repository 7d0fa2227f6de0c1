//! Reasons go to standard error, a line each: the C API gives a code alone.
//!
//! Each library has a logger of its own, so no other library's logger is replaced.

use std::io::Write;
use std::sync::Once;

use log::{LevelFilter, Log, Metadata, Record};

struct StandardError;

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = record.level().as_str().to_lowercase();
            // One write a line. A failed write cannot be reported anywhere.
            let line = format!("wholememory[{}] {level}: {}\n", std::process::id(), record.args());
            let _written = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// Logs warnings, unless the program has chosen a level.
pub(super) fn begin() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        if log::set_logger(&StandardError).is_ok() {
            log::set_max_level(LevelFilter::Warn);
        }
    });
}

/// Sets the level that the program chooses (`LogLevel`); another number changes nothing.
pub(super) fn set_level(level: u32) {
    begin();
    let filter = match level {
        0 | 1 => LevelFilter::Error,
        2 | 3 => LevelFilter::Warn,
        4 => LevelFilter::Debug,
        5 => LevelFilter::Trace,
        _ => return,
    };
    log::set_max_level(filter);
}
