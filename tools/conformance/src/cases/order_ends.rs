//! The ends of contexts: refused, by other names, under load, in a capture. Their memory must
//! neither be lost nor reused while their work still uses it, and the process goes on.

use wm_abi::*;

use super::order_contexts::{BYTES, Side, create, enter};
use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{
    Hold, Kernels, Memory, Primary, SOON, Stream, alloc_async, free_async, init, synchronize,
};
use crate::{cu, must, supported};

/// `cuCtxDestroy` does not destroy a primary context: its objects must live on.
pub(super) fn refused_destroy(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let kept = Memory::holding(d, &[0xAA; 4096])?;
    let pooled = alloc_async(d, 4096, stream.raw)?;
    must!(d, cuMemsetD8Async(pooled, 0xAB, 4096, stream.raw));
    synchronize(d, stream.raw)?;
    let code = cu!(d, cuCtxDestroy_v2(primary.context));
    case.expect_code("cuCtxDestroy of a primary context", code, CUresult::INVALID_CONTEXT);
    let (mut base, mut size) = (0, 0);
    let code = cu!(d, cuMemGetAddressRange_v2(&mut base, &mut size, kept.address));
    case.expect_ok("range of a block from before", code);
    case.expect_that("it is whole", (base, size) == (kept.address, 4096));
    let next = Memory::holding(d, &[0x55; 4096])?;
    let after = alloc_async(d, 4096, stream.raw)?;
    must!(d, cuMemsetD8Async(after, 0x56, 4096, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_that("the next block is another", next.address != kept.address && after != pooled);
    case.expect_that("the first keeps its bytes", kept.read()? == [0xAA; 4096]);
    case.expect_that("so does pool memory", crate::fixture::read(d, pooled, 4096)? == [0xAB; 4096]);
    for block in [pooled, after] {
        case.expect_ok("free", cu!(d, cuMemFreeAsync(block, stream.raw)));
    }
    synchronize(d, stream.raw)
}

/// A context ends while its stream works on a block of the device's pool that was freed there.
pub(super) fn ends_with_work(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let home = Side::new(d, create(d)?)?;
    super::pool::set_threshold(d, super::pool::default_pool(d)?, u64::MAX)?;
    for (name, frees) in [("freed", true), ("still in use", false)] {
        let address = home.stamped(1)?;
        let short_lived = create(d)?;
        let (kernels, stream) = (Kernels::load(d)?, Stream::non_blocking(d)?);
        kernels.check(stream.raw, address, BYTES, 1, home.errors.address())?;
        synchronize(d, stream.raw)?;
        let own = Memory::new(d, BYTES)?;
        let hold = Hold::close(d, stream.raw)?;
        kernels.check(stream.raw, address, BYTES, 1, home.errors.address())?;
        must!(d, cuMemsetD8Async(own.address, 3, BYTES, stream.raw));
        if frees {
            free_async(d, address, stream.raw)?;
        }
        hold.open_after(SOON);
        case.expect_ok(&format!("{name}: destroy"), cu!(d, cuCtxDestroy_v2(short_lived)));
        case.observe(format!("{name}: it waited for the work"), hold.is_open());
        std::mem::forget((kernels, stream, own));
        home.enter()?;
        let next = home.take_and_stamp(2)?;
        synchronize(d, home.stream.raw)?;
        let wrong = home.errors.count()?;
        case.expect_eq(&format!("{name}: words that the last owner found changed"), wrong, 0);
        free_async(d, next, home.stream.raw)?;
        if !frees {
            case.expect_ok(&format!("{name}: free"), cu!(d, cuMemFreeAsync(address, home.stream.raw)));
        }
        synchronize(d, home.stream.raw)?;
    }
    std::mem::forget(home);
    Ok(())
}

/// The oldest way to end a context.
pub(super) fn detached(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let home = create(d)?;
    let context = create(d)?;
    let memory = Memory::holding(d, &[1; 4096])?;
    let mut attached = CUcontext::NULL;
    supported!(d, cuCtxAttach(&mut attached, 0));
    case.expect_that("attach gives the current context", attached == context);
    case.code("the first detach", cu!(d, cuCtxDetach(context)));
    case.code("the second detach", cu!(d, cuCtxDetach(context)));
    enter(d, home)?;
    let lost = memory.address;
    std::mem::forget(memory);
    case.code("free of its memory", cu!(d, cuMemFree_v2(lost)));
    let next = Memory::holding(d, &[2; 4096])?;
    case.expect_that("memory of another context works", next.read()? == [2; 4096]);
    Ok(())
}

fn free_memory(driver: &'static Driver) -> Verdict<usize> {
    let (mut free, mut total) = (0, 0);
    must!(driver, cuMemGetInfo_v2(&mut free, &mut total));
    Ok(free)
}

/// Memory of every kind, some of it freed, with work in flight; then the primary context ends.
fn ends_busy(case: &mut Case, label: &str, end: impl FnOnce() -> CUresult) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    super::pool::set_threshold(d, super::pool::default_pool(d)?, u64::MAX)?;
    let before = free_memory(d)?;
    let (kernels, errors) = Kernels::ready(d)?;
    let (stream, other) = (Stream::non_blocking(d)?, Stream::new(d, CU_STREAM_DEFAULT)?);
    let (plain, pooled) = (Memory::new(d, BYTES)?, alloc_async(d, BYTES, stream.raw)?);
    let freed = alloc_async(d, BYTES, other.raw)?;
    synchronize(d, other.raw)?;
    let hold = Hold::close(d, stream.raw)?;
    hold.also(d, other.raw)?;
    kernels.stamp(stream.raw, plain.address, BYTES, 1)?;
    kernels.stamp(stream.raw, pooled, BYTES, 1)?;
    must!(d, cuMemcpyDtoDAsync_v2(plain.address, freed, BYTES, other.raw));
    free_async(d, freed, other.raw)?;
    hold.open_after(SOON);
    std::mem::forget((kernels, errors, stream, other, plain, primary));
    case.expect_ok(label, end());
    let primary = Primary::new(d)?;
    let (kernels, errors) = Kernels::ready(d)?;
    let lost = before.saturating_sub(free_memory(d)?);
    // The pool has two blocks.
    case.expect_that(&format!("{label}: cuMemAlloc memory is back"), lost <= 2 * BYTES + BYTES / 2);
    case.observe(format!("{label}: the pool's memory is back"), lost <= BYTES / 2);
    let stream = Stream::non_blocking(d)?;
    let (plain, pooled) = (Memory::new(d, BYTES)?, alloc_async(d, BYTES, stream.raw)?);
    for (stamp, address) in [(5, plain.address), (6, pooled)] {
        kernels.stamp(stream.raw, address, BYTES, stamp)?;
    }
    for (stamp, address) in [(5, plain.address), (6, pooled)] {
        kernels.check(stream.raw, address, BYTES, stamp, errors.address())?;
    }
    free_async(d, pooled, stream.raw)?;
    case.expect_ok(&format!("{label}: work afterwards"), cu!(d, cuStreamSynchronize(stream.raw)));
    case.expect_eq(&format!("{label}: wrong words afterwards"), errors.count()?, 0);
    drop((plain, stream, kernels, errors, primary));
    Ok(())
}

pub(super) fn reset_with_work(case: &mut Case) -> Verdict {
    let d = case.driver;
    for label in ["first reset", "second reset"] {
        ends_busy(case, label, || cu!(d, cuDevicePrimaryCtxReset_v2(0)))?;
    }
    Ok(())
}

pub(super) fn release_with_work(case: &mut Case) -> Verdict {
    let d = case.driver;
    for label in ["first release", "second release"] {
        ends_busy(case, label, || cu!(d, cuDevicePrimaryCtxRelease_v2(0)))?;
    }
    Ok(())
}

/// A context ends while its stream is under capture: the capture must not forbid calls for ever.
pub(super) fn ends_with_a_capture(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let home = create(d)?;
    let context = create(d)?;
    let stream = Stream::non_blocking(d)?;
    must!(d, cuStreamBeginCapture_v2(stream.raw, CU_STREAM_CAPTURE_MODE_GLOBAL));
    let mut address = 0;
    case.expect_ok("allocation in the capture", cu!(d, cuMemAllocAsync(&mut address, 4096, stream.raw)));
    case.code("destroy", cu!(d, cuCtxDestroy_v2(context)));
    std::mem::forget(stream);
    enter(d, home)?;
    case.code("cuMemAlloc", cu!(d, cuMemAlloc_v2(&mut address, 4096)));
    case.code("wait", cu!(d, cuCtxSynchronize()));
    let stream = Stream::non_blocking(d)?;
    case.code("cuMemAllocAsync", cu!(d, cuMemAllocAsync(&mut address, 4096, stream.raw)));
    case.code("memset", cu!(d, cuMemsetD8Async(address, 1, 4096, stream.raw)));
    case.code("wait for the stream", cu!(d, cuStreamSynchronize(stream.raw)));
    Ok(())
}
