//! The virtual memory calls: reserve, create, map, allow, unmap, release. Faults are in `faults`,
//! sharing is in `share`.

use std::ptr::null_mut;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{
    Physical, Primary, Range, device_properties, granularity, host_properties, pattern, read, write,
};
use crate::{cu, must};

const PIECE: usize = 2 << 20;
const READWRITE: u32 = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
const WRONG: CUresult = CUresult::INVALID_VALUE;

pub(super) fn granularities(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let properties = device_properties(primary.device, 0);
    let mut bytes = 0;
    for (name, option) in
        [("minimum", CU_MEM_ALLOC_GRANULARITY_MINIMUM), ("recommended", CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)]
    {
        must!(d, cuMemGetAllocationGranularity(&mut bytes, &properties, option));
        case.expect_eq(name, bytes as u64, PIECE as u64);
    }
    case.observe("minimum of a NUMA node", granularity(d, &host_properties(0))? as u64);
    let code = cu!(d, cuMemGetAllocationGranularity(null_mut(), &properties, 0));
    case.expect_code("null", code, WRONG);
    let wrong = device_properties(4096, 0);
    let code = cu!(d, cuMemGetAllocationGranularity(&mut bytes, &wrong, 0));
    case.code("device 4096", code);
    Ok(())
}

pub(super) fn reserve(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut address = 0;
    let mut ask = |bytes, alignment, hint, flags| {
        (cu!(d, cuMemAddressReserve(&mut address, bytes, alignment, hint, flags)), address)
    };
    case.expect_code("size 0", ask(0, 0, 0, 0).0, WRONG);
    case.expect_code("size 4096", ask(4096, 0, 0, 0).0, WRONG);
    case.expect_code("alignment 3", ask(PIECE, 3, 0, 0).0, WRONG);
    case.expect_code("flags 1", ask(PIECE, 0, 0, 1).0, WRONG);
    let (code, base) = ask(3 * PIECE, 64 << 20, 0, 0);
    case.expect_ok("aligned to 64 MiB", code);
    case.expect_that("it is aligned", base % (64 << 20) == 0);
    case.expect_code("free with another size", cu!(d, cuMemAddressFree(base, PIECE)), WRONG);
    case.expect_code("free interior", cu!(d, cuMemAddressFree(base + PIECE as u64, PIECE)), WRONG);
    case.expect_ok("free", cu!(d, cuMemAddressFree(base, 3 * PIECE)));
    case.expect_code("free twice", cu!(d, cuMemAddressFree(base, 3 * PIECE)), WRONG);
    let (code, again) = ask(PIECE, 0, base, 0);
    case.expect_ok("at a free address", code);
    case.observe_machine("a wish for a free address is granted", again == base);
    let (code, other) = ask(PIECE, 0, again, 0);
    case.code("at a taken address", code);
    case.expect_that("taken addresses are not given twice", code != CUresult::SUCCESS || other != again);
    Ok(())
}

pub(super) fn create(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let good = device_properties(0, 0);
    let mut handle = 0;
    case.expect_code("size 0", cu!(d, cuMemCreate(&mut handle, 0, &good, 0)), WRONG);
    case.expect_code("size 4096", cu!(d, cuMemCreate(&mut handle, 4096, &good, 0)), WRONG);
    case.expect_code("flags 1", cu!(d, cuMemCreate(&mut handle, PIECE, &good, 1)), WRONG);
    case.expect_code("null", cu!(d, cuMemCreate(null_mut(), PIECE, &good, 0)), WRONG);
    let code = cu!(d, cuMemCreate(&mut handle, 1 << 46, &good, 0));
    case.expect_code("64 TiB", code, CUresult::OUT_OF_MEMORY);
    let mut wrong = good;
    wrong.type_ = 77;
    case.expect_code("type 77", cu!(d, cuMemCreate(&mut handle, PIECE, &wrong, 0)), WRONG);
    wrong = good;
    wrong.location.type_ = 77;
    case.expect_code("location type 77", cu!(d, cuMemCreate(&mut handle, PIECE, &wrong, 0)), WRONG);
    let code = cu!(d, cuMemCreate(&mut handle, PIECE, &device_properties(4096, 0), 0));
    case.expect_one_of("device 4096", code, &[CUresult::INVALID_DEVICE, WRONG]);
    must!(d, cuMemCreate(&mut handle, PIECE, &good, 0));
    case.expect_ok("release", cu!(d, cuMemRelease(handle)));
    case.expect_code("release 0", cu!(d, cuMemRelease(0)), WRONG);
    Ok(())
}

