//! Streams besides its own that have used a tensor's memory (`Tensor.record_stream`): its own
//! stream waits for them, on the GPU, before the memory is freed in it. So does PyTorch's own back
//! end.

use wm_abi::{CU_EVENT_DISABLE_TIMING, CUcontext, CUevent, CUresult, CUstream, symbol};

use crate::entry::trampolines::exported;
use crate::torch::TensorUser;
use crate::{hooks, registry};

/// The stream that a handle means to the calling thread.
pub(super) fn of_handle(stream: CUstream) -> TensorUser {
    let stream = if stream.is_null() { CUstream::LEGACY } else { stream };
    TensorUser { stream, context: registry::context_of_stream(stream).unwrap_or_default() }
}

/// Makes `stream` wait for the work that is now in the user's stream. A stream that is being
/// captured has no work of its own to wait for.
///
/// # Errors
/// The driver's.
pub(super) fn wait_for(stream: CUstream, user: &TensorUser) -> Result<(), CUresult> {
    if user.context.is_null() || hooks::is_captured(user.stream) {
        return Ok(());
    }
    let event = record(user)?;
    // SAFETY: handles that the driver checks. An event that is destroyed is still waited for.
    unsafe {
        let waits = exported::<symbol::cuStreamWaitEvent>()(stream, event, 0).ok();
        let _ = exported::<symbol::cuEventDestroy_v2>()(event);
        waits
    }
}

/// An event behind all that is in the user's stream.
fn record(user: &TensorUser) -> Result<CUevent, CUresult> {
    let (mut event, mut popped) = (CUevent::NULL, CUcontext::NULL);
    // SAFETY: the context of a stream that lives; out-pointers to live locals. The pushed
    // context is popped.
    unsafe {
        exported::<symbol::cuCtxPushCurrent_v2>()(user.context).ok()?;
        let recorded = exported::<symbol::cuEventCreate>()(&mut event, CU_EVENT_DISABLE_TIMING)
            .ok()
            .and_then(|()| exported::<symbol::cuEventRecord>()(event, user.stream).ok());
        let _ = exported::<symbol::cuCtxPopCurrent_v2>()(&mut popped);
        recorded.map(|()| event)
    }
}
