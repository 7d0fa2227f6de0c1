//! The manager of one GPU's memory: everything public, and the loop around decisions and plans.
//!
//! One lock guards one [`State`]. It is never held across a call of [`Gpu`]: a decision takes
//! the values that it needs out of the state, the calls are made without the lock, and the outcome
//! is committed or rolled back under it. Any number of threads may call any method at any time.

mod adopted;
mod allocate;
pub(crate) mod away;
pub(crate) mod backing;
mod borders;
mod events;
mod execute;
mod guarded;
pub(crate) mod host_budget;
mod kept;
pub(crate) mod limit;
mod mapping_lock;
mod migrate;
mod other_tiers;
pub(crate) mod pieces;
mod reclaim;
mod remap;
mod share;
mod shared_pieces;
mod spares;
mod swap;
mod take_back;
mod unified;
mod unmapped;
mod verify;
mod waiters;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Instant;

use wm_abi::CUresult;
use wm_driver::{Gpu, StreamId, Tier};
use wm_schema::black_box::DeviceBox;

use crate::books::black_box::BlackBoxPlace;
use crate::books::directory::Directory;
use crate::books::free_cache::FlushScope;
use crate::ordering::fence::Marks;
use crate::state::State;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{Mutex, MutexGuard};
use crate::vocabulary::block::{Block, BlockExtent};
use crate::vocabulary::error::{AllocateError, FreeError};
use crate::vocabulary::order::Order;
use crate::vocabulary::request::{FirstTier, Freed, Request};
use crate::vocabulary::settings::ManagerSettings;
use crate::vocabulary::settings::Rules;
use crate::vocabulary::tiers::TierBytes;
use crate::vocabulary::usage::Usage;
use host_budget::HostBudget;
use waiters::Waiters;

/// One GPU's memory.
#[derive(Debug)]
pub struct Manager<G: Gpu> {
    gpu: G,
    rules: Rules,
    state: Mutex<State>,
    /// The live blocks in `state`, for readers without the lock.
    directory: Arc<Directory>,
    /// Held while mappings change: see [`mapping_lock`].
    mapping_lock: Mutex<()>,
    /// Something under way has ended, or a pin was taken away.
    waiters: Waiters,
    host_budget: Arc<HostBudget>,
    /// The most that all tiers have together: changes with the device's limit.
    capacity: AtomicU64,
}

/// The process is told of a change of live bytes at least so often.
const HITS_BETWEEN_NEWS: u64 = 256;

/// A moment, as frees know it: the frees up to it. Taken before a wait, given back after it.
#[derive(Debug, Clone)]
pub struct Mark(Marks);

impl<G: Gpu> Manager<G> {
    /// A manager that holds nothing yet. Calls nothing but [`Gpu::granularity`].
    pub fn new(gpu: G, settings: ManagerSettings) -> Self {
        Self::sharing(gpu, settings, Arc::default(), None)
    }

    /// The same, whose host limit is one with that of the process's other devices, and which shows
    /// its figures in a black box.
    ///
    /// Threads with little stack come here, so the state is made where it stays as far as the
    /// language allows: an unoptimised build has a copy of each value that is moved.
    pub fn sharing(
        gpu: G,
        settings: ManagerSettings,
        host_budget: Arc<HostBudget>,
        black_box: Option<&'static DeviceBox>,
    ) -> Self {
        let granularity = (gpu.granularity() as u64).next_power_of_two();
        let rules = Rules { settings, granularity };
        let mut state = Mutex::<State>::default();
        let made = state.get_mut().unwrap_or_else(PoisonError::into_inner);
        made.shown = black_box.map_or_else(BlackBoxPlace::default, BlackBoxPlace);
        made.limits.device = rules.settings.device_limit;
        let directory = Arc::clone(made.program.directory());
        let (mapping_lock, waiters) = (Mutex::default(), Waiters::default());
        let capacity = AtomicU64::new(rules.settings.capacity);
        Self { gpu, rules, state, directory, mapping_lock, waiters, host_budget, capacity }
    }

