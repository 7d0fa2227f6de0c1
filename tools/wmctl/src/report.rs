//! `wmctl report`: what a program held, as one page for a browser, or in the forms of other tools.
//!
//! * [`source`] opens a process or a file; [`from_process`], [`from_trace`] and
//!   [`from_profile`] make the [`model`] of it.
//! * [`page`] puts the model into the templates beside it, with [`pictures`] as SVG.
//! * [`memory_viz`] and [`perfetto`] write the forms that PyTorch's and Perfetto's pages draw.

mod address;
mod from_process;
mod from_profile;
mod from_trace;
mod holders;
mod lifetimes;
mod memory_viz;
pub(crate) mod model;
mod page;
mod perfetto;
mod pickle;
mod pictures;
mod source;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::profile::recording::RecordedProfile;
use crate::{human, output};
use model::MemoryReport;
use source::ReportSource;

/// Arguments of `wmctl report`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArguments {
    /// A process by its number, also one that was killed; or a file: a recording (WMSHIM_TRACE), a
    /// profile (WMSHIM_PROFILE), a dump, a black box
    source: String,
    /// Take call sites from this profile of the same run
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// The file to write; `-` for standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The form
    #[arg(long, value_enum, default_value = "html")]
    format: ReportFormat,
    /// Print the figures of the report as JSON
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  wmctl report 4711 -o report.html            a process, running or killed
  wmctl report run.trace.gz -o report.html    a recording: every event
  wmctl report run.trace.gz --format memory_viz -o snapshot.pickle    for pytorch.org/memory_viz
  wmctl report run.trace.gz --format perfetto -o memory.json          for ui.perfetto.dev";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum ReportFormat {
    /// A page for a browser
    Html,
    /// A pickle as torch.cuda.memory._snapshot() makes it
    MemoryViz,
    /// A trace in Chrome's form
    Perfetto,
}

/// Writes a report.
///
/// # Errors
/// A source that is none, or a file that cannot be written.
pub(crate) fn report(arguments: &ReportArguments) -> Result<()> {
    let place = arguments.output.as_deref();
    if place.is_none() && !arguments.json && output::is_terminal() {
        bail!("a report is for a file: name one with `-o report.html`, or standard output with `-o -`");
    }
    let source = ReportSource::open(&arguments.source)?;
    let profile = arguments.profile.as_deref().map(RecordedProfile::open).transpose()?;
    if arguments.format == ReportFormat::MemoryViz && !arguments.json {
        return write(place, &snapshot(&source)?);
    }
    let report = made(&source, profile.as_ref());
    let text = match arguments.format {
        _ if arguments.json => output::escaped(&format!("{:#}\n", serde_json::to_value(&report)?)),
        ReportFormat::Perfetto => format!("{}\n", perfetto::trace(&report, pid_of(&source))),
        _ => page::page(&report),
    };
    write(place, text.as_bytes())
}

/// The report of a process or a file.
///
/// # Errors
/// A source that is none.
pub(crate) fn of(source: &str) -> Result<MemoryReport> {
    Ok(made(&ReportSource::open(source)?, None))
}

/// The report of a source, with the call sites of a profile.
fn made(source: &ReportSource, profile: Option<&RecordedProfile>) -> MemoryReport {
    let report = match source {
        ReportSource::Process(figures) => from_process::report(figures),
        ReportSource::Recording { trace, name } => from_trace::report(trace, name),
        ReportSource::Profile { profile, name } => from_profile::report(profile, name),
    };
    match profile {
        Some(profile) => from_profile::with_call_sites(report, profile),
        None => report,
    }
}

/// The process, for a form that has a number for it.
fn pid_of(source: &ReportSource) -> u64 {
    match source {
        ReportSource::Process(figures) => figures.stats.pid.into(),
        ReportSource::Recording { .. } => 1,
        ReportSource::Profile { profile, .. } => profile.header.pid.into(),
    }
}

/// The pickle for PyTorch's page.
fn snapshot(source: &ReportSource) -> Result<Vec<u8>> {
    let value = match source {
        ReportSource::Recording { trace, .. } => {
            let (value, left_out) = memory_viz::of_trace(trace);
            if left_out > 0 {
                eprintln!(
                    "wmctl: the snapshot has the last {} allocations and frees; {} before them are left out",
                    human::count(memory_viz::EVENTS as u64),
                    human::count(left_out as u64)
                );
            }
            value
        }
        ReportSource::Process(figures) if figures.blocks.is_some() => {
            let report = from_process::report(figures);
            memory_viz::of_ranges(&report.ranges, &report.events)
        }
        _ => bail!("this source has no single blocks: take a recording (WMSHIM_TRACE), or a running process"),
    };
    Ok(pickle::pickled(&value))
}

fn write(place: Option<&Path>, bytes: &[u8]) -> Result<()> {
    match place.filter(|place| *place != Path::new("-")) {
        Some(place) => std::fs::write(place, bytes)
            .with_context(|| format!("{} cannot be written", human::shown(&place.display().to_string()))),
        None => {
            let mut out = std::io::stdout().lock();
            out.write_all(bytes)?;
            Ok(out.flush()?)
        }
    }
}

#[cfg(test)]
mod tests;
