//! Hazard (source drift): a drawing of ARCHITECTURE.md shows an import or a step that the sources
//! lack.
//!
//! The drawing of the crates has the edges of the block `crates`, without those that follow from
//! others. The drawing of a walk has the functions of the table below it, and no arrow back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use architecture::edges::{self, Edges};

const PAGE: &str = "ARCHITECTURE.md";

/// The walks, as their drawings are marked.
const WALKS: [&str; 3] = ["an allocation", "a launch", "a copy"];

/// `a --> b` of a Mermaid block. A node's label follows its name: `a["label"]`, `a([label])`.
fn arrows(lines: &[String]) -> Vec<(String, String)> {
    let name = |node: &str| node.trim().split(['[', '(', '{']).next().unwrap_or_default().trim().to_owned();
    let pairs = |line: &String| {
        let nodes: Vec<_> =
            line.split("-->").map(|node| node.split('|').next_back().unwrap_or(node)).map(name).collect();
        nodes.windows(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect::<Vec<_>>()
    };
    lines.iter().filter(|line| line.contains("-->")).flat_map(pairs).collect()
}

/// The edges among these nodes that do not follow from longer paths.
fn reduced(all: &Edges, nodes: &BTreeSet<String>) -> BTreeSet<(String, String)> {
    let next = |node: &str| -> Vec<String> {
        all.get(node).into_iter().flatten().filter(|it| nodes.contains(*it)).cloned().collect()
    };
    let reach = |from: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), next(from));
        while let Some(node) = open.pop() {
            if seen.insert(node.clone()) {
                open.extend(next(&node));
            }
        }
        seen
    };
    let of = |from: &String| {
        let direct = next(from);
        let beyond: BTreeSet<String> = direct.iter().flat_map(|node| reach(node)).collect();
        direct.into_iter().filter(|to| !beyond.contains(to)).map(|to| (from.clone(), to)).collect::<Vec<_>>()
    };
    nodes.iter().flat_map(of).collect()
}

#[test]
fn the_drawing_of_the_crates_has_their_imports() {
    let drawn: BTreeSet<_> = arrows(&edges::block(PAGE, "drawing of the crates")).into_iter().collect();
    let nodes: BTreeSet<String> = drawn.iter().flat_map(|(from, to)| [from.clone(), to.clone()]).collect();
    assert!(nodes.len() > 10, "{nodes:?}");
    let expected = reduced(&edges::parse(&edges::block(PAGE, "crates")), &nodes);
    let extra: Vec<_> = drawn.difference(&expected).collect();
    let absent: Vec<_> = expected.difference(&drawn).collect();
    assert!(
        extra.is_empty() && absent.is_empty(),
        "{PAGE}: drawn only {extra:?}, in the block only {absent:?}"
    );
}

#[test]
fn the_drawing_of_a_walk_has_its_steps() {
    let page = architecture::text(Path::new(PAGE)).expect(PAGE);
    for walk in WALKS {
        let mark = format!("drawing of {walk}");
        let drawn = arrows(&edges::block(PAGE, &mark));
        let steps = steps(page.split_once(&mark).expect("the mark").1);
        let order: BTreeMap<&str, usize> =
            steps.iter().enumerate().rev().map(|(n, it)| (it.as_str(), n)).collect();
        let nodes: BTreeSet<&str> = drawn.iter().flat_map(|(from, to)| [from.as_str(), to]).collect();
        let place = |node: &str| order.get(node).copied();
        let absent: Vec<_> = steps.iter().filter(|step| !nodes.contains(step.as_str())).collect();
        let back: Vec<_> = drawn
            .iter()
            .filter(|(from, to)| place(from).is_some() && place(to).is_some() && place(from) >= place(to))
            .collect();
        let loose: Vec<_> = nodes.iter().filter(|node| place(node).is_none()).collect();
        assert!(absent.is_empty() && back.is_empty(), "{mark}: lacks {absent:?}, goes back {back:?}");
        assert!(loose.len() <= ENDS, "{mark}: not in the table below: {loose:?}");
    }
}

/// Nodes that are no function of ours: the program and the driver.
const ENDS: usize = 2;

/// The functions of the first table behind a drawing, in its order.
fn steps(text: &str) -> Vec<String> {
    let rows =
        text.lines().skip_while(|line| !line.starts_with("| 1 ")).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| Some(row.split('|').nth(4)?.trim().trim_matches('`').to_owned())).collect()
}

/// The rules must be able to fail.
#[test]
fn a_drawing_is_read() {
    let lines = ["a[\"x\"] --> b([y]) -->|no| c", "subgraph s", "c --> d"].map(str::to_owned);
    let pairs = [("a", "b"), ("b", "c"), ("c", "d")].map(|(from, to)| (from.to_owned(), to.to_owned()));
    assert_eq!(arrows(&lines), pairs);
    let all = edges::parse(&["a", "b -> a", "c -> a, b", "d -> c"].map(str::to_owned));
    let nodes = ["a", "b", "c"].map(str::to_owned).into();
    let expected = [("b", "a"), ("c", "b")].map(|(from, to)| (from.to_owned(), to.to_owned()));
    assert_eq!(reduced(&all, &nodes), expected.into());
    assert_eq!(
        steps("x\n| 1 | what | `f.rs` | `one` |\n| 2 | what | `g.rs` | `two` |\n\n| 3 |"),
        ["one", "two"]
    );
}
