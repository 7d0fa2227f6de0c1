//! `bench moves`: the shim's own manager migrates a live block to the host and back, at the same
//! addresses.
//!
//! Beside the rates it checks the shim's requirements of a driver: the manager refuses to move a
//! block that queued work uses; copies and memsets cross the border between the moved and the other
//! part; every byte is unchanged after each step. On a simulated driver with `SIMCUDA_RACES=1` the
//! process ends if a handle is unmapped while queued work may use it.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde::Serialize;
use serde_json::json;
use wm_abi::CUdevice;
use wm_driver::{Api, Tier};
use wm_memory::{ManagerSettings, MoveOrder, MoveRefusal, Moved, RangeMove};
use wmctl::output;
use wmctl::table::TextTable;

use crate::managed::ManagedDevice;

/// Arguments of `bench moves`.
#[derive(Debug, clap::Args)]
pub(crate) struct MovesArguments {
    /// GPU
    #[arg(long, default_value_t = 0)]
    device: CUdevice,
    /// Size of the block, MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(4..))]
    mib: u64,
    /// How often it goes out and comes back
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `CU_STREAM_WAIT_VALUE_EQ`.
const EQUAL: u32 = 1;

/// How long a block may take to move.
const PATIENCE: Duration = Duration::from_secs(60);

/// One way of one round.
#[derive(Debug, Serialize)]
struct MoveRate {
    round: u32,
    way: &'static str,
    moves: u64,
    handle_bytes: u64,
    us_a_move: f64,
    gb_a_second: f64,
}

impl MoveRate {
    fn of(round: u32, way: &'static str, moves: u64, bytes: u64, seconds: f64) -> Self {
        Self {
            round,
            way,
            moves,
            handle_bytes: bytes / moves.max(1),
            us_a_move: 1e6 * seconds / moves.max(1) as f64,
            gb_a_second: bytes as f64 / 1e9 / seconds,
        }
    }
}

/// A block that moves.
struct MovedBlock {
    gpu: ManagedDevice,
    /// A pinned word; the stream can wait until it has a value.
    word: *mut u32,
    address: u64,
    bytes: u64,
    filled_with: u32,
}

/// Runs the benchmark.
///
/// # Errors
/// A driver that refuses a step, and contents that changed.
pub(crate) fn moves(arguments: &MovesArguments) -> Result<()> {
    let mut block = MovedBlock::new(arguments)?;
    let mut rows = Vec::new();
    for round in 1..=arguments.rounds {
        block.stays_under_work()?;
        for (way, to) in [("out", Tier::Host), ("in", Tier::Device)] {
            rows.push(block.go(round, way, to)?);
        }
        for (way, to) in [("out, together", Tier::Host), ("in, together", Tier::Device)] {
            rows.push(block.go_together(round, way, to)?);
        }
        rows.push(block.go_both_ways(round)?);
    }
    if arguments.json {
        return output::print_json(&json!({ "rows": rows }));
    }
    output::print(&table(&rows))
}

fn table(rows: &[MoveRate]) -> String {
    let mut table = TextTable::new(&["round", "way", "moves", "handle MiB", "us a move", "GB/s"]);
    for row in rows {
        table.row(vec![
            row.round.to_string(),
            row.way.to_owned(),
            row.moves.to_string(),
            format!("{:.0}", row.handle_bytes as f64 / f64::from(1 << 20)),
            format!("{:.0}", row.us_a_move),
            format!("{:.2}", row.gb_a_second),
        ]);
    }
    table.to_string()
}

impl MovedBlock {
    fn new(arguments: &MovesArguments) -> Result<Self> {
        let settings = ManagerSettings { movable: true, ..ManagerSettings::default() };
        let gpu = ManagedDevice::open(arguments.device, settings)?;
        let bytes = arguments.mib << 20;
        let address = gpu.allocate(bytes)?;
        let word = gpu.driver.mem_host_alloc(64, 0)?.cast();
        Ok(Self { gpu, word, address, bytes, filled_with: 0 })
    }

    fn signal(&self, value: u32) {
        // SAFETY: the word is pinned memory that lives as long as `self`; the host and the GPU
        // access it atomically.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(self.word) }
            .store(value, std::sync::atomic::Ordering::SeqCst);
    }

    /// Fills the whole block with the next word, in its stream.
    fn fill(&mut self) -> Result<()> {
        self.filled_with += 1;
        self.gpu.fill(self.address, self.bytes, self.filled_with)
    }

    /// Compares the whole block with the word of the last fill.
    fn check(&self) -> Result<()> {
        self.gpu.check(self.address, self.bytes, self.filled_with)
    }

