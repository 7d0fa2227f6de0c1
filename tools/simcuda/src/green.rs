//! Green contexts: a share of a device's multiprocessors, beside the primary context.
//!
//! A green context is a context of its own for streams and waits, and the primary context for
//! memory. The primary context waits for its green ones, and not they for it. Kernels run on the
//! processor, so the share itself has no effect here.
//!
//! Invariant: the streams of a destroyed green context still know it, and their calls return
//! `CONTEXT_IS_DESTROYED`.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;
use std::sync::{Arc, LazyLock, PoisonError};

use wm_abi::{CU_STREAM_NON_BLOCKING, CUcontext, CUdevice, CUevent, CUresult, CUstream};

use crate::capture;
use crate::context::Context;
use crate::entry::{Outcome, exports, get, get_all, put, put_optional, require};
use crate::event;
use crate::registry::Registry;
use crate::state::driver;
use crate::stream::Stream;

/// One green context.
#[derive(Debug)]
struct Green {
    context: Arc<Context>,
}

static GREENS: LazyLock<Registry<Green>> = LazyLock::new(|| Registry::new(0x5110));
/// Multiprocessors of each descriptor.
static DESCRIPTORS: LazyLock<Registry<c_uint>> = LazyLock::new(|| Registry::new(0x5111));

/// `CUdevResource` of multiprocessors.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Resource {
    kind: c_uint,
    padding: [u8; 92],
    count: c_uint,
    least: c_uint,
    alignment: c_uint,
    flags: c_uint,
    rest: [u8; 24],
    next: usize,
}

const _: () = assert!(offset_of!(Resource, count) == 96 && size_of::<Resource>() == 144);

/// `CU_DEV_RESOURCE_TYPE_SM`.
const MULTIPROCESSORS: c_uint = 1;
/// Multiprocessors of a device, and of the smallest group that can be cut off.
const ALL: c_uint = 132;
const GROUP: c_uint = 8;

impl Resource {
    fn of(count: c_uint) -> Self {
        let (padding, rest) = ([0; 92], [0; 24]);
        Self {
            kind: MULTIPROCESSORS,
            padding,
            count,
            least: GROUP,
            alignment: GROUP,
            flags: 0,
            rest,
            next: 0,
        }
    }

    fn check(&self) -> Outcome {
        require(self.kind == MULTIPROCESSORS, CUresult::INVALID_RESOURCE_TYPE)
    }
}

fn whole(kind: c_uint) -> Outcome<Resource> {
    require(kind == MULTIPROCESSORS, CUresult::NOT_SUPPORTED)?;
    Ok(Resource::of(ALL))
}

/// The size of each of at most `wanted` groups, and their number.
fn split(input: &Resource, least: c_uint, wanted: c_uint) -> Outcome<(c_uint, c_uint)> {
    input.check()?;
    let size = least.max(1).checked_next_multiple_of(GROUP).ok_or(CUresult::INVALID_VALUE)?;
    let possible = input.count / size;
    require(possible > 0, CUresult::INVALID_RESOURCE_CONFIGURATION)?;
    Ok((size, possible.min(wanted)))
}

fn of(handle: *mut c_void) -> Outcome<Arc<Green>> {
    let green = GREENS.get(handle as usize).ok_or(CUresult::INVALID_CONTEXT)?;
    require(!green.context.is_detached(), CUresult::CONTEXT_IS_DESTROYED)?;
    Ok(green)
}

/// Retains the primary context while the green one lives.
fn create(descriptor: usize, ordinal: CUdevice, flags: c_uint) -> Outcome<usize> {
    DESCRIPTORS.get(descriptor).ok_or(CUresult::INVALID_VALUE)?;
    require(flags <= 1, CUresult::INVALID_VALUE)?;
    let device = driver().device(ordinal)?;
    let mut primary = device.primary.lock().unwrap_or_else(PoisonError::into_inner);
    primary.retain(device.ordinal);
    let parent = primary.context().ok_or(CUresult::UNKNOWN)?;
    drop(primary);
    let (handle, _) = GREENS.insert(|handle| {
        let context = Context::green(&parent, handle);
        Green { context }
    });
    Ok(handle)
}

