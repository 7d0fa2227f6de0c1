//! A pool's promises for reuse and for releases, and the memory figures that programs get.

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{
    Errors, Event, Hold, Kernels, LATE, Memory, Primary, Stream, alloc_async, free_async, init, synchronize,
};
use crate::{cu, must};

const BYTES: usize = 32 << 20;

fn reserved(driver: &'static Driver, pool: CUmemoryPool) -> Verdict<u64> {
    let mut bytes = 0_u64;
    let place = (&raw mut bytes).cast();
    must!(driver, cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, place));
    Ok(bytes)
}

const REUSE: [(&str, u32); 3] = [
    ("follow events", CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES),
    ("opportunistic", CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC),
    ("internal dependencies", CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES),
];

/// A block changes hands: while its last owner is held, behind an event, and after the host knows
/// that it is free.
fn changes_hands(
    d: &'static Driver,
    kernels: &Kernels,
    errors: &Errors,
    allowed: &[bool; 3],
) -> Verdict<bool> {
    let (first, second) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let event = Event::new(d, CU_EVENT_DISABLE_TIMING)?;
    let mut waited = false;
    for way in 0..3 {
        let block = alloc_async(d, BYTES, first.raw)?;
        kernels.stamp(first.raw, block, BYTES, 1)?;
        let hold = (way == 0).then(|| Hold::close(d, first.raw)).transpose()?;
        kernels.check(first.raw, block, BYTES, 1, errors.address())?;
        free_async(d, block, first.raw)?;
        match way {
            1 => {
                event.record(first.raw)?;
                must!(d, cuStreamWaitEvent(second.raw, event.raw, 0));
            }
            2 => synchronize(d, first.raw)?,
            _ => {}
        }
        if let Some(hold) = &hold {
            hold.open_after(if allowed[2] { LATE / 10 } else { LATE });
        }
        let next = alloc_async(d, BYTES, second.raw)?;
        kernels.stamp(second.raw, next, BYTES, 2)?;
        synchronize(d, second.raw)?;
        waited |= hold.as_ref().is_some_and(Hold::is_open);
        drop(hold);
        synchronize(d, first.raw)?;
        kernels.check(second.raw, next, BYTES, 2, errors.address())?;
        free_async(d, next, second.raw)?;
        synchronize(d, second.raw)?;
    }
    Ok(waited)
}

pub(super) fn reuse_switches(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, errors) = Kernels::ready(d)?;
    let pool = super::pool::default_pool(d)?;
    super::pool::set_threshold(d, pool, u64::MAX)?;
    for allowed in [[true; 3], [true, false, false], [false, true, false], [false, false, true], [false; 3]] {
        let on = |i: usize| if allowed[i] { "on" } else { "off" };
        let name = (0..3).map(|i| format!("{} {}", REUSE[i].0, on(i))).collect::<Vec<_>>().join(", ");
        for (switch, (_, attribute)) in allowed.iter().zip(REUSE) {
            let mut value = i32::from(*switch);
            must!(d, cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast()));
        }
        let waited = changes_hands(d, &kernels, &errors, &allowed)?;
        if !allowed[2] {
            case.expect_eq(&format!("{name}: an allocation waited for a held stream"), waited, false);
        }
        case.expect_eq(&format!("{name}: wrong words"), errors.count()?, 0);
    }
    Ok(())
}

/// Calls that wait for a free, after which a pool without a threshold has released the memory. The
/// releases of other calls, and of memory that was known to be free before, are not deterministic.
pub(super) fn given_back_after(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let pool = super::pool::default_pool(d)?;
    let (stream, event) = (Stream::non_blocking(d)?, Event::new(d, CU_EVENT_DISABLE_TIMING)?);
    type Wait<'a> = (&'a str, &'a dyn Fn() -> CUresult);
    let waits: [Wait<'_>; 3] = [
        ("cuStreamSynchronize", &|| cu!(d, cuStreamSynchronize(stream.raw))),
        ("cuEventSynchronize", &|| cu!(d, cuEventSynchronize(event.raw))),
        ("cuCtxSynchronize", &|| cu!(d, cuCtxSynchronize())),
    ];
    for (name, wait) in waits {
        let address = alloc_async(d, BYTES, stream.raw)?;
        must!(d, cuMemsetD8Async(address, 1, BYTES, stream.raw));
        free_async(d, address, stream.raw)?;
        event.record(stream.raw)?;
        case.code(format!("{name}, just freed"), wait());
        case.observe(format!("{name}, just freed: nothing is reserved"), reserved(d, pool)? == 0);
        must!(d, cuCtxSynchronize());
    }
    Ok(())
}

/// The memory that stays under a threshold, with and without memory in use. Blocks leave room for a
/// guard's bytes.
pub(super) fn kept_by_threshold(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (pool, stream) = (super::pool::default_pool(d)?, Stream::non_blocking(d)?);
    for (threshold, live) in [(0, 0), (0, 1), (64, 0), (64, 1), (64, 3), (1024, 0)] {
        must!(d, cuMemPoolTrimTo(pool, 0));
        super::pool::set_threshold(d, pool, threshold << 20)?;
        let blocks = (0..5)
            .map(|_| alloc_async(d, BYTES - 4096, stream.raw))
            .collect::<Verdict<Vec<CUdeviceptr>>>()?;
        for block in &blocks[live..] {
            free_async(d, *block, stream.raw)?;
        }
        synchronize(d, stream.raw)?;
        let name = format!("threshold {threshold} MiB, {live} of 5 blocks in use");
        let granules = reserved(d, pool)?.div_ceil(2 << 20);
        case.observe(format!("{name}: MiB reserved"), 2 * granules);
        for block in &blocks[..live] {
            free_async(d, *block, stream.raw)?;
        }
        synchronize(d, stream.raw)?;
    }
    super::pool::set_threshold(d, pool, 0)?;
    synchronize(d, stream.raw)
}