    /// The GPU.
    pub fn gpu(&self) -> &G {
        &self.gpu
    }

    /// The limits and choices that it was made with. The device's limit may have changed since:
    /// [`Manager::device_limit`].
    pub fn settings(&self) -> &ManagerSettings {
        &self.rules.settings
    }

    /// Gives out `bytes` of memory that later work of the order may use; any stream's, for
    /// [`Order::Device`]. The address is a multiple of 512.
    ///
    /// # Errors
    /// [`AllocateError::OutOfMemory`] when every allowed tier is full; the driver's code otherwise,
    /// `INVALID_VALUE` for 0 bytes.
    pub fn allocate(&self, bytes: usize, order: Order) -> Result<u64, AllocateError> {
        let request = self.request(bytes, order)?;
        self.serve(request)
    }

    /// As [`Manager::allocate`], for a caller that knows where its block is to be. One of the
    /// device stays there until it is freed.
    ///
    /// # Errors
    /// As [`Manager::allocate`]; `NOT_PERMITTED` for the host, and for a unified block, where the
    /// user does not allow host memory.
    pub fn allocate_placed(
        &self,
        bytes: usize,
        order: Order,
        first_tier: FirstTier,
    ) -> Result<u64, AllocateError> {
        let needs_host = matches!(first_tier, FirstTier::Host | FirstTier::Unified);
        if needs_host && !self.rules.settings.overflow.contains(&Tier::Host) {
            return Err(CUresult::NOT_PERMITTED.into());
        }
        if first_tier == FirstTier::Unified {
            return self.allocate_unified(bytes, order);
        }
        let request = self.request(bytes, order)?;
        let request = Request { first_tier, ..request };
        let address = if first_tier == FirstTier::Host { self.miss(request) } else { self.serve(request) }?;
        if first_tier == FirstTier::Device {
            self.pin_to_device(address);
        }
        Ok(address)
    }

    fn request(&self, bytes: usize, order: Order) -> Result<Request, AllocateError> {
        let request = self.possible(bytes, Request::new(bytes, order))?;
        Ok(if self.rules.settings.chunked { request.in_chunks(self.rules.granularity) } else { request })
    }

    /// A request for so many bytes, unless all tiers together have fewer: then nothing has to be
    /// asked.
    fn possible(&self, bytes: usize, request: Option<Request>) -> Result<Request, AllocateError> {
        match request.filter(|request| request.bytes <= self.capacity.load(Relaxed)) {
            Some(request) => Ok(request),
            None if bytes == 0 => Err(CUresult::INVALID_VALUE.into()),
            None => Err(AllocateError::OutOfMemory(Box::new(self.lock().beyond(bytes, &self.rules)))),
        }
    }

    fn serve(&self, request: Request) -> Result<u64, AllocateError> {
        let mut state = self.lock();
        let hit = state.hit(&request);
        let is_news = state.counters.hits.is_multiple_of(HITS_BETWEEN_NEWS);
        drop(state);
        match hit {
            Some(address) if !is_news => Ok(address),
            Some(address) => {
                self.gpu.changed();
                Ok(address)
            }
            None => self.miss(request),
        }
    }

    /// Takes a block back. Later work of the stream may use its memory at once; for
    /// [`Order::Device`] all later work may, since the caller knows that nothing touches it any
    /// more. Never waits, except for a unified block that is the CPU's or is being changed.
    ///
    /// # Errors
    /// An address at which no live block starts, or a unified block that stays the CPU's; nothing
    /// changes.
    pub fn free(&self, address: u64, order: Order) -> Result<(), FreeError> {
        match order {
            Order::Stream(stream) => self.free_in(address, stream, false),
            Order::Device => self.lock_to_free(address)?.free(address, Freed::Past).map(drop),
        }
    }

    /// As [`Manager::free`], in a stream of the calling thread's own: no other thread can record an
    /// event there later.
    ///
    /// # Errors
    /// As [`Manager::free`].
    pub fn free_in_own(&self, address: u64, stream: StreamId) -> Result<(), FreeError> {
        self.free_in(address, stream, true)
    }

