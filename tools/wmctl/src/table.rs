//! Aligned tables for a terminal.

use std::fmt::{self, Display};

use crate::human;

/// Space between columns.
const GAP: &str = "  ";

/// Rows of text under headings. Columns are as wide as their widest cell; figures are set to the
/// right.
#[derive(Debug)]
pub struct TextTable {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A heading that starts with `>` makes its column one of figures, set to the right.
    pub fn new(headings: &[&str]) -> Self {
        Self { headings: headings.iter().map(|heading| (*heading).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row: one cell a heading. Control characters of the text are written out, so it moves
    /// no cursor.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<_> = cells.into_iter().map(|cell| human::shown(&cell)).collect();
        debug_assert_eq!(cells.len(), self.headings.len());
        self.rows.push(cells);
    }

    /// Whether no row was added.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn widths(&self) -> Vec<usize> {
        let longest = |column: usize| {
            let cells = self.rows.iter().map(|row| width(&row[column]));
            cells.chain([width(title(&self.headings[column]))]).max().unwrap_or(0)
        };
        (0..self.headings.len()).map(longest).collect()
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let padded = cells.iter().zip(&self.headings).zip(widths).map(|((cell, heading), width)| {
            if heading.starts_with('>') { format!("{cell:>width$}") } else { format!("{cell:width$}") }
        });
        padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    }
}

impl Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let titles: Vec<_> = self.headings.iter().map(|heading| title(heading).to_owned()).collect();
        writeln!(f, "{}", self.line(&titles, &widths))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{}", self.line(row, &widths)))
    }
}

fn title(heading: &str) -> &str {
    heading.trim_start_matches('>')
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = TextTable::new(&["NAME", ">COUNT", "WHY"]);
        table.row(["µ".into(), "1,000".into(), "x".into()]);
        table.row(["cuMemCreate".into(), "7".into(), String::new()]);
        assert_eq!(
            table.to_string(),
            "NAME         COUNT  WHY\n\
             µ            1,000  x\n\
             cuMemCreate      7\n"
        );
    }
}
