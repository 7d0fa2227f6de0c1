//! The common form of the tables of copies: one kind of copy of one size, the driver's beside the
//! shim's.

use serde::Serialize;
use wm_multipath::HostMemory;

use crate::human;
use crate::table::TextTable;

/// One kind of copy.
#[derive(Debug)]
pub struct CopyKind {
    /// The name in tables.
    pub name: &'static str,
    /// The kind of host memory.
    pub memory: HostMemory,
    /// Whether the caller waits for each copy.
    pub waits: bool,
}

/// The median of a non-empty list, in its unit.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A part of one as a whole percentage: `0.42` is `42 %`.
#[must_use]
pub fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// The first cells of a row: its label, and the maker of its copies. Rates are bytes a second.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    bytes: usize,
    memory: &'static str,
    direction: &'static str,
    plain: f64,
    /// The shim's. In JSON it has the name that its table gives it.
    #[serde(skip)]
    ours: f64,
    ratio: f64,
    /// By the shim; else plainly there too.
    served: bool,
}

impl Comparison {
    pub(super) fn new(
        kind: &CopyKind,
        direction: &'static str,
        bytes: usize,
        (plain, ours): (f64, f64),
        served: bool,
    ) -> Self {
        Self { bytes, memory: kind.name, direction, plain, ours, ratio: ours / plain, served }
    }

    /// So that a run which is ended early has said something.
    pub(super) fn tell(&self) {
        let (rate, size) = (self.ours / 1e9, human::bytes(self.bytes as u64));
        eprintln!("{} {} {size}: {rate:.1} GB/s, {:.2} of plain", self.memory, self.direction, self.ratio);
    }

    /// An empty table: the label's columns, with the shim's rates under `ours`, then `more`, then
    /// the maker of the copies.
    pub(super) fn table(ours: &str, more: &[&str]) -> TextTable {
        let first = ["MEMORY", "WAY", ">SIZE", ">PLAIN GB/s", ours, ">RATIO"];
        TextTable::new(&[&first, more, &["BY"]].concat())
    }

    /// A row of that table; `ours` is the shim's name there.
    pub(super) fn cells<const N: usize>(
        &self,
        more: [String; N],
        ours: &str,
    ) -> impl Iterator<Item = String> {
        let first = [
            self.memory.to_owned(),
            self.direction.to_owned(),
            human::bytes(self.bytes as u64),
            format!("{:.1}", self.plain / 1e9),
            format!("{:.1}", self.ours / 1e9),
            format!("{:.2}", self.ratio),
        ];
        let by = if self.served { ours } else { "plain" };
        first.into_iter().chain(more).chain([by.to_owned()])
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a figure stands under another one's heading.
    use super::*;

    #[test]
    fn every_figure_stands_under_its_heading() {
        let kind = CopyKind { name: "pageable", memory: HostMemory::Pageable, waits: true };
        let compared = Comparison::new(&kind, "in", 64 << 20, (8e9, 40e9), true);
        let mut table = Comparison::table(">THREADS GB/s", &[">PINNED GB/s"]);
        table.row(compared.cells(["55.0".to_owned()], "threads"));
        let text = table.to_string();
        let words = |line: usize| {
            text.lines().nth(line).map(|line| line.split("  ").map(str::trim).collect::<String>())
        };
        assert_eq!(words(0).as_deref(), Some("MEMORYWAYSIZEPLAIN GB/sTHREADS GB/sRATIOPINNED GB/sBY"));
        assert_eq!(words(1).as_deref(), Some("pageablein64.0 MiB8.040.05.0055.0threads"));
    }
}
