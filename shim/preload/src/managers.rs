//! One memory manager a device, made at the first allocation there, and the way from a call to its manager.
//!
//! A program names streams and contexts, not devices: [`Site`] is where a call acts; [`crate::named`] has the streams. Managers are leaked on purpose,
//! also when their context ends: another thread may be inside one, and blocks' addresses outlive contexts.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use wm_abi::symbol;
use wm_abi::{CUcontext, CUdevice, CUresult, CUstream};
use wm_driver::thread::Uncancelled;
use wm_driver::{Api, Device, Gpu, StreamId, Tier};
use wm_memory::Manager;

use crate::budget;
use crate::glance::{GLANCE, MINE};
use crate::guard;
use crate::hooks;
use crate::ipc;
use crate::named::Kind;
use crate::physical;
use crate::settings::{self, Guard, Overflow};
use crate::shortage;
use crate::state::{driver, streams};
use crate::torch;

/// Devices by ordinal; more than any machine has.
const DEVICES: usize = 64;

static MANAGERS: [AtomicPtr<Manager<Device>>; DEVICES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DEVICES];
static UNMANAGED: [AtomicBool; DEVICES] = [const { AtomicBool::new(false) }; DEVICES];
static PEERS: Mutex<Vec<Access>> = Mutex::new(Vec::new());

/// `from` may read and write the memory of `owner`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Access {
    owner: CUdevice,
    from: CUdevice,
}

/// Where a call acts.
#[derive(Clone, Copy)]
pub(crate) struct Site {
    pub(crate) manager: &'static Manager<Device>,
    pub(crate) context: CUcontext,
    pub(crate) device: CUdevice,
}

/// Where a thread's last call acted. True in its epoch only: contexts and streams end, and their handles come again.
#[derive(Clone, Copy)]
pub(crate) struct Last {
    pub(crate) site: Site,
    /// A stream of the site's context, and the name of it; null, where the call named none.
    pub(crate) stream: CUstream,
    pub(crate) id: StreamId,
    pub(crate) epoch: u32,
    pub(crate) kind: Kind,
}

/// What the thread remembers, if it is still so and the context is the same.
#[inline]
pub(crate) fn last(context: CUcontext) -> Option<Last> {
    let epoch = streams().epoch() as u32;
    MINE.with(|mine| mine.last.get()).filter(|last| last.site.context == context && last.epoch == epoch)
}

/// The calling thread's context.
#[inline]
pub(crate) fn current_context() -> Option<CUcontext> {
    let mut context = CUcontext::NULL;
    // SAFETY: the out-pointer is to a live local.
    let result = unsafe { GLANCE.current.get()(&mut context) };
    (result == CUresult::SUCCESS && !context.is_null()).then_some(context)
}

/// The calling thread's context and its device's manager. `None`: no context, or a device that cannot be managed.
#[inline]
pub(crate) fn here() -> Option<Site> {
    site(current_context()?)
}

/// The same for a context that is the calling thread's.
#[inline]
pub(crate) fn site(context: CUcontext) -> Option<Site> {
    last(context).map(|last| last.site).or_else(|| arrive(context))
}

#[cold]
#[inline(never)]
fn arrive(context: CUcontext) -> Option<Site> {
    let _whole = Uncancelled::new();
    let epoch = streams().epoch() as u32;
    let device = current_device()?;
    let site = Site { manager: manager(device, streams().home(context))?, context, device };
    site.manager.gpu().adopt(context);
    remember(Last { site, stream: CUstream::NULL, id: StreamId(0), epoch, kind: Kind::NonBlocking });
    Some(site)
}

/// The manager of a context that is not the calling thread's.
pub(crate) fn elsewhere(context: CUcontext) -> Option<Site> {
    let device = device_of(context)?;
    let manager = manager(device, streams().home(context))?;
    manager.gpu().adopt(context);
    Some(Site { manager, context, device })
}

/// For what was found out after the epoch was read: if that has moved meanwhile, nobody believes it.
pub(crate) fn remember(last: Last) {
    MINE.with(|mine| mine.last.set(Some(last)));
}

/// As [`here`], where the device has a manager already: none is made, and no context is adopted.
pub(crate) fn present() -> Option<Site> {
    let context = any().then(current_context)??;
    let device = current_device()?;
    Some(Site { manager: known(device)?, context, device })
}

