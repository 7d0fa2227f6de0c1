//! `wmctl bench wholememory`: how fast ranks read and write each other's memory through a `libwholegraph.so`, and beside it, in
//! turns, through another one, and through the plainest kernel that does the same.
//!
//! * [`orders`], [`rows`]: plain values: what ranks are told and answer, and what comes of it.
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
mod rank;
mod rows;
mod subject;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use clap::ValueEnum;
use serde_json::json;
use wm_driver::api::Named;
use wm_driver::{Api, Loader, Table, search};

use crate::{client, human, output, shim};
use experiment::{Effort, Side, measure};
use orders::{MemoryLocation, MemoryType, Operation, OptimizerType, TableForm, TableRequest};
use rows::BenchRow;

/// The library's file name.
const NAME: &str = "libwholegraph.so";
/// Row of embeddings, bytes, and the part of theirs that a cache has.
const EMBEDDING_ROW: u64 = 512;
const CACHED: f32 = 0.1;

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
    only: Vec<Part>,
    /// Seconds of one measurement
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Measurements of each kind, in turns; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Seconds that ranks may take for one order before they are given up
    #[arg(long, default_value_t = 120)]
    patience: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Be this rank
    #[arg(long, hide = true)]
    rank: Option<usize>,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Gather and scatter of tables on devices
    Device,
    /// Gather and scatter of tables on the host
    Host,
    /// Gather of an embedding on the host, a tenth of which may be cached on devices
    Cached,
    /// Steps of optimizers
    Training,
}

const ALL: [Part; 4] = [Part::Device, Part::Host, Part::Cached, Part::Training];

/// Tables that a kernel reaches come first: their ceilings are for the others, too.
const DEVICE: [MemoryType; 3] = [MemoryType::Chunked, MemoryType::Continuous, MemoryType::Distributed];
const HOST: [MemoryType; 2] = [MemoryType::Continuous, MemoryType::Distributed];

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
    let mut sides: Vec<_> = [Some(library), beside].into_iter().flatten().map(Side::new).collect();
    let mut rows = Vec::new();
    for part in ALL.iter().filter(|part| arguments.only.is_empty() || arguments.only.contains(part)) {
        rows.extend(arguments.measure(*part, &mut sides, &effort)?);
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
        let is_fit = |row: &u64| row.is_power_of_two() && (16..=1 << 20).contains(row);
        ensure!(self.rows.iter().all(is_fit), "--rows are powers of two from 16 bytes to 1 MiB");
        let patience = Duration::from_secs(self.patience);
        Ok(Effort { seconds: self.seconds, repeat: self.repeat, ranks, patience })
    }

    fn measure(&self, part: Part, sides: &mut [Side], effort: &Effort) -> Result<Vec<BenchRow>> {
        use MemoryLocation::{Device, Host};
        const MOVES: &[Operation] = &[Operation::Gather, Operation::Scatter];
        let (tensors, tensor) = (&self.rows[..], TableForm::Tensor);
        let embeddings = &[EMBEDDING_ROW][..];
        let mut tables = Tables { bench: self, sides, effort, rows: Vec::new() };
        match part {
            Part::Device => {
                DEVICE.iter().try_for_each(|kind| tables.add(*kind, Device, tensor, tensors, MOVES))
            }
            Part::Host => HOST.iter().try_for_each(|kind| tables.add(*kind, Host, tensor, tensors, MOVES)),
            Part::Cached => {
                let form = TableForm::Cached(CACHED);
                tables.add(MemoryType::Chunked, Host, form, embeddings, &[Operation::Gather])
            }
            Part::Training => {
                let kinds = [MemoryType::Chunked, MemoryType::Distributed].into_iter();
                let mut both =
                    kinds.flat_map(|kind| [(kind, OptimizerType::Sgd), (kind, OptimizerType::Adam)]);
                both.try_for_each(|(kind, optimizer)| {
                    let form = TableForm::Trained(optimizer);
                    tables.add(kind, Device, form, embeddings, &[Operation::Step])
                })
            }
        }?;
        Ok(tables.rows)
    }

    fn show(&self, rows: &[BenchRow], sides: &[Side], effort: &Effort) -> Result<()> {
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

/// What a size on the command line is in bytes, whose unit is a power of two.
fn bytes(size: f64, power: u32) -> u64 {
    (size * f64::from(1 << power)) as u64
}

/// Tables that are measured one after the other, and what came of it.
struct Tables<'a> {
    bench: &'a WholeMemoryArguments,
    sides: &'a mut [Side],
    effort: &'a Effort,
    rows: Vec<BenchRow>,
}

impl Tables<'_> {
    /// A table for each length of rows, all with the same ranks.
    fn add(
        &mut self,
        memory_type: MemoryType,
        location: MemoryLocation,
        form: TableForm,
        lengths: &[u64],
        operations: &[Operation],
    ) -> Result<()> {
        for row_bytes in lengths.iter().copied() {
            let all =
                if location == MemoryLocation::Device { self.bench.table_gib } else { self.bench.host_gib };
            let rows = bytes(all, 30) / row_bytes / self.effort.ranks as u64 * self.effort.ranks as u64;
            ensure!(
                (1..1 << 32).contains(&rows),
                "a table has fewer than 2^32 rows, and one a rank at least"
            );
            let count = (bytes(self.bench.gather_mib, 20) / row_bytes).max(1);
            let request = TableRequest { memory_type, location, form, row_bytes, rows, count };
            self.rows.extend(measure(self.sides, request, operations, self.effort));
        }
        self.sides.iter_mut().for_each(Side::rest);
        Ok(())
    }
}
