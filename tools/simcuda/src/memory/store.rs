//! The storage of simulated memory: files without a name (`memfd`), and the budgets that they are
//! charged to.
//!
//! Memory that may be shared by file descriptor has a file of its own; all other memory of a place
//! is in one sparse file, so that ten thousand allocations do not need ten thousand descriptors. An
//! offset is never used twice.
//!
//! Invariants: bytes are charged from creation until the last owner, mapping or handle, is gone;
//! then their pages are released to the machine.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use wm_abi::CUresult;

use super::ledger::ledger;
use super::space::{self, Protection};
use crate::entry::Outcome;
use crate::settings::settings;

/// The place of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// In a device's memory, by ordinal.
    Device(usize),
    /// In the host's memory.
    Host,
}

/// The memory of a place, and the bytes in use: by this process, or by all that share a ledger.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The total, in bytes.
    pub(crate) total: u64,
    place: Place,
    used: AtomicU64,
}

impl Budget {
    /// An unused budget.
    pub(crate) fn new(place: Place, total: u64) -> Arc<Self> {
        Arc::new(Self { total, place, used: AtomicU64::new(0) })
    }

    /// Bytes not in use.
    pub(crate) fn free(&self) -> u64 {
        let used = ledger().map_or_else(|| self.used.load(Ordering::Relaxed), |all| all.used(self.place));
        self.total.saturating_sub(used)
    }

    fn charge(self: &Arc<Self>, bytes: u64) -> Outcome<Charge> {
        if let Some(ledger) = ledger() {
            let charge = || Charge { budget: Arc::clone(self), bytes };
            return ledger.reserve(self.place, bytes, self.total).then(charge).ok_or(CUresult::OUT_OF_MEMORY);
        }
        let within = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.total);
        match self.used.try_update(Ordering::Relaxed, Ordering::Relaxed, within) {
            Ok(_) => Ok(Charge { budget: Arc::clone(self), bytes }),
            Err(_) => Err(CUresult::OUT_OF_MEMORY),
        }
    }
}

/// Bytes charged to a budget, returned on drop.
#[derive(Debug)]
struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        match ledger() {
            Some(ledger) => ledger.give(self.budget.place, self.bytes),
            None => drop(self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed)),
        }
    }
}

/// One sparse file from which ranges are cut.
#[derive(Debug)]
pub(crate) struct Store {
    file: OwnedFd,
    end: AtomicU64,
}

/// More than any program can use; the file is sparse.
const STORE_BYTES: u64 = 1 << 46;

impl Store {
    /// An empty store. Its name can be seen in `/proc/PID/fd`.
    ///
    /// # Errors
    /// `OPERATING_SYSTEM` if the machine has no `memfd_create`, or no free descriptor.
    pub(crate) fn new(name: &str) -> Outcome<Arc<Self>> {
        Ok(Arc::new(Self { file: anonymous_file(name, STORE_BYTES)?, end: AtomicU64::new(0) }))
    }

    fn cut(&self, bytes: u64) -> u64 {
        self.end.fetch_add(bytes, Ordering::Relaxed)
    }
}

fn anonymous_file(name: &str, bytes: u64) -> Outcome<OwnedFd> {
    let name = CString::new(name).map_err(|_| CUresult::UNKNOWN)?;
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(CUresult::OPERATING_SYSTEM);
    }
    // SAFETY: a new descriptor without another owner.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: an open descriptor.
    let sized = unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) };
    if sized == 0 { Ok(file) } else { Err(CUresult::OUT_OF_MEMORY) }
}

/// A range of bytes in storage: the memory of `cuMemCreate`, and of every other allocation.
#[derive(Debug)]
pub(crate) struct Physical {
    /// Unique in the process.
    pub(crate) id: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Their place.
    pub(crate) place: Place,
    /// `CU_MEM_HANDLE_TYPE_*` by which they can be shared.
    pub(crate) handle_types: u32,
    offset: u64,
    backing: Backing,
    _charge: Option<Charge>,
}

