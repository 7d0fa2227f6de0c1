//! Stream-ordered memory: pools and their blocks.
//!
//! A block that was freed in a stream is available at once to the next allocation in that stream.
//! Other streams get it once that stream has reached the free, if `REUSE_ALLOW_OPPORTUNISTIC` is
//! set. Before memory runs out, an allocation uses a block whose free another stream has yet to
//! reach, and its stream waits for that, if `REUSE_ALLOW_INTERNAL_DEPENDENCIES` is set.
//! `REUSE_FOLLOW_EVENT_DEPENDENCIES`, by which a stream may wait for the free through an event, is
//! not used: a driver may use it, and need not. Memory beyond a pool's release threshold is
//! released at the next synchronisation, and earlier if memory runs out.
//!
//! A free is an action of its stream: in the legacy default stream a barrier, in a blocking stream
//! behind the work of the legacy one. An allocation in a blocking stream is an action too; in the
//! legacy default stream it is none.
//!
//! Invariant: `used <= reserved`; `used` counts the sizes that programs requested, `reserved` the
//! sizes that the pool's blocks are charged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wm_abi::{CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUdeviceptr, CUresult};

use crate::capture;
use crate::entry::{Outcome, require};
use crate::graph::Kind;
use crate::lane::{Point, Work};
use crate::memory::{self, Area, Owner, Place, Rights, round_up};
use crate::races::{self, Access, Use};
use crate::state::driver;
use crate::stream::Stream;

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) handle: usize,
    /// The place of its memory.
    pub(crate) place: Place,
    /// Is it the default pool of its device?
    pub(crate) is_default: bool,
    state: Mutex<State>,
}

/// The memory and the settings of a pool.
#[derive(Debug)]
pub(crate) struct State {
    free: Vec<Free>,
    /// Bytes that it keeps over a synchronisation.
    pub(crate) threshold: u64,
    /// Bytes of all its blocks, now and at most.
    pub(crate) reserved: Level,
    /// Bytes of its blocks in use, now and at most.
    pub(crate) used: Level,
    /// `CU_MEMPOOL_ATTR_REUSE_*`.
    pub(crate) reuse: Reuse,
    /// The most that it may reserve; 0 for no limit.
    pub(crate) limit: u64,
    /// Devices that may access its memory.
    pub(crate) rights: Rights,
    destroyed: bool,
}

/// A number and its high-water mark.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Level {
    pub(crate) now: u64,
    pub(crate) high: u64,
}

impl Level {
    fn add(&mut self, bytes: u64) {
        self.now += bytes;
        self.high = self.high.max(self.now);
    }
}

/// A block that is idle, or will be after some point of a stream.
#[derive(Debug)]
struct Free {
    start: u64,
    bytes: u64,
    /// The stream of its free, and the point of the free there. `None`: any stream may use it.
    after: Option<(u64, Point)>,
}

impl Free {
    fn is_past(&self) -> bool {
        self.after.as_ref().is_none_or(|(_, point)| point.is_passed())
    }

    fn fits(&self, bytes: u64) -> bool {
        self.bytes >= bytes && self.bytes <= bytes.saturating_mul(2).max(1 << 16)
    }

    /// May work of a stream use it?
    fn suits(&self, stream: &Stream, reuse: Reuse, pressure: bool) -> bool {
        let Some((freed_in, _)) = &self.after else { return true };
        let opportunistic = reuse[OPPORTUNISTIC] != 0 && self.is_past();
        *freed_in == stream.id || opportunistic || (pressure && reuse[INTERNAL_DEPENDENCIES] != 0)
    }
}

/// `CU_MEMPOOL_ATTR_REUSE_*`, in their order.
type Reuse = [i32; 3];
const OPPORTUNISTIC: usize = 1;
const INTERNAL_DEPENDENCIES: usize = 2;

/// A block for a new owner, and the point that must be passed before its use.
struct Given {
    start: u64,
    after: Option<Point>,
}

impl Given {
    /// Passes the block to its new owner, in a stream's order.
    fn to(self, bytes: u64, stream: &Stream) -> Outcome<CUdeviceptr> {
        let Self { start, after } = self;
        let waits = after.as_ref().is_some_and(|point| !point.is_passed());
        if !stream.is_legacy() {
            stream.push(after.into_iter().collect(), action(start, bytes, Use::Allocation))?;
        } else if waits {
            // The work is behind that free and the stream's own work, and no barrier: a program may
            // hold blocking streams for any time.
            stream.lane.push(after.into_iter().collect(), action(start, bytes, Use::Allocation))?;
        } else {
            // The stream's next work comes behind it only if the host has seen that.
            after.iter().for_each(Point::wait);
        }
        Ok(start)
    }
}

/// Work that only has a place in a stream's order.
fn action(start: u64, bytes: u64, what: Use) -> Work {
    races::declare(Arc::new(|| Ok(())), || vec![Access { range: start..start + bytes, what }])
}

