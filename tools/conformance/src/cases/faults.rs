//! Memory that a kernel may not access, and the sticky error of a fault.

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::fixture::{Kernels, Physical, Primary, Range, device_properties};
use crate::{cu, must};

const PIECE: usize = 2 << 20;

/// Launches a kernel that writes to `address`, and records the context's later answers.
fn write_and_fault(case: &mut Case, address: CUdeviceptr) -> Verdict {
    let d = case.driver;
    let kernels = Kernels::load(d)?;
    let memory = std::mem::ManuallyDrop::new(crate::fixture::Memory::new(d, 4096)?);
    kernels.fill(CUstream::NULL, address, 64, 1)?;
    let fault = CUresult::ILLEGAL_ADDRESS;
    case.expect_code("synchronize", cu!(d, cuCtxSynchronize()), fault);
    case.expect_code("synchronize again", cu!(d, cuCtxSynchronize()), fault);
    let mut other = 0;
    case.expect_code("cuMemAlloc", cu!(d, cuMemAlloc_v2(&mut other, 4096)), fault);
    case.expect_code("cuMemFree", cu!(d, cuMemFree_v2(memory.address)), fault);
    case.expect_code("cuMemsetD8", cu!(d, cuMemsetD8_v2(memory.address, 0, 16)), fault);
    case.expect_code("cuMemAllocAsync", cu!(d, cuMemAllocAsync(&mut other, 4096, CUstream::NULL)), fault);
    let mut stream = CUstream::NULL;
    case.expect_code("cuStreamCreate", cu!(d, cuStreamCreate(&mut stream, 0)), fault);
    let (mut free, mut total) = (0, 0);
    case.code("cuMemGetInfo", cu!(d, cuMemGetInfo_v2(&mut free, &mut total)));
    Ok(())
}

pub(super) fn unmapped(case: &mut Case) -> Verdict {
    let primary = std::mem::ManuallyDrop::new(Primary::new(case.driver)?);
    let range = Range::reserve(case.driver, PIECE)?;
    let _ = &primary;
    write_and_fault(case, range.address)
}

pub(super) fn no_access(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = std::mem::ManuallyDrop::new(Primary::new(d)?);
    let physical = Physical::new(d, PIECE, &device_properties(primary.device, 0))?;
    let mut range = Range::reserve(d, PIECE)?;
    range.map(0, &physical)?;
    write_and_fault(case, range.address)
}

pub(super) fn read_only(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = std::mem::ManuallyDrop::new(Primary::new(d)?);
    let range = Range::of_device(d, PIECE, primary.device)?;
    range.allow(0, PIECE, primary.device, CU_MEM_ACCESS_FLAGS_PROT_READ)?;
    write_and_fault(case, range.address)
}

pub(super) fn after_unmap(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = std::mem::ManuallyDrop::new(Primary::new(d)?);
    let mut range = Range::of_device(d, PIECE, primary.device)?;
    must!(d, cuMemsetD8_v2(range.address, 1, PIECE));
    must!(d, cuCtxSynchronize());
    range.unmap()?;
    write_and_fault(case, range.address)
}

/// The free waits for the work that fails, and is the first call to report it.
pub(super) fn told_by_a_free(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = std::mem::ManuallyDrop::new(Primary::new(d)?);
    let kernels = std::mem::ManuallyDrop::new(Kernels::load(d)?);
    let memory = std::mem::ManuallyDrop::new(crate::fixture::Memory::new(d, 4096)?);
    let range = std::mem::ManuallyDrop::new(Range::reserve(d, PIECE)?);
    kernels.spin(CUstream::NULL, 1_000_000)?;
    kernels.fill(CUstream::NULL, range.address, 64, 1)?;
    case.code("cuMemFree", cu!(d, cuMemFree_v2(memory.address)));
    Ok(())
}

/// CUDA's documentation: any further work returns the same error, until the process is started
/// anew. The case tests that for a new primary context.
pub(super) fn the_device_afterwards(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = std::mem::ManuallyDrop::new(Primary::new(d)?);
    let kernels = Kernels::load(d)?;
    let range = std::mem::ManuallyDrop::new(Range::reserve(d, PIECE)?);
    kernels.fill(CUstream::NULL, range.address, 64, 1)?;
    case.expect_code("synchronize", cu!(d, cuCtxSynchronize()), CUresult::ILLEGAL_ADDRESS);
    case.code("reset", cu!(d, cuDevicePrimaryCtxReset_v2(primary.device)));
    std::mem::forget(kernels);
    let mut context = CUcontext::NULL;
    case.code("retain", cu!(d, cuDevicePrimaryCtxRetain(&mut context, primary.device)));
    case.code("enter", cu!(d, cuCtxSetCurrent(context)));
    let mut address = 0;
    case.code("cuMemAlloc", cu!(d, cuMemAlloc_v2(&mut address, 4096)));
    case.code("synchronize then", cu!(d, cuCtxSynchronize()));
    Ok(())
}
