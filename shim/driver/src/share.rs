//! Physical memory between processes: handles as file descriptors, and mappings of what another process made.
//!
//! Invariant: an [`Import`] owns its reservation, its mappings and its handles; dropping it gives all of them back. The
//! owner sees to it that the GPU no longer uses the range.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use wm_abi::{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, symbol};

use crate::device::Device;
use crate::gpu::{Gpu, Handle, Result};

/// Memory of another process, mapped here for one device.
#[derive(Debug)]
pub struct Import {
    device: &'static Device,
    base: u64,
    bytes: usize,
    mapped: usize,
    handles: Vec<Handle>,
}

impl Device {
    /// A file descriptor for physical memory of this process; closed on exec.
    ///
    /// # Errors
    /// The driver's, for memory that was not made to be shared.
    pub fn export(&self, handle: Handle) -> Result<OwnedFd> {
        let mut descriptor: libc::c_int = -1;
        let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let export = self.driver().get::<symbol::cuMemExportToShareableHandle>();
        // SAFETY: for this handle type the driver writes one file descriptor.
        unsafe { export((&raw mut descriptor).cast(), handle.0, kind, 0) }.ok()?;
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Maps memory of another process, piece after piece, in a range of its own that this device may read and write.
    ///
    /// # Errors
    /// The driver's; whatever had been done is undone.
    pub fn import(&'static self, pieces: &[(OwnedFd, usize)]) -> Result<Import> {
        let bytes = pieces.iter().map(|(_, bytes)| bytes).sum();
        let mut import =
            Import { device: self, base: self.reserve(bytes)?, bytes, mapped: 0, handles: Vec::new() };
        for (descriptor, bytes) in pieces {
            import.add(descriptor, *bytes)?;
        }
        self.allow(import.base, import.bytes)?;
        Ok(import)
    }

    fn import_handle(&self, descriptor: &OwnedFd) -> Result<Handle> {
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

    fn add(&mut self, descriptor: &OwnedFd, bytes: usize) -> Result<()> {
        let handle = self.device.import_handle(descriptor)?;
        self.handles.push(handle);
        self.device.map(self.base + self.mapped as u64, bytes, handle)?;
        self.mapped += bytes;
        Ok(())
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // There is nobody to report a failure to; what cannot be undone ends with the process.
        if self.mapped > 0 {
            let _ = self.device.unmap(self.base, self.mapped);
        }
        let _ = self.device.unreserve(self.base, self.bytes);
        for handle in &self.handles {
            let _ = self.device.release(*handle);
        }
    }
}