pub(super) fn map_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let physical = Physical::new(d, 2 * PIECE, &device_properties(primary.device, 0))?;
    let range = Range::reserve(d, 4 * PIECE)?;
    let map = |address, bytes, offset, flags| cu!(d, cuMemMap(address, bytes, offset, physical.raw, flags));
    let all_or_nothing = CUresult::NOT_SUPPORTED;
    case.expect_code("offset 2 MiB", map(range.address, PIECE, PIECE, 0), all_or_nothing);
    case.expect_code("flags 1", map(range.address, 2 * PIECE, 0, 1), WRONG);
    case.expect_code("size 0", map(range.address, 0, 0, 0), WRONG);
    case.expect_code("more than the handle", map(range.address, 4 * PIECE, 0, 0), all_or_nothing);
    case.expect_code("less than the handle", map(range.address, PIECE, 0, 0), all_or_nothing);
    case.expect_code("unaligned address", map(range.address + 4096, 2 * PIECE, 0, 0), WRONG);
    case.expect_code("handle 0", cu!(d, cuMemMap(range.address, PIECE, 0, 0, 0)), WRONG);
    case.expect_ok("all of it", map(range.address, 2 * PIECE, 0, 0));
    case.expect_code("over a mapping", map(range.address, 2 * PIECE, 0, 0), WRONG);
    must!(d, cuMemUnmap(range.address, 2 * PIECE));
    let given_back = range.address;
    drop(range);
    case.expect_code("addresses that were given back", map(given_back, 2 * PIECE, 0, 0), WRONG);
    Ok(())
}

pub(super) fn unmap_rules(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let properties = device_properties(primary.device, 0);
    let (first, second) = (Physical::new(d, 2 * PIECE, &properties)?, Physical::new(d, PIECE, &properties)?);
    let range = Range::reserve(d, 4 * PIECE)?;
    let end = range.address + 2 * PIECE as u64;
    must!(d, cuMemMap(range.address, 2 * PIECE, 0, first.raw, 0));
    must!(d, cuMemMap(end, PIECE, 0, second.raw, 0));
    case.expect_code("the first half of a mapping", cu!(d, cuMemUnmap(range.address, PIECE)), WRONG);
    let middle = range.address + PIECE as u64;
    case.expect_code("the second half of a mapping", cu!(d, cuMemUnmap(middle, PIECE)), WRONG);
    case.expect_code("one and a half mappings", cu!(d, cuMemUnmap(middle, 2 * PIECE)), WRONG);
    case.expect_code("size 0", cu!(d, cuMemUnmap(range.address, 0)), WRONG);
    case.code("free of a mapped reservation", cu!(d, cuMemAddressFree(range.address, 4 * PIECE)));
    case.expect_ok("two mappings at once", cu!(d, cuMemUnmap(range.address, 3 * PIECE)));
    case.code("what is not mapped", cu!(d, cuMemUnmap(range.address, PIECE)));
    Ok(())
}

