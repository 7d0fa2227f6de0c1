//! Small allocations that [`crate::actions`] makes and frees in place of the program's own calls,
//! only for the effect of the call.
//!
//! Invariant: no lock is held across a driver call. Every method only changes the tables here; the
//! caller makes the driver calls.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use crate::lock::lock;
use wm_abi::*;

/// The most spares that all streams of a device hold together: each takes some bytes of the device.
const MOST_HELD: usize = 4096;

/// The most spares that one stream holds.
const MOST_OF_A_STREAM: usize = 64;

/// A stream: its context and its handle.
pub(crate) type StreamIdentity = (CUcontext, CUstream);

/// The spares of a device.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    /// Allocations of `cuMemAlloc`, to be freed in a context where the driver's own call must
    /// answer.
    plain: Mutex<Vec<(CUcontext, CUdeviceptr)>>,
    held: Mutex<HeldSpares>,
    /// The library's own pool, once it was requested; null if the driver makes none.
    pool: Mutex<Option<CUmemoryPool>>,
}

/// Spares that were allocated in blocking streams in place of the program's blocks, to be freed in
/// place of a later free. A thread's own stream has none: it ends with its thread, and no call
/// reports the end.
#[derive(Debug, Default)]
struct HeldSpares {
    streams: HashMap<StreamIdentity, Vec<CUdeviceptr>>,
    /// The spares of all streams.
    count: usize,
}

impl HeldSpares {
    fn drain(&mut self, matches: impl Fn(&StreamIdentity) -> bool) -> Vec<CUdeviceptr> {
        let drained = self.streams.extract_if(|stream, _| matches(stream));
        let spares: Vec<CUdeviceptr> = drained.flat_map(|(_, spares)| spares).collect();
        self.count -= spares.len();
        spares
    }
}

impl Spares {
    /// Removes a spare of `cuMemAlloc` in this context from the table.
    pub(crate) fn pop_plain(&self, context: CUcontext) -> Option<CUdeviceptr> {
        let mut plain = self.plain();
        let position = plain.iter().position(|(owner, _)| *owner == context)?;
        Some(plain.swap_remove(position).1)
    }

    /// Adds a spare of `cuMemAlloc` whose free the driver refused.
    pub(crate) fn push_plain(&self, context: CUcontext, spare: CUdeviceptr) {
        self.plain().push((context, spare));
    }

    /// May the stream hold another spare?
    pub(crate) fn has_room(&self, stream: StreamIdentity) -> bool {
        let held = self.held();
        let of_stream = held.streams.get(&stream).map_or(0, Vec::len);
        held.count < MOST_HELD && of_stream < MOST_OF_A_STREAM
    }

    /// Adds a spare that the stream holds.
    pub(crate) fn push_held(&self, stream: StreamIdentity, spare: CUdeviceptr) {
        let mut held = self.held();
        held.streams.entry(stream).or_default().push(spare);
        held.count += 1;
    }

    /// Removes one of the spares that the stream holds.
    pub(crate) fn pop_held(&self, stream: StreamIdentity) -> Option<CUdeviceptr> {
        let mut held = self.held();
        let spare = held.streams.get_mut(&stream)?.pop()?;
        held.count -= 1;
        Some(spare)
    }

    /// Removes all spares that streams with this handle hold, in any context.
    pub(crate) fn drain_stream(&self, stream: CUstream) -> Vec<CUdeviceptr> {
        self.held().drain(|held| held.1 == stream)
    }

    /// Forgets the spares of a context that is gone; the driver freed them with it.
    pub(crate) fn forget(&self, context: CUcontext) {
        self.plain().retain(|(owner, _)| *owner != context);
        let _freed_with_it = self.held().drain(|(owner, _)| *owner == context);
    }

    /// The pool, if it was requested before; null if the driver makes none.
    pub(crate) fn pool(&self) -> Option<CUmemoryPool> {
        *self.lock_pool()
    }

    /// Stores the pool. If two threads make one at once, the first one's stays.
    pub(crate) fn set_pool(&self, made: CUmemoryPool) -> CUmemoryPool {
        *self.lock_pool().get_or_insert(made)
    }

    /// The pool ended with the device's contexts.
    pub(crate) fn forget_pool(&self) {
        *self.lock_pool() = None;
    }

    fn plain(&self) -> MutexGuard<'_, Vec<(CUcontext, CUdeviceptr)>> {
        lock(&self.plain)
    }

    fn held(&self) -> MutexGuard<'_, HeldSpares> {
        lock(&self.held)
    }

    fn lock_pool(&self) -> MutexGuard<'_, Option<CUmemoryPool>> {
        lock(&self.pool)
    }
}
