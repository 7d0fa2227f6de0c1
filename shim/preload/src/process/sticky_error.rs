//! Has a context failed for good?
//!
//! After a kernel has faulted, the driver answers every later call in that context with the same
//! error. A hit makes no driver call, so it would not notice. Therefore the first such error that a
//! hooked call returns is remembered, and from then on every allocation and free asks the driver
//! first whether the calling thread's context has failed.

use std::sync::atomic::Ordering::Relaxed;

use wm_abi::CUresult;
use wm_driver::Api;

use super::driver::driver;
use super::hot::PROCESS_HOT;

/// Errors after which the driver gives no other answer.
const STICKY: &[CUresult] = &[
    CUresult::ECC_UNCORRECTABLE,
    CUresult::NVLINK_UNCORRECTABLE,
    CUresult::CONTAINED,
    CUresult::ILLEGAL_ADDRESS,
    CUresult::LAUNCH_TIMEOUT,
    CUresult::ASSERT,
    CUresult::HARDWARE_STACK_ERROR,
    CUresult::ILLEGAL_INSTRUCTION,
    CUresult::MISALIGNED_ADDRESS,
    CUresult::INVALID_ADDRESS_SPACE,
    CUresult::INVALID_PC,
    CUresult::LAUNCH_FAILED,
    CUresult::TENSOR_MEMORY_LEAK,
];

/// A hooked call returned this error. `true` for the first one of the process after which the
/// driver gives no other answer.
pub(crate) fn is_first(error: CUresult) -> bool {
    STICKY.contains(&error) && !PROCESS_HOT.suspect.swap(true, Relaxed)
}

/// The error that the calling thread's context answers everything with, if it has failed.
#[inline]
pub(crate) fn failure() -> Option<CUresult> {
    if PROCESS_HOT.suspect.load(Relaxed) { ask() } else { None }
}

#[cold]
#[inline(never)]
fn ask() -> Option<CUresult> {
    driver().mem_info().err().filter(|error| STICKY.contains(error))
}
