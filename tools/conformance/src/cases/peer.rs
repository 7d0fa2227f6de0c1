//! Two devices: access to each other's memory, and copies between them. Skipped on a machine with
//! one device.

use wm_abi::*;

use crate::case::{Case, Halt, Verdict};
use crate::driver::Driver;
use crate::fixture::{Kernels, Memory, Physical, Primary, Range, device_properties, pattern, read};
use crate::{cu, must};

const BYTES: usize = 4 << 20;
const TRIES: u64 = 10;

/// Both primary contexts; the first is current.
pub(super) fn both(driver: &'static Driver) -> Verdict<(Primary, Primary)> {
    let (first, second) = (Primary::on(driver, 0)?, Primary::on(driver, 1)?);
    let mut possible = 0;
    must!(driver, cuDeviceCanAccessPeer(&mut possible, 0, 1));
    if possible == 0 {
        return Err(Halt::Skipped("devices 0 and 1 cannot reach each other's memory".into()));
    }
    first.enter()?;
    Ok((first, second))
}

/// Memory of a device with known contents. It stays until the process ends, because its context may
/// not be current at the drop.
pub(super) fn sized_memory_of(
    driver: &'static Driver,
    owner: &Primary,
    bytes: usize,
    seed: u64,
) -> Verdict<std::mem::ManuallyDrop<Memory>> {
    owner.enter()?;
    Memory::holding(driver, &pattern(bytes, seed)).map(std::mem::ManuallyDrop::new)
}

fn memory_of(driver: &'static Driver, owner: &Primary, seed: u64) -> Verdict<std::mem::ManuallyDrop<Memory>> {
    sized_memory_of(driver, owner, BYTES, seed)
}

pub(super) fn enable(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (first, second) = both(d)?;
    case.expect_ok("enable", cu!(d, cuCtxEnablePeerAccess(second.context, 0)));
    let again = cu!(d, cuCtxEnablePeerAccess(second.context, 0));
    case.expect_code("enable again", again, CUresult::PEER_ACCESS_ALREADY_ENABLED);
    case.expect_ok("disable", cu!(d, cuCtxDisablePeerAccess(second.context)));
    let again = cu!(d, cuCtxDisablePeerAccess(second.context));
    case.expect_code("disable again", again, CUresult::PEER_ACCESS_NOT_ENABLED);
    let code = cu!(d, cuCtxEnablePeerAccess(second.context, 1));
    case.expect_code("flags 1", code, CUresult::INVALID_VALUE);
    let code = cu!(d, cuCtxEnablePeerAccess(first.context, 0));
    case.code("enable for itself", code);
    case.expect(code != CUresult::SUCCESS, "a context became its own peer");
    let mut possible = -1;
    must!(d, cuDeviceCanAccessPeer(&mut possible, 0, 0));
    case.expect_eq("a device is no peer of itself", possible, 0);
    Ok(())
}

/// The abilities of peers: they depend on the machine, and are the same under the shim.
pub(super) fn abilities(case: &mut Case) -> Verdict {
    let d = case.driver;
    crate::fixture::init(d)?;
    // Performance rank, access, native atomics, access to arrays; and one that does not exist.
    for attribute in [1, 2, 3, 4, 999] {
        let mut value = -1;
        let code = cu!(d, cuDeviceGetP2PAttribute(&mut value, attribute, 0, 1));
        case.observe_machine(
            format!("attribute {attribute}"),
            format!("{} {value}", crate::case::short(code)),
        );
    }
    Ok(())
}

pub(super) fn copies(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (first, second) = both(d)?;
    let (there, here) = (memory_of(d, &second, 1)?, memory_of(d, &first, 2)?);
    must!(d, cuMemcpyPeer(here.address, first.context, there.address, second.context, BYTES));
    must!(d, cuCtxSynchronize());
    case.expect_that("cuMemcpyPeer", here.read()? == pattern(BYTES, 1));
    must!(d, cuMemsetD8_v2(here.address, 3, BYTES));
    let stream = crate::fixture::Stream::non_blocking(d)?;
    must!(d, cuCtxSynchronize());
    must!(
        d,
        cuMemcpyPeerAsync(there.address, second.context, here.address, first.context, BYTES, stream.raw)
    );
    crate::fixture::synchronize(d, stream.raw)?;
    case.expect_that("cuMemcpyPeerAsync", read(d, there.address, BYTES)? == vec![3; BYTES]);
    must!(d, cuMemcpyDtoD_v2(here.address, there.address, BYTES));
    must!(d, cuCtxSynchronize());
    case.expect_that("cuMemcpyDtoD without peer access", here.read()? == vec![3; BYTES]);
    Ok(())
}

