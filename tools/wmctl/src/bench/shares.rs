//! `wmctl bench shares`: a block's chunks become another block's too, as if that were another process's, and each gets its own again.
//!
//! Beside the times it sees what a driver must bear for that: shared memory is read through both, written through neither, and is what it was once one
//! of them has its own again and is filled anew.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde::Serialize;
use serde_json::json;
use wm_abi::*;
use wm_driver::api::Named;
use wm_driver::streams::Streams;
use wm_driver::{Api, Device, Handle};
use wm_memory::{BlockChunk, Manager, ManagerSettings, Order, Quiet, ShareOutcome, SharedChunks, Stays};

use super::machine;
use crate::output;
use crate::table::TextTable;

/// Arguments of `wmctl bench shares`.
#[derive(Debug, clap::Args)]
pub(crate) struct SharesArguments {
    /// GPU
    #[arg(long, default_value_t = 0)]
    device: CUdevice,
    /// Size of each of the two blocks, MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(2..))]
    mib: u64,
    /// How often they share and part
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const CHUNK: u64 = 2 << 20;

/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// One step of one round.
#[derive(Debug, Serialize)]
struct ShareTime {
    round: u32,
    step: &'static str,
    chunks: u64,
    us_a_chunk: f64,
}

/// Two blocks, and what it takes to use them.
struct SharingBlocks {
    driver: Named<'static>,
    manager: Manager<Device>,
    /// The first one's memory is what both share.
    addresses: [u64; 2],
    bytes: u64,
}

/// Runs the benchmark.
///
/// # Errors
/// A driver that refuses a step, or allows a write; bytes that are not what they were.
pub(crate) fn shares(arguments: &SharesArguments) -> Result<()> {
    let blocks = SharingBlocks::new(arguments)?;
    let mut rows = Vec::new();
    for round in 1..=arguments.rounds {
        blocks.round(round, &mut rows)?;
    }
    if arguments.json {
        return output::print_json(&json!({ "rows": rows }));
    }
    let mut table = TextTable::new(&["round", "step", "chunks", "us a chunk"]);
    for ShareTime { round, step, chunks, us_a_chunk } in &rows {
        table.row(vec![
            round.to_string(),
            (*step).to_owned(),
            chunks.to_string(),
            format!("{us_a_chunk:.1}"),
        ]);
    }
    output::print(&table.to_string())
}

impl SharingBlocks {
    fn new(arguments: &SharesArguments) -> Result<Self> {
        static STREAMS: OnceLock<Streams> = OnceLock::new();
        let (table, streams) = (machine::driver()?, STREAMS.get_or_init(Streams::default));
        let driver = Named(table);
        driver.init()?;
        let context = driver.primary_ctx_retain(arguments.device)?;
        driver.ctx_set_current(context)?;
        let device =
            Device::new(table, streams, arguments.device, context).map_err(|reason| anyhow!(reason))?;
        ensure!(device.is_exportable(), "this driver passes no memory between processes");
        let settings = ManagerSettings { chunked: true, overflow: vec![], ..ManagerSettings::default() };
        let manager = Manager::new(device, settings);
        let bytes = (arguments.mib << 20) / CHUNK * CHUNK;
        let allocate = || manager.allocate(bytes as usize, Order::Device).map_err(|error| anyhow!("{error}"));
        let addresses = [allocate()?, allocate()?];
        Ok(Self { driver, manager, addresses, bytes })
    }

    fn chunks(&self, block: usize) -> impl Iterator<Item = u64> {
        let first = self.addresses[block];
        (first..first + self.bytes).step_by(CHUNK as usize)
    }

