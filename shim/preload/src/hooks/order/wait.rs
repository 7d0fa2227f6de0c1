//! Waits of the host for a stream, a context or an event.
//!
//! After a wait, memory that was freed before it can be reused in every stream. [`Wait::end`] tells
//! the subsystems, in an order that it states.
//!
//! Invariants: frees are marked *before* the wait, because another thread may free while the host
//! waits. A wait makes no manager: a device on which nothing was allocated through us is not
//! touched.

use std::time::Instant;

use wm_abi::symbol::Symbol;
use wm_abi::{CUcontext, CUevent, CUresult, CUstream};
use wm_driver::{Api, Device, StreamId};
use wm_memory::{Manager, Mark};

use crate::guard::{Moment, SyncTarget};
use crate::hooks::call::stream::{DefaultStream, resolve_default};
use crate::hooks::memory::pool;
use crate::process::{driver, streams};
use crate::registry::{self, NamedStream};
use crate::subsystems::PROCESS;

/// `cuStreamSynchronize`, and its per-thread twin.
pub(in crate::hooks) unsafe fn stream_synchronize<S, D>(stream: CUstream) -> CUresult
where
    S: Symbol<Function = unsafe extern "C" fn(CUstream) -> CUresult>,
    D: DefaultStream,
{
    let named = registry::any().then(|| NamedStream::of(stream, D::HANDLE)).flatten();
    let wait = named.map(|named| {
        Wait::for_stream(named.id)
            .then_check(&SyncTarget::Stream(named.context, resolve_default::<D>(stream)))
    });
    // SAFETY: the program's argument.
    end_wait(wait, unsafe { driver().get::<S>()(stream) })
}

/// `cuStreamQuery`, and its per-thread twin. A stream without work left is like a stream that the
/// host has waited for. The driver's pool does not trim at a query, so ours does not either.
pub(in crate::hooks) unsafe fn stream_query<S, D>(stream: CUstream) -> CUresult
where
    S: Symbol<Function = unsafe extern "C" fn(CUstream) -> CUresult>,
    D: DefaultStream,
{
    let id = registry::any().then(|| registry::known_stream(stream, D::HANDLE)).flatten();
    let wait = id.map(Wait::for_stream);
    // SAFETY: the program's argument.
    let result = unsafe { driver().get::<S>()(stream) };
    if result == CUresult::SUCCESS {
        wait.iter().for_each(Wait::release);
    }
    result
}

/// `cuCtxSynchronize`.
pub(in crate::hooks) fn ctx_synchronize() -> CUresult {
    let wait = registry::existing_site().map(|site| Wait::for_context(site.manager, site.context));
    end_wait(wait, driver().ctx_synchronize().into())
}

/// `cuCtxSynchronize_v2`, of a context that need not be current.
pub(in crate::hooks) unsafe fn ctx_synchronize_v2(context: CUcontext) -> CUresult {
    let manager = registry::any().then(|| registry::existing(registry::device_of(context)?)).flatten();
    let wait = manager.map(|manager| Wait::for_context(manager, context));
    end_wait(wait, driver().ctx_synchronize_named(context).into())
}

/// `cuEventSynchronize`. We do not know which work the event follows, so no memory becomes
/// reusable. The pool trims, as the driver's does.
pub(in crate::hooks) unsafe fn event_synchronize(event: CUevent) -> CUresult {
    let wait = registry::any().then(|| Wait::for_event().then_check(&SyncTarget::Event));
    end_wait(wait, driver().event_synchronize(event).into())
}

/// A wait that is about to begin. It may cover frees of every device's memory.
struct Wait {
    /// The frees that are past when the wait succeeds.
    marks: Vec<(&'static Manager<Device>, Mark)>,
    /// The waited-for object in a trace: a stream, or (`Some(None)`) the device.
    traced: Option<Option<StreamId>>,
    /// Which guarded blocks can be checked afterwards.
    watch: Option<Moment>,
    /// When it began, if moves ask for its time.
    begin: Option<Instant>,
}

impl Wait {
    fn for_stream(id: StreamId) -> Self {
        let marks = registry::all().map(|manager| (manager, manager.mark(id))).collect();
        Self { marks, traced: Some(Some(id)), watch: None, begin: PROCESS.moves.begin_of_wait() }
    }

    /// A wait for a context covers its own streams and those of its green contexts. Other contexts
    /// of the device, and other devices, go on.
    fn for_context(manager: &Manager<Device>, context: CUcontext) -> Self {
        manager.flush();
        let covers = |id| {
            let owner = streams().context(id);
            owner.is_some_and(|owner| owner == context || streams().home(owner) == context)
        };
        let marks = registry::all().map(|manager| (manager, manager.mark_all(covers))).collect();
        let begin = PROCESS.moves.begin_of_wait();
        Self { marks, traced: Some(None), watch: None, begin }.then_check(&SyncTarget::Context(context))
    }

    /// A wait for an event. Which work the event follows is unknown.
    fn for_event() -> Self {
        Self { marks: Vec::new(), traced: None, watch: None, begin: PROCESS.moves.begin_of_wait() }
    }

    /// The same wait, after which guarded blocks are checked.
    fn then_check(self, target: &SyncTarget) -> Self {
        Self { watch: PROCESS.guard.before_wait(target), ..self }
    }

    /// Makes the marked frees reusable in every stream.
    fn release(&self) {
        self.marks.iter().for_each(|(manager, mark)| manager.reached(mark));
    }

    /// The wait was successful. The subsystems learn of it in this order:
    ///
    /// 1. The managers: the steps below free, reuse or move memory that the wait has shown idle.
    /// 2. The trace: a replay has to wait before the allocations that this wait makes possible.
    /// 3. The guard: it checks freed blocks and unmaps them, before the next step frees their
    ///    memory.
    /// 4. The pool: it trims to its release threshold, and so makes room on the device.
    /// 5. Moves: blocks migrate back to the device, into that room.
    /// 6. Sharing: its pass takes up to two milliseconds, and no other step has to wait for it.
    fn end(self) {
        if let Some(begin) = self.begin {
            PROCESS.moves.host_waited(begin.elapsed());
        }
        self.release();
        let Some(manager) = registry::existing_site().map(|site| site.manager) else { return };
        if let Some(stream) = self.traced {
            PROCESS.trace.waited(manager.gpu().ordinal(), stream);
        }
        self.watch.iter().for_each(|moment| PROCESS.guard.after_wait(manager, moment));
        pool::trim_to_threshold(manager);
        PROCESS.moves.come_back(manager);
        PROCESS.sharing.waited(manager);
    }
}

fn end_wait(wait: Option<Wait>, result: CUresult) -> CUresult {
    if result == CUresult::SUCCESS {
        wait.into_iter().for_each(Wait::end);
    }
    result
}
