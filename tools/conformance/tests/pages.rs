//! Hazard (source drift): a page claims that a case has an answer of a real driver, and the
//! recorded document lacks it.
//!
//! `docs/dev/testing.md` lists the cases without a recorded answer. This test compares the list
//! with the document.

use std::collections::BTreeSet;

use conformance::cases::CASES;
use serde_json::Value;

const PAGE: &str = include_str!("../../../docs/dev/testing.md");
const DOCUMENT: &str = include_str!("../data/observed-h200-580.json");

#[test]
fn the_page_lists_the_cases_without_a_recorded_answer() {
    let document: Value = serde_json::from_str(DOCUMENT).expect("a document");
    let recorded: BTreeSet<&str> = document["cases"]
        .as_array()
        .expect("cases")
        .iter()
        .filter_map(|case| case["case"].as_str())
        .collect();
    assert!(recorded.len() > 300, "the document is not understood");
    let missing = CASES.iter().map(|row| row.name).filter(|name| !recorded.contains(name));
    let (listed, missing) = (listed(PAGE), missing.collect::<BTreeSet<_>>());
    let lacks: Vec<_> = missing.difference(&listed).collect();
    let told: Vec<_> = listed.difference(&missing).collect();
    assert!(lacks.is_empty() && told.is_empty(), "not on the page: {lacks:?}; recorded or no case: {told:?}");
}

/// The names in the block below `<!-- not recorded -->`.
fn listed(page: &str) -> BTreeSet<&str> {
    let block = page.split("<!-- not recorded -->\n```\n").nth(1).and_then(|rest| rest.split("```").next());
    block.expect("the block of docs/dev/testing.md").split_whitespace().collect()
}

/// The rule must be able to fail.
#[test]
fn the_block_is_read() {
    assert_eq!(listed("x\n<!-- not recorded -->\n```\na.b c.d\ne.f\n```\n"), ["a.b", "c.d", "e.f"].into());
}