pub(super) fn access_rules(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let physical = Physical::new(d, 2 * PIECE, &device_properties(primary.device, 0))?;
    let mut range = Range::reserve(d, 4 * PIECE)?;
    range.map(0, &physical)?;
    let location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: primary.device };
    let allow = |offset: usize, bytes, id, flags| {
        let access = CUmemAccessDesc { location: CUmemLocation { id, ..location }, flags };
        cu!(d, cuMemSetAccess(range.address + offset as u64, bytes, &access, 1))
    };
    let mut flags = u64::MAX;
    must!(d, cuMemGetAccess(&mut flags, &location, range.address));
    case.expect_eq("access at first", flags, 0);
    case.expect_ok("allow", allow(0, 2 * PIECE, 0, READWRITE));
    must!(d, cuMemGetAccess(&mut flags, &location, range.address + PIECE as u64));
    case.expect_eq("access after", flags, READWRITE.into());
    case.code("allow half a mapping", allow(0, PIECE, 0, READWRITE));
    case.expect_code("allow beyond the mapping", allow(0, 4 * PIECE, 0, READWRITE), WRONG);
    case.expect_code("allow what is not mapped", allow(2 * PIECE, PIECE, 0, READWRITE), WRONG);
    case.expect_code("size 0", allow(0, 0, 0, READWRITE), WRONG);
    case.expect_code("flags 2", allow(0, 2 * PIECE, 0, 2), WRONG);
    let code = allow(0, 2 * PIECE, 4096, READWRITE);
    case.expect_one_of("device 4096", code, &[CUresult::INVALID_DEVICE, WRONG]);
    case.expect_ok("revoke", allow(0, 2 * PIECE, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    must!(d, cuMemGetAccess(&mut flags, &location, range.address));
    case.expect_eq("access after revoking", flags, 0);
    Ok(())
}

pub(super) fn copies_need_access(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let physical = Physical::new(d, PIECE, &device_properties(primary.device, 0))?;
    let mut range = Range::reserve(d, 2 * PIECE)?;
    range.map(0, &physical)?;
    let mut bytes = [0_u8; 64];
    let unmapped = range.address + PIECE as u64;
    case.code("copy in, without access", cu!(d, cuMemcpyHtoD_v2(range.address, bytes.as_ptr().cast(), 64)));
    case.code(
        "copy out, without access",
        cu!(d, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), range.address, 64)),
    );
    case.code("memset, without access", cu!(d, cuMemsetD8_v2(range.address, 1, 64)));
    case.code("copy in, not mapped", cu!(d, cuMemcpyHtoD_v2(unmapped, bytes.as_ptr().cast(), 64)));
    case.code("memset, not mapped", cu!(d, cuMemsetD8_v2(unmapped, 1, 64)));
    case.code("the context afterwards", cu!(d, cuCtxSynchronize()));
    Ok(())
}

pub(super) fn read_only_copies(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let range = Range::of_device(d, PIECE, primary.device)?;
    write(d, range.address, &pattern(4096, 6))?;
    range.allow(0, PIECE, primary.device, CU_MEM_ACCESS_FLAGS_PROT_READ)?;
    let bytes = [0_u8; 64];
    case.expect_that("it reads", read(d, range.address, 4096)? == pattern(4096, 6));
    case.expect_code("copy in", cu!(d, cuMemcpyHtoD_v2(range.address, bytes.as_ptr().cast(), 64)), WRONG);
    case.code("memset", cu!(d, cuMemsetD8_v2(range.address, 1, 64)));
    case.expect_ok("the context lives on", cu!(d, cuCtxSynchronize()));
    range.allow(0, PIECE, primary.device, READWRITE)?;
    write(d, range.address, &pattern(64, 8))?;
    case.expect_that("writable again", read(d, range.address, 64)? == pattern(64, 8));
    Ok(())
}

/// A range of two pieces of addresses with one piece of memory behind both, and no access yet.
fn mapped_twice(driver: &'static Driver, device: CUdevice) -> Verdict<Range> {
    let physical = Physical::new(driver, PIECE, &device_properties(device, 0))?;
    let mut range = Range::reserve(driver, 2 * PIECE)?;
    range.map(0, &physical)?;
    range.map(PIECE, &physical)?;
    Ok(range)
}

/// Memory that processes share: each maps it for reading only, and its owner could still write.
pub(super) fn read_only_beside_writable(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let range = mapped_twice(d, primary.device)?;
    range.allow(0, PIECE, primary.device, READWRITE)?;
    range.allow(PIECE, PIECE, primary.device, CU_MEM_ACCESS_FLAGS_PROT_READ)?;
    let (writable, read_only) = (range.address, range.address + PIECE as u64);
    write(d, writable, &pattern(4096, 3))?;
    case.expect_that("it reads what is written beside", read(d, read_only, 4096)? == pattern(4096, 3));
    let bytes = [0_u8; 64];
    case.expect_code("copy in", cu!(d, cuMemcpyHtoD_v2(read_only, bytes.as_ptr().cast(), 64)), WRONG);
    case.expect_code("copy between", cu!(d, cuMemcpyDtoD_v2(read_only, writable + 64, 64)), WRONG);
    case.expect_code("memset", cu!(d, cuMemsetD8_v2(read_only, 1, 64)), WRONG);
    case.expect_that("no byte has changed", read(d, writable, 4096)? == pattern(4096, 3));
    // The whole range once more, and back: a right that is withdrawn and given again.
    range.allow(0, PIECE, primary.device, CU_MEM_ACCESS_FLAGS_PROT_READ)?;
    let code = cu!(d, cuMemcpyHtoD_v2(writable, bytes.as_ptr().cast(), 64));
    case.expect_code("copy in, the right taken away", code, WRONG);
    range.allow(PIECE, PIECE, primary.device, READWRITE)?;
    write(d, read_only, &pattern(4096, 4))?;
    case.expect_that("the right given again", read(d, writable, 4096)? == pattern(4096, 4));
    Ok(())
}