impl Pool {
    /// An empty pool.
    pub(crate) fn new(handle: usize, place: Place, is_default: bool, limit: u64) -> Self {
        let mut rights = Rights::default();
        rights.set(place, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        let state = State {
            free: Vec::new(),
            threshold: 0,
            reserved: Level::default(),
            used: Level::default(),
            reuse: [1; 3],
            limit,
            rights,
            destroyed: false,
        };
        Self { handle, place, is_default, state: Mutex::new(state) }
    }

    /// The default pool of a device.
    pub(crate) fn default_of(handle: usize, device: usize) -> Self {
        Self::new(handle, Place::Device(device), true, 0)
    }

    /// Its memory and its settings.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of at least `bytes`, from the freed blocks or from the device.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if neither has it.
    pub(crate) fn allocate(&self, bytes: u64, stream: &Stream) -> Outcome<CUdeviceptr> {
        // Unlike for `cuMemAlloc`, null is a valid result for a request of 0 bytes.
        if bytes == 0 {
            return Ok(0);
        }
        // No block is removed that could not be passed on.
        if stream.is_legacy() {
            capture::forbid_implicit(stream.context_id)?;
        }
        let rounded = round_up(bytes, memory::PAGE).ok_or(CUresult::OUT_OF_MEMORY)?;
        let given = match self.reuse(bytes, rounded, stream, false) {
            Some(given) => given,
            None => self
                .grow(bytes, rounded)
                .or_else(|error| self.reuse(bytes, rounded, stream, true).ok_or(error))?,
        };
        given.to(bytes, stream)
    }

    /// A block of new memory.
    fn grow(&self, bytes: u64, rounded: u64) -> Outcome<Given> {
        let state = self.state();
        let within = state.limit == 0 || state.reserved.now.saturating_add(rounded) <= state.limit;
        drop(state);
        require(within, CUresult::OUT_OF_MEMORY)?;
        let block = with_reclaim(self.place, || memory::allocate(self.place, rounded))?;
        let start = block.enter(bytes, |physical| Owner::Pool { physical, pool: self.handle, live: true });
        let mut state = self.state();
        state.reserved.add(rounded);
        state.used.add(bytes);
        Ok(Given { start, after: None })
    }

    fn reuse(&self, bytes: u64, rounded: u64, stream: &Stream, pressure: bool) -> Option<Given> {
        let mut state = self.state();
        let reuse = state.reuse;
        let best = (0..state.free.len())
            .filter(|i| state.free[*i].fits(rounded) && state.free[*i].suits(stream, reuse, pressure))
            .min_by_key(|i| (!state.free[*i].is_past(), state.free[*i].bytes))?;
        let block = state.free.swap_remove(best);
        state.used.add(bytes);
        drop(state);
        let mut memory = driver().memory_mut();
        let area = memory.find_mut(block.start)?;
        area.size = bytes;
        area.id = memory::store::unique();
        set_live(area, true);
        Some(Given { start: block.start, after: block.after.map(|(_, point)| point) })
    }

    fn put_back(&self, block: Taken, after: Option<(u64, Point)>) {
        let mut state = self.state();
        state.used.now -= block.size;
        state.free.push(Free { start: block.start, bytes: block.bytes, after });
        let destroyed = state.destroyed;
        drop(state);
        if destroyed {
            self.settle();
        }
    }

    /// Releases free blocks that no stream still uses, until at most `keep` bytes are reserved.
    pub(crate) fn trim(&self, keep: u64) {
        let mut state = self.state();
        let mut released = Vec::new();
        let mut at = 0;
        while state.reserved.now > keep && at < state.free.len() {
            if state.free[at].is_past() {
                let block = state.free.swap_remove(at);
                state.reserved.now -= block.bytes;
                released.push(block.start);
            } else {
                at += 1;
            }
        }
        drop(state);
        for start in released {
            let area =
                driver().memory_mut().remove_if(start, |area| matches!(area.owner, Owner::Pool { .. }));
            area.into_iter().for_each(Area::discard);
        }
    }

    /// Ends the pool. Blocks in use stay valid until they are freed.
    pub(crate) fn destroy(&self) {
        self.state().destroyed = true;
        settle_all();
    }

    /// Was it destroyed, without a block in use?
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state();
        state.destroyed && state.used.now == 0
    }

    /// For a destroyed pool: releases free blocks, and forgets the pool after its last block. A
    /// block whose free the stream has not reached keeps the pool in the table.
    fn settle(&self) {
        self.trim(0);
        let is_empty = self.state().free.is_empty();
        if is_empty && self.is_over() {
            driver().pools.remove(self.handle);
        }
    }
}

/// Settles all destroyed pools: their streams may have reached the frees since.
fn settle_all() {
    let pools = driver().pools.all();
    pools.iter().filter(|pool| pool.state().destroyed).for_each(|pool| pool.settle());
}

fn set_live(area: &mut Area, now: bool) {
    if let Owner::Pool { live, .. } = &mut area.owner {
        *live = now;
    }
}

/// At a synchronisation: every pool of a place releases the memory beyond its threshold.
pub(crate) fn trim_all(place: Place) {
    settle_all();
    for pool in driver().pools.all().iter().filter(|pool| pool.place == place) {
        let threshold = pool.state().threshold;
        pool.trim(threshold);
    }
}

