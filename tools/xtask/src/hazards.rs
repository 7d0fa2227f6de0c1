//! `cargo xtask hazards`: which test guards which fear, found by the field's words.
//!
//! A file of tests opens with `//! Hazard (term): sentence.`, and a single test may have a `///`
//! line of the same form. The index is printed from those lines, so that it cannot fall behind
//! them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The terms, with the faults that each covers.
const TERMS: [(&str, &str); 23] = [
    ("API conformance", "an answer, code or effect that the bare driver would not give"),
    ("corrupt input", "bytes of a file, a message or another process"),
    ("data race", "two threads, streams or processes touch memory without an order"),
    ("deadlock", "threads, streams or processes wait for each other"),
    ("error handling", "a failed call, a bad setting, a missing driver"),
    ("fragmentation", "free memory that no request fits"),
    ("latency", "a call, a copy or a step takes longer than it must"),
    ("out of memory", "a request fails, or takes memory that others need"),
    ("out-of-bounds access", "bytes beside a block, a row or a structure"),
    ("privilege boundary", "another user, a set-user-ID program, a foreign folder"),
    ("process crash", "a fault inside the driver or a framework"),
    ("process lifecycle", "load, fork, threads, signals, cancellation, exit"),
    ("resource leak", "memory, handles or descriptors that stay"),
    ("silent degradation", "the program runs on without a feature, and no line says so"),
    ("source drift", "sources, pages and images that no longer agree"),
    ("stream order", "work that starts too early, ends too late, or waits without need"),
    ("symbol interposition", "the wrong library or function is found"),
    ("use after free", "memory, a context or a handle that has a new owner or none"),
    ("vacuous test", "a test or a simulator that cannot fail"),
    ("wrong report", "a figure, a table or an exit code that misleads"),
    ("wrong result", "bytes that differ from the reference"),
    ("overcommit", "a budget that several processes or devices count as their own"),
    ("thrashing", "memory migrates to and fro and the program gains nothing"),
];

/// One line of the index.
#[derive(Debug, PartialEq, Eq)]
struct Hazard {
    term: String,
    text: String,
    file: PathBuf,
    line: usize,
}

/// Prints the index, of all terms or of those that contain `filter`.
pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    let index = print(&all()?, filter);
    ensure!(!index.is_empty(), "no term contains {filter:?}; the terms are:\n{}", terms());
    print!("{index}");
    Ok(())
}

fn terms() -> String {
    TERMS.iter().fold(String::new(), |mut list, (term, covers)| {
        let _ = writeln!(list, "  {term}: {covers}");
        list
    })
}

fn print(hazards: &[Hazard], filter: Option<&str>) -> String {
    let mut by_term: BTreeMap<&str, Vec<&Hazard>> = BTreeMap::new();
    let wanted = |hazard: &&Hazard| filter.is_none_or(|part| hazard.term.contains(part));
    for hazard in hazards.iter().filter(wanted) {
        by_term.entry(&hazard.term).or_default().push(hazard);
    }
    let mut index = String::new();
    for (term, hazards) in by_term {
        let covers = TERMS.iter().find(|(name, _)| *name == term).map_or("", |(_, covers)| covers);
        let _ = writeln!(index, "{term}: {covers}");
        for hazard in hazards {
            let _ = writeln!(index, "  {}:{}\n      {}", hazard.file.display(), hazard.line, hazard.text);
        }
    }
    index
}

fn all() -> Result<Vec<Hazard>> {
    let files = rust_files()?;
    let texts = files.iter().map(|file| Ok((file, std::fs::read_to_string(crate::root().join(file))?)));
    let found = texts.collect::<Result<Vec<_>>>()?;
    Ok(found.iter().flat_map(|(file, text)| hazards(file, text)).collect())
}

fn rust_files() -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]).current_dir(crate::root());
    let output = git.output().context("git ls-files")?;
    let names = String::from_utf8(output.stdout)?;
    Ok(names.lines().map(PathBuf::from).filter(|file| crate::root().join(file).is_file()).collect())
}

/// The hazards that a file's doc comments name.
fn hazards(file: &Path, text: &str) -> Vec<Hazard> {
    let lines: Vec<_> = text.lines().map(comment).collect();
    let openings = lines.iter().enumerate().filter_map(|(at, line)| {
        let (term, first) = line.as_ref()?.strip_prefix("Hazard (")?.split_once("): ")?;
        let rest = lines[at + 1..].iter().map_while(|line| line.as_deref().filter(|line| !line.is_empty()));
        let text = [first].into_iter().chain(rest).collect::<Vec<_>>().join(" ");
        Some(Hazard { term: term.to_owned(), text, file: file.to_owned(), line: at + 1 })
    });
    openings.collect()
}

/// The text of a doc comment's line.
fn comment(line: &str) -> Option<String> {
    let line = line.trim_start();
    let text = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    //! Hazard (source drift): a test that its hazard's term does not find.
    use super::*;

    /// Folders of tests whose files share code, and have tests of their own in it.
    const SHARED: [&str; 4] = ["support", "common", "types.rs", "architecture/src"];

    fn is_test_file(file: &Path, text: &str) -> bool {
        let in_tests = file.parent().is_some_and(|folder| folder.iter().any(|part| part == "tests"));
        let shared = SHARED.iter().any(|part| file.to_string_lossy().contains(part));
        in_tests && !shared && text.contains("#[test]")
    }

    #[test]
    fn every_test_file_opens_with_its_hazard() {
        let mut wrong = Vec::new();
        for file in rust_files().unwrap() {
            let text = std::fs::read_to_string(crate::root().join(&file)).unwrap();
            if is_test_file(&file, &text) && !text.starts_with("//! Hazard (") {
                wrong.push(file);
            }
        }
        assert!(wrong.is_empty(), "open with `//! Hazard (term): sentence.`: {wrong:?}");
    }

    #[test]
    fn every_hazard_has_a_term_of_the_list() {
        let known = |hazard: &Hazard| TERMS.iter().any(|(term, _)| *term == hazard.term);
        let wrong: Vec<_> = all().unwrap().into_iter().filter(|hazard| !known(hazard)).collect();
        assert!(wrong.is_empty(), "the terms are:\n{}{wrong:#?}", terms());
    }

    #[test]
    fn an_opening_is_read_to_the_end_of_its_paragraph() {
        let text = "//! Hazard (data race): two threads\n//! write.\n//!\n//! More.\nfn f() {}\n";
        let found = hazards(Path::new("a.rs"), text);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].term.as_str(), found[0].text.as_str()), ("data race", "two threads write."));
    }

    #[test]
    fn a_filter_that_no_term_contains_prints_nothing() {
        let found = hazards(Path::new("a.rs"), "/// Hazard (deadlock): a wait.\n");
        assert_eq!(print(&found, Some("race")), "");
        assert!(print(&found, Some("dead")).contains("a.rs:1"));
    }
}
