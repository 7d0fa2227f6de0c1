//! Hazard (source drift): a figure on a page differs from the run that it comes from.
//!
//! Figures stand in `docs/dev/measurements.md`. Another page that shows one links it to its row
//! there (`<a id="row"></a>`), and this test looks for each number of the link's text in that row.

use std::path::{Path, PathBuf};

const MEASUREMENTS: &str = "docs/dev/measurements.md";

/// A link of a page to a row of the measurements.
#[derive(Debug, PartialEq)]
struct Figure<'a> {
    text: &'a str,
    row: &'a str,
}

#[test]
fn every_linked_figure_is_in_its_row() {
    let measurements = architecture::text(Path::new(MEASUREMENTS)).expect(MEASUREMENTS);
    let pages: Vec<_> = architecture::files().into_iter().filter(is_page).collect();
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in &pages {
        let text = architecture::text(page).unwrap_or_default();
        for figure in figures(&text) {
            let Some(row) = row(&measurements, figure.row) else { continue };
            let absent: Vec<_> =
                numbers(figure.text).filter(|it| !numbers(&row).any(|other| other == *it)).collect();
            seen += numbers(figure.text).count();
            if !absent.is_empty() {
                wrong.push(format!("{}: {absent:?} of {figure:?}", page.display()));
            }
        }
    }
    assert!(seen > 20, "{seen} figures are seen");
    assert!(wrong.is_empty(), "not in the row that the figure is linked to:\n{}", wrong.join("\n"));
}

#[allow(clippy::ptr_arg, reason = "the filter of an iterator over paths takes it so")]
fn is_page(path: &PathBuf) -> bool {
    path.extension().is_some_and(|extension| extension == "md") && path != Path::new(MEASUREMENTS)
}

/// The links of a page to rows of the measurements.
fn figures(text: &str) -> Vec<Figure<'_>> {
    let mark = "measurements.md#";
    let found = text.match_indices("](").filter_map(|(at, _)| {
        let target = text[at + 2..].split(')').next()?;
        let row = target.split_once(mark)?.1;
        Some(Figure { text: &text[text[..at].rfind('[')? + 1..at], row })
    });
    found.collect()
}

/// The row of a table, or the paragraph, that holds the anchor.
fn row(measurements: &str, anchor: &str) -> Option<String> {
    let mark = format!("<a id=\"{anchor}\"></a>");
    let mut lines = measurements.lines().skip_while(|line| !line.contains(&mark)).peekable();
    let table = lines.peek()?.starts_with('|');
    let rows: Vec<_> =
        lines.take_while(|line| !line.is_empty()).take(if table { 1 } else { usize::MAX }).collect();
    Some(rows.join(" ").replace(&mark, ""))
}

/// The numbers of a text, without commas between thousands.
fn numbers(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
    let plain = words.map(|word| word.trim_matches(['.', ',']).replace(',', ""));
    plain.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
}

/// The rule must be able to fail.
#[test]
fn a_figure_without_its_run_is_seen() {
    let page =
        "takes [4.1 to 4.7](dev/measurements.md#gcn) times, [more](dev/measurements.md#gcn) of [2](x.md)";
    let text = "| <a id=\"gcn\"></a>48 GiB | 1,234 ms | 4.1 to 4.7 |\n| other | 9 |\n\n<a id=\"p\"></a>one 5\nnext 6.\n\n7";
    let gcn = row(text, "gcn").expect("the row");
    assert_eq!(figures(page)[0], Figure { text: "4.1 to 4.7", row: "gcn" });
    assert_eq!(figures(page).len(), 2);
    assert_eq!(numbers(&gcn).collect::<Vec<_>>(), ["48", "1234", "4.1", "4.7"]);
    assert_eq!(numbers(&row(text, "p").expect("the paragraph")).collect::<Vec<_>>(), ["5", "6"]);
    assert!(!numbers(&gcn).any(|it| it == "9"));
}
