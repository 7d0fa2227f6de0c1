//! The driver's functions about streams.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use wm_abi::{CU_STREAM_NON_BLOCKING, CUcontext, CUdevice, CUevent, CUresult, CUstream};

use crate::callback;
use crate::capture;
use crate::entry::{Outcome, exports, put, put_optional, require};
use crate::event;
use crate::graph::Kind;
use crate::lane::Work;
use crate::memory::Place;
use crate::pool;
use crate::state::driver;
use crate::stream::Stream;

/// A host function and its argument, for a stream to call.
#[derive(Clone, Copy)]
struct HostFunction {
    function: *mut c_void,
    argument: *mut c_void,
}

// SAFETY: the program gives both to be used from another thread.
unsafe impl Send for HostFunction {}
// SAFETY: as above.
unsafe impl Sync for HostFunction {}

impl HostFunction {
    /// # Safety
    /// The program passed a function of this signature.
    unsafe fn call(self) {
        // SAFETY: by contract.
        let function: unsafe extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(self.function) };
        // SAFETY: by contract.
        callback::run(|| unsafe { function(self.argument) });
    }

    /// As [`Self::call`], for functions that also get the stream and its state.
    ///
    /// # Safety
    /// As for [`Self::call`].
    unsafe fn call_with_status(self, stream: CUstream) {
        type Callback = unsafe extern "C" fn(CUstream, CUresult, *mut c_void);
        // SAFETY: by contract.
        let function: Callback = unsafe { std::mem::transmute(self.function) };
        // SAFETY: by contract.
        callback::run(|| unsafe { function(stream, CUresult::SUCCESS, self.argument) });
    }
}

/// Work that calls a host function.
///
/// # Safety
/// The program passed a function that takes one pointer.
pub(crate) unsafe fn host_work(function: *mut c_void, argument: *mut c_void) -> Work {
    let host = HostFunction { function, argument };
    Arc::new(move || {
        // SAFETY: by contract.
        unsafe { host.call() };
        Ok(())
    })
}

fn create(call: &crate::entry::Call, flags: u32, priority: i32) -> Outcome<CUstream> {
    require(flags & !CU_STREAM_NON_BLOCKING == 0, CUresult::INVALID_VALUE)?;
    Ok(Stream::create(&call.context()?, flags, priority))
}

/// Returns at once; queued work still runs.
fn destroy(handle: CUstream) -> Outcome {
    let stream = driver().streams.get(handle.0).ok_or(CUresult::INVALID_HANDLE)?;
    require(!stream.is_detached(), CUresult::CONTEXT_IS_DESTROYED)?;
    driver().streams.remove(handle.0).ok_or(CUresult::INVALID_HANDLE)?;
    capture::end_of_stream(&stream);
    Ok(())
}

