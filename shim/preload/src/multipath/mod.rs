//! Copies by threads and over several links: which of the program's copies wm-multipath is asked to
//! make, and how a copy is described to it.
//!
//! A small copy costs one comparison here. A large one is the driver's if anything about it is out
//! of the ordinary: a capture, memory that is not plain, a stream of another context. With one
//! device, or if `WMSHIM_MULTIPATH` says no more, pageable copies take their target's own link, and
//! pinned ones are the driver's.
//!
//! [`ends`] says what memory the two ends of a copy are; [`faults`] asks whether the program
//! handles faults of its own memory. This layer reads a copy as a [`LinearCopy`], whose ends know
//! their memory, so it imports no subsystem that owns memory. Only the hooks, the report and the
//! process's exit import it.

mod ends;
mod faults;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use wm_abi::{
    CU_CTX_SYNC_MEMOPS, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_INTEGRATED,
    CU_DEVICE_ATTRIBUTE_MPS_ENABLED, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    CU_STREAM_NON_BLOCKING, CUcontext, CUdevice, CUstream,
};
use wm_driver::Api;
use wm_driver::thread::Uncancelled;
use wm_multipath::measured::cache;
use wm_multipath::{
    ClaimsPage, CopyOutcome, CopyRequest, CopyRoute, Engine, EngineSettings, Home, HostDeviceCopy,
    HostMemory, LinkDirection, PlainCall, ProgramStream, RelayUsage, RouteUsage, StreamOrdering, TableDriver,
};

use wm_schema::black_box::CopyWords;

use crate::black_box;
use crate::copies::LinearCopy;
use crate::process::{self, driver, preserve_errno, streams};
use crate::registry;
use crate::settings::{self, Multipath};

/// The engine of the process, and when a copy is worth its attention.
struct LargeCopies {
    /// `None` inside: there is none in this process.
    engine: OnceLock<Option<Engine<TableDriver>>>,
    /// Copies below this are not looked at. 0: not known yet.
    least: AtomicUsize,
}

/// Not a field of `Process`, because `addresses` stands between the two layers: a copy's ends know
/// their memory, and IPC owns some of it.
static COPIES: LargeCopies = LargeCopies { engine: OnceLock::new(), least: AtomicUsize::new(0) };

impl LargeCopies {
    #[inline]
    fn engine(&self) -> Option<&Engine<TableDriver>> {
        self.engine.get()?.as_ref()
    }
}

/// `CU_COMPUTEMODE_DEFAULT`: several contexts may use a device at once.
const DEFAULT_MODE: i32 = 0;

/// Makes a copy over several links, or by threads. `false`: the driver is to make it.
#[inline]
pub(crate) fn copy(copy: &LinearCopy) -> bool {
    may_be_large(copy.bytes) && !copy.is_between_devices() && copy_large(copy)
}

/// Is a copy of so many bytes large enough to be looked at?
pub(crate) fn may_be_large(bytes: usize) -> bool {
    bytes >= COPIES.least.load(Ordering::Relaxed)
}

/// Work of the calling thread is about to go into a stream. If another thread is enqueueing a copy
/// of several parts there, the work is ordered behind the whole copy. One load if there is no such
/// copy.
#[inline]
pub(crate) fn follow(stream: CUstream) {
    if COPIES.engine().is_some_and(|engine| engine.has_turns()) {
        follow_turns(stream);
    }
}

/// The same for a call that goes to the driver next, and lasts until the value is dropped. With
/// relays, copies of other threads that would get its work in between their parts are plain
/// meanwhile.
#[inline]
pub(crate) fn enter(stream: CUstream) -> Option<PlainCall<'static>> {
    let engine = COPIES.engine()?;
    let call = engine.has_relays().then(|| enter_with(engine, stream));
    if engine.has_turns() {
        follow_turns(stream);
    }
    call
}

