//! Reasons are log lines: the C API gives a code alone.
//!
//! The lines go where `libwmshim.so` writes its own, by the same settings ([`wm_driver::logger`]).
//! `WMSHIM_LOG` is the user's: where it is set, the level that the program chooses has no effect.

use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

use log::LevelFilter;
use wm_driver::logger::{self, LogSink};
use wm_trust::environment;
use wm_trust::node::{self, NodeFile};

const PREFIX: &str = "WMSHIM_";
const LEVEL: &str = "WMSHIM_LOG";
const FILE: &str = "WMSHIM_LOG_FILE";
const FORMAT: &str = "WMSHIM_LOG_FORMAT";

/// What the user asked for.
#[derive(Debug, Default)]
struct LogChoice {
    level: Option<LevelFilter>,
    file: Option<OsString>,
    is_json: bool,
    /// Values that are not understood.
    problems: Vec<String>,
}

impl LogChoice {
    /// The program's variables, and the node's defaults behind them.
    fn of_environment() -> Self {
        let node = NodeFile::read(Path::new(node::PATH)).unwrap_or_default();
        Self::of(&|name| environment::variable(name), &node)
    }

    fn of(variable: &dyn Fn(&str) -> Option<OsString>, node: &NodeFile) -> Self {
        let value = |name: &str| {
            let set = variable(name).filter(|value| !value.is_empty());
            set.or_else(|| default_of(node, name))
        };
        let mut choice = Self { file: value(FILE), ..Self::default() };
        choice.level = choice.understood(LEVEL, value(LEVEL), logger::level);
        choice.is_json = choice.understood(FORMAT, value(FORMAT), logger::is_json).unwrap_or(false);
        choice
    }

    fn understood<T>(
        &mut self,
        name: &str,
        value: Option<OsString>,
        read: fn(&str) -> Option<T>,
    ) -> Option<T> {
        let value = value?;
        let found = value.to_str().and_then(read);
        if found.is_none() {
            let text = value.to_string_lossy();
            self.problems.push(format!("{name}={text} is not understood; the default is used"));
        }
        found
    }

    fn sink(&self) -> LogSink {
        LogSink::new(self.file.as_deref().and_then(logger::file), self.is_json)
    }
}

/// The node's default of a setting, which the file names without the prefix.
fn default_of(node: &NodeFile, variable: &str) -> Option<OsString> {
    let name = variable.strip_prefix(PREFIX)?.to_ascii_lowercase();
    let entry = node.defaults.iter().find(|entry| entry.name == name && !entry.value.is_empty())?;
    Some(OsString::from(&entry.value))
}

/// Logs warnings, unless the user or the program has chosen a level. The level of the user's, if
/// there is one.
pub(super) fn begin() -> Option<LevelFilter> {
    static CHOSEN: OnceLock<Option<LevelFilter>> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let choice = LogChoice::of_environment();
        logger::install("wholememory");
        logger::choose(choice.sink());
        choice.level.into_iter().for_each(log::set_max_level);
        choice.problems.iter().for_each(|problem| log::warn!("{problem}"));
        choice.level
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

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a setting of the log holds for one library of ours and not for the
    //! other.
    use wm_trust::node::NodeEntry;

    use super::*;

    fn chosen(variables: &[(&str, &str)], defaults: &[(&str, &str)]) -> LogChoice {
        let entry = |(name, value): &(&str, &str)| NodeEntry {
            line: 1,
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        };
        let node = NodeFile { defaults: defaults.iter().map(entry).collect(), ..NodeFile::default() };
        let variable =
            |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, text)| text.into());
        LogChoice::of(&variable, &node)
    }

    #[test]
    fn a_variable_counts_before_the_nodes_default() {
        let node = [("log", "error"), ("log_file", "/var/log/a"), ("log_format", "json")];
        let choice = chosen(&[(LEVEL, "debug"), (FILE, ""), (FORMAT, "text")], &node);
        assert_eq!((choice.level, choice.is_json), (Some(LevelFilter::Debug), false));
        assert_eq!(choice.file, Some("/var/log/a".into()), "an empty variable is none");
        let choice = chosen(&[], &node);
        assert_eq!((choice.level, choice.is_json), (Some(LevelFilter::Error), true));
        let choice = chosen(&[], &[]);
        assert_eq!((choice.level, choice.file, choice.is_json), (None, None, false));
    }

    #[test]
    fn a_value_that_is_not_understood_is_said_and_the_default_is_used() {
        let choice = chosen(&[(LEVEL, "loud"), (FORMAT, "xml")], &[]);
        assert_eq!((choice.level, choice.is_json, choice.problems.len()), (None, false, 2));
        assert!(choice.problems[0].starts_with("WMSHIM_LOG=loud"), "{:?}", choice.problems);
    }
}
