//! The ends of contexts, green contexts included, and the order in which subsystems learn of them.
//!
//! The driver is asked first. When it has ended a context, the context's work is over, and its
//! memory is freed here. If the driver refuses, nothing changes. [`ending`] has the order.

use std::ffi::{c_uint, c_void};

use wm_abi::symbol::{self, Symbol};
use wm_abi::{CUcontext, CUdevice, CUresult};
use wm_driver::Device;
use wm_memory::{Manager, Order};

use crate::hooks::memory::pool;
use crate::process::{driver, streams};
use crate::registry::{self, REGISTRY};
use crate::subsystems::PROCESS;
use crate::{guard, launches, multipath, physical};

/// `cuCtxDestroy`. Blocks of `cuMemAlloc` end with the context. Blocks of the pool belong to the
/// device, and stay.
pub(in crate::hooks) unsafe fn ctx_destroy<S>(context: CUcontext) -> CUresult
where
    S: Symbol<Function = unsafe extern "C" fn(CUcontext) -> CUresult>,
{
    // SAFETY: the program's argument.
    let destroy = || unsafe { driver().get::<S>()(context) };
    if context.is_null() {
        return destroy();
    }
    check_guards(|| registry::device_of(context));
    ending(context, destroy, || true)
}

/// `cuCtxAttach`: the context has one more user.
pub(in crate::hooks) unsafe fn ctx_attach(place: *mut CUcontext, flags: c_uint) -> CUresult {
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<symbol::cuCtxAttach>()(place, flags) };
    if result == CUresult::SUCCESS {
        // SAFETY: the driver has just written a context there.
        REGISTRY.context_users.attach(unsafe { *place });
    }
    result
}

/// `cuCtxDetach`: the context ends with its last user.
pub(in crate::hooks) unsafe fn ctx_detach(context: CUcontext) -> CUresult {
    let is_last = || REGISTRY.context_users.detach(context);
    // SAFETY: the program's argument.
    ending(context, || unsafe { driver().get::<symbol::cuCtxDetach>()(context) }, is_last)
}

/// Makes a call that may end a context, and asks `has_ended` if the call succeeds.
fn ending(context: CUcontext, call: impl FnOnce() -> CUresult, has_ended: impl FnOnce() -> bool) -> CUresult {
    PROCESS.sharing.context_ends();
    PROCESS.moves.context_ends(context);
    PROCESS.guard.end_context(context);
    launches::CODE.forget_context();
    registry::suspend_context(context);
    let home = multipath::before_end(context);
    let result = call();
    if result == CUresult::SUCCESS && has_ended() {
        multipath::end(home);
        registry::end_context(context);
        free_blocks_of(context);
        registry::all().for_each(pool::give_back_idle);
    } else {
        registry::resume_context(context);
    }
    result
}

/// Blocks of `cuMemAlloc` end with the context that they were allocated in.
fn free_blocks_of(context: CUcontext) {
    for (address, id) in REGISTRY.context_blocks.drain(context) {
        let owner = registry::owner(address);
        let is_it = |manager: &Manager<Device>| manager.block(address).is_some_and(|block| block.id == id);
        if let Some(manager) = owner.filter(|manager| is_it(manager)) {
            PROCESS.guard.forget(address);
            PROCESS.profile.freed(address);
            let _ = manager.free(address, Order::Device);
        }
    }
}

/// If all contexts of the device have ended, all memory that was allocated in them ends with them,
/// by CUDA's rules.
fn end_device(device: CUdevice) {
    if let Some(manager) = registry::withdraw(device) {
        PROCESS.guard.end_device(device);
        PROCESS.ipc.end_device(device);
        physical::cache().handles().iter_mut().for_each(|handles| handles.end_device(device));
        PROCESS.overflow.device_ended(manager);
        PROCESS.profile.device_ended(device);
        manager.discard();
        registry::rest(device, manager);
    }
}

