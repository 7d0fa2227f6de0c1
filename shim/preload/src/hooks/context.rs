//! Contexts: when they end, what lived in them ends.

use std::ffi::{c_int, c_uint};

use wm_abi::{CUcontext, CUdevice, CUresult, symbol};

use crate::boundary::Answer;
use crate::state::driver;
use crate::{guard, managers, multipath, owners};

/// A created context. Blocks of `cuMemAlloc` end with it; those of the pool belong to the device, and stay.
pub(super) fn destroy(context: CUcontext) -> Answer {
    if !context.is_null() {
        last_look(|| managers::device_of(context));
        multipath::end_context(context);
        owners::end(context);
        managers::end_context(context);
    }
    Answer::Pass
}

/// The device's blocks go before the context does: afterwards nothing of it can be called.
pub(super) fn reset(device: CUdevice) -> Answer {
    last_look(|| Some(device));
    multipath::end_device(device);
    end(device, primary(device));
    Answer::Pass
}

/// Only the last release ends the context, and only the driver counts. So the state is asked afterwards; blocks are
/// then forgotten without the driver's help, which has taken the rest down itself.
pub(super) fn release(device: CUdevice) -> CUresult {
    last_look(|| Some(device));
    multipath::end_device(device);
    let context = primary(device);
    // SAFETY: a function without pointers.
    let result = unsafe { driver().get::<symbol::cuDevicePrimaryCtxRelease_v2>()(device) };
    if result == CUresult::SUCCESS && !is_active(device) {
        context.into_iter().for_each(managers::drained);
        end(device, context);
    }
    result
}

/// Guarded blocks are looked at while that is still possible.
fn last_look(device: impl FnOnce() -> Option<CUdevice>) {
    if !guard::is_off() {
        device().and_then(managers::known).into_iter().for_each(guard::before_end);
    }
}

/// The primary context is gone. Where the program made other contexts on the device, their blocks stay.
fn end(device: CUdevice, primary: Option<CUcontext>) {
    let Some(manager) = managers::known(device) else { return };
    if let Some(context) = primary {
        owners::end(context);
        managers::end_context(context);
    }
    if manager.gpu().context().is_null() {
        managers::end_device(device);
    }
}

/// The device's primary context, if it is active and concerns us.
fn primary(device: CUdevice) -> Option<CUcontext> {
    if managers::known(device).is_none() || !is_active(device) {
        return None;
    }
    let mut context = CUcontext::NULL;
    // SAFETY: the out-pointer is to a live local; retaining what is active and releasing it at once changes nothing.
    let retained = unsafe {
        let retained = driver().get::<symbol::cuDevicePrimaryCtxRetain>()(&mut context, device);
        retained.ok().and_then(|()| driver().get::<symbol::cuDevicePrimaryCtxRelease_v2>()(device).ok())
    };
    retained.ok().map(|()| context)
}

fn is_active(device: CUdevice) -> bool {
    let (mut flags, mut active): (c_uint, c_int) = (0, 1);
    // SAFETY: out-pointers to live locals.
    let asked =
        unsafe { driver().get::<symbol::cuDevicePrimaryCtxGetState>()(device, &mut flags, &mut active) };
    asked != CUresult::SUCCESS || active != 0
}
