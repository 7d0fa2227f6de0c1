//! Address space: reserving, mapping, protecting and releasing ranges of this process.
//!
//! The only file that calls `mmap`. Invariant: no mapping ever replaces a range that we did not
//! reserve.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use libc::{
    MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED,
    PROT_NONE, PROT_READ, PROT_WRITE, c_int, c_void,
};
use wm_abi::CUresult;

use super::PAGE;
use crate::entry::Outcome;

/// The rights of the CPU, and thereby of a kernel, to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// No access.
    None,
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
}

impl Protection {
    fn bits(self) -> c_int {
        match self {
            Self::None => PROT_NONE,
            Self::Read => PROT_READ,
            Self::ReadWrite => PROT_READ | PROT_WRITE,
        }
    }
}

/// Reserves `bytes` of inaccessible address space at a multiple of `alignment`, at `hint` if that
/// is free.
///
/// # Errors
/// `OUT_OF_MEMORY` if there is no such range.
pub(crate) fn reserve(bytes: u64, alignment: u64, hint: u64) -> Outcome<u64> {
    let hint = (hint != 0 && hint.is_multiple_of(alignment.max(PAGE))).then_some(hint);
    if let Some(address) = hint.and_then(|hint| blank(hint, bytes, MAP_FIXED_NOREPLACE)) {
        return Ok(address);
    }
    let padding = if alignment > PAGE { alignment } else { 0 };
    let padded = bytes.checked_add(padding).ok_or(CUresult::OUT_OF_MEMORY)?;
    let raw = blank(0, padded, 0).ok_or(CUresult::OUT_OF_MEMORY)?;
    let start = super::round_up(raw, alignment.max(PAGE)).ok_or(CUresult::OUT_OF_MEMORY)?;
    release(raw, start - raw);
    release(start + bytes, raw + padded - (start + bytes));
    Ok(start)
}

fn blank(address: u64, bytes: u64, flags: c_int) -> Option<u64> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags;
    // SAFETY: without MAP_FIXED the kernel chooses a free range, or fails.
    let found = unsafe { libc::mmap(address as *mut c_void, bytes as usize, PROT_NONE, flags, -1, 0) };
    if found == MAP_FAILED {
        return None;
    }
    if address != 0 && found as u64 != address {
        release(found as u64, bytes);
        return None;
    }
    Some(found as u64)
}

/// Releases reserved address space, with all its mappings.
pub(crate) fn release(address: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: the range is one that `reserve` made, or the unused rim of it.
        unsafe { libc::munmap(address as *mut c_void, bytes as usize) };
    }
}

/// Maps part of a file over a reserved range.
///
/// # Errors
/// `OUT_OF_MEMORY` if the kernel has no room for another mapping.
pub(crate) fn map(
    address: u64,
    bytes: u64,
    file: BorrowedFd<'_>,
    offset: u64,
    protection: Protection,
) -> Outcome {
    let flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    let place = address as *mut c_void;
    // SAFETY: the caller reserved the range, so no other mapping is replaced.
    let mapped = unsafe {
        libc::mmap(place, bytes as usize, protection.bits(), flags, file.as_raw_fd(), offset as libc::off_t)
    };
    if mapped == MAP_FAILED { Err(CUresult::OUT_OF_MEMORY) } else { Ok(()) }
}

/// Turns a mapped range back into inaccessible reserved address space.
pub(crate) fn unmap(address: u64, bytes: u64) {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    // SAFETY: the caller reserved the range; only our own mapping is replaced.
    unsafe { libc::mmap(address as *mut c_void, bytes as usize, PROT_NONE, flags, -1, 0) };
}

/// Changes the rights to a mapped range.
///
/// # Errors
/// `OUT_OF_MEMORY` if the kernel has no room to split its records.
pub(crate) fn protect(address: u64, bytes: u64, protection: Protection) -> Outcome {
    // SAFETY: the range is our own mapping.
    let result = unsafe { libc::mprotect(address as *mut c_void, bytes as usize, protection.bits()) };
    if result == 0 { Ok(()) } else { Err(CUresult::OUT_OF_MEMORY) }
}

/// Copies bytes within this process; the ranges may overlap.
///
/// # Safety
/// Both ranges are readable and writable as needed for the whole call.
pub(crate) unsafe fn copy(destination: u64, source: u64, bytes: u64) {
    // SAFETY: by contract.
    unsafe { ptr::copy(source as *const u8, destination as *mut u8, bytes as usize) };
}
