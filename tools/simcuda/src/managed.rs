//! Calls for managed memory. Here the host and all devices may use it, so advice and prefetches
//! have no effect.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use wm_abi::{CUdevice, CUdeviceptr, CUmemLocation, CUresult, CUstream};

use crate::entry::{Call, Outcome, exports, get_all, put, require};
use crate::graph::Kind;
use crate::memory::Owner;
use crate::state::driver;

/// Is the whole range managed memory?
///
/// # Errors
/// `INVALID_VALUE` if not.
fn managed(start: CUdeviceptr, bytes: usize) -> Outcome {
    let memory = driver().memory();
    let area = memory.find(start).ok_or(CUresult::INVALID_VALUE)?;
    let inside =
        bytes > 0 && (start - area.start).checked_add(bytes as u64).is_some_and(|end| end <= area.size);
    require(inside && matches!(area.owner, Owner::Managed { .. }), CUresult::INVALID_VALUE)
}

fn prefetch(call: &Call, start: CUdeviceptr, bytes: usize, stream: CUstream) -> Outcome {
    let stream = call.stream(stream)?;
    managed(start, bytes)?;
    stream.submit(Kind::EMPTY, Arc::new(|| Ok(()))).map(drop)
}

/// Read mostly: no. Preferred location and last prefetch: none (`CU_DEVICE_INVALID`). Other advice
/// is not stored.
fn attribute(attribute: c_uint) -> Outcome<c_int> {
    match attribute {
        1 => Ok(0),
        2 | 4 => Ok(-2),
        _ => Err(CUresult::NOT_SUPPORTED),
    }
}

exports! {
    fn cuMemAdvise(devPtr: CUdeviceptr, count: usize, advice: c_uint, device: CUdevice) |call| {
        call.context()?;
        require((1..=6).contains(&advice), CUresult::INVALID_VALUE)?;
        managed(devPtr, count)
    }

    fn cuMemAdvise_v2(devPtr: CUdeviceptr, count: usize, advice: c_uint, location: CUmemLocation) |call| {
        call.context()?;
        require((1..=6).contains(&advice), CUresult::INVALID_VALUE)?;
        managed(devPtr, count)
    }

    fn cuMemPrefetchAsync + cuMemPrefetchAsync_ptsz(devPtr: CUdeviceptr, count: usize, dstDevice: CUdevice, hStream: CUstream) |call| {
        prefetch(call, devPtr, count, hStream)
    }

    fn cuMemPrefetchAsync_v2 + cuMemPrefetchAsync_v2_ptsz(devPtr: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint, hStream: CUstream) |call| {
        require(flags == 0, CUresult::INVALID_VALUE)?;
        prefetch(call, devPtr, count, hStream)
    }

    fn cuMemRangeGetAttribute(data: *mut c_void, dataSize: usize, attribute: c_uint, devPtr: CUdeviceptr, count: usize) |call| {
        managed(devPtr, count)?;
        require(dataSize == 4, CUresult::INVALID_VALUE)?;
        put(data.cast(), self::attribute(attribute)?)
    }

    fn cuMemRangeGetAttributes(data: *mut *mut c_void, dataSizes: *mut usize, attributes: *mut c_uint, numAttributes: usize, devPtr: CUdeviceptr, count: usize) |call| {
        managed(devPtr, count)?;
        let (places, sizes) = (get_all(data, numAttributes)?, get_all(dataSizes, numAttributes)?);
        require(numAttributes > 0 && sizes.iter().all(|size| *size == 4), CUresult::INVALID_VALUE)?;
        let wanted = get_all(attributes, numAttributes)?;
        places.iter().zip(wanted).try_for_each(|(place, wanted)| put(place.cast(), attribute(wanted)?))
    }
}