#[derive(Debug)]
enum Backing {
    Shared(Arc<Store>),
    Own(OwnedFd),
}

/// What `cuMemCreate` has made on the host, also where it is gone by now.
pub(crate) fn created_on_host() -> MutexGuard<'static, Vec<Weak<Physical>>> {
    static MEMORY: Mutex<Vec<Weak<Physical>>> = Mutex::new(Vec::new());
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Physical {
    /// Cuts `size` bytes of a place from its store, charged to its budget if it has one.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the budget does not have them.
    pub(crate) fn cut(
        store: &Arc<Store>,
        place: Place,
        size: u64,
        budget: Option<&Arc<Budget>>,
    ) -> Outcome<Arc<Self>> {
        let charge = budget.map(|budget| budget.charge(size)).transpose()?;
        let backing = Backing::Shared(Arc::clone(store));
        Ok(Arc::new(Self {
            id: unique(),
            size,
            place,
            handle_types: 0,
            offset: store.cut(size),
            backing,
            _charge: charge,
        }))
    }

    /// As [`Self::cut`], in a file of its own.
    ///
    /// # Errors
    /// As [`Self::cut`], and `OPERATING_SYSTEM` without a free descriptor.
    pub(crate) fn shareable(
        place: Place,
        size: u64,
        budget: Option<&Arc<Budget>>,
        types: u32,
    ) -> Outcome<Arc<Self>> {
        let charge = budget.map(|budget| budget.charge(size)).transpose()?;
        let backing = Backing::Own(anonymous_file(&label(place), size)?);
        Ok(Arc::new(Self {
            id: unique(),
            size,
            place,
            handle_types: types,
            offset: 0,
            backing,
            _charge: charge,
        }))
    }

    /// Bytes of another process, which are charged there.
    pub(crate) fn foreign(file: OwnedFd, offset: u64, size: u64, place: Place, types: u32) -> Arc<Self> {
        let backing = Backing::Own(file);
        Arc::new(Self { id: unique(), size, place, handle_types: types, offset, backing, _charge: None })
    }

    /// The file of the bytes, and their offset in it.
    pub(crate) fn file(&self) -> (BorrowedFd<'_>, u64) {
        match &self.backing {
            Backing::Shared(store) => (store.file.as_fd(), self.offset),
            Backing::Own(file) => (file.as_fd(), self.offset),
        }
    }

    /// The inode number of that file, the same in every process that has it open.
    pub(crate) fn file_number(&self) -> u64 {
        // SAFETY: all zeroes is a valid `stat`.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: an open descriptor and a valid structure. For an open file the call does not
        // fail.
        unsafe { libc::fstat(self.file().0.as_raw_fd(), &raw mut stat) };
        stat.st_ino
    }

    /// Maps the bytes over a reserved range.
    ///
    /// # Errors
    /// As [`space::map`].
    pub(crate) fn map(&self, address: u64, protection: Protection) -> Outcome {
        let (file, offset) = self.file();
        space::map(address, self.size, file, offset, protection)
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        if let Backing::Shared(store) = &self.backing {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: an open descriptor, and no other code uses this range of it.
            unsafe { libc::fallocate(store.file.as_raw_fd(), mode, self.offset as i64, self.size as i64) };
        }
    }
}

/// A number that is used once.
pub(crate) fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The name of a shareable file contains the place of its bytes, for an importer.
fn label(place: Place) -> String {
    match place {
        Place::Device(ordinal) => format!("simcuda:device={}", settings().unit(ordinal)),
        Place::Host => "simcuda:host".to_owned(),
    }
}

/// Reads the place back from the name of a descriptor; `None` if the file is not one of ours, or of
/// a device that this process does not have.
pub(crate) fn place_of(file: BorrowedFd<'_>) -> Option<Place> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let name = link.to_str()?.strip_prefix("/memfd:simcuda:")?.trim_end_matches(" (deleted)").to_owned();
    match name.strip_prefix("device=") {
        Some(unit) => Some(Place::Device(settings().ordinal(unit.parse().ok()?)?)),
        None => (name == "host").then_some(Place::Host),
    }
}
