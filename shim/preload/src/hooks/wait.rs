//! The host waits: a trace says so, and pools give back what is above their threshold, as the driver's do.

use wm_abi::symbol::{self, Symbol};
use wm_abi::{CUcontext, CUevent, CUresult, CUstream};

use super::pool;
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
        pool::settle(site.manager);
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
        pool::settle(site.manager);
    }
    result
}

/// `cuEventSynchronize`. Whatever the event is behind, the pool's rule is the same.
pub(super) unsafe fn event(event: CUevent) -> CUresult {
    // SAFETY: the program's argument.
    let result = unsafe { driver().get::<symbol::cuEventSynchronize>()(event) };
    if result == CUresult::SUCCESS
        && let Some(site) = managers::here()
    {
        pool::settle(site.manager);
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
        managers::known(device).into_iter().for_each(pool::settle);
    }
    result
}
