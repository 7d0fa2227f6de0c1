//! The driver's functions about stream-ordered memory.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use wm_abi::*;

use crate::capture;
use crate::entry::{Call, Outcome, exports, get, get_all, put, require};
use crate::graph::Kind;
use crate::memory::{Owner, Place};
use crate::pool::{self, Pool};
use crate::state::driver;
use crate::vmm::place_of;

fn of(handle: CUmemoryPool) -> Outcome<Arc<Pool>> {
    driver().pools.get(handle.0).filter(|pool| !pool.is_over()).ok_or(CUresult::INVALID_VALUE)
}

fn allocate(call: &Call, bytes: usize, pool: Option<CUmemoryPool>, stream: CUstream) -> Outcome<CUdeviceptr> {
    let context = call.context()?;
    let stream = call.stream(stream)?;
    let pool = of(pool.unwrap_or(CUmemoryPool(driver().devices[context.device].pool())))?;
    if stream.capture().is_some() {
        return pool::allocate_captured(pool.place, bytes as u64, &stream);
    }
    capture::forbid_unsafe()?;
    pool.allocate(bytes as u64, &stream)
}

fn free(call: &Call, address: CUdeviceptr, stream: CUstream) -> Outcome {
    call.context()?;
    let stream = call.stream(stream)?;
    let Some(capture) = stream.capture() else {
        capture::forbid_unsafe()?;
        return pool::free_in(address, &stream);
    };
    let is_graphs =
        driver().memory().find(address).is_some_and(|area| matches!(area.owner, Owner::Graph { .. }));
    require(is_graphs, CUresult::INVALID_VALUE)?;
    capture.expect_block(|(start, _)| *start == address)?;
    capture.add_memory(stream.id, Kind::FREE, (address, 0))
}

fn create(props: &CUmemPoolProps) -> Outcome<CUmemoryPool> {
    require(props.allocType == CU_MEM_ALLOCATION_TYPE_PINNED, CUresult::INVALID_VALUE)?;
    require(props.handleTypes == CU_MEM_HANDLE_TYPE_NONE, CUresult::NOT_SUPPORTED)?;
    let place = place_of(&props.location).map_err(|_| CUresult::INVALID_VALUE)?;
    let make = |handle| Pool::new(handle, place, false, props.maxSize as u64);
    Ok(CUmemoryPool(driver().pools.insert(make).0))
}

fn destroy(handle: CUmemoryPool) -> Outcome {
    let pool = of(handle)?;
    require(!pool.is_default, CUresult::INVALID_VALUE)?;
    for device in driver().devices.iter().filter(|device| device.pool() == handle.0) {
        device.set_pool(device.default_pool());
    }
    pool.destroy();
    Ok(())
}

/// # Safety
/// `value` is null or valid for a write of the attribute's type.
unsafe fn get_attribute(pool: &Pool, attribute: c_uint, value: *mut c_void) -> Outcome {
    let state = pool.state();
    let long = |number: u64| {
        // SAFETY: by contract.
        unsafe { put(value.cast(), number) }
    };
    let word = |number: c_int| {
        // SAFETY: by contract.
        unsafe { put(value.cast(), number) }
    };
    match attribute {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            ..=CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => word(state.reuse[attribute as usize - 1]),
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => long(state.threshold),
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => long(state.reserved.now),
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => long(state.reserved.high),
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT => long(state.used.now),
        CU_MEMPOOL_ATTR_USED_MEM_HIGH => long(state.used.high),
        CU_MEMPOOL_ATTR_ALLOCATION_TYPE => word(CU_MEM_ALLOCATION_TYPE_PINNED as c_int),
        CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES => word(0),
        CU_MEMPOOL_ATTR_LOCATION_ID => word(if let Place::Device(i) = pool.place { i as c_int } else { 0 }),
        CU_MEMPOOL_ATTR_LOCATION_TYPE => word(match pool.place {
            Place::Device(_) => CU_MEM_LOCATION_TYPE_DEVICE as c_int,
            Place::Host => CU_MEM_LOCATION_TYPE_HOST_NUMA as c_int,
        }),
        CU_MEMPOOL_ATTR_MAX_POOL_SIZE => long(state.limit),
        CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED => word(0),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// # Safety
/// `value` is null or valid for a read of the attribute's type.
unsafe fn set_attribute(pool: &Pool, attribute: c_uint, value: *const c_void) -> Outcome {
    let mut state = pool.state();
    // SAFETY: by contract; only the attribute's own type is read.
    let long = || unsafe { get(value.cast::<u64>()) };
    match attribute {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            ..=CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            // SAFETY: by contract.
            state.reuse[attribute as usize - 1] = unsafe { get(value.cast())? };
        }
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => state.threshold = long()?,
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => {
            require(long()? == 0, CUresult::INVALID_VALUE)?;
            state.reserved.high = state.reserved.now;
        }
        CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
            require(long()? == 0, CUresult::INVALID_VALUE)?;
            state.used.high = state.used.now;
        }
        _ => return Err(CUresult::INVALID_VALUE),
    }
    Ok(())
}

