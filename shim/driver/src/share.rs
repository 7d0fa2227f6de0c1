//! Physical memory between processes: handles as file descriptors, and mappings of what another process made.
//!
//! Invariant: an [`Import`] owns its reservation and its mappings, which keep the physical memory; dropping it gives all of
//! them back. The owner sees to it that the GPU no longer uses the range.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use wm_abi::{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUresult, symbol};

use crate::device::Device;
use crate::gpu::{Gpu, Handle, Result};
use crate::scope::Relaxed;

/// Memory of another process, mapped here for one device.
#[derive(Debug)]
pub struct Import {
    device: &'static Device,
    base: u64,
    bytes: usize,
    mapped: usize,
}

impl Device {
    /// A file descriptor for physical memory of this process; closed on exec.
    ///
    /// # Errors
    /// The driver's, for memory that was not made to be shared.
    pub fn export(&self, handle: Handle) -> Result<OwnedFd> {
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        let mut descriptor: libc::c_int = -1;
        let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let export = self.driver().get::<symbol::cuMemExportToShareableHandle>();
        // SAFETY: for this handle type the driver writes one file descriptor.
        unsafe { export((&raw mut descriptor).cast(), handle.0, kind, 0) }.ok()?;
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// A range of its own for memory of another process, to be mapped there piece after piece.
    ///
    /// # Errors
    /// The driver's.
    pub fn import(&'static self, bytes: usize) -> Result<Import> {
        Ok(Import { device: self, base: self.reserve(bytes)?, bytes, mapped: 0 })
    }

    fn import_handle(&self, descriptor: BorrowedFd<'_>) -> Result<Handle> {
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        let mut handle = 0;
        let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let import = self.driver().get::<symbol::cuMemImportFromShareableHandle>();
        // SAFETY: for this handle type the driver takes the descriptor's number in the pointer's place.
        unsafe { import(&mut handle, descriptor.as_raw_fd() as usize as *mut _, kind) }.ok()?;
        Ok(Handle(handle))
    }
}

impl Import {
    /// First address of the range.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Size of the range in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Maps the next piece. The descriptor is not needed afterwards.
    ///
    /// # Errors
    /// `INVALID_VALUE` where it does not fit into the range; the driver's.
    pub fn add(&mut self, descriptor: BorrowedFd<'_>, bytes: usize) -> Result<()> {
        if bytes > self.bytes - self.mapped {
            return Err(CUresult::INVALID_VALUE);
        }
        let handle = self.device.import_handle(descriptor)?;
        let mapped = self.device.map(self.base + self.mapped as u64, bytes, handle);
        // A mapping keeps the memory; there is nobody to report a failure to.
        let _ = self.device.release(handle);
        mapped?;
        self.mapped += bytes;
        Ok(())
    }

    /// Lets the device, and every peer that may access its memory now, read and write what is mapped.
    ///
    /// # Errors
    /// `INVALID_VALUE` where pieces are missing; the driver's.
    pub fn allow(&self) -> Result<()> {
        if self.mapped < self.bytes {
            return Err(CUresult::INVALID_VALUE);
        }
        self.device.allow(self.base, self.bytes)
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // There is nobody to report a failure to; what cannot be undone ends with the process.
        if self.mapped > 0 {
            let _ = self.device.unmap(self.base, self.mapped);
        }
        let _ = self.device.unreserve(self.base, self.bytes);
    }
}
