//! The driver's functions about contexts.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use wm_abi::{CUcontext, CUdevice, CUevent, CUresult};

use crate::capture;
use crate::context::{Context, check_flags, current_handle, pop_current, push_current, set_current};
use crate::entry::{Outcome, exports, put, put_optional, require};
use crate::memory::Place;
use crate::pool;
use crate::state::driver;

fn create(flags: u32, ordinal: CUdevice) -> Outcome<CUcontext> {
    check_flags(flags)?;
    let device = driver().device(ordinal)?.ordinal;
    let handle = Context::create(device, flags, None).handle;
    push_current(handle);
    Ok(CUcontext(handle))
}

fn destroy(handle: CUcontext) -> Outcome {
    require(!handle.is_null(), CUresult::INVALID_VALUE)?;
    let context = driver().contexts.get(handle.0).ok_or(CUresult::INVALID_CONTEXT)?;
    require(!context.primary && context.green_handle() == 0, CUresult::INVALID_CONTEXT)?;
    context.destroy();
    if current_handle() == Some(handle.0) {
        pop_current();
    }
    Ok(())
}

/// Removes one user of the current context; the last one ends it.
fn detach(handle: CUcontext) -> Outcome {
    require(current_handle() == Some(handle.0), CUresult::INVALID_CONTEXT)?;
    let context = Context::of(handle)?;
    require(!context.primary && context.green_handle() == 0, CUresult::INVALID_CONTEXT)?;
    if context.users.fetch_sub(1, Ordering::Relaxed) == 1 { destroy(handle) } else { Ok(()) }
}

fn retain(ordinal: CUdevice) -> Outcome<CUcontext> {
    let device = driver().device(ordinal)?;
    let mut primary = device.primary.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(CUcontext(primary.retain(device.ordinal)))
}

fn release(ordinal: CUdevice) -> Outcome {
    let device = driver().device(ordinal)?;
    let ended = device.primary.lock().unwrap_or_else(PoisonError::into_inner).release()?;
    ended.iter().for_each(|context| context.destroy());
    Ok(())
}

/// Ends the primary context despite all its users.
fn reset(ordinal: CUdevice) -> Outcome {
    let device = driver().device(ordinal)?;
    let mut primary = device.primary.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = primary.context();
    primary.references = 0;
    drop(primary);
    ended.iter().for_each(|context| context.destroy());
    Ok(())
}

fn set_flags(ordinal: CUdevice, flags: u32) -> Outcome {
    check_flags(flags)?;
    let device = driver().device(ordinal)?;
    let mut primary = device.primary.lock().unwrap_or_else(PoisonError::into_inner);
    primary.flags = flags;
    if let Some(context) = primary.context() {
        context.flags.store(flags, Ordering::Relaxed);
    }
    Ok(())
}

fn push(handle: CUcontext) -> Outcome {
    require(!handle.is_null(), CUresult::INVALID_VALUE)?;
    driver().contexts.get(handle.0).ok_or(CUresult::INVALID_CONTEXT)?;
    push_current(handle.0);
    Ok(())
}

/// The error for a limit that this driver does not have, and for a number that is no limit.
fn no_limit(limit: c_uint) -> CUresult {
    // CUDA 13 has ten limits.
    if limit < 10 { CUresult::UNSUPPORTED_LIMIT } else { CUresult::INVALID_VALUE }
}

fn synchronize(context: &Context) -> Outcome {
    capture::forbid_of_context(context.id)?;
    capture::forbid_unsafe()?;
    context.synchronize()?;
    pool::trim_all(Place::Device(context.device));
    Ok(())
}

fn device_of(handle: CUcontext) -> Outcome<CUdevice> {
    if !handle.is_null() {
        return Ok(driver().contexts.get(handle.0).ok_or(CUresult::INVALID_CONTEXT)?.device as CUdevice);
    }
    let current = current_handle().ok_or(CUresult::INVALID_CONTEXT)?;
    Ok(driver().contexts.get(current).ok_or(CUresult::CONTEXT_IS_DESTROYED)?.device as CUdevice)
}

