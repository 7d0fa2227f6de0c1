//! Stream-ordered pools: accounts, settings and wrong arguments. `pool_order` has the cases about
//! order.

use std::ffi::c_uint;
use std::ptr::null_mut;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{Memory, Primary, Stream, alloc_async, pattern, read, synchronize, write};
use crate::{cu, must};

pub(super) fn default_pool(driver: &'static Driver) -> Verdict<CUmemoryPool> {
    let mut pool = CUmemoryPool::NULL;
    must!(driver, cuDeviceGetDefaultMemPool(&mut pool, 0));
    Ok(pool)
}

fn get(driver: &'static Driver, pool: CUmemoryPool, attribute: c_uint) -> Verdict<u64> {
    // Wide enough for both kinds of attribute, and zero if an `int` leaves the upper half
    // unchanged.
    let mut value = 0_u64;
    must!(driver, cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
    Ok(value)
}

fn set(driver: &'static Driver, pool: CUmemoryPool, attribute: c_uint, mut value: u64) -> CUresult {
    cu!(driver, cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast()))
}

/// Makes a pool keep up to `bytes` of freed memory.
pub(super) fn set_threshold(driver: &'static Driver, pool: CUmemoryPool, mut bytes: u64) -> Verdict {
    must!(driver, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut bytes).cast()));
    Ok(())
}

/// A pool of device 0 with at most `bytes` (0: no limit).
pub(super) fn create(driver: &'static Driver, bytes: usize) -> Verdict<CUmemoryPool> {
    let (mut pool, properties) = (CUmemoryPool::NULL, properties(bytes));
    must!(driver, cuMemPoolCreate(&mut pool, &properties));
    Ok(pool)
}

/// The properties of such a pool.
pub(super) fn properties(bytes: usize) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: CU_MEM_HANDLE_TYPE_NONE,
        location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
        win32SecurityAttributes: null_mut(),
        maxSize: bytes,
        usage: 0,
        gpuDirectRDMACapable: 0,
        reserved: [0; 53],
    }
}

pub(super) fn arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let mut address = 0;
    let wrong = CUresult::INVALID_VALUE;
    // Unlike for cuMemAlloc, an empty allocation succeeds, and so does its free.
    case.expect_ok("size 0", cu!(d, cuMemAllocAsync(&mut address, 0, stream.raw)));
    case.observe("size 0 gives address 0", address == 0);
    case.expect_ok("free of it", cu!(d, cuMemFreeAsync(address, stream.raw)));
    case.expect_code("null", cu!(d, cuMemAllocAsync(null_mut(), 4096, stream.raw)), wrong);
    let code = cu!(d, cuMemAllocAsync(&mut address, 1 << 46, stream.raw));
    case.expect_code("64 TiB", code, CUresult::OUT_OF_MEMORY);
    case.expect_code("free address 8", cu!(d, cuMemFreeAsync(8, stream.raw)), wrong);
    case.expect_ok("free address 0", cu!(d, cuMemFreeAsync(0, stream.raw)));
    address = alloc_async(d, 1 << 20, stream.raw)?;
    case.expect_code("free interior", cu!(d, cuMemFreeAsync(address + 512, stream.raw)), wrong);
    case.expect_ok("free", cu!(d, cuMemFreeAsync(address, stream.raw)));
    case.expect_code("free twice", cu!(d, cuMemFreeAsync(address, stream.raw)), wrong);
    let code = cu!(d, cuMemAllocFromPoolAsync(&mut address, 4096, CUmemoryPool::NULL, stream.raw));
    case.expect_one_of("null pool", code, &[wrong, CUresult::INVALID_HANDLE]);
    Ok(())
}

pub(super) fn contents(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let sizes = [1, 300, 4096, 100_000, 2 << 20, 5_000_001];
    let mut held = Vec::new();
    for (seed, size) in sizes.iter().cycle().take(24).enumerate() {
        let address = alloc_async(d, *size, stream.raw)?;
        synchronize(d, stream.raw)?;
        write(d, address, &pattern(*size, seed as u64))?;
        held.push((address, *size, seed as u64));
    }
    for (address, ..) in held.iter().filter(|(.., seed)| seed % 2 == 1) {
        case.expect_ok("free", cu!(d, cuMemFreeAsync(*address, stream.raw)));
    }
    for (address, size, seed) in held.iter().filter(|(.., seed)| seed % 2 == 0) {
        let same = read(d, *address, *size)? == pattern(*size, *seed);
        case.expect(same, format!("{size} bytes with seed {seed} changed when others were freed"));
        case.expect_ok("free the rest", cu!(d, cuMemFreeAsync(*address, stream.raw)));
    }
    Ok(())
}