/// The pool that a program has chosen is destroyed: the device's default pool becomes the chosen
/// one.
pub(super) fn chosen_pool_destroyed(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (own, stream) = (super::pool::create(d, 0)?, Stream::non_blocking(d)?);
    case.expect_ok("choose", cu!(d, cuDeviceSetMemPool(primary.device, own)));
    let before = alloc_async(d, BYTES, stream.raw)?;
    must!(d, cuMemsetD8Async(before, 7, BYTES, stream.raw));
    case.expect_ok("destroy", cu!(d, cuMemPoolDestroy(own)));
    let mut chosen = CUmemoryPool::NULL;
    must!(d, cuDeviceGetMemPool(&mut chosen, primary.device));
    let default = super::pool::default_pool(d)?;
    case.expect_that("the default pool is chosen", chosen == default);
    let after = alloc_async(d, BYTES, stream.raw)?;
    must!(d, cuMemsetD8Async(after, 8, BYTES, stream.raw));
    let mut of_block = CUmemoryPool::NULL;
    let place = (&raw mut of_block).cast();
    must!(d, cuPointerGetAttribute(place, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, after));
    case.expect_that("a block is the default pool's", of_block == default);
    synchronize(d, stream.raw)?;
    case.expect_that("memory of the ended pool is there", crate::fixture::read(d, before, 64)? == [7; 64]);
    case.expect_that("memory of the default pool is there", crate::fixture::read(d, after, 64)? == [8; 64]);
    case.expect_ok("free of the ended pool's", cu!(d, cuMemFreeAsync(before, stream.raw)));
    case.expect_ok("free of the default pool's", cu!(d, cuMemFreeAsync(after, stream.raw)));
    synchronize(d, stream.raw)?;
    case.expect_eq("reserved at last", reserved(d, default)?, 0);
    Ok(())
}

/// An allocation of the free memory less 256 MiB. Other processes may use the device: one try in
/// three has to succeed.
pub(super) fn what_is_free_can_be_had(case: &mut Case) -> Verdict {
    const LESS: usize = 256 << 20;
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut code = CUresult::UNKNOWN;
    for _ in 0..3 {
        let (mut free, mut total, mut address) = (0, 0, 0);
        must!(d, cuMemGetInfo_v2(&mut free, &mut total));
        let bytes = free.saturating_sub(LESS) & !((2 << 20) - 1);
        code = cu!(d, cuMemAlloc_v2(&mut address, bytes));
        if code != CUresult::SUCCESS {
            continue;
        }
        let last = address + bytes as u64 - 4096;
        for place in [address, last] {
            must!(d, cuMemsetD8_v2(place, 9, 4096));
        }
        case.expect_that("its last bytes work", crate::fixture::read(d, last, 4096)? == [9; 4096]);
        case.expect_ok("free", cu!(d, cuMemFree_v2(address)));
        break;
    }
    case.expect_ok("cuMemAlloc of what is free", code);
    Ok(())
}

/// UCX and MPI make the context current that the driver reports for a block.
pub(super) fn context_of_a_block(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let primary = Primary::new(d)?;
    let create = || {
        let mut context = CUcontext::NULL;
        must!(d, cuCtxCreate_v2(&mut context, 0, 0));
        Ok(context)
    };
    let owner = |address| {
        let mut context = CUcontext::NULL;
        let place = (&raw mut context).cast();
        must!(d, cuPointerGetAttribute(place, CU_POINTER_ATTRIBUTE_CONTEXT, address));
        Ok(context)
    };
    let (one, other) = (create()?, create()?);
    for (name, context) in [("primary", primary.context), ("first created", one), ("second created", other)] {
        for (size, bytes) in [("small", 4096), ("large", BYTES)] {
            must!(d, cuCtxSetCurrent(context));
            let memory = std::mem::ManuallyDrop::new(Memory::new(d, bytes)?);
            case.expect_that(
                &format!("{name}, {size}: the block's context"),
                owner(memory.address)? == context,
            );
            must!(d, cuCtxSetCurrent(one));
            let from_there = owner(memory.address)? == context;
            case.expect_that(&format!("{name}, {size}: asked from the first created"), from_there);
        }
        must!(d, cuCtxSetCurrent(context));
        let address = alloc_async(d, BYTES, CUstream::NULL)?;
        case.observe(format!("{name}: pool memory has a context"), !owner(address)?.is_null());
        free_async(d, address, CUstream::NULL)?;
        synchronize(d, CUstream::NULL)?;
    }
    // An address that is reused in another context belongs to that context.
    must!(d, cuCtxSetCurrent(one));
    drop(Memory::new(d, BYTES)?);
    must!(d, cuCtxSetCurrent(other));
    let memory = Memory::new(d, BYTES)?;
    case.expect_that("memory that may have come back", owner(memory.address)? == other);
    Ok(())
}
