//! `bench shares`: two blocks map the same chunks, as blocks of two processes do, and then get
//! chunks of their own again.
//!
//! Beside the times it checks the shim's requirements of a driver: both blocks read the shared
//! chunks, a write through either is refused, and the contents are unchanged after one block was
//! unshared and filled anew.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde::Serialize;
use serde_json::json;
use wm_abi::CUdevice;
use wm_driver::Handle;
use wm_memory::{BlockChunk, ManagerSettings, MoveRefusal, Quiet, ShareOutcome, SharedChunks};
use wmctl::output;
use wmctl::table::TextTable;

use crate::managed::ManagedDevice;

/// Arguments of `bench shares`.
#[derive(Debug, clap::Args)]
pub(crate) struct SharesArguments {
    /// GPU
    #[arg(long, default_value_t = 0)]
    device: CUdevice,
    /// Size of each of the two blocks, MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(2..))]
    mib: u64,
    /// How often they share and unshare
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

/// Two blocks of the same size.
struct SharingBlocks {
    gpu: ManagedDevice,
    /// Both blocks map the first block's chunks while they share.
    addresses: [u64; 2],
    bytes: u64,
}

/// Runs the benchmark.
///
/// # Errors
/// A driver that refuses a step or allows a write into shared memory, and contents that changed.
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
        let settings = ManagerSettings { chunked: true, overflow: vec![], ..ManagerSettings::default() };
        let gpu = ManagedDevice::open(arguments.device, settings)?;
        ensure!(gpu.manager.gpu().is_exportable(), "this driver passes no memory between processes");
        let bytes = (arguments.mib << 20) / CHUNK * CHUNK;
        let addresses = [gpu.allocate(bytes)?, gpu.allocate(bytes)?];
        Ok(Self { gpu, addresses, bytes })
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
        note("donate", start);
        let import = |descriptor: &OwnedFd| self.gpu.manager.gpu().import_handle(descriptor.as_fd());
        let imported = exported.iter().map(import).collect::<Result<Vec<Handle>, _>>()?;
        let pairs: Vec<(BlockChunk, Handle)> =
            self.chunks(1).map(|at| self.gpu.manager.chunk_at(at)).zip(imported).collect();
        let start = Instant::now();
        self.share_all(|| self.gpu.manager.share_chunks(&pairs, Quiet::Look, PATIENCE))?;
        note("share", start);
        ensure!(self.gpu.manager.usage().shared == 2 * self.bytes, "not all is shared");
        for block in 0..2 {
            self.check(block, first)?;
            ensure!(self.fill(block, second).is_err(), "a write into shared memory was not refused");
            self.check(block, first)?;
        }
        for (block, step) in [(1, "unshare, second"), (0, "unshare, first")] {
            let start = Instant::now();
            self.unshare(block)?;
            note(step, start);
            self.check(block, first)?;
            self.fill(block, second)?;
            self.check(block, second)?;
            if block == 1 {
                self.check(0, first)?;
            }
        }
        self.gpu.manager.audit().map_err(|wrong| anyhow!(wrong))
    }

    fn donate(&self) -> Result<Vec<OwnedFd>> {
        let mut exported = Vec::new();
        let chunks: Vec<BlockChunk> = self.chunks(0).map(|at| self.gpu.manager.chunk_at(at)).collect();
        let mut export =
            |_, handle| self.gpu.manager.gpu().export(handle).map(|descriptor| exported.push(descriptor));
        self.share_all(|| self.gpu.manager.donate_chunks(&chunks, Quiet::Look, PATIENCE, &mut export))?;
        Ok(exported)
    }

    /// Shares all chunks. The manager waits only briefly for the GPU to become idle, and shares
    /// none if another thread delays this one meanwhile: retry until `PATIENCE` is over.
    fn share_all(&self, mut share: impl FnMut() -> SharedChunks) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let shared = share();
            let in_use = |outcome: &ShareOutcome| *outcome == ShareOutcome::Refused(MoveRefusal::InUse);
            if !shared.outcomes.iter().all(in_use) || Instant::now() >= until {
                ensure!(shared.count() as u64 == self.bytes / CHUNK, "{:?}", shared.outcomes);
                return Ok(());
            }
        }
    }

    fn unshare(&self, block: usize) -> Result<()> {
        let range = self.addresses[block]..self.addresses[block] + self.bytes;
        let until = Instant::now() + PATIENCE;
        let moved = loop {
            match self.gpu.manager.unshare(range.clone(), false, Quiet::Look, PATIENCE) {
                Err(MoveRefusal::InUse) if Instant::now() < until => {}
                moved => break moved.map_err(|stays| anyhow!("{stays}"))?,
            }
        };
        ensure!(moved.refusal.is_none() && moved.bytes == self.bytes, "{moved:?}");
        Ok(())
    }

    fn fill(&self, block: usize, word: u32) -> Result<()> {
        self.gpu.fill(self.addresses[block], self.bytes, word)?;
        self.gpu.drain()
    }

    fn check(&self, block: usize, word: u32) -> Result<()> {
        self.gpu.check(self.addresses[block], self.bytes, word)
    }
}
