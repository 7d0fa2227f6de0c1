//! A file's bytes at addresses of this process.

use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use wm_driver::Api;
use wm_driver::api::Named;

use crate::error::Result;

/// Bytes of the system's pages, at least.
const PAGE: usize = 4096;

/// A shared mapping, removed when it is dropped.
#[derive(Debug)]
pub(super) struct FileMapping {
    start: usize,
    bytes: usize,
}

impl FileMapping {
    /// Maps the first bytes of a file, for reading and writing.
    pub(super) fn new(file: BorrowedFd<'_>, bytes: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new range of addresses, chosen by the system.
        let start = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Self { start: start as usize, bytes })
    }

    /// The first address.
    pub(super) fn address(&self) -> u64 {
        self.start as u64
    }

    /// Has the system put memory behind some bytes: near the core that runs this.
    pub(super) fn touch(&self, from: usize, bytes: usize) {
        let end = (from + bytes).min(self.bytes);
        for page in (from..end).step_by(PAGE) {
            // SAFETY: inside the mapping. No other rank writes there before all ranks have done
            // this.
            unsafe { ((self.start + page) as *mut u8).write_volatile(0) };
        }
    }

    /// Pins it for the current context's device and all others.
    pub(super) fn pin(&self, driver: &Named<'static>) -> Result {
        const PORTABLE_AND_MAPPED: u32 = 1 | 2;
        // SAFETY: the mapping lives until it is let go again.
        Ok(unsafe { driver.mem_host_register(self.start as *mut _, self.bytes, PORTABLE_AND_MAPPED) }?)
    }

    /// Lets it go. Nothing uses it any more.
    pub(super) fn unpin(&self, driver: &Named<'static>) {
        // SAFETY: it was pinned, and the device's work is over.
        let _ = unsafe { driver.mem_host_unregister(self.start as *mut _) };
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, without users.
        let _ = unsafe { munmap(self.start as *mut _, self.bytes) };
    }
}
