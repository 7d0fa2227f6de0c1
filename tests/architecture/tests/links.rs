//! Hazard (source drift): a link of a page leads to a file or a heading that has moved.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages =
        || architecture::files().into_iter().filter(|path| path.extension().is_some_and(|it| it == "md"));
    assert!(pages().count() > 20, "the pages are not found");
    let wrong: Vec<_> = pages().flat_map(|page| broken(&page)).collect();
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

/// The broken links of a page, as `page: target`.
fn broken(page: &Path) -> Vec<String> {
    let text = architecture::text(page).unwrap_or_default();
    let wrong = links(&text).into_iter().filter(|target| !leads(page, target));
    wrong.map(|target| format!("{}: {target}", page.display())).collect()
}

/// Files of other programs, or of a machine, that a page names.
const FOREIGN: [&str; 2] = ["kernel.json", "/etc/wmshim.toml"];

#[test]
fn every_file_that_a_page_names_is_there() {
    let files: Vec<String> = architecture::files().iter().map(|path| path.display().to_string()).collect();
    let is_there = |name: &str| files.iter().any(|file| file == name || file.ends_with(&format!("/{name}")));
    let pages = files.iter().filter(|file| file.ends_with(".md"));
    let named = pages.flat_map(|page| {
        let text = architecture::text(Path::new(page)).unwrap_or_default();
        source_files(&text).into_iter().map(|name| (page.clone(), name)).collect::<Vec<_>>()
    });
    let named: Vec<_> = named.collect();
    assert!(named.len() > 100, "{} names of files are seen", named.len());
    let absent: Vec<_> =
        named.iter().filter(|(_, name)| !is_there(name) && !FOREIGN.contains(&name.as_str())).collect();
    assert!(absent.is_empty(), "no such file: {absent:?}");
}

/// The code spans of a page that are names of source files.
fn source_files(text: &str) -> Vec<String> {
    let endings =
        [".rs", ".py", ".sh", ".c", ".cu", ".cuh", ".cpp", ".h", ".tsv", ".toml", ".md", ".json", ".yml"];
    let is_name = |span: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-');
        span.chars().all(plain)
            && endings.iter().any(|ending| span.len() > ending.len() && span.ends_with(ending))
    };
    let spans = outside_fences(text).flat_map(|line| line.split('`').skip(1).step_by(2));
    spans.filter(|span| is_name(span)).map(str::to_owned).collect()
}

/// The targets of the links in a page, without those that name a protocol.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains(':') && !target.contains(' ')).collect()
}

/// Pages that a forge has beside a repository's files, as relative links from these.
const FORGE: [&str; 3] = ["issues", "releases", "security/advisories/new"];

fn leads(page: &Path, target: &str) -> bool {
    let depth = page.components().count() + 1;
    if let Some(rest) = target.strip_prefix(&"../".repeat(depth)) {
        return FORGE.contains(&rest);
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => page.to_owned(),
        _ => plain(&page.parent().unwrap_or(Path::new("")).join(file)),
    };
    let text = || architecture::text(&path).unwrap_or_default();
    architecture::root().join(&path).exists() && (anchor.is_empty() || anchors(&text()).contains(anchor))
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            _ => plain.push(part),
        }
    }
    plain
}

/// The anchors that a forge makes of a page's headings and of `<a id="...">`.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = outside_fences(text).filter(|line| line.starts_with('#'));
    let named = text.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut found = BTreeSet::new();
    for heading in headings.map(|line| anchor(line.trim_start_matches('#'))) {
        let again = (1..).map(|count| format!("{heading}-{count}"));
        let free = [heading.clone()].into_iter().chain(again).find(|name| !found.contains(name));
        found.extend(free);
    }
    found.extend(named.map(str::to_owned));
    found
}

fn outside_fences(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(str::lines)
}

/// Lower case, blanks as dashes, and nothing else but letters, digits, `-` and `_`.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The rules must be able to fail.
#[test]
fn names_of_files_are_seen() {
    let text = "`a/b.rs` and `run it.rs`, `c.tsv`\n```\n`d.rs`\n```\n`x.rs`";
    assert_eq!(source_files(text), ["a/b.rs", "c.tsv", "x.rs"]);
}

#[test]
fn anchors_are_those_of_a_forge() {
    let text = "# One `two`, three\n```\n# no heading\n```\n## Once\n## Once\n| <a id=\"row\"></a> |\n";
    let expected = ["one-two-three", "once", "once-1", "row"].map(str::to_owned);
    assert_eq!(anchors(text), expected.into());
    assert_eq!(links("[a](b.md#c) [d](https://e) [f](#g)"), ["b.md#c", "#g"]);
    assert_eq!(plain(Path::new("docs/dev/../adr/x.md")), Path::new("docs/adr/x.md"));
    let leads = |page: &str, target: &str| leads(Path::new(page), target);
    assert!(leads("README.md", "LICENSE") && !leads("README.md", "LICENCE"));
    assert!(leads("README.md", "../../issues") && leads("docs/x.md", "../../../releases"));
    assert!(!leads("README.md", "../../wiki") && !leads("docs/x.md", "../../issues"));
}