exports! {
    fn cuCtxCreate(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) |call| {
        require(!pctx.is_null(), CUresult::INVALID_VALUE)?;
        put(pctx, create(flags, dev)?)
    }

    fn cuCtxCreate_v2(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) |call| {
        require(!pctx.is_null(), CUresult::INVALID_VALUE)?;
        put(pctx, create(flags, dev)?)
    }

    fn cuCtxCreate_v3(pctx: *mut CUcontext, paramsArray: *mut c_void, numParams: c_int, flags: c_uint, dev: CUdevice) |call| {
        require(!pctx.is_null(), CUresult::INVALID_VALUE)?;
        require(numParams == 0, CUresult::UNSUPPORTED_EXEC_AFFINITY)?;
        put(pctx, create(flags, dev)?)
    }

    fn cuCtxCreate_v4(pctx: *mut CUcontext, ctxCreateParams: *mut c_void, flags: c_uint, dev: CUdevice) |call| {
        require(!pctx.is_null(), CUresult::INVALID_VALUE)?;
        require(ctxCreateParams.is_null(), CUresult::NOT_SUPPORTED)?;
        put(pctx, create(flags, dev)?)
    }

    fn cuCtxDestroy(ctx: CUcontext) |call| {
        destroy(ctx)
    }

    fn cuCtxDestroy_v2(ctx: CUcontext) |call| {
        destroy(ctx)
    }

    fn cuCtxAttach(pctx: *mut CUcontext, flags: c_uint) |call| {
        let context = call.context()?;
        require(!pctx.is_null() && flags == 0, CUresult::INVALID_VALUE)?;
        context.users.fetch_add(1, Ordering::Relaxed);
        put(pctx, CUcontext(context.handle))
    }

    fn cuCtxDetach(ctx: CUcontext) |call| {
        detach(ctx)
    }

    fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice) |call| {
        require(!pctx.is_null(), CUresult::INVALID_VALUE)?;
        put(pctx, retain(dev)?)
    }

    fn cuDevicePrimaryCtxRelease(dev: CUdevice) |call| {
        release(dev)
    }

    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) |call| {
        release(dev)
    }

    fn cuDevicePrimaryCtxReset(dev: CUdevice) |call| {
        reset(dev)
    }

    fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) |call| {
        reset(dev)
    }

    fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: c_uint) |call| {
        set_flags(dev, flags)
    }

    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint) |call| {
        set_flags(dev, flags)
    }

    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int) |call| {
        let device = driver().device(dev)?;
        let primary = device.primary.lock().unwrap_or_else(PoisonError::into_inner);
        put(flags, primary.flags)?;
        put(active, c_int::from(primary.references > 0))
    }

    fn cuCtxPushCurrent(ctx: CUcontext) |call| {
        push(ctx)
    }

    fn cuCtxPushCurrent_v2(ctx: CUcontext) |call| {
        push(ctx)
    }

    fn cuCtxPopCurrent(pctx: *mut CUcontext) |call| {
        let handle = pop_current().ok_or(CUresult::INVALID_CONTEXT)?;
        put_optional(pctx, CUcontext(handle));
        Ok(())
    }

    fn cuCtxPopCurrent_v2(pctx: *mut CUcontext) |call| {
        let handle = pop_current().ok_or(CUresult::INVALID_CONTEXT)?;
        put_optional(pctx, CUcontext(handle));
        Ok(())
    }

    fn cuCtxSetCurrent(ctx: CUcontext) |call| {
        require(ctx.is_null() || driver().contexts.get(ctx.0).is_some(), CUresult::INVALID_CONTEXT)?;
        set_current(ctx.0);
        Ok(())
    }

    fn cuCtxGetCurrent(pctx: *mut CUcontext) |call| {
        put(pctx, CUcontext(current_handle().unwrap_or(0)))
    }

    fn cuCtxGetDevice(device: *mut CUdevice) |call| {
        put(device, device_of(CUcontext::NULL)?)
    }

    fn cuCtxGetDevice_v2(device: *mut CUdevice, ctx: CUcontext) |call| {
        put(device, device_of(ctx)?)
    }

    fn cuCtxGetFlags(flags: *mut c_uint) |call| {
        put(flags, call.context()?.flags())
    }

    fn cuCtxSetFlags(flags: c_uint) |call| {
        check_flags(flags)?;
        call.context()?.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }

    fn cuCtxGetId(ctx: CUcontext, ctxId: *mut u64) |call| {
        put(ctxId, call.context_or_current(ctx)?.id)
    }

    fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut c_uint) |call| {
        call.context_or_current(ctx)?;
        put(version, 3020)
    }

    fn cuCtxSynchronize() |call| {
        synchronize(&*call.context()?)
    }

    fn cuCtxSynchronize_v2(ctx: CUcontext) |call| {
        synchronize(&*call.context_or_current(ctx)?)
    }

    fn cuCtxGetStreamPriorityRange(leastPriority: *mut c_int, greatestPriority: *mut c_int) |call| {
        call.context()?;
        put_optional(leastPriority, 0);
        put_optional(greatestPriority, -5);
        Ok(())
    }

    fn cuCtxGetLimit(pvalue: *mut usize, limit: c_uint) |call| {
        let context = call.context()?;
        let limits = context.limits.lock().unwrap_or_else(PoisonError::into_inner);
        put(pvalue, *limits.get(limit as usize).ok_or(no_limit(limit))?)
    }

    fn cuCtxSetLimit(limit: c_uint, value: usize) |call| {
        let context = call.context()?;
        let mut limits = context.limits.lock().unwrap_or_else(PoisonError::into_inner);
        *limits.get_mut(limit as usize).ok_or(no_limit(limit))? = value;
        Ok(())
    }

    fn cuCtxGetCacheConfig(pconfig: *mut c_uint) |call| {
        call.context()?;
        put(pconfig, 0)
    }

    fn cuCtxSetCacheConfig(config: c_uint) |call| {
        call.context()?;
        require(config <= 3, CUresult::INVALID_VALUE)
    }

    fn cuCtxGetSharedMemConfig(pConfig: *mut c_uint) |call| {
        call.context()?;
        put(pConfig, 1)
    }

    fn cuCtxSetSharedMemConfig(config: c_uint) |call| {
        call.context()?;
        require(config <= 2, CUresult::INVALID_VALUE)
    }

    fn cuCtxResetPersistingL2Cache() |call| {
        call.context()?;
        Ok(())
    }

    fn cuCtxEnablePeerAccess(peerContext: CUcontext, Flags: c_uint) |call| {
        let context = call.context()?;
        require(Flags == 0, CUresult::INVALID_VALUE)?;
        let peer = Context::of(peerContext)?;
        require(peer.device != context.device, CUresult::PEER_ACCESS_UNSUPPORTED)?;
        let fresh = context.peers.lock().unwrap_or_else(PoisonError::into_inner).insert(peer.handle);
        require(fresh, CUresult::PEER_ACCESS_ALREADY_ENABLED)
    }

    fn cuCtxDisablePeerAccess(peerContext: CUcontext) |call| {
        let context = call.context()?;
        let peer = Context::of(peerContext)?;
        let known = context.peers.lock().unwrap_or_else(PoisonError::into_inner).remove(&peer.handle);
        require(known, CUresult::PEER_ACCESS_NOT_ENABLED)
    }

    fn cuCtxRecordEvent(hCtx: CUcontext, hEvent: CUevent) |call| {
        // A null handle does not mean the current context in this function only.
        let context = Context::of(hCtx)?;
        capture::forbid_of_context(context.id)?;
        crate::event::record_all(&context, hEvent)
    }

    fn cuCtxWaitEvent(hCtx: CUcontext, hEvent: CUevent) |call| {
        let context = call.context_or_current(hCtx)?;
        crate::event::wait_all(&context, hEvent)
    }
}
