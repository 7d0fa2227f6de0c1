//! Physical memory that the program makes itself, with `cuMemCreate`: PyTorch's expandable
//! segments, NCCL's buffers.
//!
//! The driver serves these calls. We count the memory, for limits and statistics, and know which of
//! it lies in host memory because the device was full: queries about such memory must be answered
//! as for the device memory that was asked for.

mod book;
mod handle_cache;
mod piece_cache;
pub(crate) mod segment;

use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

pub(crate) use book::{Asked, Book, ListedPiece, MappedPiece, PieceRun};
pub(crate) use handle_cache::adopted::PlacedPieces;
pub(crate) use handle_cache::{Access, HeldPiece};
pub(crate) use piece_cache::{cache, kind, kind_of, location};
use wm_driver::{Device, Tier, lock};
use wm_memory::{Charge, Manager};

use crate::events;
use book::PieceCharge;

/// What a piece counts as, on its device.
type DeviceCharge = Charge<'static, Device>;

impl PieceCharge for DeviceCharge {
    fn bytes(&self) -> u64 {
        Charge::bytes(self)
    }

    fn tier(&self) -> Tier {
        Charge::tier(self)
    }
}

/// The program's own physical memory.
struct ProgramMemory {
    book: Mutex<Book<DeviceCharge>>,
    /// May any piece of this process, or one that it imported, be on another tier than its device?
    /// Until then no address is looked up.
    is_any_elsewhere: AtomicBool,
}

/// The memory of this process. It is a static of this layer: pointer queries and copies import it,
/// and `PROCESS` is above them.
static MEMORY: ProgramMemory =
    ProgramMemory { book: Mutex::new(Book::new()), is_any_elsewhere: AtomicBool::new(false) };

/// The books, while they are locked. What became of pieces is told before others have the lock, so
/// that events come in the order of the changes.
pub(crate) struct LockedBook(MutexGuard<'static, Book<DeviceCharge>>);

impl Deref for LockedBook {
    type Target = Book<DeviceCharge>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for LockedBook {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Drop for LockedBook {
    fn drop(&mut self) {
        self.0.tell(events::tell_of_pieces);
    }
}

/// The books. Never held across a driver call.
pub(crate) fn book() -> LockedBook {
    LockedBook(lock(&MEMORY.book))
}

/// Gives at least `bytes` of a device's unused memory back to the driver, as far as there are;
/// returns how many.
pub(crate) fn give_back(manager: &Manager<Device>, bytes: u64) -> u64 {
    if bytes == 0 {
        return 0;
    }
    let given = cache().give_back(manager, Tier::Device, bytes);
    given + manager.relieve(bytes.saturating_sub(given))
}

/// A piece was made in host memory, or imported that is there, or may move there.
pub(crate) fn set_any_elsewhere() {
    MEMORY.is_any_elsewhere.store(true, Relaxed);
}

/// Is any piece of the process not on its device?
pub(crate) fn is_any_elsewhere() -> bool {
    MEMORY.is_any_elsewhere.load(Relaxed)
}

/// Where in a range pieces of one tier meet pieces of another.
pub(crate) fn borders(range: Range<u64>) -> Vec<u64> {
    if is_any_elsewhere() { book().borders(range) } else { Vec::new() }
}

/// The mapping of a piece that is not on its device, if the address is in one.
pub(crate) fn elsewhere(address: u64) -> Option<MappedPiece> {
    is_any_elsewhere().then(|| book().elsewhere(address)).flatten()
}

/// The mapping of a piece that answers as it was asked for, if the address is in one.
pub(crate) fn answering(address: u64) -> Option<MappedPiece> {
    is_any_elsewhere().then(|| book().answering(address)).flatten()
}

/// The range around an address in which pieces follow each other, while some pieces may be
/// elsewhere.
pub(crate) fn range_around(address: u64) -> Option<Range<u64>> {
    is_any_elsewhere().then(|| book().range_around(address)).flatten()
}
