//! The imports between crates, layers or files as a value: read from a block of ARCHITECTURE.md or
//! from the sources, compared, and printed as a block.
//!
//! A block is the text between the fences after `<!-- NAME -->`: a line `importer -> imported,
//! imported` for each importer, `importer` alone for one without imports. Every importer in a block
//! imports only names above it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The imports of each importer, also of those without any.
pub type Edges = BTreeMap<String, BTreeSet<String>>;

/// The lines between the fences after the mark.
///
/// # Panics
/// If the page has no such block.
pub fn block(page: &str, mark: &str) -> Vec<String> {
    let text = crate::text(Path::new(page)).expect(page);
    let (_, after) =
        text.split_once(&format!("<!-- {mark} -->")).unwrap_or_else(|| panic!("{page}: no {mark}"));
    let mut parts = after.split("```");
    let lines = parts.nth(1).unwrap_or_else(|| panic!("{page}: no block after {mark}")).lines().skip(1);
    lines.map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The edges in the lines of a block.
pub fn parse(lines: &[String]) -> Edges {
    let names = |list: &str| list.split(',').map(|name| name.trim().to_owned()).collect();
    let row = |line: &String| match line.split_once("->") {
        Some((importer, list)) => (importer.trim().to_owned(), names(list)),
        None => (line.trim().to_owned(), BTreeSet::new()),
    };
    lines.iter().map(row).collect()
}

/// Imports of names that are not above the importer in a block.
pub fn upward(lines: &[String]) -> Vec<String> {
    let mut above = BTreeSet::new();
    let mut wrong = Vec::new();
    for line in lines {
        for (importer, imported) in parse(std::slice::from_ref(line)) {
            wrong.extend(imported.difference(&above).map(|name| format!("{importer} -> {name}")));
            above.insert(importer);
        }
    }
    wrong
}

/// The differences of two graphs, one line an edge.
pub fn differences(page: &Edges, sources: &Edges) -> Vec<String> {
    let flat = |edges: &Edges| -> BTreeSet<(String, String)> {
        let alone = edges.keys().map(|importer| (importer.clone(), String::new()));
        let pairs =
            edges.iter().flat_map(|(importer, all)| all.iter().map(|one| (importer.clone(), one.clone())));
        alone.chain(pairs).collect()
    };
    let (page, sources) = (flat(page), flat(sources));
    let line =
        |what: &str, (importer, imported): &(String, String)| format!("{what}: {importer} -> {imported}");
    let only_page = page.difference(&sources).map(|edge| line("on the page only", edge));
    only_page.chain(sources.difference(&page).map(|edge| line("in the sources only", edge))).collect()
}

/// Sets of nodes that reach each other, the nodes of each in order.
pub fn cycles(edges: &Edges) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        edges.keys().map(|node| (node, reach(edges, node))).collect();
    let back = |from: &String, to: &String| reached.get(to).is_some_and(|set| set.contains(from));
    let own = |node: &&String| {
        reached[node].iter().filter(|other| back(node, other)).map(|other| (*other).clone()).collect()
    };
    edges.keys().collect::<Vec<_>>().iter().map(own).filter(|cycle: &Vec<String>| cycle.len() > 1).collect()
}

fn reach<'a>(edges: &'a Edges, from: &'a String) -> BTreeSet<&'a String> {
    let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(node) = left.pop() {
        let next = edges.get(node).into_iter().flatten();
        left.extend(next.filter(|other| seen.insert(*other)));
    }
    seen
}

#[cfg(test)]
mod tests {
    //! The rules must be able to fail.
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn an_edge_more_or_less_is_a_difference() {
        let (page, sources) = (parse(&lines("a\nb -> a")), parse(&lines("a -> b\nb")));
        let expected = ["on the page only: b -> a", "in the sources only: a -> b"];
        assert_eq!(differences(&page, &sources), expected);
        assert!(differences(&page, &page).is_empty());
    }

    #[test]
    fn an_import_of_what_stands_below_is_upward() {
        assert_eq!(upward(&lines("a -> c\nb -> a\nc")), ["a -> c"]);
    }

    #[test]
    fn a_cycle_is_found_and_a_diamond_is_none() {
        let cycle = parse(&lines("a -> b\nb -> c\nc -> a, d\nd"));
        assert_eq!(cycles(&cycle), BTreeSet::from([["a", "b", "c"].map(str::to_owned).to_vec()]));
        assert!(cycles(&parse(&lines("a -> b, c\nb -> d\nc -> d\nd"))).is_empty());
    }
}
