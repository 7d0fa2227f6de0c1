//! Host memory that the device can reach: allocated by the driver, or the program's own and
//! registered.

use std::ffi::{c_uint, c_void};

use wm_abi::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED,
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_IOMEMORY, CU_MEMHOSTREGISTER_PORTABLE,
    CU_MEMHOSTREGISTER_READ_ONLY, CUdeviceptr, CUresult,
};

use crate::capture;
use crate::context::{Context, synchronize_device};
use crate::entry::{Outcome, exports, put, require};
use crate::memory::{self, Area, Owner, PAGE, Place, store};
use crate::state::driver;
use crate::vmm::make_host_memory;

fn allocate(context: &Context, bytes: usize, flags: c_uint) -> Outcome<*mut c_void> {
    let known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    require(flags & !known == 0, CUresult::INVALID_VALUE)?;
    capture::forbid_unsafe()?;
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let block = memory::allocate(Place::Host, bytes as u64)?;
    // With unified addressing all such memory is portable and mapped.
    let flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
    Ok(block.enter(bytes as u64, |physical| Owner::Host { physical, context: context.owner_handle(), flags })
        as *mut c_void)
}

/// Waits for the whole device, as NVIDIA's driver does.
fn free(context: &Context, address: u64) -> Outcome {
    capture::forbid_unsafe()?;
    let is_host = |area: &Area| matches!(area.owner, Owner::Host { .. });
    let known = driver().memory().find(address).is_some_and(|area| area.start == address && is_host(area));
    require(known, CUresult::INVALID_VALUE)?;
    synchronize_device(context.device);
    driver().memory_mut().remove_if(address, is_host).map(Area::discard).ok_or(CUresult::INVALID_VALUE)
}

fn register(context: &Context, address: u64, bytes: u64, flags: c_uint) -> Outcome {
    let known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    require(flags & CU_MEMHOSTREGISTER_IOMEMORY == 0, CUresult::NOT_SUPPORTED)?;
    require(flags & !known == 0 && address != 0 && bytes > 0, CUresult::INVALID_VALUE)?;
    require(is_mapped(address, bytes), CUresult::INVALID_VALUE)?;
    make_host_memory(bytes);
    let mut memory = driver().memory_mut();
    // Memory of the driver cannot be registered; the program's own can, once.
    let own = memory.find(address).is_some_and(|area| !is_registered(area));
    require(!own, CUresult::INVALID_VALUE)?;
    require(!memory.overlaps(address, bytes), CUresult::HOST_MEMORY_ALREADY_REGISTERED)?;
    let owner =
        Owner::Registered { context: context.owner_handle(), flags: flags | CU_MEMHOSTREGISTER_DEVICEMAP };
    memory.insert(Area {
        start: address,
        size: bytes,
        span: 0,
        id: store::unique(),
        sync_memops: false,
        owner,
    });
    Ok(())
}

/// Does the process have memory in the whole range?
fn is_mapped(address: u64, bytes: u64) -> bool {
    let start = address & !(PAGE - 1);
    let Some(end) = address.checked_add(bytes) else { return false };
    let pages = (end - start).div_ceil(PAGE) as usize;
    let mut residency = vec![0_u8; pages];
    // SAFETY: the vector has a byte for each page; the kernel checks the range.
    unsafe { libc::mincore(start as *mut c_void, (end - start) as usize, residency.as_mut_ptr()) == 0 }
}

fn is_registered(area: &Area) -> bool {
    matches!(area.owner, Owner::Registered { .. })
}

fn unregister(context: &Context, address: u64) -> Outcome {
    let found = driver().memory().find(address).map(|area| area.start == address && is_registered(area));
    require(found.ok_or(CUresult::HOST_MEMORY_NOT_REGISTERED)?, CUresult::INVALID_VALUE)?;
    synchronize_device(context.device);
    driver()
        .memory_mut()
        .remove_if(address, is_registered)
        .map(drop)
        .ok_or(CUresult::HOST_MEMORY_NOT_REGISTERED)
}

fn flags(address: u64) -> Outcome<c_uint> {
    let memory = driver().memory();
    match memory.find(address).ok_or(CUresult::INVALID_VALUE)?.owner {
        Owner::Host { flags, .. } | Owner::Registered { flags, .. } => Ok(flags),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

exports! {
    fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, Flags: c_uint) |call| {
        let context = call.context()?;
        require(!pp.is_null(), CUresult::INVALID_VALUE)?;
        put(pp, allocate(&context, bytesize, Flags)?)
    }

    fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize) |call| {
        let context = call.context()?;
        require(!pp.is_null(), CUresult::INVALID_VALUE)?;
        put(pp, allocate(&context, bytesize, 0)?)
    }

    fn cuMemFreeHost(p: *mut c_void) |call| {
        let context = call.context()?;
        if p.is_null() { Ok(()) } else { free(&context, p as u64) }
    }

    fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, Flags: c_uint) |call| {
        register(&*call.context()?, p as u64, bytesize as u64, Flags)
    }

    fn cuMemHostUnregister(p: *mut c_void) |call| {
        unregister(&*call.context()?, p as u64)
    }

    fn cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, Flags: c_uint) |call| {
        call.context()?;
        require(Flags == 0, CUresult::INVALID_VALUE)?;
        flags(p as u64)?;
        put(pdptr, p as CUdeviceptr)
    }

    fn cuMemHostGetFlags(pFlags: *mut c_uint, p: *mut c_void) |call| {
        call.context()?;
        put(pFlags, flags(p as u64)?)
    }
}