#[inline(never)]
fn enter_with(engine: &'static Engine<TableDriver>, stream: CUstream) -> PlainCall<'static> {
    match stream {
        CUstream::NULL | CUstream::LEGACY | CUstream::PER_THREAD => {
            let stream = if stream.is_null() { CUstream::LEGACY } else { stream };
            engine.enter(stream, registry::context_of_stream(stream).unwrap_or_default())
        }
        // Its context would take two driver calls. A handle is another stream's in no context.
        created => engine.enter(created, CUcontext::NULL),
    }
}

/// A call that has made a copy over several links makes plain calls into the stream, too.
pub(crate) fn go_on_plainly(stream: CUstream) {
    if COPIES.engine().is_some_and(|engine| engine.has_relays()) {
        follow_turns(stream);
    }
}

#[cold]
#[inline(never)]
fn follow_turns(stream: CUstream) {
    if process::forked() {
        return;
    }
    let _whole = Uncancelled::new();
    preserve_errno(|| {
        let stream = if stream.is_null() { CUstream::LEGACY } else { stream };
        let known = existing().zip(registry::context_of_stream(stream)).zip(kind(stream));
        if let Some(((engine, context), kind)) = known {
            engine.follow(&ProgramStream { home: Home { context, life: 0 }, device: 0, stream, kind });
        }
    });
}

/// Is it a copy between host and device, of plain memory, in a stream that we know?
pub(crate) fn is_plain(copy: &LinearCopy) -> bool {
    request(copy).is_some()
}

#[cold]
fn copy_large(copy: &LinearCopy) -> bool {
    if process::exiting() || process::detached() || streams().capturing() {
        return false;
    }
    let Some(engine) = engine().filter(|engine| copy.bytes >= engine.least()) else { return false };
    let Some(request) = request(copy) else { return false };
    if request.memory == HostMemory::Pageable
        && (faults::are_served() || reaches_pageable(request.copy.user.device))
    {
        return false;
    }
    let is_done = engine.copy(&request) == CopyOutcome::Done;
    if is_done {
        black_box::show_copies(traffic().iter().map(shown));
    }
    is_done
}

/// A path's copies as the black box has them.
fn shown(usage: &RouteUsage) -> CopyWords {
    let path = match usage.route {
        CopyRoute::Direct => CopyWords::DIRECT,
        CopyRoute::Threads => CopyWords::THREADS,
        CopyRoute::Relay(relay) => CopyWords::RELAY + u64::from(relay.unsigned_abs()),
    };
    let direction =
        if usage.direction == LinkDirection::In { CopyWords::TO_DEVICE } else { CopyWords::FROM_DEVICE };
    CopyWords { path, direction, count: usage.count, bytes: usage.bytes }
}

/// The copy as wm-multipath takes it. `None`: the driver is to make it.
fn request(copy: &LinearCopy) -> Option<CopyRequest> {
    let user = user(copy.stream)?;
    let (direction, memory) = ends::host_and_device(copy, user.device)?;
    let (to, from) = (copy.to.address(), copy.from.address());
    let (host, device) = match direction {
        LinkDirection::In => (from, to),
        LinkDirection::Out => (to, from),
    };
    let plain = HostDeviceCopy { user, direction, host, device, bytes: copy.bytes };
    Some(CopyRequest { copy: plain, memory, waits: copy.waits })
}

/// How the calling thread's copies in a stream are ordered. `None`: in a way that our own streams
/// cannot repeat.
fn user(stream: CUstream) -> Option<ProgramStream> {
    let context = driver().ctx_current().unwrap_or_default();
    if context.is_null() || has_synchronous_copies() || !belongs(stream, context) {
        return None;
    }
    let device = registry::current_device()?;
    Some(ProgramStream { home: context_identity(context)?, device, stream, kind: kind(stream)? })
}

fn kind(stream: CUstream) -> Option<StreamOrdering> {
    match stream {
        CUstream::LEGACY => Some(StreamOrdering::Legacy),
        CUstream::PER_THREAD => Some(StreamOrdering::Blocking),
        created => {
            let flags = driver().stream_flags(created).ok()?;
            Some(if flags & CU_STREAM_NON_BLOCKING == 0 {
                StreamOrdering::Blocking
            } else {
                StreamOrdering::Alone
            })
        }
    }
}

/// A context's name for good. `None` where the driver (before CUDA 12) does not number contexts.
fn context_identity(context: CUcontext) -> Option<Home> {
    Some(Home { context, life: driver().ctx_id(context).ok()? })
}

fn has_synchronous_copies() -> bool {
    !driver().ctx_flags().is_ok_and(|flags| flags & CU_CTX_SYNC_MEMOPS == 0)
}

fn belongs(stream: CUstream, context: CUcontext) -> bool {
    matches!(stream, CUstream::LEGACY | CUstream::PER_THREAD) || driver().stream_ctx(stream) == Ok(context)
}

/// The engine, made when the first large copy is met and the driver knows its devices.
fn engine() -> Option<&'static Engine<TableDriver>> {
    if let Some(known) = COPIES.engine.get() {
        return known.as_ref();
    }
    let count = registry::device_count()?;
    let engine = COPIES.engine.get_or_init(|| make(count)).as_ref();
    COPIES.least.store(engine.map_or(usize::MAX, |engine| engine.least()), Ordering::Relaxed);
    engine
}

