//! Canaries: when tails are written and looked at.
//!
//! | moment | what happens |
//! |---|---|
//! | allocation in a stream | the pattern is written in that stream, ahead of all that the program does with the block |
//! | `cuMemAlloc` | it is written in our own stream, and given a moment; a free in a stream is ordered behind it |
//! | `cuMemFreeAsync` | the tail is fetched in the stream of the free, before the memory is reused, and compared when it has arrived |
//! | `cuMemFree` | the tail is compared at once, after the wait that the driver makes too |
//! | a wait of the host | at most [`LOOKS`] tails are fetched and compared, the next ones in turn |

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use wm_abi::{CUcontext, CUdevice};
use wm_driver::Device;
use wm_memory::{AllocateError, BlockGuard, FreeError, Manager, Order};

use super::call::{Call, CallOrder, SyncTarget, identify};
use super::counters::{SEEN, Unwatched, unwatched};
use super::guarded_block::{CallOrigin, GuardedBlock};
use super::pattern::Damage;
use super::tail_copies::TailCopies;
use super::watched_blocks::{Entry, Pattern, Scope, Taken, WatchedBlocks, Written};
use crate::process::{self, Site, streams};

/// Tails that are looked at when the host waits. A program waits often; with more blocks than this they take turns.
const LOOKS: usize = 64;

/// Tails that are fetched together.
const AT_ONCE: usize = 256;

/// Deferred looks that a free asks about.
const ASKED: usize = 16;

static WATCHED: Mutex<WatchedBlocks> = Mutex::new(WatchedBlocks::new());

/// Notified when a look has ended.
static LOOKED: Condvar = Condvar::new();

fn watched() -> MutexGuard<'static, WatchedBlocks> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn allocate(site: &Site, bytes: usize, order: Order, call: Call) -> Result<u64, AllocateError> {
    let address = site.manager.allocate_guarded(bytes, order, BlockGuard::Tail)?;
    watch(site, address, bytes, order, call).unwrap_or_else(unwatched);
    Ok(address)
}

fn watch(site: &Site, address: u64, bytes: usize, order: Order, call: Call) -> Result<(), Unwatched> {
    if streams().capturing() {
        return Err(Unwatched::Captured);
    }
    let copies = TailCopies::of(site.manager.gpu()).ok_or(Unwatched::Refused)?;
    let pattern = write(&copies, address, bytes, order, call).map_err(|_| Unwatched::Refused)?;
    let id = site.manager.block(address).ok_or(Unwatched::Refused)?.id;
    let device = site.manager.gpu().ordinal();
    // Before the lock is taken: finding callers asks the loader.
    let block = GuardedBlock { device, address, bytes, id, origin: CallOrigin::of(call.name) };
    watched().enter(block, pattern);
    SEEN.guarded.fetch_add(1, Relaxed);
    Ok(())
}

fn write(
    copies: &TailCopies,
    address: u64,
    bytes: usize,
    order: Order,
    call: Call,
) -> wm_driver::gpu::Result<Pattern> {
    let CallOrder::Stream(context, stream) = call.order else {
        let there = copies.write_now(address, bytes)?;
        return Ok(if there { Pattern::There } else { Pattern::InOurs });
    };
    let stream = identify(order, context, stream);
    copies.write(stream, address, bytes).map(|()| Pattern::In(Written { stream, context }))
}

pub(super) fn free(
    manager: &'static Manager<Device>,
    address: u64,
    order: Order,
    call: Call,
) -> Result<(), FreeError> {
    if let Some(entry) = take(address) {
        look_once_more(manager, *entry, order, call).unwrap_or_else(unwatched);
    }
    manager.free(address, order)
}

/// Takes a block out of those that are watched. If a thread is looking at it, waits for the look: a few small copies in a stream of ours,
/// which wait for none of the program's work.
fn take(address: u64) -> Option<Box<Entry>> {
    let mut watched = watched();
    loop {
        match watched.take(address) {
            Taken::Out(entry) => return Some(entry),
            Taken::Unknown => return None,
            Taken::Looked => watched = LOOKED.wait(watched).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Blocks that this thread looks at. They can be freed again once this is dropped, after a panic too.
struct Looking<'a>(&'a [GuardedBlock]);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        let mut watched = watched();
        self.0.iter().for_each(|block| watched.looked(block.address));
        LOOKED.notify_all();
    }
}

