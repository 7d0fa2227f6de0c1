//! Reasons are log lines: the C API gives a code alone.
//!
//! The lines go where `libwmshim.so` writes its own, by the same settings ([`wm_driver::logger`]).
//! `WMSHIM_LOG` is the user's: where it is set, the level that the program chooses has no effect.

use std::sync::OnceLock;

use log::LevelFilter;
use wm_driver::logger::{self, LogSink};
use wm_trust::environment;

const LEVEL: &str = "WMSHIM_LOG";
const FILE: &str = "WMSHIM_LOG_FILE";
const FORMAT: &str = "WMSHIM_LOG_FORMAT";

/// What the user asked for.
#[derive(Debug, Default)]
struct LogChoice {
    level: Option<LevelFilter>,
    sink: LogSink,
    /// Values that are not understood.
    problems: Vec<String>,
}

impl LogChoice {
    fn of_environment() -> Self {
        let mut choice = Self::default();
        choice.level = choice.understood(LEVEL, logger::level, "error, warn, info, debug, trace or off");
        let is_json = choice.understood(FORMAT, logger::is_json, "text or json").unwrap_or(false);
        let file = environment::variable(FILE).filter(|name| !name.is_empty());
        choice.sink = LogSink::new(file.as_deref().and_then(logger::file), is_json);
        choice
    }

    fn understood<T>(&mut self, name: &str, read: fn(&str) -> Option<T>, valid: &str) -> Option<T> {
        let text = environment::text(name).filter(|text| !text.is_empty())?;
        let value = read(&text);
        if value.is_none() {
            self.problems.push(format!("{name}={text}: not {valid}; the default is used"));
        }
        value
    }
}

/// Logs warnings, unless the user or the program has chosen a level. The level of the user's, if
/// there is one.
pub(super) fn begin() -> Option<LevelFilter> {
    static CHOSEN: OnceLock<Option<LevelFilter>> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let LogChoice { level, sink, problems } = LogChoice::of_environment();
        logger::install("wholememory");
        logger::choose(sink);
        level.into_iter().for_each(log::set_max_level);
        problems.iter().for_each(|problem| log::warn!("{problem}"));
        level
    })
}

/// Sets the level that the program chooses (`LogLevel`); another number changes nothing.
pub(super) fn set_level(level: u32) {
    if begin().is_some() {
        return;
    }
    let filter = match level {
        0 | 1 => LevelFilter::Error,
        2 | 3 => LevelFilter::Warn,
        4 => LevelFilter::Debug,
        5 => LevelFilter::Trace,
        _ => return,
    };
    log::set_max_level(filter);
}
