//! `wmctl bench wholememory`: how fast ranks read and write each other's memory through a `libwholegraph.so`, and beside it, in
//! turns, through another one, and through the plainest kernel that does the same.
//!
//! * [`plan`], [`orders`], [`rows`]: plain values: what is measured, what ranks are told and answer, and what comes of it.
//! * [`group`], [`experiment`]: the measuring process, which opens no library.
//! * [`rank`], [`subject`], [`numbers`], [`environment`], [`kernels`], [`api`]: a rank, a process of its own with one library: the
//!   two never meet in a process, and one that aborts takes one rate with it.
//!
//! A rate is the payload of one rank over the time from the common start to the last rank's end. All bytes are compared once before
//! anything is timed.

mod api;
mod environment;
mod experiment;
mod group;
mod kernels;
mod numbers;
mod orders;
mod plan;
mod rank;
mod rows;
mod subject;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use serde_json::json;
use wm_driver::api::Named;
use wm_driver::{Api, Loader, Table, search};

use crate::{client, human, output, shim};
use experiment::{Effort, LibrarySide, measure};
use plan::{BenchPart, bytes};
use rows::BenchRow;

/// The library's file name.
const NAME: &str = "libwholegraph.so";

/// Arguments of `wmctl bench wholememory`.
#[derive(Debug, clap::Args)]
pub(crate) struct WholeMemoryArguments {
    /// The library to measure; default: the one that is installed with this program
    #[arg(long)]
    library: Option<PathBuf>,
    /// Another library to measure in turns with it, such as RAPIDS'; what that needs is found through LD_LIBRARY_PATH
    #[arg(long)]
    beside: Option<PathBuf>,
    /// Ranks, which take GPUs in turn; default: one a GPU
    #[arg(long)]
    ranks: Option<usize>,
    /// Bytes of a row: powers of two
    #[arg(long, value_delimiter = ',', default_values_t = [64, 128, 256, 512, 1024, 4096])]
    rows: Vec<u64>,
    /// Size of tables on devices, of all ranks, GiB
    #[arg(long, default_value_t = 8.0)]
    table_gib: f64,
    /// Size of tables on the host, of all ranks, GiB
    #[arg(long, default_value_t = 2.0)]
    host_gib: f64,
    /// What a rank gathers in a call, MiB
    #[arg(long, default_value_t = 1024.0)]
    gather_mib: f64,
    /// Only these parts; all if none are named
    #[arg(long, value_delimiter = ',')]
    only: Vec<BenchPart>,
    /// Seconds of one measurement
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Measurements of each kind, in turns; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Seconds that ranks may take for one order before they are given up
    #[arg(long, default_value_t = 60)]
    patience: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Be this rank
    #[arg(long, hide = true)]
    rank: Option<usize>,
}

/// Measures and prints; or is one of the ranks.
///
/// # Errors
/// No driver, no such library, or sizes that make no table.
pub(super) fn wholememory(arguments: &WholeMemoryArguments) -> Result<()> {
    let library = match &arguments.library {
        Some(path) => existing(path)?,
        None => installed()?,
    };
    if let Some((rank, ranks)) = arguments.rank.zip(arguments.ranks) {
        return rank::serve(&library, rank, ranks);
    }
    let effort = arguments.effort()?;
    let beside = arguments.beside.as_deref().map(existing).transpose()?;
    let mut sides: Vec<_> = [Some(library), beside].into_iter().flatten().map(LibrarySide::new).collect();
    let plans = plan::plan(arguments, effort.ranks)?;
    sides.iter().try_for_each(|side| side.probe(&effort))?;
    let tables: usize = plans.iter().map(|plan| plan.tables.len()).sum();
    eprintln!("{} ranks begin; each of {tables} tables takes seconds ...", effort.ranks);
    let mut rows = Vec::new();
    for plan in &plans {
        for table in &plan.tables {
            rows.extend(measure(&mut sides, *table, plan.operations, &effort));
        }
        sides.iter_mut().for_each(LibrarySide::rest);
    }
    rows::complete(&mut rows);
    arguments.show(&rows, &sides, &effort)
}

/// The driver, as a library in this process will find it, too: a library that asks for `libcuda.so.1` gets one that is open.
fn driver() -> Result<Named<'static>> {
    static TABLE: OnceLock<Table> = OnceLock::new();
    if let Some(table) = TABLE.get() {
        return Ok(Named(table));
    }
    let table = match shim::driver() {
        Some(path) => search::open(&Loader::system(), Some(&path)).map_err(|missing| anyhow!("{missing}"))?,
        None => {
            Table::of_process().map_err(|why| anyhow!("{why} WMSHIM_DRIVER=sim takes the simulated one"))?
        }
    };
    Ok(Named(TABLE.get_or_init(|| table)))
}

/// The library that was installed with this program, or built.
fn installed() -> Result<PathBuf> {
    let here = std::env::current_exe()?.canonicalize()?;
    let folder = here.parent().unwrap_or(Path::new("/"));
    let candidates = [folder.join("../wholegraph").join(NAME), folder.join(NAME)];
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.canonicalize()?),
        None => bail!("{NAME} is not at {}; name it with --library", client::list(&candidates)),
    }
}

fn existing(path: &Path) -> Result<PathBuf> {
    let path = if path.is_dir() { path.join(NAME) } else { path.to_owned() };
    ensure!(
        path.is_file(),
        "{} is not there: --library and --beside take the path of a {NAME}",
        path.display()
    );
    Ok(path.canonicalize()?)
}

impl WholeMemoryArguments {
    fn effort(&self) -> Result<Effort> {
        let ranks = match self.ranks {
            Some(ranks) => ranks,
            None => {
                driver()?.init()?;
                driver()?.device_count()?.max(0) as usize
            }
        };
        ensure!(ranks > 0, "no GPU is there: WMSHIM_DRIVER=sim takes the simulated driver");
        let patience = Duration::from_secs(self.patience);
        Ok(Effort { seconds: self.seconds, repeat: self.repeat, ranks, patience })
    }

    fn show(&self, rows: &[BenchRow], sides: &[LibrarySide], effort: &Effort) -> Result<()> {
        let libraries: Vec<_> = sides.iter().map(|side| side.library.display().to_string()).collect();
        if self.json {
            let failures: Vec<_> = sides.iter().flat_map(|side| &side.failures).collect();
            return output::print_json(&json!({
                "schema": "wmctl-bench-wholememory/1",
                "ranks": effort.ranks,
                "table_bytes": bytes(self.table_gib, 30),
                "host_bytes": bytes(self.host_gib, 30),
                "gather_bytes": bytes(self.gather_mib, 20),
                "libraries": libraries,
                "failures": failures,
                "rows": rows,
            }));
        }
        let [table, host, gather] =
            [bytes(self.table_gib, 30), bytes(self.host_gib, 30), bytes(self.gather_mib, 20)]
                .map(human::bytes);
        let beside = libraries.get(1).map_or_else(String::new, |other| format!("; beside: {other}"));
        output::print(&format!(
            "{} ranks; tables of {table} on devices and {host} on the host, {gather} a call of one rank; rates are those of one rank, \
             by the slowest one's end\n{}{beside}\n\n{}",
            effort.ranks,
            libraries[0],
            rows::render(rows, sides.len() > 1)
        ))
    }
}
