//! Hazard (source drift): a page shows the screen of another version. The pictures are drawn here.

use std::fmt::Write as _;

use ratatui_core::buffer::Cell;
use ratatui_core::style::{Color, Modifier};

use super::screens::compare;
use super::*;

/// Size of a cell, and the space around all of them.
const CELL: (f64, f64) = (8.4, 18.0);
const SPACE: f64 = 12.0;
const PAPER: &str = "#1e1e2e";
const INK: &str = "#d8dee9";

#[test]
fn the_pictures_are_those_of_this_version() {
    let mut change = machine(9);
    change.used.insert(uuid(1), 47 * GIB);
    for (width, height) in [(80, 15), (200, 15)] {
        let drawn = screen(&change, (width, height), &[TerminalKey::Down, TerminalKey::Down], LOOK);
        compare(&format!("../../docs/images/top-{width}.svg"), &picture(&drawn));
    }
}

/// The ink and the paper of a cell.
fn colours(cell: &Cell) -> (&'static str, &'static str) {
    let ink = match cell.fg {
        Color::Red => "#ff6b7a",
        Color::Green => "#a3d98f",
        Color::Yellow => "#f0c674",
        Color::Cyan => "#7fd1e0",
        _ => INK,
    };
    if cell.modifier.contains(Modifier::REVERSED) { (PAPER, ink) } else { (ink, PAPER) }
}

/// Each word has its place, so columns are straight with any font.
fn picture(buffer: &Buffer) -> String {
    let columns = usize::from(buffer.area().width);
    let width = columns as f64 * CELL.0 + 2.0 * SPACE;
    let height = f64::from(buffer.area().height) * CELL.1 + 2.0 * SPACE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"14\">\n<title>wmctl top, {columns} columns</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{PAPER}\"/>\n"
    );
    for (row, cells) in buffer.content().chunks(columns).enumerate() {
        let top = SPACE + row as f64 * CELL.1;
        for (start, run) in runs(cells, |one, other| colours(one) == colours(other)) {
            let (_, paper) = colours(&run[0]);
            if paper != PAPER {
                let (left, long) = (SPACE + start as f64 * CELL.0, run.len() as f64 * CELL.0);
                let tall = CELL.1;
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{long:.1}\" height=\"{tall}\" fill=\"{paper}\"/>"
                );
            }
        }
        let is_same = |one: &Cell, other: &Cell| {
            one.symbol() != " " && other.symbol() != " " && one.style() == other.style()
        };
        for (start, run) in runs(cells, is_same).filter(|(_, run)| run[0].symbol() != " ") {
            svg.push_str(&word(start, run, top));
        }
    }
    svg + "</svg>\n"
}

fn word(start: usize, run: &[Cell], top: f64) -> String {
    let text: String = run.iter().map(Cell::symbol).collect();
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let modifier = run[0].modifier;
    let bold = if modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let dim = if modifier.contains(Modifier::DIM) { " opacity=\"0.6\"" } else { "" };
    let line = if modifier.contains(Modifier::UNDERLINED) { " text-decoration=\"underline\"" } else { "" };
    let (left, base) = (SPACE + start as f64 * CELL.0, top + 13.5);
    let (long, (ink, _)) = (run.len() as f64 * CELL.0, colours(&run[0]));
    format!(
        "<text x=\"{left:.1}\" y=\"{base:.1}\" textLength=\"{long:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
         fill=\"{ink}\"{bold}{dim}{line}>{text}</text>\n"
    )
}

/// ScreenTerminal that follow each other and belong together, with the place of the first.
fn runs(cells: &[Cell], is_same: impl Fn(&Cell, &Cell) -> bool) -> impl Iterator<Item = (usize, &[Cell])> {
    let mut start = 0;
    cells.chunk_by(is_same).map(move |run| {
        let at = start;
        start += run.len();
        (at, run)
    })
}