/// The calling thread's device; `None` without a context.
pub(crate) fn current_device() -> Option<CUdevice> {
    let mut device = 0;
    // SAFETY: the out-pointer is to a live local.
    unsafe { driver().get::<symbol::cuCtxGetDevice>()(&mut device) }.ok().ok()?;
    Some(device)
}

/// The device of a context that need not be current.
pub(crate) fn device_of(context: CUcontext) -> Option<CUdevice> {
    // SAFETY: a handle the driver checks; what is pushed is popped.
    unsafe { driver().get::<symbol::cuCtxPushCurrent_v2>()(context) }.ok().ok()?;
    let device = current_device();
    let mut popped = CUcontext::NULL;
    // SAFETY: as above.
    let _ = unsafe { driver().get::<symbol::cuCtxPopCurrent_v2>()(&mut popped) };
    device
}

/// The device's manager, if it has one yet.
pub(crate) fn known(device: CUdevice) -> Option<&'static Manager<Device>> {
    let slot = MANAGERS.get(usize::try_from(device).ok()?)?;
    // SAFETY: a manager is leaked when it is stored, so the pointer is null or valid for ever.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

/// Has any device a manager?
pub(crate) fn any() -> bool {
    all().next().is_some()
}

/// Every manager there is.
pub(crate) fn all() -> impl Iterator<Item = &'static Manager<Device>> {
    (0..DEVICES as CUdevice).filter_map(known)
}

/// The manager of a device: one that is made now, if it is the calling thread's device.
pub(crate) fn of(device: CUdevice) -> Option<&'static Manager<Device>> {
    known(device).or_else(|| here().map(|site| site.manager).filter(|m| m.gpu().ordinal() == device))
}

/// The manager whose address space contains `address`; the current device's first, for it is mostly that one.
#[inline]
pub(crate) fn owner(address: u64) -> Option<&'static Manager<Device>> {
    let last = MINE.with(|mine| mine.last.get()).map(|last| last.site.manager);
    last.filter(|manager| manager.gpu().contains(address)).or_else(|| search(address))
}

#[cold]
#[inline(never)]
fn search(address: u64) -> Option<&'static Manager<Device>> {
    all().find(|manager| manager.gpu().contains(address))
}

fn manager(device: CUdevice, context: CUcontext) -> Option<&'static Manager<Device>> {
    known(device).or_else(|| create(device, context))
}

fn create(device: CUdevice, context: CUcontext) -> Option<&'static Manager<Device>> {
    let index = usize::try_from(device).ok().filter(|index| *index < DEVICES)?;
    if UNMANAGED[index].load(Ordering::Relaxed) {
        return None;
    }
    match build(device, context) {
        Ok(manager) => {
            manager.allow_dependencies(INDEPENDENT.load(Ordering::Relaxed) & (1 << index) == 0);
            torch::announce();
            Some(publish(index, manager))
        }
        Err(reason) => {
            UNMANAGED[index].store(true, Ordering::Relaxed);
            log::warn!("{reason}: its memory stays with the driver");
            None
        }
    }
}

/// Devices whose default pool forbids that a stream waits for another one's free, a bit each.
static INDEPENDENT: AtomicU64 = AtomicU64::new(0);

/// The program says whether it is forbidden, maybe before the device has a manager.
pub(crate) fn allow_dependencies(device: CUdevice, allowed: bool) {
    let bit = u32::try_from(device).ok().and_then(|device| 1u64.checked_shl(device)).unwrap_or(0);
    if allowed {
        INDEPENDENT.fetch_and(!bit, Ordering::Relaxed);
    } else {
        INDEPENDENT.fetch_or(bit, Ordering::Relaxed);
    }
    known(device).into_iter().for_each(|manager| manager.allow_dependencies(allowed));
}

