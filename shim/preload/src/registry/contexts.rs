//! The end of a context or a stream, as far as managers and streams go. Other subsystems are
//! told by the hook.

use wm_abi::CUcontext;
use wm_driver::StreamId;

use super::tables::{REGISTRY, all};
use crate::process::streams;

/// A call that may end a context is about to be made: managers do not use the context until the
/// outcome is known.
pub(crate) fn suspend_context(context: CUcontext) {
    REGISTRY.living_contexts.suspend(context);
    all().for_each(|manager| manager.gpu().suspend_context(context));
    streams().await_unaware();
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
