//! `cargo xtask book`: the pages as a book with a search, in `target/book`.
//!
//! `docs/SUMMARY.md` is its table of contents, with links as a forge shows them. Pages outside
//! `docs/` are chapters, too, so the book is made from a copy in which all pages have their places
//! relative to each other. A link to a file that is no page becomes its text. After the build each
//! link is followed: mdBook makes a page of a broken one, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use regex::Regex;

use crate::pages::{self, plain};
use crate::{step, toolbox};

const SUMMARY: &str = "docs/SUMMARY.md";
/// The page that lists the decisions: its rows become chapters below it.
const DECISIONS: &str = "docs/adr/README.md";
/// Nothing is replaced in a page: some have braces that mdBook would take for its own.
const SETTINGS: &str = "[book]\ntitle = \"wmshim\"\nlanguage = \"en\"\nsrc = \".\"\n
[build]\nuse-default-preprocessors = false\n
[output.html]\nno-section-label = true\n
[output.html.search]\nlimit-results = 20\nheading-split-level = 3\n";

/// Builds the book, and follows its links.
pub(crate) fn run() -> Result<()> {
    let (root, target) = (crate::root(), crate::target()?);
    let (copy, book) = (target.join("book-pages"), target.join("book"));
    step::perform("pages", || lay_out(&root, &copy))?;
    let mut mdbook = toolbox::program("mdbook", &["build"])?;
    mdbook.arg(&copy).arg("--dest-dir").arg(&book);
    step::run("book", mdbook)?;
    step::perform("links", || follow(&book))?;
    println!("open {}", book.join("index.html").display());
    Ok(())
}

/// Copies the chapters and the table of contents.
fn lay_out(root: &Path, copy: &Path) -> Result<()> {
    if copy.exists() {
        fs::remove_dir_all(copy)?;
    }
    let read = |path: &Path| fs::read_to_string(root.join(path)).with_context(|| path.display().to_string());
    let summary = summary(&read(Path::new(SUMMARY))?, &read(Path::new(DECISIONS))?);
    let chapters = chapters(&summary);
    let pictures = pictures(root)?;
    let laid_out = [chapters.as_slice(), pictures.as_slice()].concat();
    for path in &pictures {
        let place = copy.join(path);
        fs::create_dir_all(place.parent().context("a picture is in a folder")?)?;
        fs::copy(root.join(path), place).with_context(|| path.display().to_string())?;
    }
    for path in &chapters {
        let place = copy.join(path);
        fs::create_dir_all(place.parent().context("a page is in a folder")?)?;
        fs::write(place, pages::without_dead_links(path, &read(path)?, &laid_out))?;
    }
    fs::write(copy.join("SUMMARY.md"), &summary)?;
    fs::write(copy.join("book.toml"), SETTINGS).context("book.toml")
}

/// The pictures of the pages, in a folder of their own.
fn pictures(root: &Path) -> Result<Vec<PathBuf>> {
    let folder = Path::new("docs/images");
    let Ok(entries) = fs::read_dir(root.join(folder)) else { return Ok(Vec::new()) };
    entries.map(|entry| Ok(folder.join(entry?.file_name()))).collect()
}

/// The table of contents with links from the root, and the decisions below their list.
fn summary(text: &str, decisions: &str) -> String {
    let from = |folder: &str, target: &str| plain(&Path::new(folder).join(target)).display().to_string();
    let mut summary = String::new();
    for line in text.lines() {
        let Some((title, target)) = link(line) else {
            summary += &format!("{line}\n");
            continue;
        };
        let target = from("docs", target);
        summary += &format!("{title}]({target})\n");
        if target == DECISIONS {
            let rows = decisions.lines().filter_map(|row| row.strip_prefix("| [")?.split_once(") | "));
            for (link, rest) in rows {
                let (Some((number, file)), Some(title)) = (link.split_once("]("), rest.split(" |").next())
                else {
                    continue;
                };
                summary += &format!("  - [{number} {title}]({})\n", from("docs/adr", file));
            }
        }
    }
    summary
}