/// Tries to allocate, and once more after the pools have released their idle memory.
///
/// # Errors
/// Those of the second attempt.
pub(crate) fn with_reclaim<T>(place: Place, attempt: impl Fn() -> Outcome<T>) -> Outcome<T> {
    attempt().or_else(|_| {
        driver().pools.all().iter().filter(|pool| pool.place == place).for_each(|pool| pool.trim(0));
        attempt()
    })
}

/// Does a pool's block that is in use start here?
pub(crate) fn is_live(address: CUdeviceptr) -> bool {
    let memory = driver().memory();
    memory
        .find(address)
        .is_some_and(|area| area.start == address && matches!(area.owner, Owner::Pool { live: true, .. }))
}

/// A block that is no longer in use.
struct Taken {
    start: u64,
    /// Bytes that the program asked for.
    size: u64,
    /// Bytes with rounding.
    bytes: u64,
}

/// Marks a block as not in use. Returns its pool and the block.
fn mark_free(address: CUdeviceptr) -> Outcome<(Option<Arc<Pool>>, Taken)> {
    let mut memory = driver().memory_mut();
    let area =
        memory.find_mut(address).filter(|area| area.start == address).ok_or(CUresult::INVALID_VALUE)?;
    let Owner::Pool { physical, pool, live } = &mut area.owner else { return Err(CUresult::INVALID_VALUE) };
    require(std::mem::replace(live, false), CUresult::INVALID_VALUE)?;
    let (pool, block) = (*pool, Taken { start: address, size: area.size, bytes: physical.size });
    drop(memory);
    // A destroyed pool is known until its last block in use is freed.
    Ok((driver().pools.get(pool), block))
}

/// The work of `cuMemFreeAsync`.
///
/// # Errors
/// `INVALID_VALUE` if no block in use starts here.
pub(crate) fn free_in(address: CUdeviceptr, stream: &Stream) -> Outcome {
    if is_linear(address) {
        return free_linear_in(address, stream);
    }
    require(is_live(address), CUresult::INVALID_VALUE)?;
    let bytes = driver().memory().find(address).map_or(0, |area| area.size);
    let point = stream.push(Vec::new(), action(address, bytes, Use::Free))?;
    let (pool, block) = mark_free(address)?;
    if let Some(pool) = pool {
        pool.put_back(block, Some((stream.id, point)));
    }
    Ok(())
}

fn is_linear(address: CUdeviceptr) -> bool {
    let memory = driver().memory();
    memory
        .find(address)
        .is_some_and(|area| area.start == address && matches!(area.owner, Owner::Linear { .. }))
}

/// Memory from `cuMemAlloc` may be freed in stream order too. The address is invalid from the call
/// on, and the memory is released when the stream reaches the free.
fn free_linear_in(address: CUdeviceptr, stream: &Stream) -> Outcome {
    let mut memory = driver().memory_mut();
    let area = memory.find_mut(address).ok_or(CUresult::INVALID_VALUE)?;
    let Owner::Linear { physical, .. } = &area.owner else { return Err(CUresult::INVALID_VALUE) };
    let bytes = area.size;
    area.owner = Owner::Pool { physical: Arc::clone(physical), pool: 0, live: false };
    drop(memory);
    let leave = move || {
        let area = driver()
            .memory_mut()
            .remove_if(address, |area| matches!(area.owner, Owner::Pool { pool: 0, .. }));
        area.into_iter().for_each(Area::discard);
        Ok(())
    };
    let leave =
        races::declare(Arc::new(leave), || vec![Access { range: address..address + bytes, what: Use::Free }]);
    stream.push(Vec::new(), leave).map(drop)
}

/// The work of `cuMemFree` on a pool's block: the caller guarantees that no work uses it.
///
/// # Errors
/// `INVALID_VALUE` if no block in use starts here.
pub(crate) fn free_now(address: CUdeviceptr) -> Outcome {
    let (pool, block) = mark_free(address)?;
    races::leave(address..address + block.size, "a free by the host");
    if let Some(pool) = pool {
        pool.put_back(block, None);
    }
    Ok(())
}

/// Memory of an allocation node: lives as long as the graph.
///
/// # Errors
/// As [`Pool::allocate`]; `GRAPH_RECAPTURE_FAILURE` if the graph is captured again and has another
/// node there.
pub(crate) fn allocate_captured(place: Place, bytes: u64, stream: &Stream) -> Outcome<CUdeviceptr> {
    let capture = stream.capture().ok_or(CUresult::ILLEGAL_STATE)?;
    let again = capture.expect_block(|(_, size)| *size as u64 == bytes)?;
    let start = match again {
        Some(start) => start,
        None => {
            let block = with_reclaim(place, || memory::allocate(place, bytes))?;
            let start = block.enter(bytes, |physical| Owner::Graph { physical });
            capture.graph.retain(start);
            start
        }
    };
    capture.add_memory(stream.id, Kind::ALLOCATE, (start, bytes as usize))?;
    Ok(start)
}