    /// The manager must refuse to move the block while a queued memset waits to fill it.
    fn stays_under_work(&mut self) -> Result<()> {
        self.signal(0);
        let (stream, word) = (self.gpu.stream, self.word as u64);
        // SAFETY: the word is pinned memory that outlives the stream's wait.
        unsafe { self.gpu.driver.stream_wait_value32(stream, word, 1, EQUAL) }?;
        self.fill()?;
        let moved = self.gpu.manager.move_handle(self.address, Tier::Host);
        self.signal(1);
        ensure!(moved == Err(MoveRefusal::InUse), "memory that is about to be filled: {moved:?}");
        self.check()
    }

    /// Moves the block, handle by handle. Half-way it is filled and read across the border.
    fn go(&mut self, round: u32, way: &'static str, to: Tier) -> Result<MoveRate> {
        let half = self.address + self.bytes / 2;
        let (first, halfway) = self.move_to(self.address, half, to)?;
        self.fill()?;
        self.check()?;
        let (second, seconds) = self.move_to(first.end, self.address + self.bytes, to)?;
        self.check()?;
        let (moves, seconds) = (first.moves + second.moves, halfway + seconds);
        Ok(MoveRate::of(round, way, moves, first.bytes + second.bytes, seconds))
    }

    /// Moves the whole block with one look: copies of several handles are under way at a time.
    fn go_together(&mut self, round: u32, way: &'static str, to: Tier) -> Result<MoveRate> {
        self.fill()?;
        self.gpu.drain()?;
        let range = self.address..self.address + self.bytes;
        let mut order = MoveOrder::new(range, to);
        let (start, mut moves, mut bytes) = (Instant::now(), 0, 0);
        while order.range.start < order.range.end {
            match self.gpu.manager.move_range(&order, PATIENCE) {
                Err(MoveRefusal::InUse) if start.elapsed() < PATIENCE => {}
                Ok(moved) if moved.refusal.is_none() => {
                    (moves, bytes) = (moves + moved.count, bytes + moved.bytes);
                    order.range.start = moved.next;
                }
                other => return Err(anyhow!("{:#x}: {other:?}", order.range.start)),
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        self.check()?;
        Ok(MoveRate::of(round, way, moves, bytes, seconds))
    }

    /// The first half comes back while the second one leaves; the figures are of one of the two.
    fn go_both_ways(&mut self, round: u32) -> Result<MoveRate> {
        let half = self.address + self.bytes / 2;
        self.move_to(self.address, half, Tier::Host)?;
        self.fill()?;
        self.gpu.drain()?;
        let end = self.address + self.bytes;
        // A handle may lie across the middle.
        let ways = [(half..end, Tier::Host), (self.address..half, Tier::Device)];
        let order = |(range, to)| MoveOrder::new(range, to);
        let mut ranges = ways.map(|way| RangeMove::new(order(way), u64::MAX));
        let start = Instant::now();
        while !ranges.iter().all(RangeMove::is_over) {
            match self.gpu.manager.swap(&mut ranges, || false) {
                Err(MoveRefusal::InUse) if start.elapsed() < PATIENCE => {}
                Ok(()) if ranges.iter().all(|range| range.moved.refusal.is_none()) => {}
                other => return Err(anyhow!("{other:?}: {:?}", ranges.map(|range| range.moved.refusal))),
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        self.check()?;
        self.move_to(half, end, Tier::Device)?;
        let [out, _] = ranges;
        Ok(MoveRate::of(round, "both ways, each", out.moved.count, out.moved.bytes, seconds))
    }

    fn move_to(&self, from: u64, upto: u64, to: Tier) -> Result<(Distance, f64)> {
        self.gpu.drain()?;
        let start = Instant::now();
        let mut distance = Distance { end: from, moves: 0, bytes: 0 };
        while distance.end < upto {
            let moved = self.move_once(distance.end, to, start)?;
            distance.end = moved.address + moved.bytes;
            distance.moves += 1;
            distance.bytes += moved.copied;
        }
        Ok((distance, start.elapsed().as_secs_f64()))
    }

    /// On a busy machine it may take a while until the manager sees that nothing is under way.
    fn move_once(&self, address: u64, to: Tier, start: Instant) -> Result<Moved> {
        loop {
            match self.gpu.manager.move_handle(address, to) {
                Err(MoveRefusal::InUse) if start.elapsed() < PATIENCE => {}
                moved => return moved.map_err(|stays| anyhow!("{address:#x}: {stays}")),
            }
        }
    }
}

/// The result of several moves.
struct Distance {
    end: u64,
    moves: u64,
    bytes: u64,
}