pub(super) fn aliases(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let range = mapped_twice(d, primary.device)?;
    range.allow(0, 2 * PIECE, primary.device, READWRITE)?;
    write(d, range.address + 100, &pattern(5000, 1))?;
    let other = range.address + PIECE as u64;
    case.expect_that("the alias reads it", read(d, other + 100, 5000)? == pattern(5000, 1));
    write(d, other + 100, &pattern(5000, 2))?;
    case.expect_that("and writes it", read(d, range.address + 100, 5000)? == pattern(5000, 2));
    Ok(())
}

pub(super) fn released_while_mapped(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let range = Range::of_device(d, PIECE, primary.device)?;
    write(d, range.address, &pattern(PIECE, 5))?;
    case.expect_that("the mapping keeps it", read(d, range.address, PIECE)? == pattern(PIECE, 5));
    let mut retained = 0;
    must!(d, cuMemRetainAllocationHandle(&mut retained, (range.address + 4096) as *mut _));
    let retained = Physical::adopt(d, retained, PIECE);
    let mut alias = Range::reserve(d, PIECE)?;
    alias.map(0, &retained)?;
    alias.allow(0, PIECE, primary.device, READWRITE)?;
    drop(retained);
    drop(range);
    case.expect_that("the alias keeps it", read(d, alias.address, PIECE)? == pattern(PIECE, 5));
    Ok(())
}

pub(super) fn retain_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let mut handle = 0;
    let on_stack = 0_u64;
    let code = cu!(d, cuMemRetainAllocationHandle(&mut handle, (&raw const on_stack).cast_mut().cast()));
    case.expect_code("stack", code, WRONG);
    let memory = crate::fixture::Memory::new(d, PIECE)?;
    let code = cu!(d, cuMemRetainAllocationHandle(&mut handle, memory.address as *mut _));
    case.code("cuMemAlloc memory", code);
    let range = Range::of_device(d, PIECE, primary.device)?;
    must!(d, cuMemRetainAllocationHandle(&mut handle, range.address as *mut _));
    let mut properties = device_properties(-1, 0);
    must!(d, cuMemGetAllocationPropertiesFromHandle(&mut properties, handle));
    case.expect_eq("type", properties.type_, CU_MEM_ALLOCATION_TYPE_PINNED);
    case.expect_eq("location type", properties.location.type_, CU_MEM_LOCATION_TYPE_DEVICE);
    case.expect_eq("location", properties.location.id, primary.device);
    case.expect_ok("release", cu!(d, cuMemRelease(handle)));
    Ok(())
}

pub(super) fn stitched(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let mut range = Range::reserve(d, 8 * PIECE)?;
    for (index, pieces) in [(0, 1), (1, 3), (4, 2), (6, 2)] {
        let physical = Physical::new(d, pieces * PIECE, &device_properties(primary.device, 0))?;
        range.map(index * PIECE, &physical)?;
    }
    range.allow(0, 8 * PIECE, primary.device, READWRITE)?;
    write(d, range.address, &pattern(8 * PIECE, 3))?;
    case.expect_that("copies cross the seams", read(d, range.address, 8 * PIECE)? == pattern(8 * PIECE, 3));
    let kernels = crate::fixture::Kernels::load(d)?;
    kernels.fill(CUstream::NULL, range.address, 8 * PIECE as u64 / 4, 0x0101_0101)?;
    case.expect_that("kernels cross the seams", read(d, range.address, 8 * PIECE)? == vec![1; 8 * PIECE]);
    must!(d, cuMemsetD32_v2(range.address + 4, 0x0202_0202, 8 * PIECE / 4 - 1));
    case.expect_that(
        "memsets cross the seams",
        read(d, range.address + 4, 8 * PIECE - 4)? == vec![2; 8 * PIECE - 4],
    );
    let (mut base, mut bytes) = (0, 0);
    must!(d, cuMemGetAddressRange_v2(&mut base, &mut bytes, range.address + 2 * PIECE as u64));
    case.expect_eq("the range's base is its mapping's", base - range.address, PIECE as u64);
    case.expect_eq("the range's size is its mapping's", bytes as u64, 3 * PIECE as u64);
    Ok(())
}