fn set_access(pool: &Pool, descriptors: &[CUmemAccessDesc]) -> Outcome {
    let flags =
        [CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE];
    for descriptor in descriptors {
        let place = place_of(&descriptor.location)?;
        require(flags.contains(&descriptor.flags), CUresult::INVALID_VALUE)?;
        // A pool's own device cannot lose its access.
        let loses = place == pool.place && descriptor.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        require(!loses, CUresult::INVALID_DEVICE)?;
    }
    let mut state = pool.state();
    for descriptor in descriptors {
        state.rights.set(place_of(&descriptor.location)?, descriptor.flags);
    }
    Ok(())
}

fn default_pool(location: &CUmemLocation) -> Outcome<CUmemoryPool> {
    match place_of(location)? {
        Place::Device(i) => Ok(CUmemoryPool(driver().devices[i].default_pool())),
        Place::Host => Err(CUresult::NOT_SUPPORTED),
    }
}

exports! {
    fn cuMemAllocAsync + cuMemAllocAsync_ptsz(dptr: *mut CUdeviceptr, bytesize: usize, hStream: CUstream) |call| {
        require(!dptr.is_null(), CUresult::INVALID_VALUE)?;
        put(dptr, allocate(call, bytesize, None, hStream)?)
    }

    fn cuMemAllocFromPoolAsync + cuMemAllocFromPoolAsync_ptsz(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, hStream: CUstream) |call| {
        require(!dptr.is_null(), CUresult::INVALID_VALUE)?;
        put(dptr, allocate(call, bytesize, Some(pool), hStream)?)
    }

    fn cuMemFreeAsync + cuMemFreeAsync_ptsz(dptr: CUdeviceptr, hStream: CUstream) |call| {
        if dptr == 0 { Ok(()) } else { free(call, dptr, hStream) }
    }

    fn cuMemPoolCreate(pool: *mut CUmemoryPool, poolProps: *const CUmemPoolProps) |call| {
        require(!pool.is_null(), CUresult::INVALID_VALUE)?;
        put(pool, create(&get(poolProps)?)?)
    }

    fn cuMemPoolDestroy(pool: CUmemoryPool) |call| {
        destroy(pool)
    }

    fn cuMemPoolTrimTo(pool: CUmemoryPool, minBytesToKeep: usize) |call| {
        let pool = of(pool)?;
        capture::forbid_unsafe()?;
        pool.trim(minBytesToKeep as u64);
        Ok(())
    }

    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attr: c_uint, value: *mut c_void) |call| {
        get_attribute(&*of(pool)?, attr, value)
    }

    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attr: c_uint, value: *mut c_void) |call| {
        set_attribute(&*of(pool)?, attr, value)
    }

    fn cuMemPoolSetAccess(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize) |call| {
        set_access(&*of(pool)?, &get_all(map, count)?)
    }

    fn cuMemPoolGetAccess(flags: *mut c_uint, memPool: CUmemoryPool, location: *mut CUmemLocation) |call| {
        let place = place_of(&get(location)?)?;
        put(flags, of(memPool)?.state().rights.of(place))
    }

    fn cuMemGetDefaultMemPool(pool_out: *mut CUmemoryPool, location: *mut CUmemLocation, type_: c_uint) |call| {
        require(type_ == CU_MEM_ALLOCATION_TYPE_PINNED, CUresult::NOT_SUPPORTED)?;
        put(pool_out, default_pool(&get(location)?)?)
    }

    fn cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, type_: c_uint) |call| {
        require(type_ == CU_MEM_ALLOCATION_TYPE_PINNED, CUresult::NOT_SUPPORTED)?;
        match place_of(&get(location)?)? {
            Place::Device(i) => put(pool, CUmemoryPool(driver().devices[i].pool())),
            Place::Host => Err(CUresult::NOT_SUPPORTED),
        }
    }

    fn cuMemSetMemPool(location: *mut CUmemLocation, type_: c_uint, pool: CUmemoryPool) |call| {
        require(type_ == CU_MEM_ALLOCATION_TYPE_PINNED, CUresult::NOT_SUPPORTED)?;
        let (place, known) = (place_of(&get(location)?)?, of(pool)?);
        require(place == known.place, CUresult::INVALID_VALUE)?;
        match place {
            Place::Device(i) => driver().devices[i].set_pool(pool.0),
            Place::Host => return Err(CUresult::NOT_SUPPORTED),
        }
        Ok(())
    }
}
