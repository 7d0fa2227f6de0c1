//! Stream order: memory of a pool is usable and reusable exactly in the order of the streams.
//!
//! A block is stamped by one owner and checked by the next. A closed gate keeps the first owner's
//! work in flight, so memory that is reused too early is found in every run.

use std::time::Duration;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::fixture::{Errors, Event, Gate, Kernels, Primary, Stream, alloc_async, free_async, synchronize};
use crate::{cu, must};

const BYTES: usize = 4 << 20;

pub(super) fn reuse_on_one_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, errors, stream) = (Kernels::load(d)?, Errors::new(d)?, Stream::non_blocking(d)?);
    for round in 0..50 {
        let address = alloc_async(d, BYTES, stream.raw)?;
        kernels.stamp(stream.raw, address, BYTES, round)?;
        kernels.check(stream.raw, address, BYTES, round, errors.address())?;
        free_async(d, address, stream.raw)?;
    }
    synchronize(d, stream.raw)?;
    case.expect_eq("wrong words", errors.count()?, 0);
    Ok(())
}

pub(super) fn reused_at_once_on_one_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let gate = Gate::close(d, stream.raw)?;
    let first = alloc_async(d, BYTES, stream.raw)?;
    free_async(d, first, stream.raw)?;
    let second = alloc_async(d, BYTES, stream.raw)?;
    case.observe("the same address comes back before the stream has run", first == second);
    free_async(d, second, stream.raw)?;
    gate.open();
    synchronize(d, stream.raw)
}

pub(super) fn no_reuse_while_in_flight(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, errors) = (Kernels::load(d)?, Errors::new(d)?);
    let (first, second) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let a = alloc_async(d, BYTES, first.raw)?;
    let gate = Gate::close(d, first.raw)?;
    kernels.stamp(first.raw, a, BYTES, 1)?;
    free_async(d, a, first.raw)?;
    let b = alloc_async(d, BYTES, second.raw)?;
    kernels.stamp(second.raw, b, BYTES, 2)?;
    // A driver may make the second stream wait for the first, but not let them overlap: the gate
    // opens by itself.
    gate.open_after(Duration::from_millis(50));
    synchronize(d, second.raw)?;
    synchronize(d, first.raw)?;
    kernels.check(second.raw, b, BYTES, 2, errors.address())?;
    free_async(d, b, second.raw)?;
    synchronize(d, second.raw)?;
    case.expect_eq("words that the first owner overwrote", errors.count()?, 0);
    Ok(())
}

pub(super) fn many_streams_never_overlap(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, errors) = (Kernels::load(d)?, Errors::new(d)?);
    let streams = (0..4).map(|_| Stream::non_blocking(d)).collect::<Verdict<Vec<_>>>()?;
    for round in 0..160_u64 {
        let stream = streams[round as usize % streams.len()].raw;
        let bytes = 8 * (1000 + (round as usize * 7919) % 40_000);
        let address = alloc_async(d, bytes, stream)?;
        kernels.stamp(stream, address, bytes, round)?;
        kernels.spin(stream, 50_000 * (round % 4))?;
        kernels.check(stream, address, bytes, round, errors.address())?;
        free_async(d, address, stream)?;
    }
    must!(d, cuCtxSynchronize());
    case.expect_eq("words that another owner wrote", errors.count()?, 0);
    Ok(())
}

pub(super) fn reuse_after_event(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, errors) = (Kernels::load(d)?, Errors::new(d)?);
    let (first, second) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let freed = Event::new(d, CU_EVENT_DISABLE_TIMING)?;
    for round in 0..20_u64 {
        let a = alloc_async(d, BYTES, first.raw)?;
        kernels.spin(first.raw, 200_000)?;
        kernels.stamp(first.raw, a, BYTES, round)?;
        free_async(d, a, first.raw)?;
        freed.record(first.raw)?;
        must!(d, cuStreamWaitEvent(second.raw, freed.raw, 0));
        let b = alloc_async(d, BYTES, second.raw)?;
        kernels.stamp(second.raw, b, BYTES, round + 1000)?;
        kernels.check(second.raw, b, BYTES, round + 1000, errors.address())?;
        free_async(d, b, second.raw)?;
        synchronize(d, second.raw)?;
    }
    case.expect_eq("wrong words", errors.count()?, 0);
    Ok(())
}