/// The block is about to be given back.
fn look_once_more(
    manager: &'static Manager<Device>,
    entry: Entry,
    order: Order,
    call: Call,
) -> Result<(), Unwatched> {
    if entry.told || process::exiting() {
        return Ok(());
    }
    if streams().capturing() {
        return Err(Unwatched::Captured);
    }
    let copies = TailCopies::existing(manager.gpu()).ok_or(Unwatched::Refused)?;
    report_deferred(&copies, ASKED);
    match call.order {
        CallOrder::Device => look_now(&copies, &entry, call.name),
        CallOrder::Stream(context, stream) => {
            SEEN.looks.fetch_add(1, Relaxed);
            copies.look_after_free(identify(order, context, stream), entry.ours, entry.block, call.name)
        }
        CallOrder::Unknown => Err(Unwatched::Refused),
    }
}

/// `cuMemFree`. The call has waited as the driver's does. Where that waits for nothing, for a block of a pool, the caller says that nothing
/// uses the block; then only a pattern may still be under way, and a wait for it could be one for a stream that this thread holds up.
fn look_now(copies: &TailCopies, entry: &Entry, found_by: &str) -> Result<(), Unwatched> {
    if entry.unknown.is_some() {
        return Err(Unwatched::Early);
    }
    let seen = look(copies, std::slice::from_ref(&entry.block), found_by);
    if seen == 1 { Ok(()) } else { Err(Unwatched::Busy) }
}

/// Looks at blocks that no other thread frees meanwhile; returns how many could be looked at.
fn look(copies: &TailCopies, blocks: &[GuardedBlock], found_by: &str) -> usize {
    let damages = copies.look(blocks);
    SEEN.looks.fetch_add(damages.len() as u64, Relaxed);
    let damaged = blocks.iter().zip(&damages).filter_map(|(block, damage)| Some((block, damage.as_ref()?)));
    damaged.for_each(|(block, damage)| tell(block, damage, found_by));
    damages.len()
}

/// Hears of late looks.
fn report_deferred(copies: &TailCopies, most: usize) {
    for (late, damage) in copies.arrived(most) {
        damage.iter().for_each(|damage| tell(&late.block, damage, late.freed_by));
    }
}

fn tell(block: &GuardedBlock, damage: &Damage, found_by: &str) {
    SEEN.overrun.fetch_add(1, Relaxed);
    log::error!("guard: a write past the end of {block}: {damage}; found by {found_by}");
}

/// What was written when a wait began.
pub(super) struct Moment {
    serial: u64,
    scope: Option<Scope>,
    found_by: &'static str,
}

pub(super) fn moment(target: &SyncTarget) -> Moment {
    let (scope, found_by) = match target {
        SyncTarget::Stream(context, stream) => {
            (Some(Scope::Stream(streams().identify(*context, *stream))), "a wait for a stream")
        }
        SyncTarget::Context(context) => (Some(Scope::Context(*context)), "a wait for the device"),
        SyncTarget::Event => (None, "a wait for an event"),
    };
    Moment { serial: watched().moment(), scope, found_by }
}

/// The host has waited.
pub(super) fn waited(manager: &'static Manager<Device>, moment: &Moment) {
    if let Some(scope) = moment.scope {
        watched().waited(scope, moment.serial);
    }
    round(manager, LOOKS, moment.found_by);
}

/// One turn of looks.
fn round(manager: &'static Manager<Device>, most: usize, found_by: &str) {
    if streams().capturing() {
        return;
    }
    let Some(copies) = TailCopies::existing(manager.gpu()) else { return };
    report_deferred(&copies, usize::MAX);
    let blocks = watched().choose(manager.gpu().ordinal(), most);
    blocks.chunks(AT_ONCE).for_each(|blocks| look_around(&copies, blocks, found_by));
}

/// Looks at blocks that were chosen for it. A thread that frees one meanwhile waits.
fn look_around(copies: &TailCopies, blocks: &[GuardedBlock], found_by: &str) {
    let _looking = Looking(blocks);
    let damages = copies.look(blocks);
    SEEN.looks.fetch_add(damages.len() as u64, Relaxed);
    for (block, damage) in blocks.iter().zip(&damages) {
        let new = watched().seen(block.address, damage.is_some());
        if let Some((block, damage)) = new.zip(damage.as_ref()) {
            tell(&block, damage, found_by);
        }
    }
}

/// All blocks whose pattern is known to be there.
pub(super) fn last_look(manager: &'static Manager<Device>) {
    round(manager, usize::MAX, "the end of a context");
}

pub(super) fn forget(address: u64) {
    watched().remove(address);
}

pub(super) fn end_context(context: CUcontext) {
    TailCopies::close(|device| device.context() == context);
}

pub(super) fn end_device(ended: CUdevice) {
    watched().end_device(ended);
    TailCopies::close(|device| device.ordinal() == ended);
}

pub(super) fn finish() {
    for copies in TailCopies::all() {
        for (late, damage) in copies.at_the_end() {
            damage.iter().for_each(|damage| tell(&late.block, damage, late.freed_by));
        }
    }
}