fn build(device: CUdevice, context: CUcontext) -> Result<Manager<Device>, String> {
    let gpu = Device::new(driver(), streams(), device, context)?.beside(physical::aside, shortage::of_block);
    for access in PEERS.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|a| a.owner == device) {
        gpu.admit_peer(access.from);
    }
    if settings::load().guard == Guard::Page {
        gpu.avoid_old_addresses();
    }
    let (_, total) = gpu.memory_info().map_err(|code| format!("device {device}: {code}"))?;
    let limits = limits(device, total);
    label(device);
    budget::tell(device, total, &limits);
    Ok(Manager::new(gpu, limits))
}

/// Of two threads that made a manager at once, one wins; the other's has done nothing yet.
fn publish(index: usize, manager: Manager<Device>) -> &'static Manager<Device> {
    let fresh = Box::into_raw(Box::new(manager));
    let slot = &MANAGERS[index];
    let null = std::ptr::null_mut();
    let stored = slot.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire);
    // SAFETY: both pointers come from `Box::into_raw` and are never freed.
    unsafe { &*stored.map_or_else(|winner| winner, |_| fresh) }
}

/// The settings' limits for a device of `total` bytes.
fn limits(device: CUdevice, total: u64) -> wm_memory::Settings {
    let settings = settings::load();
    let bytes = |size: Option<settings::Size>, default| size.map_or(default, |size| size.of(total));
    let budget = budget::of(device, total, settings.device_limit, settings.headroom);
    wm_memory::Settings {
        device_limit: budget.limit,
        headroom: budget.headroom,
        keep_idle: bytes(settings.keep_idle, 512 << 20),
        host_limit: settings.host_limit.map_or(u64::MAX, |size| size.of(machine_memory())),
        peer_limit: bytes(settings.peer_limit, u64::MAX),
        overflow: settings.overflow.iter().flat_map(|tier| tiers(*tier, device)).collect(),
        stitch_views: stitch_views(settings),
    }
}

/// A guarded block's view is of no use to the next block.
fn stitch_views(settings: &settings::Settings) -> usize {
    if settings.guard == Guard::Page { 0 } else { wm_memory::Settings::default().stitch_views }
}

fn tiers(overflow: Overflow, device: CUdevice) -> Vec<Tier> {
    match overflow {
        Overflow::Host => vec![Tier::Host],
        Overflow::Peer => peers(device).into_iter().map(Tier::Peer).collect(),
    }
}

/// Devices whose memory this one can reach.
fn peers(device: CUdevice) -> Vec<CUdevice> {
    (0..device_count().unwrap_or(0)).filter(|other| *other != device && reaches(device, *other)).collect()
}

fn reaches(device: CUdevice, other: CUdevice) -> bool {
    let mut able = 0;
    // SAFETY: the out-pointer is to a live local.
    let result = unsafe { driver().get::<symbol::cuDeviceCanAccessPeer>()(&mut able, device, other) };
    result.ok().is_ok() && able == 1
}

fn machine_memory() -> u64 {
    // SAFETY: two questions to the system without arguments.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(0)
}

/// `from` may access `owner`'s memory from now on: present blocks, future ones, and those of other processes that are open there.
pub(crate) fn grant(owner: CUdevice, from: CUdevice) {
    let access = Access { owner, from };
    let mut peers = PEERS.lock().unwrap_or_else(PoisonError::into_inner);
    if !peers.contains(&access) {
        peers.push(access);
    }
    drop(peers);
    let Some(manager) = known(owner) else { return };
    if manager.gpu().admit_peer(from) {
        let (own, opened) = (manager.refresh_access(), ipc::refresh_access(manager.gpu()));
        if let Err(code) = own.and(opened) {
            log::warn!("device {from} cannot reach some blocks of device {owner}: {code}");
        }
    }
}

/// Has this process more than one device? With one, no copy goes to a peer, and what is intercepted for that is withdrawn.
pub(crate) fn are_several() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return *known;
    }
    // A driver that cannot say, because nobody has initialised it, is asked again.
    let Some(count) = device_count() else { return false };
    if count < 2 {
        hooks::withdraw_copies();
    }
    *KNOWN.get_or_init(|| count > 1)
}

fn device_count() -> Option<CUdevice> {
    let mut count = 0;
    // SAFETY: the out-pointer is to a live local.
    unsafe { driver().get::<symbol::cuDeviceGetCount>()(&mut count) }.ok().ok()?;
    Some(count)
}