pub(super) fn backing_changes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let properties = device_properties(primary.device, 0);
    let (old, new) = (Physical::new(d, PIECE, &properties)?, Physical::new(d, PIECE, &properties)?);
    let mut range = Range::reserve(d, PIECE)?;
    for (physical, seed) in [(&old, 1), (&new, 2)] {
        range.map(0, physical)?;
        range.allow(0, PIECE, primary.device, READWRITE)?;
        write(d, range.address, &pattern(PIECE, seed))?;
        range.unmap()?;
    }
    range.map(0, &old)?;
    range.allow(0, PIECE, primary.device, READWRITE)?;
    case.expect_that("the old backing comes back", read(d, range.address, PIECE)? == pattern(PIECE, 1));
    Ok(())
}

pub(super) fn host_and_device(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let mut range = Range::reserve(d, 2 * PIECE)?;
    range.map(0, &Physical::new(d, PIECE, &device_properties(primary.device, 0))?)?;
    range.map(PIECE, &Physical::new(d, PIECE, &host_properties(0))?)?;
    range.allow(0, 2 * PIECE, primary.device, READWRITE)?;
    write(d, range.address, &pattern(2 * PIECE, 4))?;
    case.expect_that("copies cross the border", read(d, range.address, 2 * PIECE)? == pattern(2 * PIECE, 4));
    must!(d, cuMemsetD8_v2(range.address + PIECE as u64 - 100, 7, 200));
    case.expect_that(
        "memsets cross the border",
        read(d, range.address + PIECE as u64 - 100, 200)? == [7; 200],
    );
    let kernels = crate::fixture::Kernels::load(d)?;
    kernels.fill(CUstream::NULL, range.address, 2 * PIECE as u64 / 4, 0x0303_0303)?;
    case.expect_that("kernels cross the border", read(d, range.address, 2 * PIECE)? == vec![3; 2 * PIECE]);
    let (mut base, mut bytes) = (u64::MAX, 0);
    let code = cu!(d, cuMemGetAddressRange_v2(&mut base, &mut bytes, range.address + PIECE as u64));
    case.expect_ok("address range of the host half", code);
    case.expect_eq("its base", base, 0);
    Ok(())
}

pub(super) fn does_not_wait(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let stream = crate::fixture::Stream::non_blocking(d)?;
    let gate = crate::fixture::Gate::close(d, stream.raw)?;
    let range = Range::of_device(d, 2 * PIECE, primary.device)?;
    drop(range);
    let memory = crate::fixture::Memory::new(d, PIECE)?;
    // Only this line opens the gate: if a call had waited for the stream, the case would have timed
    // out.
    gate.open();
    drop(memory);
    case.observe("create, map, allow, unmap, release and cuMemAlloc return while work is in flight", true);
    Ok(())
}

/// No object that several devices share is made: only what refuses a handle that names none.
pub(super) fn binds_refused(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let range = Range::of_device(d, PIECE, primary.device)?;
    let mut handle = 0;
    must!(d, cuMemRetainAllocationHandle(&mut handle, range.address as *mut _));
    let memory = Physical::adopt(d, handle, PIECE);
    let (device, handle, address) = (primary.device, memory.raw, range.address);
    case.code("memory", cu!(d, cuMulticastBindMem(0, 0, handle, 0, PIECE, 0)));
    case.code("memory, with a device", cu!(d, cuMulticastBindMem_v2(0, device, 0, handle, 0, PIECE, 0)));
    case.code("an address", cu!(d, cuMulticastBindAddr(0, 0, address, PIECE, 0)));
    case.code("an address, with a device", cu!(d, cuMulticastBindAddr_v2(0, device, 0, address, PIECE, 0)));
    let endpoint = null_mut();
    case.code(
        "an endpoint",
        cu!(d, cuLogicalEndpointBindMem(endpoint, device, 0, handle, 0, PIECE as u64, 0)),
    );
    drop(memory);
    write(d, range.address, &pattern(PIECE, 6))?;
    case.expect_that("the memory is as before", read(d, range.address, PIECE)? == pattern(PIECE, 6));
    Ok(())
}
