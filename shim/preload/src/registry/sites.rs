//! From the calling thread's context to its device's manager.
//!
//! A thread caches the site of its last call in its hot cache line. Contexts and streams end, and
//! the driver gives their handles out again, so a cached site is valid only in the epoch of the
//! streams that was read *before* the look-up. For a stream that the program made its handle says
//! the context (`last_site_of`); in all other cases the site is valid only while the context that
//! it names is current. Each end of a context or a stream advances the epoch.

use wm_abi::{CUcontext, CUdevice, CUresult, CUstream};
use wm_driver::thread::Uncancelled;
use wm_driver::{Device, StreamId};
use wm_memory::Manager;

use super::create::manager;
use super::devices::{active_primary, current_device, device_count, device_of};
use super::tables::{REGISTRY, any, existing};
use crate::process::{LastSite, PROCESS_HOT, Site, StreamKind, THREAD_HOT, streams};

/// Where the thread's last call acted, if that was in this context and no context or stream has
/// ended since.
#[inline]
pub(super) fn last_site(context: CUcontext) -> Option<LastSite> {
    let epoch = streams().epoch() as u32;
    THREAD_HOT
        .with(|thread| thread.last.get())
        .filter(|last| last.site.context == context && last.epoch == epoch)
}

/// The same for a stream that the program made: its work runs in the stream's own context,
/// whichever is current, so that context is not asked for.
#[inline]
pub(super) fn last_site_of(stream: CUstream) -> Option<LastSite> {
    let is_made = !matches!(stream, CUstream::NULL | CUstream::LEGACY | CUstream::PER_THREAD);
    let epoch = streams().epoch() as u32;
    THREAD_HOT
        .with(|thread| thread.last.get())
        .filter(|last| is_made && last.stream == stream && last.epoch == epoch)
}

/// Caches where this call acts. `last.epoch` must have been read before the rest was looked up:
/// [`last_site`] ignores the entry once the epoch has advanced.
pub(super) fn remember(last: LastSite) {
    THREAD_HOT.with(|thread| thread.last.set(Some(last)));
}

/// The calling thread's context.
#[inline]
pub(super) fn current_context() -> Option<CUcontext> {
    let mut context = CUcontext::NULL;
    // SAFETY: the out-pointer is to a live local.
    let result = unsafe { PROCESS_HOT.current.get()(&mut context) };
    (result == CUresult::SUCCESS && !context.is_null()).then_some(context)
}

/// The calling thread's context and its device's manager. `None`: no context, or a device that
/// cannot be managed.
#[inline]
pub(crate) fn current_site() -> Option<Site> {
    site_in(current_context()?)
}

/// The same for a context that is known to be the calling thread's.
#[inline]
pub(super) fn site_in(context: CUcontext) -> Option<Site> {
    last_site(context).map(|last| last.site).or_else(|| look_up(context))
}

#[cold]
#[inline(never)]
fn look_up(context: CUcontext) -> Option<Site> {
    let _whole = Uncancelled::new();
    let epoch = streams().epoch() as u32;
    let device = current_device()?;
    let site = Site { manager: used_through(context, device)?, context, device };
    remember(LastSite {
        site,
        stream: CUstream::NULL,
        id: StreamId(0),
        epoch,
        kind: StreamKind::NonBlocking,
    });
    Some(site)
}

/// The manager of a context that is not the calling thread's.
pub(super) fn site_of_context(context: CUcontext) -> Option<Site> {
    let device = device_of(context)?;
    Some(Site { manager: used_through(context, device)?, context, device })
}

/// The manager of a device, which is used through the context from now on. It is not withdrawn
/// while the context lives.
fn used_through(context: CUcontext, device: CUdevice) -> Option<&'static Manager<Device>> {
    let home = streams().home(context);
    let is_known = |manager: &&Manager<Device>| manager.gpu().is_used_through(home);
    existing(device).filter(is_known).or_else(|| {
        let adopt = |manager: &Manager<Device>| manager.gpu().adopt(home);
        REGISTRY.managers.adopt(device, || manager(device, home), adopt)
    })
}

/// As [`current_site`], but only if the device has a manager: none is made, and the manager does
/// not learn of the context.
pub(crate) fn existing_site() -> Option<Site> {
    let context = any().then(current_context)??;
    let device = current_device()?;
    Some(Site { manager: existing(device)?, context, device })
}

/// The manager of a device, whichever is current: one is made if there is none. Where the program
/// has no context on the device yet, the manager has none either until a call comes in one. `None`:
/// there is no such device, or it cannot be managed.
pub(crate) fn of_device(device: CUdevice) -> Option<&'static Manager<Device>> {
    let current = || current_site().map(|site| site.manager).filter(|m| m.gpu().ordinal() == device);
    existing(device).or_else(current).or_else(|| elsewhere(device))
}

#[cold]
fn elsewhere(device: CUdevice) -> Option<&'static Manager<Device>> {
    let is_there = device_count().is_some_and(|count| (0..count).contains(&device));
    is_there.then(|| manager(device, active_primary(device).unwrap_or(CUcontext::NULL))).flatten()
}
