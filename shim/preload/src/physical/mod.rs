//! Physical memory that the program makes itself, with `cuMemCreate`: PyTorch's expandable
//! segments, NCCL's buffers.
//!
//! The driver serves these calls. We count the memory, for limits and statistics, and know which of
//! it lies in host memory because the device was full: queries about such memory must be answered
//! as for the device memory that was asked for.

mod book;
pub(crate) mod headroom;
pub(crate) mod kept;
pub(crate) mod segment;
mod shelf;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

pub(crate) use book::{Account, Asked, Book, MappedPiece};
pub(crate) use shelf::MemoryKind;
use wm_abi::CUdevice;
use wm_driver::{Aside, Device, Gpu, Tier};
use wm_memory::Manager;

use crate::registry;

static BOOK: Mutex<Book> = Mutex::new(Book::new());

/// Has any piece gone elsewhere in this process, or come from another one where it had? Until then
/// no address is looked up.
static ANY_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// The books. Never held across a driver call.
pub(crate) fn book() -> MutexGuard<'static, Book> {
    BOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A piece was made in host memory, because the device was full.
pub(crate) fn note_overflow() {
    ANY_ELSEWHERE.store(true, Relaxed);
}

/// A piece was imported that lies in host memory.
pub(crate) fn note_elsewhere() {
    ANY_ELSEWHERE.store(true, Relaxed);
}

/// What a device's pieces come to.
pub(crate) fn account(device: CUdevice) -> Account {
    book().account(device)
}

/// What the pieces of each device come to.
pub(crate) fn accounts() -> BTreeMap<CUdevice, Account> {
    book().accounts().clone()
}

/// The same for the process's exit, which waits for nothing: `None` while a thread is changing the
/// books.
pub(crate) fn accounts_now() -> Option<BTreeMap<CUdevice, Account>> {
    match BOOK.try_lock() {
        Ok(book) => Some(book.accounts().clone()),
        Err(TryLockError::Poisoned(book)) => Some(book.into_inner().accounts().clone()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// What a device's pieces come to, as the manager of our blocks counts it against the limits.
pub(crate) fn aside(device: CUdevice) -> Aside {
    let held = account(device).held;
    Aside {
        device: held.device + kept::idle(device, Tier::Device),
        host: held.host + kept::idle(device, Tier::Host) + host_of_others(device),
    }
}

/// Bytes of the host that the process's other devices have: its limit is one for all.
pub(crate) fn host_of_others(device: CUdevice) -> u64 {
    let others = registry::all().filter(|manager| manager.gpu().ordinal() != device);
    others.map(host_of).sum()
}

/// Bytes of the host that a device has, with what lies idle.
fn host_of(manager: &Manager<Device>) -> u64 {
    let device = manager.gpu().ordinal();
    manager.held_on_host() + account(device).held.host + kept::idle(device, Tier::Host)
}

/// Bytes of the host that a device may have more, by the user's limit.
fn host_left(manager: &Manager<Device>) -> u64 {
    let held = host_of(manager).saturating_add(host_of_others(manager.gpu().ordinal()));
    manager.settings().host_limit.saturating_sub(held)
}

/// Something else is about to be made on the host. Where that would have no room for it beside what
/// lies idle here, that goes back.
pub(crate) fn make_host_room(manager: &Manager<Device>, bytes: u64) {
    let device = manager.gpu().ordinal();
    let idle = kept::idle(device, Tier::Host);
    if idle == 0 {
        return;
    }
    let room = manager.gpu().host_available().min(host_left(manager));
    if room < bytes {
        kept::give_back(device, Tier::Host, bytes - room);
    }
}

/// Is any piece of the process not on its device?
pub(crate) fn is_any_elsewhere() -> bool {
    ANY_ELSEWHERE.load(Relaxed)
}

/// Where in a range pieces of one tier meet pieces of another.
pub(crate) fn borders(range: Range<u64>) -> Vec<u64> {
    if is_any_elsewhere() { book().borders(range) } else { Vec::new() }
}

/// The mapping of a piece that is not on its device, if the address is in one.
pub(crate) fn elsewhere(address: u64) -> Option<MappedPiece> {
    is_any_elsewhere().then(|| book().elsewhere(address)).flatten()
}