/// `cuDevicePrimaryCtxReset`. The driver waits for the device's work and ends the primary context,
/// whatever its reference count.
pub(in crate::hooks) unsafe fn device_primary_ctx_reset<S>(device: CUdevice) -> CUresult
where
    S: Symbol<Function = unsafe extern "C" fn(CUdevice) -> CUresult>,
{
    // SAFETY: a function without pointers.
    let result = end_primary(device, || unsafe { driver().get::<S>()(device) }, || true);
    if result == CUresult::SUCCESS {
        PROCESS.torch.forget_retained(device);
    }
    result
}

/// `cuDevicePrimaryCtxRelease`. The last release ends the context. Only the driver has the
/// reference count, so the context's state is asked afterwards.
pub(in crate::hooks) unsafe fn device_primary_ctx_release<S>(device: CUdevice) -> CUresult
where
    S: Symbol<Function = unsafe extern "C" fn(CUdevice) -> CUresult>,
{
    // SAFETY: a function without pointers.
    end_primary(device, || unsafe { driver().get::<S>()(device) }, || !registry::is_active(device))
}

/// Makes a call that may end a device's primary context. If the program made other contexts on the
/// device, their blocks stay. The device's blocks are freed only when its work is over, because a
/// kernel that uses one would fault.
fn end_primary(
    device: CUdevice,
    call: impl FnOnce() -> CUresult,
    has_ended: impl FnOnce() -> bool,
) -> CUresult {
    check_guards(|| Some(device));
    let Some(context) = primary(device) else { return call() };
    let ended = std::cell::Cell::new(false);
    let result = ending(context, call, || {
        ended.set(has_ended());
        ended.get()
    });
    if ended.get() {
        for green in streams().greens_of(context) {
            registry::end_context(green);
            streams().forget_green(green);
        }
        end_device(device);
    }
    result
}

/// `cuCtxFromGreenCtx`: the program can work in the green context as in any other from here on.
pub(in crate::hooks) unsafe fn ctx_from_green_ctx(place: *mut CUcontext, green: *mut c_void) -> CUresult {
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<symbol::cuCtxFromGreenCtx>()(place, green) };
    if result == CUresult::SUCCESS {
        // SAFETY: the driver has just written a context there.
        let context = unsafe { *place };
        if let Some(home) = registry::device_of(context).and_then(registry::active_primary) {
            streams().note_green(context, home);
        }
    }
    result
}

/// `cuGreenCtxDestroy` does not wait: the work of the context's streams goes on.
pub(in crate::hooks) unsafe fn green_ctx_destroy(green: *mut c_void) -> CUresult {
    let mut context = CUcontext::NULL;
    // SAFETY: the driver checks the handle; the out-pointer is to a live local.
    let known = unsafe { driver().get::<symbol::cuCtxFromGreenCtx>()(&mut context, green) };
    if known == CUresult::SUCCESS {
        registry::retire_streams(&streams().of_context(context));
    }
    // SAFETY: the program's argument.
    let result = unsafe { driver().get::<symbol::cuGreenCtxDestroy>()(green) };
    if known == CUresult::SUCCESS && result == CUresult::SUCCESS {
        streams().forget_green(context);
        streams().advance_epoch();
    }
    result
}

/// Checks guarded blocks while their memory is still mapped.
fn check_guards(device: impl FnOnce() -> Option<CUdevice>) {
    if !guard::is_off() {
        device()
            .and_then(registry::existing)
            .into_iter()
            .for_each(|manager| PROCESS.guard.before_end(manager));
    }
}

/// The device's primary context, if it is active, and if we allocated or copied on the device, or
/// ask contexts for their work.
fn primary(device: CUdevice) -> Option<CUcontext> {
    let is_asked = PROCESS.moves.is_on() || PROCESS.sharing.is_on();
    if registry::existing(device).is_none() && !multipath::is_in_use() && !is_asked {
        return None;
    }
    registry::active_primary(device)
}
