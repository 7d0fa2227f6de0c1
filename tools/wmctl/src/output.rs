//! Standard output, for text that may be piped into something that stops reading.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;

/// Writes text to standard output at once.
///
/// # Errors
/// A closed pipe; see [`is_broken_pipe`].
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes a JSON value: indented for people, one line for a pipe.
///
/// # Errors
/// As [`print()`].
pub fn print_json(value: &serde_json::Value) -> Result<()> {
    let text = if is_terminal() { format!("{value:#}\n") } else { format!("{value}\n") };
    print(&escaped(&text))
}

/// JSON in which a terminal finds no control character: such stand in strings only, and may be
/// written by number.
pub(crate) fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\u{7f}'..='\u{9f}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => text.push(character),
        }
    }
    text
}

/// Does a person see standard output?
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// An error that ends wmctl with a code of its own.
#[derive(Debug)]
pub(crate) struct Coded {
    pub(crate) code: u8,
    pub(crate) sentence: String,
}

impl std::fmt::Display for Coded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Coded {}

/// The exit code of an error: its own, or 1.
pub(crate) fn code_of(error: &anyhow::Error) -> std::process::ExitCode {
    error.downcast_ref::<Coded>().map_or(1, |coded| coded.code).into()
}

/// Did the reader of our output go away? `wmctl stats | head` is no error.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