pub(super) fn freed_on_another_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, errors) = (Kernels::load(d)?, Errors::new(d)?);
    let (maker, taker) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let made = Event::new(d, CU_EVENT_DISABLE_TIMING)?;
    for round in 0..20_u64 {
        let address = alloc_async(d, BYTES, maker.raw)?;
        kernels.stamp(maker.raw, address, BYTES, round)?;
        made.record(maker.raw)?;
        must!(d, cuStreamWaitEvent(taker.raw, made.raw, 0));
        kernels.spin(taker.raw, 100_000)?;
        kernels.check(taker.raw, address, BYTES, round, errors.address())?;
        free_async(d, address, taker.raw)?;
        // The first stream goes on without waiting for the second: its next memory must be another
        // block.
        let next = alloc_async(d, BYTES, maker.raw)?;
        kernels.stamp(maker.raw, next, BYTES, u64::MAX)?;
        free_async(d, next, maker.raw)?;
    }
    must!(d, cuCtxSynchronize());
    case.expect_eq("wrong words", errors.count()?, 0);
    Ok(())
}

pub(super) fn default_streams(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, errors) = (Kernels::load(d)?, Errors::new(d)?);
    for (name, stream) in
        [("null", CUstream::NULL), ("legacy", CUstream::LEGACY), ("per thread", CUstream::PER_THREAD)]
    {
        let mut address = 0;
        case.expect_ok(&format!("{name}: alloc"), cu!(d, cuMemAllocAsync(&mut address, BYTES, stream)));
        kernels.stamp(stream, address, BYTES, 5)?;
        kernels.check(stream, address, BYTES, 5, errors.address())?;
        case.expect_ok(&format!("{name}: free"), cu!(d, cuMemFreeAsync(address, stream)));
        synchronize(d, stream)?;
    }
    case.expect_eq("wrong words", errors.count()?, 0);
    Ok(())
}

pub(super) fn per_thread_variants(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut address = 0;
    let gate = Gate::close(d, CUstream::PER_THREAD)?;
    // With the per-thread variants, stream 0 is the calling thread's stream, which the gate holds.
    case.expect_ok("alloc", cu!(d, cuMemAllocAsync_ptsz(&mut address, BYTES, CUstream::NULL)));
    case.expect_ok("memset", cu!(d, cuMemsetD8Async_ptsz(address, 3, BYTES, CUstream::NULL)));
    case.expect_ok("free", cu!(d, cuMemFreeAsync_ptsz(address, CUstream::NULL)));
    case.expect_code("query", cu!(d, cuStreamQuery_ptsz(CUstream::NULL)), CUresult::NOT_READY);
    gate.open();
    case.expect_ok("synchronize", cu!(d, cuStreamSynchronize_ptsz(CUstream::NULL)));
    let pool = super::pool::default_pool(d)?;
    let code = cu!(d, cuMemAllocFromPoolAsync_ptsz(&mut address, BYTES, pool, CUstream::NULL));
    case.expect_ok("alloc from pool", code);
    case.expect_ok("free to pool", cu!(d, cuMemFreeAsync_ptsz(address, CUstream::NULL)));
    Ok(())
}

pub(super) fn outlives_its_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, errors) = (Kernels::load(d)?, Errors::new(d)?);
    let stream = Stream::non_blocking(d)?;
    let address = alloc_async(d, BYTES, stream.raw)?;
    kernels.stamp(stream.raw, address, BYTES, 8)?;
    synchronize(d, stream.raw)?;
    drop(stream);
    let other = Stream::non_blocking(d)?;
    kernels.check(other.raw, address, BYTES, 8, errors.address())?;
    case.expect_ok("free on another stream", cu!(d, cuMemFreeAsync(address, other.raw)));
    synchronize(d, other.raw)?;
    case.expect_eq("wrong words", errors.count()?, 0);
    Ok(())
}

pub(super) fn stream_ends_with_frees_pending(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, errors) = (Kernels::load(d)?, Errors::new(d)?);
    for round in 0..10_u64 {
        let (first, second) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
        let a = alloc_async(d, BYTES, first.raw)?;
        kernels.spin(first.raw, 300_000)?;
        kernels.stamp(first.raw, a, BYTES, round)?;
        free_async(d, a, first.raw)?;
        drop(first);
        let b = alloc_async(d, BYTES, second.raw)?;
        kernels.stamp(second.raw, b, BYTES, round + 500)?;
        kernels.spin(second.raw, 500_000)?;
        kernels.check(second.raw, b, BYTES, round + 500, errors.address())?;
        free_async(d, b, second.raw)?;
        synchronize(d, second.raw)?;
    }
    case.expect_eq("words that the ended stream overwrote", errors.count()?, 0);
    Ok(())
}