pub(super) fn used_accounts(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let pool = default_pool(d)?;
    case.expect_eq("used at first", get(d, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?, 0);
    let (first, second) = (alloc_async(d, 4 << 20, stream.raw)?, alloc_async(d, 8 << 20, stream.raw)?);
    synchronize(d, stream.raw)?;
    case.expect_eq("used by two", get(d, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?, 12 << 20);
    must!(d, cuMemFreeAsync(second, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_eq("used by one", get(d, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?, 4 << 20);
    case.expect_eq("highest use", get(d, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH)?, 12 << 20);
    let reserved = get(d, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
    let highest = get(d, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?;
    case.expect_that(
        "reserved covers use",
        reserved >= 4 << 20 && highest >= 12 << 20 && highest >= reserved,
    );
    must!(d, cuMemFreeAsync(first, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_eq("used at last", get(d, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?, 0);
    Ok(())
}

pub(super) fn small_sizes_accounts(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let pool = default_pool(d)?;
    for size in [1, 256, 511, 512, 513, 1000, 4096, 100_000, 3 << 20] {
        let address = alloc_async(d, size, stream.raw)?;
        synchronize(d, stream.raw)?;
        case.observe(format!("used by {size} bytes"), get(d, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?);
        case.observe(format!("{size} bytes are aligned to 512"), address % 512 == 0);
        case.expect(address % 256 == 0, format!("{size} bytes are not aligned to 256"));
        must!(d, cuMemFreeAsync(address, stream.raw));
        synchronize(d, stream.raw)?;
    }
    Ok(())
}

pub(super) fn high_water_resets(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let pool = default_pool(d)?;
    let address = alloc_async(d, 16 << 20, stream.raw)?;
    must!(d, cuMemFreeAsync(address, stream.raw));
    synchronize(d, stream.raw)?;
    for (name, high) in
        [("used", CU_MEMPOOL_ATTR_USED_MEM_HIGH), ("reserved", CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)]
    {
        case.expect_that(&format!("{name} was higher"), get(d, pool, high)? >= 16 << 20);
        let code = set(d, pool, high, 5);
        case.expect_code(&format!("write 5 to {name}"), code, CUresult::INVALID_VALUE);
        case.expect_ok(&format!("write 0 to {name}"), set(d, pool, high, 0));
        let current = get(d, pool, high - 1)?;
        case.observe(format!("{name} high after reset is current"), get(d, pool, high)? == current);
    }
    let high = get(d, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH)?;
    case.expect_eq("highest use after reset", high, 0);
    let code = set(d, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 0);
    case.expect_code("write to current use", code, CUresult::INVALID_VALUE);
    let code = set(d, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 0);
    case.expect_code("write to current reserve", code, CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn settings(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let pool = default_pool(d)?;
    for (name, attribute) in [
        ("follow event dependencies", CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES),
        ("allow opportunistic", CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC),
        ("allow internal dependencies", CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES),
    ] {
        case.expect_eq(&format!("{name} at first"), get(d, pool, attribute)?, 1);
        case.expect_ok(&format!("{name} off"), set(d, pool, attribute, 0));
        case.expect_eq(&format!("{name} after"), get(d, pool, attribute)?, 0);
        case.expect_ok(&format!("{name} on"), set(d, pool, attribute, 1));
    }
    let threshold = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    case.expect_eq("threshold at first", get(d, pool, threshold)?, 0);
    case.expect_ok("threshold", set(d, pool, threshold, u64::MAX));
    case.expect_eq("threshold after", get(d, pool, threshold)?, u64::MAX);
    let mut value = 0_u64;
    let out = (&raw mut value).cast();
    case.expect_code("attribute 999", cu!(d, cuMemPoolGetAttribute(pool, 999, out)), CUresult::INVALID_VALUE);
    let code = cu!(d, cuMemPoolGetAttribute(pool, threshold, null_mut()));
    case.expect_code("null", code, CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn threshold_and_trim(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let pool = default_pool(d)?;
    let cycle = || -> Verdict<u64> {
        let address = alloc_async(d, 32 << 20, stream.raw)?;
        must!(d, cuMemFreeAsync(address, stream.raw));
        synchronize(d, stream.raw)?;
        get(d, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    };
    case.expect_eq("kept without threshold", cycle()?, 0);
    case.expect_ok("set the threshold", set(d, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX));
    case.expect_that("a threshold keeps it", cycle()? >= 32 << 20);
    case.expect_ok("trim to 64 MiB", cu!(d, cuMemPoolTrimTo(pool, 64 << 20)));
    let kept = get(d, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
    case.expect_that("less than asked is not trimmed", kept >= 32 << 20);
    case.expect_ok("trim to 0", cu!(d, cuMemPoolTrimTo(pool, 0)));
    case.expect_eq("kept after trim", get(d, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?, 0);
    Ok(())
}

pub(super) fn device_pools(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let (default, own) = (default_pool(d)?, create(d, 0)?);
    let mut current = CUmemoryPool::NULL;
    must!(d, cuDeviceGetMemPool(&mut current, 0));
    case.expect_that("the current pool is the default one", current == default);
    must!(d, cuDeviceSetMemPool(0, own));
    must!(d, cuDeviceGetMemPool(&mut current, 0));
    case.expect_that("the current pool can be set", current == own);
    let address = alloc_async(d, 4 << 20, stream.raw)?;
    synchronize(d, stream.raw)?;
    case.expect_eq("used of the own pool", get(d, own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?, 4 << 20);
    case.expect_eq("used of the default pool", get(d, default, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?, 0);
    must!(d, cuMemFreeAsync(address, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_ok("destroy the current pool", cu!(d, cuMemPoolDestroy(own)));
    must!(d, cuDeviceGetMemPool(&mut current, 0));
    case.expect_that("the default pool is current again", current == default);
    case.expect_code("destroy the default pool", cu!(d, cuMemPoolDestroy(default)), CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn own_pool(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let pool = create(d, 0)?;
    let mut address = 0;
    must!(d, cuMemAllocFromPoolAsync(&mut address, 5 << 20, pool, stream.raw));
    synchronize(d, stream.raw)?;
    write(d, address, &pattern(5 << 20, 2))?;
    case.expect_ok("destroy with memory in use", cu!(d, cuMemPoolDestroy(pool)));
    case.expect_that("the memory lives on", read(d, address, 5 << 20)? == pattern(5 << 20, 2));
    case.expect_ok("free after destroy", cu!(d, cuMemFreeAsync(address, stream.raw)));
    synchronize(d, stream.raw)?;
    Ok(())
}

pub(super) fn limited_pool(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let pool = create(d, 64 << 20)?;
    let (mut first, mut second) = (0, 0);
    must!(d, cuMemAllocFromPoolAsync(&mut first, 32 << 20, pool, stream.raw));
    let code = cu!(d, cuMemAllocFromPoolAsync(&mut second, 128 << 20, pool, stream.raw));
    case.expect_code("more than the pool may hold", code, CUresult::OUT_OF_MEMORY);
    must!(d, cuMemFreeAsync(first, stream.raw));
    synchronize(d, stream.raw)?;
    must!(d, cuMemPoolDestroy(pool));
    Ok(())
}

pub(super) fn create_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut pool = CUmemoryPool::NULL;
    let good = properties(0);
    case.expect_code("null pool", cu!(d, cuMemPoolCreate(null_mut(), &good)), CUresult::INVALID_VALUE);
    let mut wrong = good;
    wrong.location.id = 4096;
    let code = cu!(d, cuMemPoolCreate(&mut pool, &wrong));
    case.expect_one_of("device 4096", code, &[CUresult::INVALID_DEVICE, CUresult::INVALID_VALUE]);
    wrong = good;
    wrong.allocType = 77;
    case.expect_code("type 77", cu!(d, cuMemPoolCreate(&mut pool, &wrong)), CUresult::INVALID_VALUE);
    case.expect_one_of(
        "destroy null",
        cu!(d, cuMemPoolDestroy(CUmemoryPool::NULL)),
        &[CUresult::INVALID_VALUE, CUresult::INVALID_HANDLE],
    );
    Ok(())
}

pub(super) fn access(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let pool = default_pool(d)?;
    let mut location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    let mut flags = 0;
    must!(d, cuMemPoolGetAccess(&mut flags, pool, &mut location));
    case.expect_eq("the owner's access", flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    let revoke = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_NONE };
    case.code("revoke the owner's access", cu!(d, cuMemPoolSetAccess(pool, &revoke, 1)));
    let keep = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    case.expect_ok("keep the owner's access", cu!(d, cuMemPoolSetAccess(pool, &keep, 1)));
    Ok(())
}

pub(super) fn mixed_frees(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let address = alloc_async(d, 3 << 20, stream.raw)?;
    synchronize(d, stream.raw)?;
    case.expect_ok("cuMemFree of pool memory", cu!(d, cuMemFree_v2(address)));
    case.expect_code("and again", cu!(d, cuMemFree_v2(address)), CUresult::INVALID_VALUE);
    let memory = Memory::new(d, 3 << 20)?;
    let code = cu!(d, cuMemFreeAsync(memory.address, stream.raw));
    case.expect_ok("cuMemFreeAsync of cuMemAlloc memory", code);
    synchronize(d, stream.raw)?;
    case.expect_code("then cuMemFree of it", cu!(d, cuMemFree_v2(memory.address)), CUresult::INVALID_VALUE);
    std::mem::forget(memory);
    Ok(())
}

pub(super) fn context_end_keeps_pool(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut context = CUcontext::NULL;
    must!(d, cuCtxCreate_v2(&mut context, 0, 0));
    let address = alloc_async(d, 4 << 20, CUstream::NULL)?;
    synchronize(d, CUstream::NULL)?;
    write(d, address, &pattern(4 << 20, 9))?;
    must!(d, cuCtxDestroy_v2(context));
    _primary.enter()?;
    case.expect_that("pool memory outlives its context", read(d, address, 4 << 20)? == pattern(4 << 20, 9));
    case.expect_ok("free", cu!(d, cuMemFreeAsync(address, CUstream::NULL)));
    Ok(())
}
