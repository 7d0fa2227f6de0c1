//! Descriptors in a process that is not ours.
//!
//! Three hazards make a plain `OwnedFd` wrong here.
//! * Programs assume that low numbers are theirs. So ours are moved to 100 and above.
//! * Programs close descriptors that they never opened (daemons close all of them), and then open
//!   their own under the same numbers. So each use first compares device and inode with those of
//!   the descriptor that we opened.
//! * A forked child inherits all descriptors, and the threads that would close them do not exist
//!   there. So they stand in one table, which the child walks. The objects that own them exist in
//!   the child, too: such an object closes nothing that the child has opened since.
//!
//! Each socket and pipe has an inode of its own (an eventfd has not), which makes the comparison
//! sound. Descriptors of memory may share an inode; they are open only while a batch is passed on.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Lowest number that a descriptor of ours gets, where the process's limit allows it.
const LOWEST: RawFd = 100;
/// Marks a slot that is not in use.
const FREE: RawFd = -1;
/// Marks a slot that is being filled.
const CLAIMED: RawFd = -2;

/// Slots of one block.
const BLOCK: usize = 1024;
/// Blocks beside the first one, at most.
const MORE: usize = 15;

/// All descriptors of ours that are open: listeners, pipes, connections, and one batch of memory
/// for each thread that passes memory on.
static SLOTS: DescriptorBlock = [const { DescriptorSlot::empty() }; BLOCK];

/// More of them, in the order in which they were needed. They are not given back.
static MORE_SLOTS: [OnceLock<Box<DescriptorBlock>>; MORE] = [const { OnceLock::new() }; MORE];

type DescriptorBlock = [DescriptorSlot; BLOCK];

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

    /// Does the slot hold this file?
    fn holds(&self, identity: (u64, u64)) -> bool {
        let held = (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed));
        self.raw.load(Ordering::Acquire) >= 0 && held == identity
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

/// The slots that are there. Async-signal-safe.
fn slots() -> impl Iterator<Item = &'static DescriptorSlot> {
    SLOTS.iter().chain(MORE_SLOTS.iter().map_while(OnceLock::get).flat_map(|block| block.iter()))
}

/// A slot that is there. Async-signal-safe.
fn slot(number: usize) -> Option<&'static DescriptorSlot> {
    match (number / BLOCK).checked_sub(1) {
        None => SLOTS.get(number),
        Some(block) => MORE_SLOTS.get(block)?.get()?.get(number % BLOCK),
    }
}

/// Claims a slot, in a new block if all are in use.
fn claim() -> Option<usize> {
    if let Some(found) = slots().position(DescriptorSlot::claim) {
        return Some(found);
    }
    MORE_SLOTS.iter().enumerate().find_map(|(number, block)| {
        let block = block.get_or_init(|| Box::new([const { DescriptorSlot::empty() }; BLOCK]));
        block.iter().position(DescriptorSlot::claim).map(|found| (number + 1) * BLOCK + found)
    })
}

/// An open descriptor of ours. Closed on drop, unless the host has closed it.
#[derive(Debug)]
pub struct Descriptor {
    slot: usize,
    /// Device and inode: in a child of a fork another descriptor may have the slot.
    identity: (u64, u64),
}

impl Descriptor {
    /// Takes a descriptor over: moves it to a high number, makes it close-on-exec, and enters it in
    /// the table.
    ///
    /// # Errors
    /// The system's, and `QuotaExceeded` if 16,384 descriptors are open.
    pub fn adopt(low: OwnedFd) -> io::Result<Self> {
        let raised = raise(low);
        let identity = identity(raised.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        let number = claim().ok_or(io::ErrorKind::QuotaExceeded)?;
        let slot = slot(number).ok_or(io::ErrorKind::QuotaExceeded)?;
        slot.fill(raised.into_raw_fd(), identity);
        Ok(Self { slot: number, identity })
    }

    /// The descriptor, for one call.
    ///
    /// # Errors
    /// `EBADF` if the host has closed it, or in a forked child.
    pub fn get(&self) -> io::Result<BorrowedFd<'_>> {
        let own = slot(self.slot).filter(|slot| slot.holds(self.identity));
        Ok(own.and_then(DescriptorSlot::borrow).ok_or(rustix::io::Errno::BADF)?)
    }

    /// The argument for [`in_slot`], which a signal handler may call.
    pub fn slot(&self) -> usize {
        self.slot
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Some(slot) = slot(self.slot).filter(|slot| slot.holds(self.identity)) {
            slot.close();
        }
    }
}

/// The descriptor in a slot, for one call, if it is open and ours. Async-signal-safe.
pub fn in_slot(number: usize) -> Option<BorrowedFd<'static>> {
    slot(number).and_then(DescriptorSlot::borrow)
}

/// Closes all descriptors of ours, in a forked child. Async-signal-safe.
pub fn close_all() {
    slots().for_each(DescriptorSlot::close);
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

#[cfg(test)]
mod tests {
    //! Hazard (process lifecycle): a descriptor of the host's, or of the child's own, is closed
    //! under its number.
    use std::os::fd::AsFd;

    use super::*;

    fn socket() -> OwnedFd {
        std::os::unix::net::UnixDatagram::unbound().expect("a socket").into()
    }

    #[test]
    fn a_number_that_the_host_has_reused_is_left_alone() {
        let ours = Descriptor::adopt(socket()).expect("a slot");
        let number = ours.get().expect("open").as_raw_fd();
        let host = std::fs::File::open("/dev/null").expect("open");
        // SAFETY: the host closes a descriptor that it never opened, and opens its own.
        assert_eq!(unsafe { libc::dup2(host.as_raw_fd(), number) }, number);
        assert!(ours.get().is_err());
        close_all();
        drop(ours);
        assert_eq!(identity(number), identity(host.as_raw_fd()));
        // SAFETY: the descriptor that this test has opened.
        unsafe { rustix::io::close(number) };
    }

    /// The walk of a child, whose objects are dropped after it has opened its own.
    #[test]
    fn an_object_of_before_the_walk_closes_nothing_of_after() {
        let before = Descriptor::adopt(socket()).expect("a slot");
        close_all();
        let after = Descriptor::adopt(socket()).expect("the same slot");
        assert_eq!(before.slot(), after.slot());
        assert!(before.get().is_err());
        drop(before);
        assert!(after.get().is_ok());
    }

    #[test]
    fn there_is_room_for_more_than_a_block() {
        let limit = rustix::process::Resource::Nofile;
        let current = rustix::process::getrlimit(limit);
        let raised = rustix::process::Rlimit { current: current.maximum, ..current };
        rustix::process::setrlimit(limit, raised).expect("up to the hard limit");
        let file = socket();
        let copy = || file.as_fd().try_clone_to_owned().and_then(Descriptor::adopt);
        let Ok(all) = (0..BLOCK + 100).map(|_| copy()).collect::<io::Result<Vec<_>>>() else {
            return eprintln!("skipped: the limit on open files is too low");
        };
        assert!(all.iter().all(|one| one.get().is_ok() && in_slot(one.slot()).is_some()));
        let last = all.last().map(|last| last.get().expect("open").as_raw_fd()).expect("many");
        close_all();
        assert_eq!(identity(last), None);
        drop(all);
    }
}
