//! The pages that ship: those for users, without the links that lead to a source tree.
//!
//! A link from a shipped page to a file that ships stays. Any other relative link would lead
//! nowhere on a user's disk, so its text stays and its target goes.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

/// Files that ship besides the pages in `docs/`.
const FILES: [&str; 28] = [
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs/dev/measurements.md",
    "docs/images/top-200.svg",
    "docs/images/top-80.svg",
    "examples/README.md",
    "examples/c/advise.c",
    "examples/c/one_thread.c",
    "examples/c/unified.c",
    "examples/c/wholememory.c",
    "examples/containers/Containerfile",
    "examples/containers/Containerfile.wheel",
    "examples/containers/pod.yaml",
    "examples/containers/wmshim.def",
    "examples/containers/wmshim.toml",
    "examples/monitoring/daemonset.yaml",
    "examples/monitoring/dashboard.json",
    "examples/monitoring/wmshim-exporter.service",
    "examples/python/nodes.py",
    "examples/python/statistics.py",
    "examples/python/unified.py",
    "examples/rust/spill.rs",
    "examples/slurm/nodes.sh",
    "examples/slurm/pyxis.sh",
    "examples/slurm/taskprolog",
    "examples/slurm/train.sh",
];

/// Copies the pages below `root` to `dist`.
///
/// # Errors
/// A page that cannot be read or written.
pub(crate) fn ship(root: &Path, dist: &Path) -> Result<()> {
    let shipped = shipped(root)?;
    for path in &shipped {
        let (from, to) = (root.join(path), dist.join(path));
        let text = fs::read_to_string(&from).with_context(|| from.display().to_string())?;
        fs::create_dir_all(to.parent().context("a page is in a folder")?)?;
        let is_page = path.extension().is_some_and(|extension| extension == "md");
        let text = if is_page { without_dead_links(path, &text, &shipped) } else { text };
        fs::write(&to, text).with_context(|| to.display().to_string())?;
    }
    Ok(())
}

/// All files that ship, relative to the root: the pages of `docs/` itself, and [`FILES`].
fn shipped(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(root.join("docs")).context("docs")?;
    let names = entries.map(|entry| Ok(Path::new("docs").join(entry?.file_name())));
    let mut found = names.collect::<Result<Vec<PathBuf>>>()?;
    // The table of contents of the book, which has pages that do not ship.
    let ships = |path: &Path| path.extension().is_some_and(|it| it == "md") && !path.ends_with("SUMMARY.md");
    found.retain(|path| ships(path));
    found.extend(FILES.map(PathBuf::from));
    found.sort();
    Ok(found)
}

/// The page with `[text](target)` as `text` where the target does not ship.
pub(crate) fn without_dead_links(page: &Path, text: &str, shipped: &[PathBuf]) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(middle) = rest.find("](") {
        let end = rest[middle..].find(')').map(|length| middle + length);
        let (Some(start), Some(end)) = (rest[..middle].rfind('['), end) else { break };
        let target = &rest[middle + 2..end];
        let stays = leads(page, target, shipped);
        plain += &rest[..start];
        plain += if stays { &rest[start..=end] } else { &rest[start + 1..middle] };
        rest = &rest[end + 1..];
    }
    plain + rest
}

fn leads(page: &Path, target: &str, shipped: &[PathBuf]) -> bool {
    let file = target.split('#').next().unwrap_or_default();
    if file.is_empty() || target.contains("://") {
        return true;
    }
    shipped.contains(&plain(&page.parent().unwrap_or(Path::new("")).join(file)))
}

/// A path without `.` and `..`; one that leaves its beginning keeps the `..` that does.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if plain.file_name().is_some() => drop(plain.pop()),
            Component::CurDir => {}
            _ => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_of_a_shipped_page_leads_to_a_shipped_file() {
        let shipped = shipped(&crate::root()).unwrap();
        assert!(shipped.len() > 15, "{shipped:?}");
        for page in shipped.iter().filter(|path| path.extension().is_some_and(|it| it == "md")) {
            let text = fs::read_to_string(crate::root().join(page)).unwrap();
            let plain = without_dead_links(page, &text, &shipped);
            let targets = plain.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let dead: Vec<_> = targets.filter(|target| !leads(page, target, &shipped)).collect();
            assert!(dead.is_empty(), "{}: {dead:?}", page.display());
        }
    }

    #[test]
    fn a_link_that_does_not_ship_is_its_text() {
        let shipped = ["README.md", "docs/a.md"].map(PathBuf::from);
        let text = "[a](docs/a.md#x), [b](docs/adr/b.md), [c](https://c), [d](#d), [e](../../e), *f* (g)";
        let plain = "[a](docs/a.md#x), b, [c](https://c), [d](#d), e, *f* (g)";
        assert_eq!(without_dead_links(Path::new("README.md"), text, &shipped), plain);
        assert!(leads(Path::new("docs/a.md"), "../README.md", &shipped));
    }
}
