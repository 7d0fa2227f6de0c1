//! Physical memory between processes: handles as file descriptors, and mappings of another
//! process's memory.
//!
//! Invariant: an [`Import`] owns its reservation and its mappings, which keep the physical memory
//! alive; the drop releases all of them. The owner ensures that the GPU no longer uses the range.

use std::os::fd::{BorrowedFd, OwnedFd};

use wm_abi::CUresult;

use crate::api::Api;
use crate::api::owned::PhysicalMemory;
use crate::api::scope::Relaxed;
use crate::device::Device;
use crate::gpu::{Gpu, Handle, Result};

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
    /// The driver's, for memory that was created without a shareable handle type.
    pub fn export(&self, handle: Handle) -> Result<OwnedFd> {
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        self.driver().mem_export(handle.0)
    }

    /// The physical memory behind a file descriptor, of this process or another one. The descriptor
    /// is not needed afterwards; the caller releases the handle with [`Gpu::release`].
    ///
    /// # Errors
    /// The driver's, for a descriptor of another kind.
    pub fn import_handle(&self, descriptor: BorrowedFd<'_>) -> Result<Handle> {
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        self.driver().mem_import(descriptor).map(Handle)
    }

    /// One more reference to the physical memory that is mapped at an address, to be released with
    /// [`Gpu::release`]. It equals the handle that the memory was mapped with, and no other memory
    /// has that handle meanwhile.
    ///
    /// # Errors
    /// The driver's, for an address where nothing is mapped.
    pub fn retain(&self, address: u64) -> Result<Handle> {
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        self.driver().mem_retain(address).map(Handle)
    }

    /// An own range for memory of another process, to be mapped there piece after piece.
    ///
    /// # Errors
    /// The driver's.
    pub fn import(&'static self, bytes: usize) -> Result<Import> {
        Ok(Import { device: self, base: self.reserve(bytes)?, bytes, mapped: 0 })
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
    /// `INVALID_VALUE` if it does not fit into the range; the driver's.
    pub fn add(&mut self, descriptor: BorrowedFd<'_>, bytes: usize) -> Result<()> {
        if bytes > self.bytes - self.mapped {
            return Err(CUresult::INVALID_VALUE);
        }
        let _relaxed = Relaxed::enter(self.device.driver(), self.device.streams());
        let driver = self.device.measured();
        // A mapping keeps the memory alive, so the handle is released in any case.
        let memory = PhysicalMemory::from_raw(&driver, self.device.driver().mem_import(descriptor)?);
        self.device.map(self.base + self.mapped as u64, bytes, Handle(memory.raw()))?;
        self.mapped += bytes;
        Ok(())
    }

    /// Lets the device, and every peer that may access its memory now, read and write the mapped
    /// range.
    ///
    /// # Errors
    /// `INVALID_VALUE` if pieces are missing; the driver's.
    pub fn allow(&self) -> Result<()> {
        if self.mapped < self.bytes {
            return Err(CUresult::INVALID_VALUE);
        }
        self.device.allow(self.base, self.bytes)
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // A failure cannot be reported; the remaining mappings end with the process.
        if self.mapped > 0 {
            let _ = self.device.unmap(self.base, self.mapped);
        }
        let _ = self.device.unreserve(self.base, self.bytes);
    }
}

/// May this process take descriptors out of another one of its user (`pidfd_getfd`), as the kernel
/// reports it? The call itself is not tried: a filter of system calls might end the process for it.
/// The filters of containers permit the call to a process with the capability.
pub fn may_fetch_descriptors() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| permits_fetching(&status, scope.as_deref()))
}

fn permits_fetching(status: &str, ptrace_scope: Option<&str>) -> bool {
    const SYS_PTRACE: u32 = 19;
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let capabilities = field("CapEff").and_then(|set| u64::from_str_radix(set, 16).ok());
    let capable = capabilities.is_some_and(|set| set >> SYS_PTRACE & 1 == 1);
    let filtered = field("Seccomp") != Some("0");
    capable || !filtered && ptrace_scope.is_none_or(|scope| scope.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hazard: tensors cannot be shared where they could be before.
    #[test]
    fn descriptors_can_be_fetched_where_the_kernel_says_so() {
        let status = |capabilities: &str, filter: &str| {
            format!(
                "Name:\tpython3\nCapEff:\t{capabilities}\nNoNewPrivs:\t0\nSeccomp:\t{filter}\nSeccomp_filters:\t0\n"
            )
        };
        let (all, docker, none) = ("000001ffffffffff", "00000000a80425fb", "0000000000000000");
        for (capabilities, filter, scope, may) in [
            (all, "0", Some("1\n"), true),
            (all, "2", Some("1\n"), true),
            (docker, "2", Some("0\n"), false),
            (docker, "0", Some("1\n"), false),
            (none, "0", Some("1\n"), false),
            (none, "0", Some("0\n"), true),
            (none, "0", None, true),
            (none, "2", None, false),
        ] {
            let told = permits_fetching(&status(capabilities, filter), scope);
            assert_eq!(told, may, "{capabilities} {filter} {scope:?}");
        }
        assert!(!permits_fetching("", None));
    }
}
