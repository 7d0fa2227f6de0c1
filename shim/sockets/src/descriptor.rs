//! Descriptors in a process that is not ours.
//!
//! Three hazards make a plain `OwnedFd` wrong here.
//! * Programs assume that low numbers are theirs. So ours are moved to 100 and above.
//! * Programs close descriptors that they never opened (daemons close all of them), and then open
//!   their own under the same numbers. So each use first compares device and inode with those of
//!   the descriptor that we opened.
//! * A forked child inherits all descriptors, and the threads that would close them do not exist
//!   there. So they stand in one table, which the child walks.
//!
//! Each socket and pipe has an inode of its own (an eventfd has not), which makes the comparison
//! sound. Descriptors of memory may share an inode; they are open only while a batch is passed on.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Lowest number that a descriptor of ours gets, where the process's limit allows it.
const LOWEST: RawFd = 100;
/// Marks a slot that is not in use.
const FREE: RawFd = -1;
/// Marks a slot that is being filled.
const CLAIMED: RawFd = -2;

/// All descriptors of ours that are open: listeners, pipes, connections, and one batch of memory
/// for each thread that passes memory on.
static SLOTS: [DescriptorSlot; 1024] = [const { DescriptorSlot::empty() }; 1024];

/// One open descriptor, with the device and inode that it had when we opened it.
struct DescriptorSlot {
    raw: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl DescriptorSlot {
    const fn empty() -> Self {
        Self { raw: AtomicI32::new(FREE), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    fn claim(&self) -> bool {
        self.raw.compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn fill(&self, raw: RawFd, (device, inode): (u64, u64)) {
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        self.raw.store(raw, Ordering::Release);
    }

    /// The descriptor, if it still names the file that we opened. Async-signal-safe.
    fn verified(&self) -> Option<RawFd> {
        let raw = self.raw.load(Ordering::Acquire);
        let expected = (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed));
        (raw >= 0 && identity(raw) == Some(expected)).then_some(raw)
    }

    /// The same, for one call. Async-signal-safe.
    fn borrow(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: `verified` has just seen that it is open and ours, and only the slot's owner
        // closes it.
        self.verified().map(|raw| unsafe { BorrowedFd::borrow_raw(raw) })
    }

    /// Closes the descriptor, if it still is ours, and frees the slot. Async-signal-safe.
    fn close(&self) {
        if let Some(raw) = self.verified() {
            // SAFETY: `verified` has checked that the number still names the file that we opened.
            unsafe { rustix::io::close(raw) };
        }
        self.raw.store(FREE, Ordering::Release);
    }
}

/// An open descriptor of ours. Closed on drop, unless the host has closed it.
#[derive(Debug)]
pub struct Descriptor {
    slot: usize,
}

impl Descriptor {
    /// Takes a descriptor over: moves it to a high number, makes it close-on-exec, and enters it in
    /// the table.
    ///
    /// # Errors
    /// The system's, and `QuotaExceeded` if 1024 descriptors are open.
    pub fn adopt(low: OwnedFd) -> io::Result<Self> {
        let raised = raise(low);
        let identity = identity(raised.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        let slot = SLOTS.iter().position(DescriptorSlot::claim).ok_or(io::ErrorKind::QuotaExceeded)?;
        SLOTS[slot].fill(raised.into_raw_fd(), identity);
        Ok(Self { slot })
    }

    /// The descriptor, for one call.
    ///
    /// # Errors
    /// `EBADF` if the host has closed it.
    pub fn get(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(SLOTS[self.slot].borrow().ok_or(rustix::io::Errno::BADF)?)
    }

    /// The argument for [`in_slot`], which a signal handler may call.
    pub fn slot(&self) -> usize {
        self.slot
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        SLOTS[self.slot].close();
    }
}

/// The descriptor in a slot, for one call, if it is open and ours. Async-signal-safe.
pub fn in_slot(slot: usize) -> Option<BorrowedFd<'static>> {
    SLOTS.get(slot).and_then(DescriptorSlot::borrow)
}

/// Closes all descriptors of ours, in a forked child. Async-signal-safe.
pub fn close_all() {
    SLOTS.iter().for_each(DescriptorSlot::close);
}

/// A copy with a high number, or the same descriptor if the limit on open files forbids that.
fn raise(low: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&low, LOWEST).unwrap_or(low)
}

/// Device and inode of an open descriptor. Async-signal-safe.
fn identity(raw: RawFd) -> Option<(u64, u64)> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // Not by rustix: its calls require that the number is open, which is the question here. SAFETY:
    // `fstat` accepts any number, open or not, and fills the structure if it succeeds.
    let status = unsafe { (libc::fstat(raw, status.as_mut_ptr()) == 0).then(|| status.assume_init()) }?;
    Some((status.st_dev, status.st_ino))
}
