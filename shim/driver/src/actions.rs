//! Calls of the driver that do in the program's place what its own allocation and free would have
//! done, besides giving and taking memory.
//!
//! * `cuMemFree` waits for the work of the block's context, that of its green contexts included,
//!   and returns the error of work that failed.
//! * In a blocking stream a stream-ordered allocation or free is an action: the stream waits for
//!   the legacy default stream. In the legacy default stream a free is one: the blocking streams
//!   wait for it, and it for them.
//!
//! Our own serve memory without such a call. So where a program could tell, one is made that does
//! the same: the driver's own, on memory of no use, or an event where that is as good. What was
//! seen on an H200 stands in `docs/dev/ordering.md`.

use wm_abi::*;

use crate::api::scope::{Current, Relaxed};
use crate::api::{Api, PoolAttribute};
use crate::device::Device;
use crate::gpu::{Gpu, Result};
use crate::spares::StreamIdentity;

/// Bytes of an allocation that only its call is wanted of.
const LEAST: usize = 256;

impl Device {
    /// Waits as the driver's `cuMemFree` does for a block that was allocated in `context`.
    ///
    /// # Errors
    /// Its own: of work that failed, and of a stream that is being captured in a mode that forbids
    /// the call.
    pub fn wait_as_free(&self, context: CUcontext) -> Result<()> {
        let _current = Current::make(self.driver(), context)?;
        // What a capture forbids, and whether it is lost, is for the driver to say. A wait for the
        // context would break all that are under way in it, whatever their mode: so it is not made
        // in a process that captures, where another thread may begin one at any moment.
        let spare = self.streams().has_captured().then(|| self.take_spare(context));
        match spare {
            Some(Ok(spare)) => self.free_spare(context, spare),
            Some(Err(code)) if self.streams().capturing() => Err(code),
            _ => self.measured().ctx_synchronize(),
        }
    }

    fn free_spare(&self, context: CUcontext, spare: CUdeviceptr) -> Result<()> {
        let freed = self.driver().mem_free(spare);
        if freed.is_err() {
            self.spares().push_plain(context, spare);
        }
        freed
    }

    fn take_spare(&self, context: CUcontext) -> Result<CUdeviceptr> {
        if let Some(spare) = self.spares().pop_plain(context) {
            return Ok(spare);
        }
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        self.driver().mem_alloc(LEAST)
    }

    /// Does in a blocking stream of `context` what a stream-ordered allocation does there, whatever
    /// it gives. The context is current, or the stream is named by a handle of its own.
    ///
    /// # Errors
    /// The driver's.
    pub fn act_as_allocation(&self, context: CUcontext, stream: CUstream) -> Result<()> {
        let place = (context, stream);
        // Programs free what they allocate: a spare is freed in place of the next free, so that
        // each costs one call. Beside a capture nothing is held: then calls answer as they always
        // do.
        let may_hold = stream != CUstream::PER_THREAD && !self.streams().capturing();
        let has_room = may_hold && self.spares().has_room(place);
        if !has_room && let Some(freed) = self.free_held(place) {
            return freed;
        }
        let spare = self.allocate_spare(stream)?;
        if !has_room {
            return self.free_in(spare, stream);
        }
        self.spares().push_held(place, spare);
        Ok(())
    }

    /// The same for a stream-ordered free, also in the legacy default stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn act_as_free(&self, context: CUcontext, stream: CUstream) -> Result<()> {
        if let Some(freed) = self.free_held((context, stream)) {
            return freed;
        }
        // In the legacy default stream an event is an action too, and takes less time; in a
        // blocking stream it waits for nothing. Beside a capture the driver's own calls answer as
        // they always do.
        if stream == CUstream::LEGACY
            && !self.streams().capturing()
            && let Ok(event) = self.record_unasked(context, stream)
        {
            self.recycle(event);
            return Ok(());
        }
        // An allocation alone would be no action where nothing was done in the stream before.
        let spare = self.allocate_spare(stream)?;
        self.free_in(spare, stream)
    }

    /// A stream is about to be destroyed: frees in it what it holds.
    pub fn end_stream(&self, stream: CUstream) {
        if self.streams().capturing() {
            return;
        }
        let spares = self.spares().drain_stream(stream);
        for spare in spares {
            // What cannot be freed there is left: some bytes of a pool of ours.
            let _left = self.free_in(spare, stream);
        }
    }

    /// Frees one spare that the stream holds, if it holds one. Beside a capture nothing is taken:
    /// then calls answer as they always do.
    fn free_held(&self, place: StreamIdentity) -> Option<Result<()>> {
        if self.streams().capturing() {
            return None;
        }
        let spare = self.spares().pop_held(place)?;
        Some(self.free_in(spare, place.1))
    }

    fn allocate_spare(&self, stream: CUstream) -> Result<CUdeviceptr> {
        let pool = self.pool_of_spares();
        if pool.is_null() {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        self.measured().mem_alloc_from_pool_async(LEAST, pool, stream)
    }

    fn pool_of_spares(&self) -> CUmemoryPool {
        let known = self.spares().pool();
        known.unwrap_or_else(|| self.spares().set_pool(self.make_pool().unwrap_or(CUmemoryPool::NULL)))
    }

    fn free_in(&self, spare: CUdeviceptr, stream: CUstream) -> Result<()> {
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        self.measured().mem_free_async(spare, stream)
    }

    /// A pool that adds no order of its own: no stream gets what another one may still be using.
    fn make_pool(&self) -> Result<CUmemoryPool> {
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        let properties = CUmemPoolProps {
            allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: 0,
            location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: self.ordinal() },
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            gpuDirectRDMACapable: 0,
            reserved: [0; 53],
        };
        let pool = self.driver().mem_pool_create(&properties)?;
        // A pool without these attributes works, and gives back memory sooner.
        let _ = self.driver().mem_pool_set_attribute(pool, PoolAttribute::RELEASE_THRESHOLD, u64::MAX);
        for order in
            [PoolAttribute::REUSE_FOLLOW_EVENT_DEPENDENCIES, PoolAttribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES]
        {
            let _ = self.driver().mem_pool_set_attribute(pool, order, 0);
        }
        Ok(pool)
    }
}
