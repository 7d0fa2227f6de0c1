//! `bench wholememory`: rates at which ranks read and write each other's memory through a
//! `libwholegraph.so`. Measurements of a second library and of the plainest kernel for the same
//! work alternate with them.
//!
//! * [`arguments`], [`islands`], [`plan`], [`orders`], [`rows`]: plain values: the command line,
//!   the machines as whose ranks the ranks pose, the tables to measure, the orders and answers of
//!   ranks, the results.
//! * [`group`], [`experiment`]: the measuring process, which opens no library.
//! * [`rank`], [`process`], [`subject`], [`numbers`], [`environment`], [`kernels`], [`api`],
//!   [`shape`], [`exchange`], [`nccl`]: a rank. Each rank is a process with one library, so the two
//!   libraries never share a process, and a rank that aborts costs one rate.
//!
//! A rate is the payload of one rank over the time from the common start to the last rank's end.
//! All bytes are compared once before the first timed call.

mod api;
mod arguments;
mod environment;
mod exchange;
mod experiment;
mod group;
mod islands;
mod kernels;
mod nccl;
mod numbers;
mod opened;
mod orders;
mod plan;
mod process;
mod rank;
mod rows;
mod shape;
mod subject;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::json;
use wm_driver::Api;
use wmctl::{human, output};

pub(crate) use arguments::WholeMemoryArguments;
use arguments::bytes;
use experiment::{Effort, LibrarySide, measure};
use islands::IslandShape;
use opened::driver;
use rows::BenchRow;

/// The library's file name.
const NAME: &str = "libwholegraph.so";

/// Measures and prints; or is one of the ranks.
///
/// # Errors
/// No driver, no such library, or sizes that make no table.
pub(crate) fn wholememory(arguments: &WholeMemoryArguments) -> Result<()> {
    let library = match &arguments.library {
        Some(path) => existing(path)?,
        None => installed()?,
    };
    if let Some((rank, ranks)) = arguments.rank.zip(arguments.ranks) {
        return rank::serve(&library, rank, arguments.shape(ranks, gpus()?)?);
    }
    let effort = arguments.effort()?;
    let beside = arguments.beside.as_deref().map(existing).transpose()?;
    let mut sides: Vec<_> = [Some(library), beside].into_iter().flatten().map(LibrarySide::new).collect();
    // Beside the first one NCCL is measured by itself.
    sides[0].has_network = effort.shape.islands > 1;
    let plans = plan::plan(arguments, effort.shape.ranks)?;
    sides.iter().try_for_each(|side| side.probe(&effort))?;
    let tables: usize = plans.iter().map(|plan| plan.tables.len()).sum();
    eprintln!("{} ranks begin; each of {tables} tables takes seconds ...", effort.shape.ranks);
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

/// The library that was installed with this program, or built.
fn installed() -> Result<PathBuf> {
    let here = std::env::current_exe()?.canonicalize()?;
    let folder = here.parent().unwrap_or(Path::new("/"));
    let candidates = [folder.join("../wholegraph").join(NAME), folder.join(NAME)];
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.canonicalize()?),
        None => bail!("{NAME} is not at {}; name it with --library", human::paths(&candidates)),
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

/// The GPUs of the machine.
fn gpus() -> Result<usize> {
    driver()?.init()?;
    Ok(driver()?.device_count()?.max(0) as usize)
}

impl WholeMemoryArguments {
    fn shape(&self, ranks: usize, gpus: usize) -> Result<IslandShape> {
        IslandShape::new(ranks, self.islands, self.wire, gpus)
    }

    fn effort(&self) -> Result<Effort> {
        let gpus = gpus()?;
        ensure!(gpus > 0, "no GPU is there: WMSHIM_DRIVER=sim takes the simulated driver");
        let patience = Duration::from_secs(self.patience);
        let shape = self.shape(self.ranks.unwrap_or(gpus), gpus)?;
        Ok(Effort { seconds: self.seconds, repeat: self.repeat, shape, patience })
    }

    fn show(&self, rows: &[BenchRow], sides: &[LibrarySide], effort: &Effort) -> Result<()> {
        let libraries: Vec<_> = sides.iter().map(|side| side.library.display().to_string()).collect();
        if self.json {
            let failures: Vec<_> = sides.iter().flat_map(|side| &side.failures).collect();
            return output::print_json(&json!({
                "schema": "bench-wholememory/1",
                "ranks": effort.shape.ranks,
                "islands": effort.shape.islands,
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
            effort.shape.ranks,
            libraries[0],
            rows::render(rows, sides.len() > 1)
        ))
    }
}