fn make(devices: CUdevice) -> Option<Engine<TableDriver>> {
    let settings = settings::get()?;
    if settings.multipath == Multipath::Off || (0..devices).any(is_shared) {
        return None;
    }
    // If the setting names devices, the user has decided that relays pay.
    let eager = matches!(settings.multipath, Multipath::Devices(_));
    let patience = if eager { 0 } else { wm_multipath::PATIENCE };
    let relays = Some(siblings(&settings.multipath, devices));
    let minimum = settings.multipath_min.map(|size| size as usize);
    let settings = EngineSettings {
        relays,
        minimum,
        patience,
        eager,
        cache: cache::folder(),
        page: ClaimsPage::of_user(),
        ..EngineSettings::default()
    };
    Some(Engine::new(TableDriver::new(driver()), settings))
}

/// Devices that may be relays. With none of them a copy takes its target's own link.
fn siblings(setting: &Multipath, devices: CUdevice) -> Vec<CUdevice> {
    let wanted = match setting {
        _ if devices < 2 => Vec::new(),
        Multipath::Off | Multipath::Own => Vec::new(),
        Multipath::Auto => (0..devices).collect(),
        Multipath::Devices(named) => named.clone(),
    };
    wanted.into_iter().filter(|device| takes_contexts(*device)).collect()
}

/// Do several processes share the device through MPS? Its server then decides whose copies run.
fn is_shared(device: CUdevice) -> bool {
    driver().device_attribute(CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device).is_ok_and(|on| on != 0)
}

/// Does the device use the host's page tables, or its memory? It then copies pageable memory by
/// itself, and threads of ours would slow it down.
fn reaches_pageable(device: CUdevice) -> bool {
    let ways =
        [CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, CU_DEVICE_ATTRIBUTE_INTEGRATED];
    ways.into_iter().any(|way| driver().device_attribute(way, device).is_ok_and(|has| has != 0))
}

/// May this process have a context on the device without keeping other processes out? In the
/// exclusive mode it may not.
fn takes_contexts(device: CUdevice) -> bool {
    driver().device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device) == Ok(DEFAULT_MODE)
}

fn existing() -> Option<&'static Engine<TableDriver>> {
    COPIES.engine().filter(|_| !process::exiting())
}

/// Has any large copy been met?
pub(crate) fn is_in_use() -> bool {
    existing().is_some()
}

/// The name that copies know a context by, to be asked before a call that may end it.
pub(crate) fn before_end(context: CUcontext) -> Option<Home> {
    existing().and_then(|_| context_identity(context))
}

/// The context has ended.
pub(crate) fn end(home: Option<Home>) {
    if let Some((engine, home)) = existing().zip(home) {
        engine.end_home(home);
    }
}

/// The process ends.
pub(crate) fn stop() {
    if let Some(engine) = COPIES.engine() {
        engine.stop();
    }
}

/// Copies and bytes by path, for the statistics.
pub(crate) fn traffic() -> Vec<RouteUsage> {
    COPIES.engine().map(|engine| engine.traffic()).unwrap_or_default()
}

/// The memory that copies hold on each relay, for the statistics.
pub(crate) fn relays() -> Vec<RelayUsage> {
    COPIES.engine().map(|engine| engine.relays()).unwrap_or_default()
}
