//! The terminal's size, and text that keeps to it: folded where it is read, cut where it is renewed
//! in place.
//!
//! A pipe has no size and gets text as it is.

use crate::output;

/// Columns and lines of the terminal on standard output; `None` for anything else.
pub(crate) fn size() -> Option<(usize, usize)> {
    if !output::is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    let known = size.ws_col >= 20 && size.ws_row >= 4;
    known.then_some((size.ws_col.into(), size.ws_row.into()))
}

/// Lines folded at blanks to the terminal's width; the continuation is indented further than the
/// line.
pub(crate) fn folded(text: &str) -> String {
    match size() {
        Some((columns, _)) => text.lines().map(|line| fold(line, columns)).collect(),
        None => text.to_owned(),
    }
}

/// A screen that is renewed in place: no wider and no longer than the terminal, and a last line
/// that counts the missing lines.
pub(crate) fn cut(text: &str) -> String {
    match size() {
        Some((columns, lines)) => cut_to(text, columns, lines),
        None => text.to_owned(),
    }
}

/// A line folded at blanks to so many columns.
pub(crate) fn fold(line: &str, columns: usize) -> String {
    let indent = line.chars().take_while(|character| *character == ' ').count();
    let hang = " ".repeat((indent + 4).min(columns / 2));
    let (mut folded, mut length) = (" ".repeat(indent), indent);
    for (number, word) in line.trim_start().split_inclusive(' ').enumerate() {
        let width = word.trim_end().chars().count();
        if number > 0 && length + width > columns {
            folded.truncate(folded.trim_end().len());
            folded.push_str(&format!("\n{hang}"));
            length = hang.len();
        }
        folded.push_str(word);
        length += word.chars().count();
    }
    format!("{folded}\n")
}

fn cut_to(text: &str, columns: usize, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    let room = lines - 1;
    let shown = if all.len() > room { room - 1 } else { all.len() };
    let mut cut: String = all[..shown].iter().map(|line| clip(line, columns)).collect();
    if shown < all.len() {
        cut.push_str(&format!("... {} more lines; `--once` or a pipe shows all\n", all.len() - shown));
    }
    cut
}

fn clip(line: &str, columns: usize) -> String {
    let clipped: String = line.chars().take(columns).collect();
    format!("{clipped}\n")
}

#[cfg(test)]
mod tests {
    //! Hazard: a table that scrolls its own heading away, or a sentence of which the end is lost.
    use super::*;

    #[test]
    fn lines_fold_at_blanks_and_lose_nothing() {
        let line = "  note    one two three four five";
        let folded = fold(line, 20);
        assert_eq!(folded, "  note    one two\n      three four\n      five\n");
        assert_eq!(fold("short", 20), "short\n");
        assert_eq!(fold("a-word-that-is-longer-than-it-all", 20), "a-word-that-is-longer-than-it-all\n");
    }

    #[test]
    fn a_screen_says_what_it_leaves_out() {
        let text: String = (0..10).map(|line| format!("line {line} and more\n")).collect();
        let cut = cut_to(&text, 6, 6);
        assert_eq!(cut, "line 0\nline 1\nline 2\nline 3\n... 6 more lines; `--once` or a pipe shows all\n");
        assert_eq!(cut_to("a\nb\n", 6, 6), "a\nb\n");
    }
}
