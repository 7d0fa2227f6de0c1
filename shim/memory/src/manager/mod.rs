//! The manager of one GPU's memory: everything public, and the loop around decisions and plans.
//!
//! One lock guards one [`State`]. It is never held across a call of [`Gpu`]: a decision takes what it needs out of the
//! state, the calls are made without the lock, and the outcome is committed or rolled back under it. Any number of
//! threads may call any method at any time.

mod allocate;
mod backing;
mod bell;
mod borders;
mod events;
mod guarded;
mod reclaim;
mod turn;

pub use backing::Backing;

use std::sync::{Arc, PoisonError};

use wm_abi::CUresult;
use wm_driver::{Gpu, StreamId};

use crate::blocks::Block;
use crate::decide::Rules;
use crate::directory::Directory;
use crate::error::{AllocateError, FreeError};
use crate::front::Part;
use crate::order::{Order, Point};
use crate::settings::Settings;
use crate::state::{Request, State};
use crate::sync::{Mutex, MutexGuard};
use crate::usage::{BlockReport, Usage};
use bell::Bell;

/// One GPU's memory.
#[derive(Debug)]
pub struct Manager<G: Gpu> {
    gpu: G,
    rules: Rules,
    state: Mutex<State>,
    /// The live blocks in `state`, for readers without the lock.
    directory: Arc<Directory>,
    /// Held while mappings change: see [`turn`].
    turn: Mutex<()>,
    /// Something under way has ended, or a pin was taken away.
    ended: Bell,
}

/// A moment, as frees know it: what was freed up to it. Taken before a wait, given back after it.
#[derive(Debug, Clone)]
pub struct Mark(Vec<Point>);

impl<G: Gpu> Manager<G> {
    /// A manager that holds nothing yet. Calls nothing but [`Gpu::granularity`].
    pub fn new(gpu: G, settings: Settings) -> Self {
        let granularity = (gpu.granularity() as u64).next_power_of_two();
        let rules = Rules { settings, granularity };
        let state = State::default();
        let directory = Arc::clone(state.blocks.directory());
        let (state, turn, ended) = (Mutex::new(state), Mutex::default(), Bell::default());
        Self { gpu, rules, state, directory, turn, ended }
    }

    /// The GPU.
    pub fn gpu(&self) -> &G {
        &self.gpu
    }

    /// The limits it keeps.
    pub fn settings(&self) -> &Settings {
        &self.rules.settings
    }

    /// Gives out `bytes` of memory that later work of the order may use; any stream's, for [`Order::Device`].
    /// The address is a multiple of 512.
    ///
    /// # Errors
    /// [`AllocateError::OutOfMemory`] when every allowed tier is full; the driver's code otherwise, `INVALID_VALUE` for
    /// 0 bytes.
    pub fn allocate(&self, bytes: usize, order: Order) -> Result<u64, AllocateError> {
        let request = Request::new(bytes, order).ok_or(CUresult::INVALID_VALUE)?;
        self.serve(request)
    }

    fn serve(&self, request: Request) -> Result<u64, AllocateError> {
        let hit = self.lock().hit(&request);
        hit.map_or_else(|| self.miss(request), Ok)
    }

    /// Takes a block back. Never waits: the order says when its memory may be used again.
    ///
    /// # Errors
    /// An address at which no live block starts; nothing changes.
    pub fn free(&self, address: u64, order: Order) -> Result<(), FreeError> {
        self.lock().free(address, order)
    }

    /// The live block that an address is in, by its rounded size. Wait-free: no lock, no loop.
    pub fn block(&self, address: u64) -> Option<Block> {
        self.directory.look_up(address)
    }

    /// Is the address inside a reservation of the manager's, in a live block or not?
    pub fn owns(&self, address: u64) -> bool {
        self.lock().owns(address)
    }

    /// The host saw the stream drain: whatever was freed in it so far is reusable anywhere. Where other threads may be
    /// freeing in the stream meanwhile, take a [`Manager::mark`] before the wait instead.
    pub fn passed(&self, stream: StreamId) {
        self.reached(&self.mark(Some(stream)));
    }

    /// The host saw the whole device drain. As [`Manager::passed`], for all streams.
    pub fn passed_all(&self) {
        self.reached(&self.mark(None));
    }

    /// What was freed in a stream, or (`None`) anywhere, up to now. Taken before the host waits for it.
    ///
    /// Where it waits for everything, the front cache is emptied, while the GPU still works: what the cache holds, and where,
    /// is accident, and a program that repeats itself would meet other free runs in every period, and have other extents
    /// stitched. Not so for one stream: that may be a wait for every word that a model says.
    pub fn mark(&self, stream: Option<StreamId>) -> Mark {
        let mut state = self.lock();
        if stream.is_none() {
            state.flush(Part::All);
        }
        Mark(
            stream.map_or_else(
                || state.timeline.all_marks(),
                |stream| state.timeline.marks(Order::Stream(stream)),
            ),
        )
    }

    /// The host saw the GPU pass the mark.
    pub fn reached(&self, mark: &Mark) {
        let told = self.lock().reached(&mark.0);
        self.recycle(told);
    }

    /// What is where, and what happened so far.
    pub fn usage(&self) -> Usage {
        let state = self.lock();
        let (live, reserved) = (state.live, state.reserved);
        Usage {
            live: live.now,
            live_peak: live.peak,
            pooled: state.pooled.now,
            pooled_peak: state.pooled.peak,
            reserved: reserved.now,
            reserved_peak: reserved.peak,
            cached: state.front.bytes(),
            largest_free_run: state.ledger.runs.largest(),
            idle: state.ledger.memories.idle_bytes(),
            utilization: ratio(live.now.total(), reserved.now.total()),
            extents: state.ledger.extents.len(),
            idle_views: state.ledger.extents.idle_views().len(),
            quarantined: state.quarantine.len(),
            counters: state.counters,
        }
    }

    /// Lowers the peak of live bytes to what is live now.
    pub fn reset_live_peak(&self) {
        let mut state = self.lock();
        state.live.reset_peak();
        state.pooled.reset_peak();
    }

    /// Lowers the peak of reserved bytes to what is reserved now.
    pub fn reset_reserved_peak(&self) {
        self.lock().reserved.reset_peak();
    }

    /// Every live block, lowest address first.
    pub fn blocks(&self) -> Vec<BlockReport> {
        let mut reports: Vec<_> = self.lock().blocks.live().map(report).collect();
        reports.sort_unstable_by_key(|report| report.address);
        reports
    }

    /// Checks the bookkeeping against its own invariants. Slow.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn audit(&self) -> Result<(), String> {
        let state = self.lock();
        let pieces: Vec<(u64, u64)> =
            state.blocks.all().map(|piece| (piece.address, piece.bytes())).collect();
        state.ledger.audit(&pieces)?;
        state.blocks.audit()?;
        state.front.audit(&state.blocks)?;
        state.audit_sums()
    }

    /// A poisoned lock is used on: a panic in the holder, which nothing here does on purpose, must not take every
    /// later allocation of the program with it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until `until` holds; looks whenever something under way ends.
    fn wait_until(&self, mut until: impl FnMut(&mut State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while !until(&mut state) {
            state = self.ended.wait(state);
        }
        state
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn report(block: Block) -> BlockReport {
    let stream = block.order.stream().map(|stream| stream.0);
    BlockReport { address: block.address, bytes: block.bytes, id: block.id, stream, tiers: block.tiers }
}
