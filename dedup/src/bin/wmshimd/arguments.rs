//! The command line of `wmshimd`.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use wm_sockets::private_folder;
use wm_trust::environment;

const HELP: &str = "Usage: wmshimd [--folder PATH] [--idle-seconds N] [--foreground]

Holds descriptors of GPU memory that processes of this user share. wmshim starts it by itself.

  --folder PATH       where its socket is [default: $WMSHIM_STATS_DIR, else $XDG_RUNTIME_DIR/wmshim,
                      else ${TMPDIR:-/tmp}/wmshim-$UID]
  --idle-seconds N    without a client for so long, it ends [default: 60]
  --foreground        stay in the terminal, and say on stderr what happens";

/// The time without a client after which the broker ends.
const IDLE: Duration = Duration::from_secs(60);

/// How to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BrokerArguments {
    folder: Option<PathBuf>,
    pub(super) idle: Duration,
    pub(super) foreground: bool,
}

/// The request of a command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The broker.
    Broker(BrokerArguments),
    /// Help, or the version.
    Text(String),
}

/// Why a command line is refused.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum WrongArguments {
    #[error("--folder needs a path")]
    NoFolder,
    #[error("--idle-seconds needs a number such as 60")]
    NoSeconds,
    #[error("{} is not understood; see wmshimd --help", .0.display())]
    Unknown(OsString),
}

/// Reads a command line.
///
/// # Errors
/// The first word that is wrong.
pub(super) fn parse(words: impl Iterator<Item = OsString>) -> Result<Wanted, WrongArguments> {
    let mut arguments = BrokerArguments { folder: None, idle: IDLE, foreground: false };
    let mut words = words;
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--folder") => arguments.folder = Some(words.next().ok_or(WrongArguments::NoFolder)?.into()),
            Some("--idle-seconds") => arguments.idle = seconds(words.next())?,
            Some("--foreground") => arguments.foreground = true,
            Some("--help" | "-h") => return Ok(Wanted::Text(HELP.to_owned())),
            Some("--version" | "-V") => return Ok(Wanted::Text(version())),
            _ => return Err(WrongArguments::Unknown(word)),
        }
    }
    Ok(Wanted::Broker(arguments))
}

fn version() -> String {
    format!("wmshimd {}", env!("CARGO_PKG_VERSION"))
}

fn seconds(word: Option<OsString>) -> Result<Duration, WrongArguments> {
    let number = word.as_deref().and_then(|word| word.to_str()?.parse::<f64>().ok());
    let duration = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
    // A year is as good as for ever, and can be added to a clock.
    let duration = duration.filter(|duration| *duration <= Duration::from_secs(366 * 86_400));
    duration.ok_or(WrongArguments::NoSeconds)
}

impl BrokerArguments {
    /// The folder that was named, or the user's private folder, made if it is missing.
    ///
    /// # Errors
    /// No folder can be used, and why.
    pub(super) fn folder(&self) -> io::Result<PathBuf> {
        let set = || environment::variable("WMSHIM_STATS_DIR").filter(|value| !value.is_empty());
        let named = self.folder.clone().or_else(|| set().map(PathBuf::from));
        let folder = private_folder::directory(named.as_deref()).map_err(io::Error::other)?;
        std::path::absolute(folder)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): a word of the command line is passed over.
    use super::*;

    fn parsed(words: &[&str]) -> Result<Wanted, WrongArguments> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn every_word_is_understood_or_refused() {
        let words = ["--folder", "/a", "--idle-seconds", "0.5", "--foreground"];
        let folder = Some(PathBuf::from("/a"));
        let expected = BrokerArguments { folder, idle: Duration::from_millis(500), foreground: true };
        assert_eq!(parsed(&words), Ok(Wanted::Broker(expected)));
        for wrong in [&["--folder"][..], &["--idle-seconds", "-1"], &["--idle-seconds", "1e300"], &["x"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