    fn round(&self, round: u32, rows: &mut Vec<ShareTime>) -> Result<()> {
        let mut note = |step, start: Instant| {
            let (chunks, taken) = (self.bytes / CHUNK, start.elapsed());
            rows.push(ShareTime {
                round,
                step,
                chunks,
                us_a_chunk: 1e6 * taken.as_secs_f64() / chunks as f64,
            });
        };
        let [first, second] = [2 * round, 2 * round + 1];
        (0..2).try_for_each(|block| self.fill(block, first))?;
        let start = Instant::now();
        let exported = self.donate()?;
        note("give away", start);
        let import = |descriptor: &OwnedFd| self.manager.gpu().import_handle(descriptor.as_fd());
        let imported = exported.iter().map(import).collect::<Result<Vec<Handle>, _>>()?;
        let pairs: Vec<(BlockChunk, Handle)> =
            self.chunks(1).map(|at| self.manager.chunk_at(at)).zip(imported).collect();
        let start = Instant::now();
        self.share_all(|| self.manager.share_chunks(&pairs, Quiet::Look, PATIENCE))?;
        note("share", start);
        ensure!(self.manager.usage().shared == 2 * self.bytes, "not all is shared");
        for block in 0..2 {
            self.check(block, first)?;
            ensure!(self.fill(block, second).is_err(), "what is shared was written");
            self.check(block, first)?;
        }
        for (block, step) in [(1, "part, the second"), (0, "part, the first")] {
            let start = Instant::now();
            self.part(block)?;
            note(step, start);
            self.check(block, first)?;
            self.fill(block, second)?;
            self.check(block, second)?;
            if block == 1 {
                self.check(0, first)?;
            }
        }
        self.manager.audit().map_err(|wrong| anyhow!(wrong))
    }

    fn donate(&self) -> Result<Vec<OwnedFd>> {
        let mut exported = Vec::new();
        let chunks: Vec<BlockChunk> = self.chunks(0).map(|at| self.manager.chunk_at(at)).collect();
        let mut export =
            |_, handle| self.manager.gpu().export(handle).map(|descriptor| exported.push(descriptor));
        self.share_all(|| self.manager.donate_chunks(&chunks, Quiet::Look, PATIENCE, &mut export))?;
        Ok(exported)
    }

    /// The manager's look at the GPU is short, and a thread that has to wait for its turn misses its end: then nothing was shared, and it looks again.
    fn share_all(&self, mut share: impl FnMut() -> SharedChunks) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let shared = share();
            let in_use = |outcome: &ShareOutcome| *outcome == ShareOutcome::Stays(Stays::InUse);
            if !shared.outcomes.iter().all(in_use) || Instant::now() >= until {
                ensure!(shared.count() as u64 == self.bytes / CHUNK, "{:?}", shared.outcomes);
                return Ok(());
            }
        }
    }

    fn part(&self, block: usize) -> Result<()> {
        let range = self.addresses[block]..self.addresses[block] + self.bytes;
        let until = Instant::now() + PATIENCE;
        let moved = loop {
            match self.manager.unshare(range.clone(), false, Quiet::Look, PATIENCE) {
                Err(Stays::InUse) if Instant::now() < until => {}
                moved => break moved.map_err(|stays| anyhow!("{stays}"))?,
            }
        };
        ensure!(moved.stays.is_none() && moved.bytes == self.bytes, "{moved:?}");
        Ok(())
    }

    fn fill(&self, block: usize, word: u32) -> Result<()> {
        let words = (self.bytes / 4) as usize;
        // SAFETY: the block is live, and nothing else uses it.
        unsafe { self.driver.memset_d32_async(self.addresses[block], word, words, CUstream::NULL) }?;
        Ok(self.driver.ctx_synchronize()?)
    }

    /// Reads a whole block.
    fn check(&self, block: usize, word: u32) -> Result<()> {
        let mut words = vec![0_u32; (self.bytes / 4) as usize];
        let (to, from) = (words.as_mut_ptr().cast(), self.addresses[block]);
        // SAFETY: so many bytes are behind both.
        unsafe { self.driver.memcpy_dtoh(to, from, self.bytes as usize) }?;
        let wrong = words.iter().position(|found| *found != word);
        ensure!(wrong.is_none(), "block {block}: the word at {wrong:?} is not {word}");
        Ok(())
    }
}
