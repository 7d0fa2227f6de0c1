//! The properties of a device, as the runtime's structure has them.
//!
//! Hazard: a program reads the value of another field.

use wm_abi::{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_WARP_SIZE};
use wm_driver::Api;

use crate::rank::{Rank, Verdict, must};

/// Offsets of fields in `cudaDeviceProp` of CUDA 13.
const TOTAL_MEMORY: usize = 288;
const WARP_SIZE: usize = 308;
const MULTIPROCESSORS: usize = 384;

pub(super) fn described(rank: &Rank) -> Verdict {
    // SAFETY: takes a number.
    let place = unsafe { (rank.library.get_device_prop)(-1) };
    must(!place.is_null(), || "the current device has no properties".to_owned())?;
    // SAFETY: the structure has this many bytes, and stays.
    let bytes = unsafe { std::slice::from_raw_parts(place, 1008) };
    let number = |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let failed = |error: wm_driver::api::Failed| error.to_string();
    let device = rank.driver.ctx_device().map_err(failed)?;
    let name = rank.driver.device_name(device).map_err(failed)?;
    must(bytes.starts_with(name.as_bytes()) && bytes[name.len()] == 0, || {
        format!("another name than {name}")
    })?;
    let total = rank.driver.device_total_mem(device).map_err(failed)?;
    must(bytes[TOTAL_MEMORY..][..8] == total.to_ne_bytes(), || "another size of memory".to_owned())?;
    for (at, attribute) in [
        (WARP_SIZE, CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        (MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
    ] {
        let wanted = rank.driver.device_attribute(attribute, device).map_err(failed)?;
        must(number(at) == wanted, || format!("byte {at}: {} instead of {wanted}", number(at)))?;
    }
    // SAFETY: takes a number.
    let (again, none) = unsafe { ((rank.library.get_device_prop)(-1), (rank.library.get_device_prop)(9999)) };
    must(again == place && none.is_null(), || "another place, or a device that there is not".to_owned())
}
