//! Hazard (source drift): a sentence whose subject is a relative clause instead of a thing in the
//! code, or a line that no terminal shows whole. `CONTRIBUTING.md` has the rules of which this test
//! holds the two that a machine can see.

use std::path::Path;

/// Words of the old idiom. Each stands where the name of a block, a thread or a caller is missing.
const BANNED: [&str; 13] = [
    "who",
    "whom",
    "whoever",
    "nobody",
    "somebody",
    "everybody",
    "anybody",
    "for want of",
    "but for",
    "the like",
    "so much as",
    "so long",
    "in vain",
];

/// The longest comment line in a source file, and the longest prose line of a page, in characters.
const COMMENT_COLUMNS: usize = 100;
const PROSE_COLUMNS: usize = 120;

/// Where a language's comments begin.
fn comment_marks(path: &Path) -> &'static [&'static str] {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs" | "c" | "h" | "cu" | "cuh" | "cpp" | "hpp") => &["//", "/*", " * "],
        Some("py" | "sh" | "toml") => &["#"],
        _ => &[],
    }
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The text that a reader reads in a line: the comment of a source line, the whole line of a page.
fn prose<'a>(path: &Path, line: &'a str) -> Option<&'a str> {
    if is_page(path) {
        return Some(line);
    }
    let start = comment_marks(path).iter().filter_map(|mark| line.find(mark)).min()?;
    Some(&line[start..])
}

/// Quotations and code are not checked.
fn without_quotes(text: &str) -> String {
    let outside = |mark: char, text: &str| text.split(mark).step_by(2).collect::<Vec<_>>().join(" ");
    outside('`', &outside('"', text))
}

fn banned(text: &str) -> Option<&'static str> {
    let lower = without_quotes(text).to_lowercase();
    let words: Vec<_> = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let plain = format!(" {} ", words.join(" "));
    BANNED.into_iter().find(|word| plain.contains(&format!(" {word} ")))
}

fn is_too_long(path: &Path, line: &str) -> bool {
    let text = line.trim_start();
    let is_row = text.trim_start_matches(['/', '!', ' ']).starts_with('|');
    let has_link = line.contains("://") || line.contains("](");
    let columns = match is_page(path) {
        true => PROSE_COLUMNS,
        false if text.starts_with("//") && !comment_marks(path).is_empty() => COMMENT_COLUMNS,
        false => return false,
    };
    line.chars().count() > columns && !is_row && !has_link
}

fn faults(path: &Path, text: &str) -> Vec<String> {
    let (mut faults, mut fenced) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        fenced ^= is_page(path) && line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        let place = format!("{}:{}", path.display(), number + 1);
        if let Some(word) = prose(path, line).and_then(banned) {
            faults.push(format!("{place}: \"{word}\""));
        }
        if is_too_long(path, line) {
            faults.push(format!("{place}: {} characters", line.chars().count()));
        }
    }
    faults
}

#[test]
fn comments_and_pages_are_plain_english() {
    let faults: Vec<_> = architecture::files()
        .into_iter()
        .filter(|path| !architecture::is_generated(path))
        .flat_map(|path| faults(&path, &architecture::text(&path).unwrap_or_default()))
        .collect();
    assert!(faults.is_empty(), "name the thing, and wrap the line:\n{}", faults.join("\n"));
}

#[test]
fn the_rules_can_fail() {
    let rust = Path::new("a.rs");
    assert_eq!(faults(rust, &format!("/// {} waits here.", BANNED[3])).len(), 1);
    assert_eq!(faults(rust, &format!("// {}", "x".repeat(COMMENT_COLUMNS))).len(), 1);
    assert_eq!(faults(Path::new("a.md"), &"x ".repeat(PROSE_COLUMNS)).len(), 1);
    let right = ["let who = 1;", "/// `who` is a parameter.", "/// The whole block.", "let text = \"// x\";"];
    assert_eq!(right.map(|line| faults(rust, line)).concat(), Vec::<String>::new());
}
