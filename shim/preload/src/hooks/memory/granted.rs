//! The rights to the program's own memory, as the program granted them.

use wm_abi::{CU_MEM_LOCATION_TYPE_DEVICE, CUdeviceptr, CUmemLocation, CUresult};

use crate::hooks::call::boundary::Outcome;
use crate::physical::cache;
use crate::subsystems::PROCESS;

/// `cuMemGetAccess`. Of a piece it is what the program granted, also while its memory can only be
/// read.
pub(in crate::hooks) unsafe fn mem_get_access(
    flags: *mut u64,
    location: *const CUmemLocation,
    address: CUdeviceptr,
) -> Outcome {
    if flags.is_null() || location.is_null() || !PROCESS.moves.has_pieces() {
        return Outcome::Forward;
    }
    // SAFETY: the program's argument, not null.
    let location = unsafe { *location };
    let is_device = location.type_ == CU_MEM_LOCATION_TYPE_DEVICE;
    let granted = cache().handles().filter(|_| is_device);
    match granted.and_then(|handles| handles.granted_to(location.id, address)) {
        Some(granted) => {
            // SAFETY: the program's out-pointer, not null.
            unsafe { *flags = granted.into() };
            Outcome::Return(CUresult::SUCCESS)
        }
        None => Outcome::Forward,
    }
}
