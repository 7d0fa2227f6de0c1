//! `wmctl replay`: the memory that a recorded program needs, without the program.
//!
//! [`crate::trace`] reads the file. Its allocations and frees go through the manager that serves
//! programs under the shim, on the simulated driver or on a GPU. `docs/dev/replay.md` is the page
//! for users.
//!
//! | module | one idea |
//! |---|---|
//! | [`driver`] | the driver to replay on |
//! | [`allocator`] | the manager, and the driver's pool to compare with |
//! | [`play`] | threads walk the trace and measure |
//! | [`capacity`] | the search for the smallest memory that is enough |
//! | [`outcome`], [`latency`], [`progress`] | figures, percentiles, a sign of life |

mod allocator;
mod capacity;
mod driver;
mod latency;
mod outcome;
mod play;
mod progress;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use wm_driver::Tier;
use wm_memory::ManagerSettings;
use wm_schema::size;

use crate::output;
use crate::trace::Trace;
use allocator::{DriverPool, Managed};
use driver::{DriverKind, ReplayGpu};
use outcome::ReplayOutcome;
use play::Mode;
use progress::Progress;

/// Arguments of `wmctl replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArguments {
    /// A trace, recorded with `wmctl run --set WMSHIM_TRACE=FILE -- COMMAND`; - for standard input
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Device memory that there is to be, such as 24GiB; default: all that the driver has
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    device_memory: Option<u64>,
    /// Where blocks go when the device is full
    #[arg(long, value_enum, default_value_t = OverflowChoice::Off)]
    overflow: OverflowChoice,
    /// Place blocks as for memory that processes share: all handles of the driver's granularity,
    /// and blocks of that size and more begin on one
    #[arg(long)]
    chunked: bool,
    /// Search the smallest device memory that is enough
    #[arg(long, conflicts_with_all = ["device_memory", "overflow", "threads", "periods"])]
    find_capacity: bool,
    /// The driver to replay on
    #[arg(long, value_enum, default_value_t = DriverKind::Sim)]
    driver: DriverKind,
    /// The device's ordinal
    #[arg(long, default_value_t = 0)]
    device: i32,
    /// Threads; each replays the whole trace in streams of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Times to replay the trace, one after the other; what is live at its end is freed in between
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    periods: u16,
    /// Replay on another allocator too, to compare
    #[arg(long, value_enum)]
    baseline: Option<Baseline>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OverflowChoice {
    /// None: the allocation fails
    Off,
    /// Pinned host memory
    Host,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Baseline {
    /// The driver's pool, cuMemAllocAsync and cuMemFreeAsync
    Async,
}

/// Replays a trace and prints its figures. The exit code says whether it completed.
///
/// # Errors
/// A trace that is none, or a driver that cannot be used.
pub(crate) fn replay(arguments: &ReplayArguments) -> Result<ExitCode> {
    let trace = Trace::open(&arguments.trace)?;
    if let Some(lines) = trace.whole_lines {
        eprintln!(
            "wmctl: {} ends too early: a disk was full, or a copy was cut short; {lines} lines of it are whole and are \
             replayed",
            crate::human::shown(&arguments.trace.display().to_string())
        );
    }
    let gpu = ReplayGpu::open(arguments.driver, arguments.device)?;
    let work = Work { arguments, trace: &trace, gpu: &gpu, progress: &Progress::new() };
    let mut outcome = if arguments.find_capacity { work.search()? } else { work.plain()? };
    if let Some(Baseline::Async) = arguments.baseline {
        outcome.baseline = Some(Box::new(work.driver_pool()?));
    }
    let outcome = outcome.with_launches(trace.launches);
    if arguments.json {
        let mut report = serde_json::to_value(&outcome)?;
        report["schema"] = "wmctl-replay/1".into();
        report["truncated_after_lines"] = trace.whole_lines.into();
        output::print_json(&report)?;
    } else {
        output::print(&format!("{} on {}\n\n{}", arguments.trace.display(), gpu.name, outcome.table()))?;
    }
    Ok(if outcome.completed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Work<'a> {
    arguments: &'a ReplayArguments,
    trace: &'a Trace,
    gpu: &'a ReplayGpu,
    progress: &'a Progress,
}

impl Work<'_> {
    fn mode(&self) -> Mode {
        Mode { threads: self.arguments.threads.into(), periods: self.arguments.periods.into() }
    }

    fn plain(&self) -> Result<ReplayOutcome> {
        self.progress.begin("replaying".into());
        self.managed(self.arguments.device_memory.unwrap_or(u64::MAX))
    }

    /// One replay on a fresh manager with so much device memory.
    fn managed(&self, device_limit: u64) -> Result<ReplayOutcome> {
        let managed = Managed::new(self.gpu, self.settings(device_limit))?;
        let played = play::play(self.gpu, &managed, self.trace, self.mode(), self.progress)?;
        let outcome = ReplayOutcome::managed(played, &managed.usage(), self.mode().threads);
        let failures = managed.failures();
        managed.end();
        Ok(outcome.with_failures(&failures))
    }

    fn settings(&self, device_limit: u64) -> ManagerSettings {
        let overflow = match self.arguments.overflow {
            OverflowChoice::Off => Vec::new(),
            OverflowChoice::Host => vec![Tier::Host],
        };
        let chunked = self.arguments.chunked;
        ManagerSettings { device_limit, overflow, chunked, ..ManagerSettings::default() }
    }

    /// Without a limit first: the memory that this run held is enough, and its live bytes are the
    /// lower bound.
    fn search(&self) -> Result<ReplayOutcome> {
        self.progress.begin("replaying without a limit".into());
        let unlimited = self.managed(u64::MAX)?;
        if !unlimited.completed {
            return Ok(unlimited);
        }
        let (peak, enough) = (self.trace.peak_live, unlimited.peak_reserved_bytes);
        let (bytes, outcome) = capacity::smallest(peak, enough, unlimited, |bytes| self.attempt(bytes))?;
        Ok(outcome.with_capacity(bytes))
    }

    fn attempt(&self, bytes: u64) -> Result<Option<ReplayOutcome>> {
        self.progress.begin(format!("replaying with {}", crate::human::bytes(bytes)));
        Ok(Some(self.managed(bytes)?).filter(|outcome| outcome.completed))
    }

    fn driver_pool(&self) -> Result<ReplayOutcome> {
        self.progress.begin("replaying on the driver's pool".into());
        let pool = DriverPool::new(self.gpu).context("the driver's pool cannot be used for a comparison")?;
        let played = play::play(self.gpu, &pool, self.trace, self.mode(), self.progress)?;
        let outcome = ReplayOutcome::of(played, pool.peak_reserved()?, self.mode().threads);
        pool.end()?;
        Ok(outcome)
    }
}

/// A size, for the command line.
fn bytes(text: &str) -> Result<u64> {
    size::parse(text).context("write a size such as 24GiB, 512MiB, or a number of bytes")
}
