//! Driver calls that reproduce, in the program's place, the side effects of its own allocations and
//! frees.
//!
//! * `cuMemFree` waits for the work of the block's context and of its green contexts, and returns
//!   the error of work that failed.
//! * In a blocking stream a stream-ordered allocation or free is an action: the stream waits for
//!   the legacy default stream. In the legacy default stream a free is one: the blocking streams
//!   wait for it, and it for them.
//!
//! Our own allocations and frees make no such call. So where a program could notice that, we make a
//! call with the same effect: the driver's own on a spare allocation, or an event where it has the
//! same effect. `docs/dev/ordering.md` has the observations on an H200.

use wm_abi::*;

use crate::api::scope::{Current, Relaxed};
use crate::api::{Api, PoolAttribute};
use crate::device::Device;
use crate::gpu::{Gpu, Result};
use crate::spares::StreamIdentity;

/// Bytes of an allocation that is made only for the effect of its call.
const LEAST: usize = 256;

impl Device {
    /// Waits as the driver's `cuMemFree` does for a block that was allocated in `context`.
    ///
    /// # Errors
    /// The driver's: of work that failed, and of a stream under capture whose mode forbids the
    /// call.
    pub fn wait_as_free(&self, context: CUcontext) -> Result<()> {
        let _current = Current::make(self.driver(), context)?;
        // The driver decides what a capture forbids, and whether it is lost. A wait for the context
        // would break all its captures, in any mode. So in a process that captures no wait is made:
        // another thread may begin a capture at any moment.
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

    /// Has the effect that a stream-ordered allocation has in a blocking stream of `context`. The
    /// context is current, or the stream has a handle of its own.
    ///
    /// # Errors
    /// The driver's.
    pub fn act_as_allocation(&self, context: CUcontext, stream: CUstream) -> Result<()> {
        let place = (context, stream);
        // Programs free their allocations: a spare is freed in place of the next free, so that each
        // costs one call. Beside a capture no spare is held, so that calls have their usual
        // outcomes.
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
        // blocking stream it waits for no other stream. Beside a capture the driver's own calls are
        // made, so that they have their usual outcomes.
        if stream == CUstream::LEGACY
            && !self.streams().capturing()
            && let Ok(event) = self.record_unasked(context, stream)
        {
            self.recycle(event);
            return Ok(());
        }
        // An allocation alone is no action in a stream without earlier work.
        let spare = self.allocate_spare(stream)?;
        self.free_in(spare, stream)
    }

    /// A stream is about to be destroyed: frees its spares in it.
    pub fn end_stream(&self, stream: CUstream) {
        if self.streams().capturing() {
            return;
        }
        let spares = self.spares().drain_stream(stream);
        for spare in spares {
            // A spare that cannot be freed there stays: some bytes of a pool of ours.
            let _left = self.free_in(spare, stream);
        }
    }

    /// Frees one spare of the stream, if it has one. Beside a capture no spare is used, so that
    /// calls have their usual outcomes.
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

    /// A pool that adds no order of its own: a stream never gets memory that another one may still
    /// use.
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
        // A pool without these attributes works, and releases memory sooner.
        let _ = self.driver().mem_pool_set_attribute(pool, PoolAttribute::RELEASE_THRESHOLD, u64::MAX);
        for order in
            [PoolAttribute::REUSE_FOLLOW_EVENT_DEPENDENCIES, PoolAttribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES]
        {
            let _ = self.driver().mem_pool_set_attribute(pool, order, 0);
        }
        Ok(pool)
    }
}