/// A kernel of device 0 writes memory of device 1.
fn kernel_reaches(case: &mut Case, label: &str, there: &Memory, value: u8) -> Verdict {
    let kernels = Kernels::load(case.driver)?;
    let word = u32::from_ne_bytes([value; 4]);
    kernels.fill(CUstream::NULL, there.address, BYTES as u64 / 4, word)?;
    must!(case.driver, cuCtxSynchronize());
    case.expect_that(label, there.read()? == vec![value; BYTES]);
    Ok(())
}

pub(super) fn kernels(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (first, second) = both(d)?;
    let before = memory_of(d, &second, 1)?;
    first.enter()?;
    must!(d, cuCtxEnablePeerAccess(second.context, 0));
    kernel_reaches(case, "memory from before enabling", &before, 5)?;
    let after = memory_of(d, &second, 2)?;
    first.enter()?;
    kernel_reaches(case, "memory from after enabling", &after, 6)
}

pub(super) fn without_access(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (first, second) = both(d)?;
    let there = memory_of(d, &second, 1)?;
    first.enter()?;
    let kernels = Kernels::load(d)?;
    kernels.fill(CUstream::NULL, there.address, 64, 1)?;
    case.expect_code("a kernel without peer access", cu!(d, cuCtxSynchronize()), CUresult::ILLEGAL_ADDRESS);
    std::mem::forget((first, second, kernels));
    Ok(())
}

pub(super) fn mapped_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (_first, second) = both(d)?;
    let mut range = Range::reserve(d, BYTES)?;
    range.map(0, &Physical::new(d, BYTES, &device_properties(second.device, 0))?)?;
    range.allow(0, BYTES, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)?;
    let kernels = Kernels::load(d)?;
    kernels.fill(CUstream::NULL, range.address, BYTES as u64 / 4, 0x0808_0808)?;
    must!(d, cuCtxSynchronize());
    case.expect_that("a kernel of device 0 wrote it", read(d, range.address, BYTES)? == vec![8; BYTES]);
    let mut ordinal = -1_i32;
    let out = (&raw mut ordinal).cast();
    must!(d, cuPointerGetAttribute(out, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, range.address));
    case.expect_eq("its device", ordinal, 1);
    Ok(())
}

pub(super) fn pool_access(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (first, second) = both(d)?;
    let mut pool = CUmemoryPool::NULL;
    must!(d, cuDeviceGetDefaultMemPool(&mut pool, 1));
    let location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    case.expect_ok("allow", cu!(d, cuMemPoolSetAccess(pool, &access, 1)));
    let (mut flags, mut asked) = (0, location);
    must!(d, cuMemPoolGetAccess(&mut flags, pool, &mut asked));
    case.expect_eq("access", flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    second.enter()?;
    let address = crate::fixture::alloc_async(d, BYTES, CUstream::NULL)?;
    must!(d, cuStreamSynchronize(CUstream::NULL));
    first.enter()?;
    let kernels = Kernels::load(d)?;
    kernels.fill(CUstream::NULL, address, BYTES as u64 / 4, 0x0909_0909)?;
    must!(d, cuCtxSynchronize());
    case.expect_that("a kernel of device 0 wrote it", read(d, address, BYTES)? == vec![9; BYTES]);
    second.enter()?;
    must!(d, cuMemFreeAsync(address, CUstream::NULL));
    must!(d, cuStreamSynchronize(CUstream::NULL));
    Ok(())
}

/// Other processes may use the device, so free memory changes by itself: one undisturbed try is
/// enough.
pub(super) fn accounts_are_separate(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (first, second) = both(d)?;
    let mut device = -1;
    second.enter()?;
    must!(d, cuCtxGetDevice(&mut device));
    case.expect_eq("the second context is current", device, 1);
    let mut separate = false;
    for seed in 0..TRIES {
        let before = free_bytes(d, &first)?;
        let _there = memory_of(d, &second, seed)?;
        separate |= free_bytes(d, &first)? >= before;
    }
    case.expect_that("memory of device 1 does not count on device 0", separate);
    Ok(())
}

fn free_bytes(driver: &'static Driver, device: &Primary) -> Verdict<usize> {
    let (mut free, mut total) = (0, 0);
    device.enter()?;
    must!(driver, cuMemGetInfo_v2(&mut free, &mut total));
    Ok(free)
}
