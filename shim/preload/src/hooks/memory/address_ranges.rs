//! Ranges of addresses that the program reserves and gives back.

use wm_abi::{CUdeviceptr, CUresult, symbol};

use super::reserved;
use crate::hooks::call::boundary::Outcome;
use crate::physical::{cache, segment};
use crate::process::driver;
use crate::subsystems::PROCESS;

/// `cuMemAddressFree`. Addresses are given back, and with them the unused memory there.
pub(in crate::hooks) fn mem_address_free(address: CUdeviceptr, bytes: usize) -> Outcome {
    if reserved::is_ours(address) {
        return Outcome::Return(CUresult::INVALID_VALUE);
    }
    if let Some(mut handles) = cache().handles_in(address, bytes as u64) {
        let _left = handles.clear(address, bytes as u64);
    }
    segment::changed();
    PROCESS.sharing.unreserved(address);
    Outcome::Forward
}

/// `cuMemAddressReserve`.
pub(in crate::hooks) unsafe fn mem_address_reserve(
    address: *mut CUdeviceptr,
    bytes: usize,
    alignment: usize,
    wanted: CUdeviceptr,
    flags: u64,
) -> CUresult {
    let reserve = driver().get::<symbol::cuMemAddressReserve>();
    // SAFETY: the program's arguments.
    let reserve_at = |place| unsafe { reserve(address, bytes, alignment, place, flags) };
    let place = if wanted == 0 { PROCESS.sharing.place_of_segment(bytes as u64) } else { None };
    let placed = place.map(reserve_at).filter(|result| *result == CUresult::SUCCESS);
    // The program's own call tells it what is wrong.
    let result = placed.unwrap_or_else(|| reserve_at(wanted));
    if result == CUresult::SUCCESS {
        segment::reserved(bytes as u64);
        // SAFETY: just written by the driver.
        let start = unsafe { *address };
        PROCESS.sharing.reserved(start..start.saturating_add(bytes as u64), wanted != 0);
    }
    result
}