exports! {
    fn cuStreamCreate(phStream: *mut CUstream, Flags: c_uint) |call| {
        require(!phStream.is_null(), CUresult::INVALID_VALUE)?;
        put(phStream, create(call, Flags, 0)?)
    }

    fn cuStreamCreateWithPriority(phStream: *mut CUstream, flags: c_uint, priority: c_int) |call| {
        require(!phStream.is_null(), CUresult::INVALID_VALUE)?;
        put(phStream, create(call, flags, priority)?)
    }

    fn cuStreamDestroy(hStream: CUstream) |call| {
        destroy(hStream)
    }

    fn cuStreamDestroy_v2(hStream: CUstream) |call| {
        destroy(hStream)
    }

    fn cuStreamQuery + cuStreamQuery_ptsz(hStream: CUstream) |call| {
        let stream = call.stream(hStream)?;
        capture::forbid_unsafe()?;
        require(stream.is_idle()?, CUresult::NOT_READY)
    }

    fn cuStreamSynchronize + cuStreamSynchronize_ptsz(hStream: CUstream) |call| {
        let stream = call.stream(hStream)?;
        capture::forbid_unsafe()?;
        stream.synchronize()?;
        pool::trim_all(Place::Device(stream.context()?.device));
        Ok(())
    }

    fn cuStreamWaitEvent + cuStreamWaitEvent_ptsz(hStream: CUstream, hEvent: CUevent, Flags: c_uint) |call| {
        let stream = call.stream(hStream)?;
        event::wait(&stream, hEvent)
    }

    fn cuStreamGetCtx + cuStreamGetCtx_ptsz(hStream: CUstream, pctx: *mut CUcontext) |call| {
        put(pctx, CUcontext(call.stream(hStream)?.context()?.handle))
    }

    fn cuStreamGetCtx_v2 + cuStreamGetCtx_v2_ptsz(hStream: CUstream, pCtx: *mut CUcontext, pGreenCtx: *mut c_void) |call| {
        let context = call.stream(hStream)?.context()?;
        put_optional(pGreenCtx.cast::<usize>(), context.green_handle());
        put(pCtx, CUcontext(context.owner_handle()))
    }

    fn cuStreamGetDevice + cuStreamGetDevice_ptsz(hStream: CUstream, device: *mut CUdevice) |call| {
        put(device, call.stream(hStream)?.context()?.device as CUdevice)
    }

    fn cuStreamGetFlags + cuStreamGetFlags_ptsz(hStream: CUstream, flags: *mut c_uint) |call| {
        put(flags, call.stream(hStream)?.flags)
    }

    fn cuStreamGetPriority + cuStreamGetPriority_ptsz(hStream: CUstream, priority: *mut c_int) |call| {
        put(priority, call.stream(hStream)?.priority)
    }

    fn cuStreamGetId + cuStreamGetId_ptsz(hStream: CUstream, streamId: *mut u64) |call| {
        put(streamId, call.stream(hStream)?.id)
    }

    fn cuLaunchHostFunc + cuLaunchHostFunc_ptsz(hStream: CUstream, fn_: *mut c_void, userData: *mut c_void) |call| {
        require(!fn_.is_null(), CUresult::INVALID_VALUE)?;
        call.stream(hStream)?.submit(Kind::HOST, host_work(fn_, userData))?;
        Ok(())
    }

    fn cuLaunchHostFunc_v2 + cuLaunchHostFunc_v2_ptsz(hStream: CUstream, fn_: *mut c_void, userData: *mut c_void, syncMode: c_uint) |call| {
        // Blocking or spinning: in both modes the stream's worker waits for the work before it.
        require(!fn_.is_null() && syncMode <= 1, CUresult::INVALID_VALUE)?;
        call.stream(hStream)?.submit(Kind::HOST, host_work(fn_, userData))?;
        Ok(())
    }

    fn cuStreamAddCallback + cuStreamAddCallback_ptsz(hStream: CUstream, callback: *mut c_void, userData: *mut c_void, flags: c_uint) |call| {
        require(!callback.is_null() && flags == 0, CUresult::INVALID_VALUE)?;
        let host = HostFunction { function: callback, argument: userData };
        let stream = call.stream(hStream)?;
        // A callback is not a host function: it cannot be captured.
        require(stream.capture().is_none(), CUresult::STREAM_CAPTURE_UNSUPPORTED)?;
        let work = move || { host.call_with_status(hStream); Ok(()) };
        stream.submit(Kind::HOST, Arc::new(work))?;
        Ok(())
    }

    fn cuStreamCopyAttributes + cuStreamCopyAttributes_ptsz(dstStream: CUstream, srcStream: CUstream) |call| {
        call.stream(dstStream)?;
        call.stream(srcStream)?;
        Ok(())
    }

    fn cuStreamAttachMemAsync + cuStreamAttachMemAsync_ptsz(hStream: CUstream, dptr: wm_abi::CUdeviceptr, length: usize, flags: c_uint) |call| {
        call.stream(hStream)?;
        let managed = driver().memory().find(dptr).is_some_and(|area| matches!(area.owner, crate::memory::Owner::Managed { .. }));
        require(managed, CUresult::INVALID_VALUE)
    }
}