fn destroy(handle: *mut c_void) -> Outcome {
    let green = of(handle)?;
    green.context.detach();
    let device = &driver().devices[green.context.device];
    let ended = device.primary.lock().unwrap_or_else(PoisonError::into_inner).release();
    ended.into_iter().flatten().for_each(|context| context.destroy());
    Ok(())
}

exports! {
    fn cuDeviceGetDevResource(device: CUdevice, resource: *mut c_void, type_: c_uint) |call| {
        driver().device(device)?;
        put(resource.cast(), whole(type_)?)
    }

    fn cuCtxGetDevResource(hCtx: CUcontext, resource: *mut c_void, type_: c_uint) |call| {
        call.context_or_current(hCtx)?;
        put(resource.cast(), whole(type_)?)
    }

    fn cuDevSmResourceSplitByCount(result: *mut c_void, nbGroups: *mut c_uint, input: *const c_void, remainder: *mut c_void, flags: c_uint, minCount: c_uint) |call| {
        let (from, wanted) = (get(input.cast::<Resource>())?, get(nbGroups)?);
        let (size, count) = split(&from, minCount, if result.is_null() { c_uint::MAX } else { wanted })?;
        put(nbGroups, count)?;
        if !result.is_null() {
            for i in 0..count as usize {
                put(result.cast::<Resource>().add(i), Resource::of(size))?;
            }
            put_optional(remainder.cast(), Resource::of(from.count - size * count));
        }
        Ok(())
    }

    fn cuDevResourceGenerateDesc(phDesc: *mut c_void, resources: *mut c_void, nbResources: c_uint) |call| {
        let resources = get_all(resources.cast::<Resource>(), nbResources as usize)?;
        require(!resources.is_empty(), CUresult::INVALID_VALUE)?;
        resources.iter().try_for_each(Resource::check)?;
        let count = resources.iter().map(|resource| resource.count).sum();
        put(phDesc.cast(), DESCRIPTORS.insert(|_| count).0)
    }

    fn cuGreenCtxCreate(phCtx: *mut c_void, desc: *mut c_void, dev: CUdevice, flags: c_uint) |call| {
        require(!phCtx.is_null(), CUresult::INVALID_VALUE)?;
        put(phCtx.cast(), create(desc as usize, dev, flags)?)
    }

    fn cuGreenCtxDestroy(hCtx: *mut c_void) |call| {
        destroy(hCtx)
    }

    fn cuCtxFromGreenCtx(pContext: *mut CUcontext, hCtx: *mut c_void) |call| {
        put(pContext, CUcontext(of(hCtx)?.context.handle))
    }

    fn cuGreenCtxGetId(greenCtx: *mut c_void, greenCtxId: *mut u64) |call| {
        put(greenCtxId, of(greenCtx)?.context.id)
    }

    fn cuGreenCtxStreamCreate(phStream: *mut CUstream, greenCtx: *mut c_void, flags: c_uint, priority: c_int) |call| {
        require(!phStream.is_null() && flags == CU_STREAM_NON_BLOCKING, CUresult::INVALID_VALUE)?;
        put(phStream, Stream::create(&of(greenCtx)?.context, flags, priority))
    }

    fn cuGreenCtxRecordEvent(hCtx: *mut c_void, hEvent: CUevent) |call| {
        let green = of(hCtx)?;
        capture::forbid_of_context(green.context.id)?;
        event::record_all(&green.context, hEvent)
    }

    fn cuGreenCtxWaitEvent(hCtx: *mut c_void, hEvent: CUevent) |call| {
        event::wait_all(&of(hCtx)?.context, hEvent)
    }

    fn cuStreamGetGreenCtx(hStream: CUstream, phCtx: *mut c_void) |call| {
        put(phCtx.cast(), call.stream(hStream)?.context()?.green_handle())
    }
}
