//! Words of a line of a recording.

use anyhow::{Result, anyhow};

/// A number. `what`: its name in the format, for the error.
pub(super) fn number(word: &str, what: &str) -> Result<u64> {
    word.parse().map_err(|_| match word {
        "" => anyhow!("{what} is missing"),
        _ => anyhow!("{what} is a number, not `{word}`"),
    })
}
