//! The host waits: what was freed before is then past, a trace says so, and pools give back what is above their
//! threshold, as the driver's do. Guarded blocks are looked at.
//!
//! A device on which nothing was allocated through us is of no concern here: no manager is made for a wait. What was
//! freed is marked before the wait, because another thread may free behind it.

use wm_abi::symbol::{self, Symbol};
use wm_abi::{CUcontext, CUevent, CUresult, CUstream};
use wm_driver::{Device, StreamId};
use wm_memory::{Manager, Mark};

use super::pool;
use super::stream::{DefaultStream, meant};
use crate::guard::{self, Waits, Watch};
use crate::state::driver;
use crate::{managers, trace};

/// `cuStreamSynchronize`, and its per-thread twin.
pub(super) unsafe fn stream<S, D>(stream: CUstream) -> CUresult
where
    S: Symbol<Function = unsafe extern "C" fn(CUstream) -> CUresult>,
    D: DefaultStream,
{
    let wait = managers::present_at(stream, D::HANDLE).map(|(site, order)| {
        let wait = match order.stream() {
            Some(id) => Wait::for_stream(site.manager, id),
            None => Wait::for_something(site.manager),
        };
        wait.with(&Waits::Stream(site.context, meant::<D>(stream)))
    });
    // SAFETY: the program's argument.
    over(wait, unsafe { driver().get::<S>()(stream) })
}

/// `cuCtxSynchronize`.
pub(super) fn context() -> CUresult {
    let wait = managers::present().map(|site| Wait::for_context(site.manager, site.context));
    // SAFETY: takes no arguments.
    over(wait, unsafe { driver().get::<symbol::cuCtxSynchronize>()() })
}

/// `cuCtxSynchronize_v2`, of a context that need not be current.
pub(super) unsafe fn named_context(context: CUcontext) -> CUresult {
    let manager = managers::any().then(|| managers::known(managers::device_of(context)?)).flatten();
    let wait = manager.map(|manager| Wait::for_context(manager, context));
    // SAFETY: the program's argument.
    over(wait, unsafe { driver().get::<symbol::cuCtxSynchronize_v2>()(context) })
}

/// `cuEventSynchronize`. Whatever the event is behind, the pool's rule is the same.
pub(super) unsafe fn event(event: CUevent) -> CUresult {
    let wait = managers::present().map(|site| Wait::for_something(site.manager).with(&Waits::Event));
    // SAFETY: the program's argument.
    over(wait, unsafe { driver().get::<symbol::cuEventSynchronize>()(event) })
}

/// A wait of the host that begins.
struct Wait {
    manager: &'static Manager<Device>,
    /// What is past once it has ended well.
    mark: Option<Mark>,
    /// What a trace says of it: the stream, or (`Some(None)`) the device.
    traced: Option<Option<StreamId>>,
    /// What guarded blocks are to be looked at then.
    watch: Option<Watch>,
}

impl Wait {
    fn for_stream(manager: &'static Manager<Device>, id: StreamId) -> Self {
        Self { manager, mark: Some(manager.mark(Some(id))), traced: Some(Some(id)), watch: None }
    }

    /// Where a device is used through several contexts, the wait for one says nothing of the others.
    fn for_context(manager: &'static Manager<Device>, context: CUcontext) -> Self {
        let mark = manager.gpu().is_used_through(context).then(|| manager.mark(None));
        Self { manager, mark, traced: Some(None), watch: None }.with(&Waits::Context(context))
    }

    /// For a per-thread stream or an event: what is past then is not known to us.
    fn for_something(manager: &'static Manager<Device>) -> Self {
        Self { manager, mark: None, traced: None, watch: None }
    }

    fn with(self, waits: &Waits) -> Self {
        Self { watch: guard::before_wait(waits), ..self }
    }

    fn end(self) {
        self.mark.iter().for_each(|mark| self.manager.reached(mark));
        if let Some(stream) = self.traced {
            trace::waited(self.manager.gpu().ordinal(), stream);
        }
        self.watch.into_iter().for_each(|watch| watch.end(self.manager));
        pool::settle(self.manager);
    }
}

fn over(wait: Option<Wait>, result: CUresult) -> CUresult {
    if result == CUresult::SUCCESS {
        wait.into_iter().for_each(Wait::end);
    }
    result
}