/// Lets the calling thread's device reach the block at an address, for a copy between devices: the driver's own memory needs
/// no peer access for that, mapped memory does. `false`: these devices cannot. Costs next to nothing where there is one device,
/// or where it is so already.
pub(crate) fn make_reachable(address: u64) -> bool {
    if !are_several() {
        return true;
    }
    let Some(manager) = owner(address) else { return true };
    let ordinal = manager.gpu().ordinal();
    let Some(here) = current_device().filter(|device| *device != ordinal) else { return true };
    if manager.gpu().admits(here) {
        return true;
    }
    let able = reaches(here, ordinal);
    if able {
        grant(ordinal, here);
    }
    able
}

/// A context is about to be ended: nothing of it is touched until it is known whether it was.
pub(crate) fn suspend_context(context: CUcontext) {
    guard::end_context(context);
    all().for_each(|manager| manager.gpu().suspend_context(context));
}

/// The driver refused to end it.
pub(crate) fn resume_context(context: CUcontext) {
    all().for_each(|manager| manager.gpu().resume_context(context));
}

/// A context has ended: its work is over, and its streams, captures and events are no more.
pub(crate) fn end_context(context: CUcontext) {
    let ids = streams().within(context);
    for manager in all() {
        ids.iter().for_each(|id| manager.drained(*id));
        manager.gpu().forget_context(context);
    }
    streams().captures_ended_in(context);
    streams().forget(&ids);
}

/// The device's contexts are gone, and with them, by CUDA's rules, all that was allocated under them.
pub(crate) fn end_device(device: CUdevice) {
    let Some(slot) = usize::try_from(device).ok().and_then(|index| MANAGERS.get(index)) else { return };
    let manager = slot.swap(std::ptr::null_mut(), Ordering::AcqRel);
    streams().outdate();
    // SAFETY: null or leaked, as in `known`.
    if let Some(manager) = unsafe { manager.as_ref() } {
        guard::end_device(device);
        ipc::end_device(device);
        physical::kept::end_device(device);
        manager.discard();
    }
}

/// Streams are about to be destroyed: blocks freed on them get events that outlive them.
pub(crate) fn retire(ids: &[StreamId]) {
    if ids.is_empty() {
        return;
    }
    for manager in all() {
        ids.iter().for_each(|id| manager.retire(*id));
    }
    streams().forget(ids);
}

/// What people are told about a device.
#[derive(Debug)]
pub(crate) struct Label {
    pub(crate) name: String,
    /// All of its memory, bytes; 0 where the driver does not tell.
    pub(crate) total: u64,
}

/// The device's label, as it was when its manager was made: at the end of the process the driver answers no more.
pub(crate) fn label(device: CUdevice) -> &'static Label {
    static LABELS: [OnceLock<Label>; DEVICES] = [const { OnceLock::new() }; DEVICES];
    static UNKNOWN: Label = Label { name: String::new(), total: 0 };
    let label = usize::try_from(device).ok().and_then(|index| LABELS.get(index));
    label.map_or(&UNKNOWN, |label| {
        label.get_or_init(|| Label { name: name(device), total: total_memory(device) })
    })
}

fn name(device: CUdevice) -> String {
    let mut name = [0u8; 128];
    // SAFETY: the driver writes at most the length we name, NUL included.
    let result = unsafe { driver().get::<symbol::cuDeviceGetName>()(name.as_mut_ptr().cast(), 127, device) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    result.ok().map(|()| String::from_utf8_lossy(&name[..end]).into_owned()).unwrap_or_default()
}

/// Alignment that the driver gives the rows of a pitched allocation, bytes.
pub(crate) fn pitch_alignment(device: CUdevice) -> usize {
    const FALLBACK: usize = 512;
    let asked = driver().device_attribute(wm_abi::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device).ok();
    asked
        .and_then(|value| usize::try_from(value).ok())
        .filter(|value| value.is_power_of_two())
        .unwrap_or(FALLBACK)
}

fn total_memory(device: CUdevice) -> u64 {
    let mut bytes = 0;
    // SAFETY: the out-pointer is to a live local.
    let result = unsafe { driver().get::<symbol::cuDeviceTotalMem_v2>()(&mut bytes, device) };
    result.ok().map_or(0, |()| bytes as u64)
}