    fn free_in(&self, address: u64, stream: StreamId, eager: bool) -> Result<(), FreeError> {
        let freed =
            self.lock_to_free(address)?.free(address, Freed::In { order: Order::Stream(stream), eager })?;
        if let Some(numbered) = freed
            && let Some(exact) = numbered.record
        {
            self.record(stream, exact, numbered);
        }
        Ok(())
    }

    /// May a stream that finds no other memory wait, on the GPU, for another stream's free?
    pub fn allow_dependencies(&self, allowed: bool) {
        self.lock().forbids_dependencies = !allowed;
    }

    /// The live block that an address is in, by its rounded size. Wait-free: no lock, no loop.
    pub fn block(&self, address: u64) -> Option<Block> {
        self.directory.look_up(address)
    }

    /// The same block's number and rounded range, in fewer loads.
    #[inline]
    pub fn extent(&self, address: u64) -> Option<BlockExtent> {
        self.directory.extent(address)
    }

    /// The live block that an address is in, by its rounded size, from its first byte to the last
    /// that was asked for. As [`Manager::block`], in fewer loads.
    #[inline]
    pub fn bounds(&self, address: u64) -> Option<Range<u64>> {
        self.directory.bounds(address)
    }

    /// Is the address inside a reservation of the manager's, in a live block or not?
    pub fn owns(&self, address: u64) -> bool {
        self.lock().holdings.owns(address)
    }

    /// The host saw the stream drain: all memory that was freed in it so far is reusable anywhere.
    /// Where other threads may be freeing in the stream meanwhile, take a [`Manager::mark`] before
    /// the wait instead.
    pub fn passed(&self, stream: StreamId) {
        self.reached(&self.mark(stream));
    }

    /// The host saw the whole device drain. As [`Manager::passed`], for all streams.
    pub fn passed_all(&self) {
        self.flush();
        self.reached(&self.mark_all(|_| true));
    }

    /// The frees in a stream up to now. Taken before the host waits for it.
    pub fn mark(&self, stream: StreamId) -> Mark {
        Mark(self.lock().timeline.mark(stream))
    }

    /// The frees up to now in the streams that `covers` names: those of a context, before the
    /// host waits for that.
    pub fn mark_all(&self, covers: impl Fn(StreamId) -> bool) -> Mark {
        Mark(self.lock().timeline.marks(covers))
    }

    /// Empties the free cache. To be called where the host waits for the device, while the GPU
    /// still works: the blocks that the cache holds, and their addresses, are accidental, so a
    /// program that repeats itself would find other free runs in every period, and need other
    /// extents. Not where the host waits for one stream: a model may do so for every token.
    pub fn flush(&self) {
        self.lock().flush(FlushScope::All);
    }

    /// The stream is gone, with its context, and its work is over: all memory that was freed in it
    /// is reusable anywhere.
    pub fn stream_ended(&self, stream: StreamId) {
        self.passed(stream);
        self.lock().timeline.retire(stream);
    }

    /// The host saw the GPU pass the mark.
    pub fn reached(&self, mark: &Mark) {
        let told = self.lock().reached(&mark.0);
        self.recycle(told);
    }

    /// The memory on each tier, and the counts so far.
    pub fn usage(&self) -> Usage {
        usage(&self.lock())
    }

