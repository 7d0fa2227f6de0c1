//! The living contexts of the process, and the end of a context or a stream, as far as managers and
//! streams go. Other subsystems are told by the hook.

use std::time::Duration;

use wm_abi::{CUcontext, CUdevice};
use wm_driver::{Api, StreamId};

use super::devices::{active_primary, device_count};
use super::tables::{REGISTRY, all};
use crate::process::{driver, streams};

/// The longest that a call which ends a context waits for calls of ours in it. They take
/// microseconds, and longer if the system gives the processor to another thread meanwhile. A call
/// in a context that has ended may crash the driver.
const UNAWARE: Duration = Duration::from_secs(1);

/// All contexts of the process. `None` where they are not known. Work of any of them may touch the
/// memory of any device, as a copy between devices does. The caller sees to it that a thread which
/// ends a context waits for it ([`suspend_context`]).
pub(crate) fn living_contexts() -> Option<Vec<CUcontext>> {
    let mut living = REGISTRY.living_contexts.made()?;
    for device in active_devices()? {
        living.push(active_primary(device)?);
    }
    Some(living)
}

/// How many contexts there are. `None` where that is not known.
pub(crate) fn count_contexts() -> Option<usize> {
    Some(active_devices()?.len() + REGISTRY.living_contexts.count())
}

/// Devices whose primary context is active.
fn active_devices() -> Option<Vec<CUdevice>> {
    let mut active = Vec::new();
    for device in 0..device_count()? {
        let (_, is_active) = driver().primary_ctx_state(device).ok()?;
        if is_active != 0 {
            active.push(device);
        }
    }
    Some(active)
}

/// A call that may end a context is about to be made: managers do not use the context until the
/// outcome is known.
pub(crate) fn suspend_context(context: CUcontext) {
    REGISTRY.living_contexts.suspend(context);
    all().for_each(|manager| manager.gpu().suspend_context(context));
    streams().await_unaware(UNAWARE);
}

/// The context did not end.
pub(crate) fn resume_context(context: CUcontext) {
    REGISTRY.living_contexts.resume(context);
    all().for_each(|manager| manager.gpu().resume_context(context));
}

/// A context has ended, and its work, streams, captures and events with it.
pub(crate) fn end_context(context: CUcontext) {
    let ids = streams().of_context(context);
    for manager in all() {
        ids.iter().for_each(|id| manager.stream_ended(*id));
        manager.gpu().forget_context(context);
    }
    streams().captures_ended_in(context);
    streams().forget(&ids);
    REGISTRY.living_contexts.forget(context);
}

/// Streams are about to be destroyed: blocks freed on them get events that outlive them.
pub(crate) fn retire_streams(ids: &[StreamId]) {
    if ids.is_empty() {
        return;
    }
    for manager in all() {
        ids.iter().for_each(|id| manager.retire_stream(*id));
    }
    streams().forget(ids);
}
