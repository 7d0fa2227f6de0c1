//! `cuMemAlloc` and its variants, and queries of an address range.

use std::ffi::c_uint;
use std::sync::Arc;

use wm_abi::{CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST, CUdeviceptr, CUresult};

use crate::capture;
use crate::context::Context;
use crate::entry::{Outcome, exports, put, put_optional, require};
use crate::memory::{self, Area, Owner, Place};
use crate::pool;
use crate::races;
use crate::state::driver;

/// Rows of a pitched allocation start at multiples of this.
const PITCH: usize = 512;

fn allocate(context: &Context, bytes: u64) -> Outcome<CUdeviceptr> {
    capture::forbid_unsafe()?;
    let place = Place::Device(context.device);
    let block = pool::with_reclaim(place, || memory::allocate(place, bytes))?;
    Ok(block.enter(bytes, |physical| Owner::Linear { physical, context: context.owner_handle() }))
}

fn allocate_managed(context: &Context, bytes: u64) -> Outcome<CUdeviceptr> {
    capture::forbid_unsafe()?;
    // Managed memory may exceed the device, so it is host memory here.
    let block = memory::allocate(Place::Host, bytes)?;
    Ok(block.enter(bytes, |physical| Owner::Managed { physical, context: context.owner_handle() }))
}

/// Waits for the work of the block's own context and its green ones, as an H200 does, and frees the
/// memory.
fn free(address: CUdeviceptr) -> Outcome {
    capture::forbid_unsafe()?;
    let is_pools = pool::is_live(address);
    if is_pools {
        return pool::free_now(address);
    }
    // It is the first call to report work that failed, and then frees nothing.
    freeable(address)?.map_or(Ok(()), |owner| owner.synchronize())?;
    let bytes = driver().memory().find(address).map_or(0, |area| area.size);
    races::leave(address..address + bytes, "a free by the host");
    let is_plain = |area: &Area| matches!(area.owner, Owner::Linear { .. } | Owner::Managed { .. });
    let area = driver().memory_mut().remove_if(address, is_plain);
    area.map(Area::discard).ok_or(CUresult::INVALID_VALUE)
}

/// The context whose work must end before a block is freed, if it is alive.
fn freeable(address: CUdeviceptr) -> Outcome<Option<Arc<Context>>> {
    let memory = driver().memory();
    let area = memory.find(address).filter(|area| area.start == address).ok_or(CUresult::INVALID_VALUE)?;
    match area.owner {
        Owner::Linear { context, .. } | Owner::Managed { context, .. } => Ok(driver().contexts.get(context)),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// Start and size of the area at an address. For host memory in a reservation the result is 0, as
/// with NVIDIA's driver.
fn range(address: CUdeviceptr) -> Outcome<(CUdeviceptr, usize)> {
    let memory = driver().memory();
    let area = memory.find(address).ok_or(CUresult::NOT_FOUND)?;
    match &area.owner {
        Owner::Reserved(_) => match area.mapping(address).ok_or(CUresult::NOT_FOUND)? {
            (_, mapping) if mapping.physical.place == Place::Host => Ok((0, mapping.physical.size as usize)),
            (start, mapping) => Ok((start, mapping.physical.size as usize)),
        },
        Owner::Pool { live: false, .. } => Err(CUresult::NOT_FOUND),
        _ => Ok((area.start, area.size as usize)),
    }
}

/// As in the driver: the product wraps, and the wrapped size is requested.
fn pitched(width: usize, height: usize, element: u32) -> Outcome<(usize, u64)> {
    let valid = matches!(element, 4 | 8 | 16) && width > 0 && height > 0;
    require(valid, CUresult::INVALID_VALUE)?;
    let pitch = width.checked_next_multiple_of(PITCH).ok_or(CUresult::INVALID_VALUE)?;
    Ok((pitch, pitch.wrapping_mul(height) as u64))
}

exports! {
    fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize) |call| {
        let context = call.context()?;
        require(!dptr.is_null(), CUresult::INVALID_VALUE)?;
        put(dptr, allocate(&context, bytesize as u64)?)
    }

    fn cuMemAllocPitch_v2(dptr: *mut CUdeviceptr, pPitch: *mut usize, WidthInBytes: usize, Height: usize, ElementSizeBytes: c_uint) |call| {
        let context = call.context()?;
        require(!dptr.is_null() && !pPitch.is_null(), CUresult::INVALID_VALUE)?;
        let (pitch, bytes) = pitched(WidthInBytes, Height, ElementSizeBytes)?;
        put(dptr, allocate(&context, bytes)?)?;
        put(pPitch, pitch)
    }

    fn cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint) |call| {
        let context = call.context()?;
        let valid = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
        require(!dptr.is_null() && valid, CUresult::INVALID_VALUE)?;
        put(dptr, allocate_managed(&context, bytesize as u64)?)
    }

    fn cuMemFree_v2(dptr: CUdeviceptr) |call| {
        // Memory has its own context: none needs to be current.
        match call.context() {
            _ if dptr == 0 => Ok(()),
            Err(code) if code != CUresult::INVALID_CONTEXT => Err(code),
            _ => free(dptr),
        }
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |call| {
        let budget = &driver().devices[call.context()?.device].budget;
        put_optional(free, budget.free() as usize);
        put_optional(total, budget.total as usize);
        Ok(())
    }

    fn cuMemGetAddressRange_v2(pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr) |call| {
        call.context()?;
        let (base, size) = range(dptr)?;
        put_optional(pbase, base);
        put_optional(psize, size);
        Ok(())
    }
}
