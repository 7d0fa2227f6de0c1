//! `wmctl diff`: what grew between two processes, recordings, profiles or dumps.
//!
//! Both become reports ([`crate::report`]), and what has the same name in both is compared. The
//! comparison is pure.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use crate::report::{self, model::MemoryReport, model::peak};
use crate::table::TextTable;
use crate::{human, output};

/// Rows of the table.
const ROWS: usize = 30;

/// Arguments of `wmctl diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct DiffArguments {
    /// The first: a process by its number, a recording, a profile, a dump or a black box
    before: String,
    /// The second
    after: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Two figures with the same name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct GrowthRow {
    name: String,
    before_bytes: u64,
    after_bytes: u64,
}

/// What differs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct ReportDifference {
    schema: &'static str,
    before: String,
    after: String,
    /// Peak and end, by tier.
    memory: Vec<GrowthRow>,
    /// Call sites, or sizes where there are none. What grew most is first, what shrank most last.
    holders: Vec<GrowthRow>,
    /// What was not freed.
    unfreed: Vec<GrowthRow>,
}

impl GrowthRow {
    fn growth(&self) -> i128 {
        i128::from(self.after_bytes) - i128::from(self.before_bytes)
    }
}

/// Prints what differs.
///
/// # Errors
/// A source that is none, or a closed pipe.
pub(crate) fn diff(arguments: &DiffArguments) -> Result<()> {
    let [before, after] = [report::of(&arguments.before)?, report::of(&arguments.after)?];
    let difference = difference(&before, &after);
    if arguments.json {
        return output::print_json(&serde_json::to_value(&difference)?);
    }
    output::print(&text(&difference))
}

fn difference(before: &MemoryReport, after: &MemoryReport) -> ReportDifference {
    let holders = |report: &MemoryReport| {
        let named = |holder: &report::model::MemoryHolder| (holder.path.join(" > "), holder.bytes);
        sums(report.holders.iter().map(named))
    };
    let unfreed =
        |report: &MemoryReport| sums(report.unfreed.iter().map(|row| (row.what.clone(), row.bytes)));
    ReportDifference {
        schema: "wmctl-diff/1",
        before: before.title.clone(),
        after: after.title.clone(),
        memory: memory(before, after),
        holders: rows(&holders(before), &holders(after)),
        unfreed: rows(&unfreed(before), &unfreed(after)),
    }
}

/// Bytes by name.
fn sums(named: impl Iterator<Item = (String, u64)>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, bytes) in named {
        let sum: &mut u64 = sums.entry(name).or_default();
        *sum = sum.saturating_add(bytes);
    }
    sums
}

/// The names of both that differ: what grew most is first.
fn rows(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<GrowthRow> {
    let bytes = |of: &BTreeMap<String, u64>, name: &String| of.get(name).copied().unwrap_or(0);
    let row = |name: &String| GrowthRow {
        name: name.clone(),
        before_bytes: bytes(before, name),
        after_bytes: bytes(after, name),
    };
    let fresh = after.keys().filter(|name| !before.contains_key(*name));
    let mut rows: Vec<_> = before.keys().chain(fresh).map(row).filter(|row| row.growth() != 0).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.growth()));
    rows
}

fn memory(before: &MemoryReport, after: &MemoryReport) -> Vec<GrowthRow> {
    let figures = |report: &MemoryReport| {
        let highest = peak(&report.timeline).unwrap_or_default();
        let host = report.timeline.iter().map(|point| point.live.host).max().unwrap_or(0);
        let last = report.timeline.last().copied().unwrap_or_default();
        [highest.total(), host, last.total()]
    };
    let names = ["peak of live memory", "peak on the host", "live at the end"];
    let pairs = figures(before).into_iter().zip(figures(after));
    let row = |(name, (before_bytes, after_bytes)): (&str, (u64, u64))| GrowthRow {
        name: name.to_owned(),
        before_bytes,
        after_bytes,
    };
    names.into_iter().zip(pairs).map(row).collect()
}

fn text(difference: &ReportDifference) -> String {
    let [before, after] = [&difference.before, &difference.after].map(|title| human::word(title));
    let mut text = format!("from {before}\nto   {after}\n");
    let parts =
        [("MEMORY", &difference.memory), ("HOLDER", &difference.holders), ("NOT FREED", &difference.unfreed)];
    for (title, rows) in parts.into_iter().filter(|(_, rows)| !rows.is_empty()) {
        text.push_str(&format!("\n{}", table(title, rows)));
    }
    if difference.holders.is_empty() && difference.unfreed.is_empty() {
        text.push_str("\nno holder differs\n");
    }
    text
}

fn table(title: &str, rows: &[GrowthRow]) -> String {
    let mut table = TextTable::new(&[">GROWTH", ">FROM", ">TO", title]);
    // As many of those that grew as of those that shrank, if not all have room.
    let half = ROWS / 2;
    let is_shown = |index: usize| rows.len() <= ROWS || index < half || index >= rows.len() - half;
    for (_, row) in rows.iter().enumerate().filter(|(index, _)| is_shown(*index)) {
        let [before, after] = [row.before_bytes, row.after_bytes].map(human::bytes);
        table.row([signed(row.growth()), before, after, human::word(&row.name)]);
    }
    table.to_string()
}

fn signed(growth: i128) -> String {
    let size = human::bytes(u64::try_from(growth.unsigned_abs()).unwrap_or(u64::MAX));
    match growth {
        0 => "0".to_owned(),
        more if more > 0 => format!("+{size}"),
        _ => format!("-{size}"),
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a holder that shrank is shown as one that grew.
    use crate::report::model::MemoryHolder;

    use super::*;

    fn report(holders: &[(&str, u64)]) -> MemoryReport {
        let holder = |(name, bytes): &(&str, u64)| MemoryHolder {
            path: vec!["main".to_owned(), (*name).to_owned()],
            bytes: *bytes,
            count: 1,
        };
        MemoryReport { holders: holders.iter().map(holder).collect(), ..MemoryReport::default() }
    }

    #[test]
    fn what_grew_most_is_first_and_what_is_equal_is_left_out() {
        let before = report(&[("same", 5), ("shrank", 9), ("gone", 3), ("grew", 1)]);
        let after = report(&[("same", 5), ("shrank", 1), ("grew", 2), ("grew", 2), ("new", 7)]);
        let rows: Vec<_> =
            difference(&before, &after).holders.iter().map(|row| (row.name.clone(), row.growth())).collect();
        let wanted = [("new", 7), ("grew", 3), ("gone", -3), ("shrank", -8)];
        assert_eq!(rows, wanted.map(|(name, growth)| (format!("main > {name}"), growth)));
        assert!(difference(&before, &before).holders.is_empty());
    }

    #[test]
    fn growth_has_its_sign() {
        assert_eq!([signed(0), signed(1 << 20), signed(-(1 << 20))], ["0", "+1.0 MiB", "-1.0 MiB"]);
        let rows: Vec<_> = (0..40)
            .map(|number| GrowthRow {
                name: format!("n{number}"),
                before_bytes: 20,
                after_bytes: 40 - number,
            })
            .collect();
        assert_eq!(table("HOLDER", &rows).lines().count(), 1 + ROWS);
    }
}