    /// The same for the process's exit, which waits for nothing: `None` while another thread has
    /// the lock, or this one, which a signal has interrupted.
    pub fn usage_now(&self) -> Option<Usage> {
        match self.state.try_lock() {
            Ok(state) => Some(usage(&state)),
            Err(TryLockError::Poisoned(state)) => Some(usage(&state.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Bytes of live blocks, by where they are.
    pub fn live(&self) -> TierBytes {
        self.lock().program.live().now
    }

    /// Of these, those that are not on the device, by the GPU or the host that has them. Looks at
    /// every handle.
    pub fn elsewhere(&self) -> BTreeMap<Tier, u64> {
        let mut places = BTreeMap::new();
        for (_, memory) in self.lock().holdings.ledger.handles().all() {
            if memory.tier != Tier::Device && memory.used > 0 && !memory.adopted {
                *places.entry(memory.tier).or_default() += memory.used;
            }
        }
        places
    }

    /// Lowers the peak of live bytes to the bytes that are live now.
    pub fn reset_live_peak(&self) {
        let mut state = self.lock();
        let [pieces, _] = state.bytes_of_pieces();
        state.program.reset_peaks(&pieces);
        state.show();
    }

    /// Lowers the peak of reserved bytes to the bytes that are reserved now.
    pub fn reset_reserved_peak(&self) {
        let mut state = self.lock();
        let [_, pieces] = state.bytes_of_pieces();
        state.holdings.reset_peak(&pieces);
        state.show();
    }

    /// Every live block, lowest address first.
    pub fn blocks(&self) -> Vec<wm_schema::BlockEntry> {
        let mut reports: Vec<_> = self.lock().program.blocks().live().map(report).collect();
        reports.sort_unstable_by_key(|report| report.address);
        reports
    }

    /// Size of the largest live block, as the program asked for it; 0 if there is none.
    pub fn largest_block(&self) -> u64 {
        self.lock().program.blocks().largest()
    }

    /// Live blocks of at least so many bytes, adopted pieces included, in no order.
    pub fn large_blocks(&self, least: u64) -> Vec<Block> {
        self.lock().program.blocks().large(least).collect()
    }

    /// Checks the bookkeeping against its own invariants. Slow.
    ///
    /// # Errors
    /// The faults found, in words.
    pub fn audit(&self) -> Result<(), String> {
        self.lock().audit()
    }

    /// Shows all figures, and tells the process of a change. Without a lock.
    fn show(&self) {
        self.lock().show();
        self.gpu.changed();
    }

    /// A poisoned lock is used on: a panic in the holder, which nothing here does on purpose, must
    /// not take every later allocation of the program with it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until `until` holds; looks whenever something under way ends.
    fn wait_until(&self, mut until: impl FnMut(&mut State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while !until(&mut state) {
            state = self.waiters.wait(state);
        }
        state
    }

    /// The same for a limited time. `None`: it does not hold by then.
    fn wait_within(
        &self,
        limit: Instant,
        mut until: impl FnMut(&mut State) -> bool,
    ) -> Option<MutexGuard<'_, State>> {
        let mut state = self.lock();
        while !until(&mut state) {
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.waiters.wait_for(state, left);
        }
        Some(state)
    }
}

fn usage(state: &State) -> Usage {
    let (live, pooled, reserved) = (state.program.live(), state.program.pooled(), state.holdings.held());
    let [beside_live, beside_reserved] = state.bytes_of_pieces();
    let live_peaks = state.program.peaks(&beside_live);
    let ledger = &state.holdings.ledger;
    let [shared, parked] = state.shared_bytes();
    Usage {
        live: live.now,
        pieces: state.pool.account(),
        together: state.together(),
        live_peak: live_peaks.since_reset,
        live_peaks: live_peaks.ever,
        pooled: pooled.now,
        pooled_peak: pooled.peak,
        reserved,
        reserved_peak: state.holdings.peaks(&beside_reserved).since_reset,
        cached: state.program.cached_bytes(),
        largest_free_run: ledger.runs().largest(),
        idle: ledger.handles().idle_bytes(),
        utilization: ratio(live.now.total().saturating_sub(shared), reserved.total()),
        shared,
        parked,
        extents: ledger.extents().len() - state.adopted.len(),
        idle_views: ledger.extents().idle_views().len(),
        quarantined: state.holdings.quarantined(),
        moves: state.moves,
        counters: state.counters,
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn report(block: Block) -> wm_schema::BlockEntry {
    let stream = block.order.stream().map(|stream| stream.0);
    let (bytes, tiers) = (block.bytes as u64, block.tiers.into());
    wm_schema::BlockEntry { address: block.address, bytes, id: block.id, stream, tiers }
}
