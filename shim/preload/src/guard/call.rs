//! Calls of the program as guards see them: allocations, frees and waits, and which work each is
//! ordered with.

use wm_abi::{CUcontext, CUstream};
use wm_driver::StreamId;
use wm_memory::Order;

use crate::process::streams;

/// A call of the program that gives memory out or takes it back.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// The driver function.
    pub(crate) name: &'static str,
    /// Which work it is ordered with.
    pub(crate) order: CallOrder,
}

/// The work that a call is ordered with.
#[derive(Clone, Copy)]
pub(crate) enum CallOrder {
    /// All work of the device.
    Device,
    /// This stream; the null handle has been replaced by the stream that it stands for.
    Stream(CUcontext, CUstream),
    /// A stream that we cannot name.
    Unknown,
}

impl Call {
    /// A call that names no stream.
    pub(crate) fn plain(name: &'static str) -> Self {
        Self { name, order: CallOrder::Device }
    }

    /// A call in a stream of a context.
    pub(crate) fn ordered(name: &'static str, context: Option<CUcontext>, stream: CUstream) -> Self {
        let order = context.map_or(CallOrder::Unknown, |context| CallOrder::Stream(context, stream));
        Self { name, order }
    }
}

/// The manager's name for a stream; a per-thread one has a name of its own here, although its
/// blocks are ordered by the device.
pub(super) fn identify(order: Order, context: CUcontext, stream: CUstream) -> StreamId {
    order.stream().unwrap_or_else(|| streams().identify(context, stream))
}

/// The work that the host waits for.
pub(crate) enum SyncTarget {
    /// A stream of a context.
    Stream(CUcontext, CUstream),
    /// All of a context's work.
    Context(CUcontext),
    /// An event: the stream that it was recorded in is not known.
    Event,
}
