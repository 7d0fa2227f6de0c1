//! Memory in use by all processes that name the same file (`SIMCUDA_SHARED`): they compete for it,
//! as processes on one machine do.
//!
//! The file is an array of 64-bit counts in bytes: a row of [`COLUMNS`] for each process, the host
//! first, then the devices.
//!
//! Invariants: a process changes its own row alone. It holds its row by a lock on a byte of the
//! file, which the kernel releases at any end of the process; a row without a holder counts as
//! empty. Sum and change are one step for all processes, under the lock of [`TURN`].

use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::Place;
use crate::settings::{complain, settings};

/// Counts of a process.
const COLUMNS: usize = 65;
/// Processes at a time.
const ROWS: usize = 256;
/// The byte whose lock lets one process at a time read and change the table. The byte of row 0
/// follows it, then that of row 1, and so on.
const TURN: i64 = 0;

/// The file, and this process's row of it.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: File,
    counts: &'static [AtomicU64],
    row: usize,
    /// The kernel's lock belongs to the process: threads use this lock among each other.
    turn: Mutex<()>,
}

/// The ledger that the settings name; `None` without one.
pub(crate) fn ledger() -> Option<&'static Ledger> {
    static LEDGER: OnceLock<Option<Ledger>> = OnceLock::new();
    let open = || {
        let path = settings().shared.as_ref()?;
        let opened = Ledger::open(path);
        opened.inspect_err(|error| complain(&format_args!("SIMCUDA_SHARED={path:?}: {error}"))).ok()
    };
    LEDGER.get_or_init(open).as_ref()
}

fn column(place: Place) -> usize {
    match place {
        Place::Host => 0,
        Place::Device(ordinal) => 1 + settings().unit(ordinal),
    }
}

impl Ledger {
    fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let bytes = ROWS * COLUMNS * size_of::<u64>();
        file.set_len(bytes as u64)?;
        // SAFETY: a mapping of its own, of a file of that length; it lives as long as the process.
        let start = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the mapping has this length, is aligned to a page, and any bits are a count.
        let counts = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), ROWS * COLUMNS) };
        let is_free = |row: &usize| lock(&file, libc::F_OFD_SETLK, libc::F_WRLCK, byte_of(*row)).is_some();
        let row = (0..ROWS).find(is_free).ok_or(std::io::ErrorKind::QuotaExceeded)?;
        let ledger = Self { file, counts, row, turn: Mutex::default() };
        (0..COLUMNS).for_each(|column| ledger.count(row, column).store(0, Ordering::Relaxed));
        Ok(ledger)
    }

    /// Bytes of a place that all processes use.
    pub(crate) fn used(&self, place: Place) -> u64 {
        let column = column(place);
        let rows = (0..ROWS).map(|row| (row, self.count(row, column).load(Ordering::Relaxed)));
        rows.filter(|(row, bytes)| *bytes > 0 && self.is_held(*row)).map(|(_, bytes)| bytes).sum()
    }

    /// Reserves bytes of a place that has `total`. Returns whether they were free.
    pub(crate) fn reserve(&self, place: Place, bytes: u64, total: u64) -> bool {
        let _mine = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        lock(&self.file, libc::F_OFD_SETLKW, libc::F_WRLCK, TURN);
        let fits = self.used(place).checked_add(bytes).is_some_and(|used| used <= total);
        if fits {
            self.count(self.row, column(place)).fetch_add(bytes, Ordering::Relaxed);
        }
        lock(&self.file, libc::F_OFD_SETLK, libc::F_UNLCK, TURN);
        fits
    }

    /// Returns bytes of a place.
    pub(crate) fn give(&self, place: Place, bytes: u64) {
        self.count(self.row, column(place)).fetch_sub(bytes, Ordering::Relaxed);
    }

    fn count(&self, row: usize, column: usize) -> &AtomicU64 {
        &self.counts[row * COLUMNS + column]
    }

    /// Does a living process hold the row? For our own row the kernel's answer would be no.
    fn is_held(&self, row: usize) -> bool {
        let asked = || lock(&self.file, libc::F_OFD_GETLK, libc::F_WRLCK, byte_of(row));
        row == self.row || asked().is_some_and(|kind| kind != libc::F_UNLCK)
    }
}

fn byte_of(row: usize) -> i64 {
    row as i64 + 1
}

/// A call about the lock of one byte. Returns the kind of lock in force or requested; `None` if the
/// call fails.
fn lock(file: &File, command: c_int, kind: c_int, byte: i64) -> Option<c_int> {
    // SAFETY: all zeroes is a valid lock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence, lock.l_start, lock.l_len) = (kind as i16, libc::SEEK_SET as i16, byte, 1);
    // SAFETY: an open file and a valid lock.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    (done == 0).then_some(lock.l_type.into())
}
