//! Standard output, for text that may be piped into something that stops reading.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;

/// Writes text to standard output at once.
///
/// # Errors
/// A closed pipe; see [`is_broken_pipe`].
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes a JSON value: indented for people, one line for a pipe.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_json(value: &serde_json::Value) -> Result<()> {
    if is_terminal() { print(&format!("{value:#}\n")) } else { print(&format!("{value}\n")) }
}

/// Does a person see standard output?
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Did the reader of our output go away? `wmctl stats | head` is no error.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
