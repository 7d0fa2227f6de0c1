//! `wmctl profile`: which code holds a program's device memory, from a recording of
//! `WMSHIM_PROFILE`, or from the file that a program leaves at an out-of-memory.
//!
//! | module | one idea |
//! |---|---|
//! | [`recording`] | the recording, played to its end |
//! | [`symbols`] | names of functions, from the files that they are in |
//! | [`holders`] | rows by call site and by function |
//! | [`refusal`] | the file of an out-of-memory |

pub(crate) mod holders;
pub(crate) mod recording;
mod refusal;
pub(crate) mod symbols;

use std::cmp::Reverse;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::table::TextTable;
use crate::{human, output};
use holders::{HolderRow, by_function, by_site, share};
use recording::{ProfileTotals, RecordedProfile, SiteFigures};
use symbols::Symbols;

/// Largest file of an out-of-memory.
const LARGEST: u64 = 64 << 20;

/// Arguments of `wmctl profile`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProfileArguments {
    /// A profile, recorded with `wmctl run --set WMSHIM_PROFILE=FILE -- COMMAND`, or the file that
    /// a line about an out-of-memory names
    file: PathBuf,
    /// Rows by call site, or by function with all that it called
    #[arg(long, value_enum, default_value_t = RowsBy::Site)]
    by: RowsBy,
    /// The moment of the holders that come first
    #[arg(long, value_enum, default_value_t = HolderMoment::Peak)]
    at: HolderMoment,
    /// Most rows
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    most: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RowsBy {
    /// The whole stack of calls
    Site,
    /// Each function of it
    Function,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum HolderMoment {
    /// When the program held the most
    Peak,
    /// The end: what was never freed
    End,
}

/// Prints the code that holds the memory.
///
/// # Errors
/// A file that is neither, and those of printing.
pub(crate) fn profile(arguments: &ProfileArguments) -> Result<()> {
    if let Some(file) = refusal::parse(&beginning(&arguments.file)?) {
        return refusal::print(&file, arguments.most, arguments.json);
    }
    let profile = RecordedProfile::open(&arguments.file)?;
    let rows = rows(&profile, arguments);
    if arguments.json {
        return output::print_json(&report(&profile, &rows)?);
    }
    output::print(&text(&profile, &rows, arguments))
}

/// As much of a file as one of an out-of-memory has at most.
fn beginning(path: &Path) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let file = File::open(path).with_context(|| {
        format!("{}: record a profile with WMSHIM_PROFILE=FILE under `wmctl run`", path.display())
    })?;
    let is_json = |content: &[u8]| content.starts_with(b"{");
    let mut file = file.take(1);
    file.read_to_end(&mut content)?;
    if is_json(&content) {
        file.set_limit(LARGEST);
        file.read_to_end(&mut content)?;
    }
    Ok(content)
}

fn rows(profile: &RecordedProfile, arguments: &ProfileArguments) -> Vec<HolderRow> {
    let sites = by_site(profile, &mut Symbols::default());
    let mut rows = if arguments.by == RowsBy::Site { sites } else { by_function(&sites) };
    rows.sort_by_key(|row| Reverse(arguments.at.bytes(&row.figures)));
    rows.truncate(arguments.most);
    rows
}

impl HolderMoment {
    fn bytes(self, figures: &SiteFigures) -> u64 {
        if self == Self::Peak { figures.at_peak_bytes } else { figures.at_end_bytes }
    }

    fn total(self, totals: &ProfileTotals) -> u64 {
        if self == Self::Peak { totals.at_peak } else { totals.at_end }
    }
}

fn text(profile: &RecordedProfile, rows: &[HolderRow], arguments: &ProfileArguments) -> String {
    let totals = profile.totals();
    let heading = if arguments.at == HolderMoment::Peak { ">OF PEAK" } else { ">OF END" };
    let mut table = TextTable::new(&[">AT PEAK", ">AT END", heading, ">ALLOCATED", ">COUNT", "WHERE"]);
    for row in rows {
        table.row([
            human::bytes(row.figures.at_peak_bytes),
            human::bytes(row.figures.at_end_bytes),
            share(arguments.at.bytes(&row.figures), arguments.at.total(&totals)),
            human::bytes(row.figures.allocated_bytes),
            format!("{:.0}", row.figures.count),
            row.place(),
        ]);
    }
    let header = &profile.header;
    let cut = if profile.is_cut_short { "; the file ends too early" } else { "" };
    format!(
        "{} ({}): {} at the peak after {}, {} at the end, from {} samples, one each {}{cut}\n\n{table}",
        human::name(&header.program),
        header.pid,
        human::bytes(totals.at_peak),
        human::duration(profile.peak_ms as f64 / 1e3),
        human::bytes(totals.at_end),
        profile.samples,
        human::bytes(header.interval_bytes),
    )
}

fn report(profile: &RecordedProfile, rows: &[HolderRow]) -> Result<Value> {
    let totals = profile.totals();
    Ok(json!({
        "schema": "wmctl-profile/1",
        "profile": serde_json::to_value(&profile.header)?,
        "samples": profile.samples,
        "is_cut_short": profile.is_cut_short,
        "at_peak_bytes": totals.at_peak,
        "at_peak_ms": profile.peak_ms,
        "at_end_bytes": totals.at_end,
        "allocated_bytes": totals.allocated,
        "holders": serde_json::to_value(rows)?,
        "out_of_memory": serde_json::to_value(&profile.refusals)?,
        "marks": serde_json::to_value(&profile.marks)?,
    }))
}
