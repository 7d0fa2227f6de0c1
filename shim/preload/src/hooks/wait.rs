//! The host waits: hooked only while a trace is being recorded, for a replay to wait where the program did.

use wm_abi::symbol::{self, Symbol};
use wm_abi::{CUcontext, CUresult, CUstream};

use super::stream::DefaultStream;
use crate::state::driver;
use crate::{managers, trace};

/// `cuStreamSynchronize`, and its per-thread twin.
pub(super) unsafe fn stream<S, D>(stream: CUstream) -> CUresult
where
    S: Symbol<Function = unsafe extern "C" fn(CUstream) -> CUresult>,
    D: DefaultStream,
{
    // SAFETY: the program's argument.
    let result = unsafe { driver().get::<S>()(stream) };
    if result == CUresult::SUCCESS
        && let Some((site, order)) = managers::at(stream, D::HANDLE)
        && let Some(id) = order.stream()
    {
        trace::waited(site.manager.gpu().ordinal(), Some(id));
    }
    result
}

/// `cuCtxSynchronize`.
pub(super) fn context() -> CUresult {
    // SAFETY: takes no arguments.
    let result = unsafe { driver().get::<symbol::cuCtxSynchronize>()() };
    if result == CUresult::SUCCESS
        && let Some(site) = managers::here()
    {
        trace::waited(site.manager.gpu().ordinal(), None);
    }
    result
}

/// `cuCtxSynchronize_v2`, of a context that need not be current.
pub(super) unsafe fn named_context(context: CUcontext) -> CUresult {
    // SAFETY: the program's argument.
    let result = unsafe { driver().get::<symbol::cuCtxSynchronize_v2>()(context) };
    if result == CUresult::SUCCESS
        && let Some(device) = managers::device_of(context)
    {
        trace::waited(device, None);
    }
    result
}
