//! Figures as people read them, and text from programs as a terminal may have it.
//!
//! A program chooses its own name, and any process may listen at a socket: their text reaches the
//! terminal with its control characters written out, and shortened.

use std::path::PathBuf;

pub use wm_schema::size::rounded as bytes;

/// Longest name of a program or a device in a table.
const NAME: usize = 40;
/// Longest text in a line: a path may have as much.
const LONGEST: usize = 200;

/// Text with its control characters written out: `\x1b`. Those that turn the direction of a line
/// are of them.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\0'..='\x1f' | '\x7f' => shown.push_str(&format!("\\x{:02x}", u32::from(character))),
            '\u{80}'..='\u{9f}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                shown.push_str(&format!("\\u{{{:x}}}", u32::from(character)));
            }
            _ => shown.push(character),
        }
    }
    shown
}

/// The same, and no longer than so many characters.
pub fn shortened(text: &str, longest: usize) -> String {
    let text = shown(text);
    if text.chars().count() <= longest {
        return text;
    }
    let head: String = text.chars().take(longest.saturating_sub(3)).collect();
    format!("{head}...")
}

/// A name for a table, `-` if it is empty.
pub fn name(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { shortened(text, NAME) }
}

/// A text for a line, `-` if it is empty.
pub fn word(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { shortened(text, LONGEST) }
}

/// Paths as a list for a sentence.
pub fn paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Seconds as `45 s`, `12 min 3 s`, `3 h 20 min`, `2 d 4 h`.
pub fn duration(seconds: f64) -> String {
    if !(0.0..1e12).contains(&seconds) {
        return "-".to_owned();
    }
    let whole = seconds as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds:.1} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", whole % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// Nanoseconds with the unit that fits.
pub fn nanoseconds(count: f64) -> String {
    match count {
        below if below < 1e3 => format!("{count:.0} ns"),
        below if below < 1e6 => format!("{:.1} µs", count / 1e3),
        below if below < 1e9 => format!("{:.1} ms", count / 1e6),
        _ => format!("{:.1} s", count / 1e9),
    }
}

/// A number with thousands set apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let groups =
        digits.as_bytes()[first..].chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    let head = (first > 0).then(|| digits[..first].to_owned());
    head.into_iter().chain(groups).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    //! Hazard: a figure that is off by a unit where two units meet.
    use super::*;

    #[test]
    fn control_characters_are_written_out_and_names_shortened() {
        assert_eq!(shown("a\x1b[2J\u{9b}b\n\u{202e}µ"), "a\\x1b[2J\\u{9b}b\\x0a\\u{202e}µ");
        assert_eq!(name(&"x".repeat(300)).len(), NAME);
        assert_eq!(name("train"), "train");
        assert_eq!(
            (duration(-1e308), duration(f64::INFINITY), duration(1e300)),
            ("-".into(), "-".into(), "-".into())
        );
    }

    #[test]
    fn durations_and_counts() {
        assert_eq!(duration(45.25), "45.2 s");
        assert_eq!(duration(723.0), "12 min 3 s");
        assert_eq!(duration(187_200.0), "2 d 4 h");
        assert_eq!(nanoseconds(22_000.0), "22.0 µs");
        assert_eq!(
            (count(7), count(1000), count(1_234_567)),
            ("7".into(), "1,000".into(), "1,234,567".into())
        );
    }
}
