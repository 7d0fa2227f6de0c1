//! Calls of the driver that do in the program's place what its own allocation and free would have done, besides giving and
//! taking memory.
//!
//! * `cuMemFree` waits for the work of the block's context, that of its green contexts included, and returns the error of
//!   work that failed.
//! * In a blocking stream a stream-ordered allocation or free is an action: the stream waits for the legacy default stream. In
//!   the legacy default stream a free is one: the blocking streams wait for it, and it for them.
//!
//! Our own serve memory without such a call. So where a program could tell, one is made that does the same: the driver's own, on
//! memory of no use, or an event where that is as good. What was seen on an H200 stands in `docs/ordering.md`.

use std::sync::{Mutex, OnceLock, PoisonError};

use wm_abi::*;

use crate::device::{Device, call};
use crate::gpu::{Gpu, Result};
use crate::scope::{Current, Relaxed};

/// Bytes of an allocation that only its call is wanted of.
const LEAST: usize = 256;

/// Allocations of no use.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    /// Of `cuMemAlloc`, to be freed in a context where the driver's own call must answer.
    plain: Mutex<Vec<(CUcontext, CUdeviceptr)>>,
    /// A pool of ours; null where the driver makes none.
    pool: OnceLock<CUmemoryPool>,
}

impl Spares {
    /// A context is gone, and what was allocated in it.
    pub(crate) fn forget(&self, context: CUcontext) {
        let mut plain = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        plain.retain(|(owner, _)| *owner != context);
    }
}

impl Device {
    /// Waits as the driver's `cuMemFree` does for a block that was allocated in `context`.
    ///
    /// # Errors
    /// Its own: of work that failed, and of a stream that is being captured in a mode that forbids the call.
    pub fn wait_as_free(&self, context: CUcontext) -> Result<()> {
        if self.streams().capturing() {
            // What a capture forbids, and whether it is lost, is for the driver to say.
            return self.free_spare(context);
        }
        let _current = Current::make(self.driver(), context)?;
        call!(self, cuCtxSynchronize())
    }

    fn free_spare(&self, context: CUcontext) -> Result<()> {
        let _current = Current::make(self.driver(), context)?;
        let spare = self.take_spare(context)?;
        // SAFETY: an allocation of ours.
        let freed = unsafe { self.driver().get::<symbol::cuMemFree_v2>()(spare) }.ok();
        if freed.is_err() {
            self.spares().plain.lock().unwrap_or_else(PoisonError::into_inner).push((context, spare));
        }
        freed
    }

    fn take_spare(&self, context: CUcontext) -> Result<CUdeviceptr> {
        let mut spares = self.spares().plain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(position) = spares.iter().position(|(owner, _)| *owner == context) {
            return Ok(spares.swap_remove(position).1);
        }
        drop(spares);
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        let mut spare = 0;
        // SAFETY: the out-pointer is to a live local.
        unsafe { self.driver().get::<symbol::cuMemAlloc_v2>()(&mut spare, LEAST) }.ok()?;
        Ok(spare)
    }

    /// Does in a stream of `context` what a stream-ordered free does there, and in a blocking stream an allocation, whatever it
    /// gives or takes. The context is current, or the stream is named by a handle of its own.
    ///
    /// # Errors
    /// The driver's.
    pub fn act_in(&self, context: CUcontext, stream: CUstream) -> Result<()> {
        // In the legacy default stream an event is an action too, and takes less time; in a blocking stream it waits for nothing.
        // Beside a capture the driver's own calls answer as they always do.
        if stream != CUstream::LEGACY || self.streams().capturing() {
            return self.allocate_and_free(stream);
        }
        let recorded = self.record_unasked(context, stream);
        recorded.map(|event| self.recycle(event)).or_else(|_| self.allocate_and_free(stream))
    }

    fn allocate_and_free(&self, stream: CUstream) -> Result<()> {
        let pool = *self.spares().pool.get_or_init(|| self.make_pool().unwrap_or(CUmemoryPool::NULL));
        if pool.is_null() {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        let mut spare = 0;
        call!(self, cuMemAllocFromPoolAsync(&mut spare, LEAST, pool, stream))?;
        call!(self, cuMemFreeAsync(spare, stream))
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
        let mut pool = CUmemoryPool::NULL;
        // SAFETY: pointers to live locals.
        unsafe { self.driver().get::<symbol::cuMemPoolCreate>()(&mut pool, &properties) }.ok()?;
        let (mut keep, mut off) = (u64::MAX, 0i32);
        let set = |attribute, value: *mut std::ffi::c_void| {
            // SAFETY: each attribute is read from a live local of its type. A pool without it works, and gives back memory sooner.
            let _ = unsafe { self.driver().get::<symbol::cuMemPoolSetAttribute>()(pool, attribute, value) };
        };
        set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut keep).cast());
        set(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, (&raw mut off).cast());
        set(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, (&raw mut off).cast());
        Ok(pool)
    }
}
