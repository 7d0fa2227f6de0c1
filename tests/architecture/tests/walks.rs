//! Hazard (source drift): a walk of ARCHITECTURE.md names a file or a function that has moved.

use std::path::Path;

const PAGE: &str = "ARCHITECTURE.md";

#[test]
fn every_step_of_a_walk_is_in_the_file_that_it_names() {
    let page = architecture::text(Path::new(PAGE)).expect(PAGE);
    let steps: Vec<_> = page.lines().filter_map(step).collect();
    assert!(steps.len() > 20, "{} steps are seen", steps.len());
    let text = |path: &str| architecture::text(Path::new(path)).unwrap_or_default();
    let wrong: Vec<_> = steps.iter().filter(|(path, function)| !has(&text(path), function)).collect();
    assert!(wrong.is_empty(), "{PAGE}: not there: {wrong:?}");
}

/// File and function of a row `| number | step | `file` | `function` |`.
fn step(line: &str) -> Option<(&str, &str)> {
    let cells: Vec<_> = line.split('|').map(str::trim).collect();
    let [_, number, _, file, function, _] = cells[..] else { return None };
    number.parse::<u32>().ok()?;
    Some((file.trim_matches('`'), function.trim_matches('`')))
}

fn has(text: &str, function: &str) -> bool {
    ["(", "<"].iter().any(|next| text.contains(&format!("fn {function}{next}")))
}

/// The rule must be able to fail.
#[test]
fn a_step_that_has_moved_is_seen() {
    assert_eq!(step("| 2 | it asks | `a/b.rs` | `ask` |"), Some(("a/b.rs", "ask")));
    assert_eq!(step("| word | it means |"), None);
    assert!(has("pub fn ask(x: u8) {}", "ask") && has("fn ask<T>() {}", "ask"));
    assert!(!has("pub fn asked() {} // ask(", "ask"));
}