/// `- [title](target)` as `- [title` and `target`.
fn link(line: &str) -> Option<(&str, &str)> {
    line.strip_suffix(')')?.split_once("](")
}

fn chapters(summary: &str) -> Vec<PathBuf> {
    summary.lines().filter_map(|line| Some(PathBuf::from(link(line)?.1))).collect()
}

/// Fails if a link of the built book leads to no file, or to no heading of it.
fn follow(book: &Path) -> Result<()> {
    let (href, name) =
        (Regex::new(r#"\b(?:href|src)="([^"]+)""#)?, Regex::new(r#"\b(?:id|name)="([^"]+)""#)?);
    let mut pages = BTreeMap::new();
    for path in html(book)? {
        let text = fs::read_to_string(&path)?;
        let names: BTreeSet<String> = name.captures_iter(&text).map(|found| found[1].to_owned()).collect();
        let links: Vec<String> = href.captures_iter(&text).map(|found| found[1].to_owned()).collect();
        pages.insert(path, (names, links));
    }
    let leads = |page: &Path, link: &str| {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let path =
            if file.is_empty() { page.to_owned() } else { plain(&page.parent().unwrap_or(book).join(file)) };
        let is_named =
            |(names, _): &(BTreeSet<String>, Vec<String>)| anchor.is_empty() || names.contains(anchor);
        pages.get(&path).map_or_else(|| path.is_file(), is_named)
    };
    let inside = |link: &&String| !link.contains("://") && !link.starts_with("mailto:");
    let broken: Vec<_> = pages
        .iter()
        .flat_map(|(page, (_, links))| links.iter().filter(inside).map(move |link| (page, link)))
        .filter(|(page, link)| !leads(page, link))
        .map(|(page, link)| format!("{}: {link}", page.strip_prefix(book).unwrap_or(page).display()))
        .collect();
    if pages.len() < 20 || !broken.is_empty() {
        bail!("of {} pages these links lead nowhere:\n{}", pages.len(), broken.join("\n"));
    }
    Ok(())
}

fn html(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(html(&path)?);
        } else if path.extension().is_some_and(|it| it == "html")
            && path.file_name().is_some_and(|it| it != "404.html")
        {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    //! Hazard (source drift): the book lacks a page, or cannot be built from the pages.
    use super::*;

    #[test]
    fn the_pages_are_laid_out_with_the_decisions() {
        let copy = std::env::temp_dir().join(format!("wm-book-{}", std::process::id()));
        lay_out(&crate::root(), &copy).unwrap();
        let summary = fs::read_to_string(copy.join("SUMMARY.md")).unwrap();
        let chapters = chapters(&summary);
        let absent: Vec<_> = chapters.iter().filter(|path| !copy.join(path).is_file()).collect();
        let decisions = chapters.iter().filter(|path| path.starts_with("docs/adr")).count();
        let files = fs::read_dir(crate::root().join("docs/adr")).unwrap().count();
        fs::remove_dir_all(&copy).unwrap();
        assert!(chapters.len() > 60 && absent.is_empty(), "{absent:?}");
        assert_eq!(decisions, files, "each decision is in the list of docs/adr/README.md");
    }

    #[test]
    fn links_are_from_the_root() {
        let text = "# Summary\n\n[a](../README.md)\n\n- [Decisions](adr/README.md)\n- [b](b.md)\n";
        let decisions = "| | decision |\n| [0001](0001-x.md) | One `two` | in force |\n";
        let expected = "# Summary\n\n[a](README.md)\n\n- [Decisions](docs/adr/README.md)\n  - [0001 One `two`](docs/adr/0001-x.md)\n- [b](docs/b.md)\n";
        assert_eq!(summary(text, decisions), expected);
    }
}
