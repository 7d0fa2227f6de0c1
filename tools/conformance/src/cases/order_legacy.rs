//! The legacy default stream as a barrier: "when an action is taken in the legacy stream, it first
//! waits on all blocking streams, and then all blocking streams wait on it". A free in that stream
//! is such an action.
//!
//! Programs that allocate temporaries in stream 0 and work on streams of `cudaStreamCreate` rely on
//! it: only this barrier orders the next owner of a block behind the last. A held stream keeps the
//! last owner's work in flight, so a missing barrier shows in every run.

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{
    Errors, Event, Hold, Kernels, LATE, Memory, Primary, SOON, Stream, alloc_async, free_async, synchronize,
};
use crate::{cu, must};

const BYTES: usize = 1 << 20;
/// Large enough that an allocator searches freed memory before it creates more.
const LARGE: usize = 64 << 20;
const LEGACY: CUstream = CUstream::NULL;

fn blocking(driver: &'static Driver) -> Verdict<Stream> {
    Stream::new(driver, CU_STREAM_DEFAULT)
}

/// The default pool keeps freed memory, so that the next allocation can reuse it.
fn keep_everything(driver: &'static Driver) -> Verdict {
    super::pool::set_threshold(driver, super::pool::default_pool(driver)?, u64::MAX)
}

/// A block of the legacy stream, filled with `stamp`, after a wait of the host.
fn stamped(driver: &'static Driver, kernels: &Kernels, bytes: usize, stamp: u64) -> Verdict<CUdeviceptr> {
    let address = alloc_async(driver, bytes, LEGACY)?;
    kernels.stamp(LEGACY, address, bytes, stamp)?;
    synchronize(driver, LEGACY)?;
    Ok(address)
}

/// Two streams, the second of which must wait for the first through the calls in between.
struct Pair {
    driver: &'static Driver,
    first: CUstream,
    second: CUstream,
    bytes: Memory,
}

impl Pair {
    fn new(driver: &'static Driver, first: CUstream, second: CUstream) -> Verdict<Self> {
        Ok(Self { driver, first, second, bytes: Memory::new(driver, 4096)? })
    }

    /// Holds the first stream, makes the calls `between`, and gives the second stream work. Returns
    /// whether that waits for the first.
    fn is_ordered_by(&self, expected: bool, between: impl FnOnce() -> Verdict) -> Verdict<bool> {
        let (d, hold) = (self.driver, Hold::close(self.driver, self.first)?);
        let waited = hold.blocks(if expected { SOON } else { LATE }, || {
            between()?;
            must!(d, cuMemsetD8Async(self.bytes.address, 1, 4096, self.second));
            synchronize(d, self.second)
        })?;
        hold.open();
        must!(d, cuCtxSynchronize());
        Ok(waited)
    }
}

pub(super) fn temporaries(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, errors) = Kernels::ready(d)?;
    let streams = (0..4).map(|_| blocking(d)).collect::<Verdict<Vec<_>>>()?;
    for round in 0..200_u64 {
        let stream = streams[round as usize % streams.len()].raw;
        let address = alloc_async(d, BYTES, LEGACY)?;
        kernels.stamp(stream, address, BYTES, round)?;
        kernels.spin(stream, 50_000)?;
        kernels.check(stream, address, BYTES, round, errors.address())?;
        free_async(d, address, LEGACY)?;
    }
    must!(d, cuCtxSynchronize());
    case.expect_eq("words that another owner wrote", errors.count()?, 0);
    Ok(())
}

/// The first owner's stream reads while the second owner's would write: the bytes show the order.
fn next_owner(case: &mut Case, label: &str, work: CUstream, next: CUstream) -> Verdict {
    let d = case.driver;
    let (kernels, errors) = Kernels::ready(d)?;
    keep_everything(d)?;
    let address = stamped(d, &kernels, BYTES, 1)?;
    let hold = Hold::close(d, work)?;
    kernels.check(work, address, BYTES, 1, errors.address())?;
    let mut again = 0;
    let waited = hold.blocks(SOON, || {
        free_async(d, address, LEGACY)?;
        again = alloc_async(d, BYTES, LEGACY)?;
        kernels.stamp(next, again, BYTES, 2)?;
        synchronize(d, next)
    })?;
    synchronize(d, work)?;
    case.expect_that(&format!("{label}: the next owner waited"), waited);
    case.expect_eq(&format!("{label}: words that the next owner wrote too early"), errors.count()?, 0);
    free_async(d, again, LEGACY)?;
    synchronize(d, LEGACY)
}

pub(super) fn next_owner_waits(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (first, second) = (blocking(d)?, blocking(d)?);
    next_owner(case, "blocking streams", first.raw, second.raw)?;
    next_owner(case, "from the thread's default stream", CUstream::PER_THREAD, second.raw)?;
    next_owner(case, "to the thread's default stream", first.raw, CUstream::PER_THREAD)?;
    next_owner(case, "to the legacy stream", first.raw, LEGACY)
}

pub(super) fn free_is_an_action(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    keep_everything(d)?;
    let (first, second, apart) = (blocking(d)?, blocking(d)?, Stream::non_blocking(d)?);
    let address = || alloc_async(d, BYTES, LEGACY);
    let pair = Pair::new(d, first.raw, second.raw)?;
    let block = address()?;
    case.expect_that("by cuMemFreeAsync", pair.is_ordered_by(true, || free_async(d, block, LEGACY))?);
    let block = address()?;
    let by_name = pair.is_ordered_by(true, || free_async(d, block, CUstream::LEGACY))?;
    case.expect_that("by the stream's name", by_name);
    let block = Memory::new(d, BYTES)?;
    let linear = std::mem::ManuallyDrop::new(block).address;
    case.expect_that("of cuMemAlloc memory", pair.is_ordered_by(true, || free_async(d, linear, LEGACY))?);
    let thread = Pair::new(d, CUstream::PER_THREAD, second.raw)?;
    let block = address()?;
    let waited = thread.is_ordered_by(true, || free_async(d, block, LEGACY))?;
    case.expect_that("behind the thread's default stream", waited);
    let block = address()?;
    let apart = Pair::new(d, apart.raw, second.raw)?;
    let waited = apart.is_ordered_by(false, || free_async(d, block, LEGACY))?;
    case.expect_eq("behind a non-blocking stream", waited, false);
    let block = address()?;
    let waited = pair.is_ordered_by(false, || free_async(d, block, pair.second))?;
    case.expect_eq("by a free in the second stream itself", waited, false);
    let block = address()?;
    let waited = pair.is_ordered_by(false, || {
        // With the per-thread variant, stream 0 is the thread's own stream and no barrier.
        must!(d, cuMemFreeAsync_ptsz(block, CUstream::NULL));
        Ok(())
    })?;
    case.expect_eq("by a free in the thread's default stream", waited, false);
    Ok(())
}

/// A library can order blocking streams only by events.
pub(super) fn events_are_actions(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (first, second, apart) = (blocking(d)?, blocking(d)?, Stream::non_blocking(d)?);
    let (done, event) = (Event::new(d, CU_EVENT_DISABLE_TIMING)?, Event::new(d, CU_EVENT_DISABLE_TIMING)?);
    done.record(apart.raw)?;
    synchronize(d, apart.raw)?;
    for (name, first, second) in [
        ("blocking streams", first.raw, second.raw),
        ("from the thread's default stream", CUstream::PER_THREAD, second.raw),
        ("to the thread's default stream", first.raw, CUstream::PER_THREAD),
    ] {
        let pair = Pair::new(d, first, second)?;
        let recorded = pair.is_ordered_by(true, || event.record(LEGACY))?;
        case.expect_that(&format!("{name}: by an event recorded in the default stream"), recorded);
        let waited = pair.is_ordered_by(true, || {
            must!(d, cuStreamWaitEvent(LEGACY, done.raw, 0));
            Ok(())
        })?;
        case.expect_that(&format!("{name}: by a wait of the default stream for a past event"), waited);
    }
    let pair = Pair::new(d, first.raw, second.raw)?;
    let asked = pair.is_ordered_by(false, || {
        let _ = cu!(d, cuStreamQuery(LEGACY));
        Ok(())
    })?;
    case.expect_eq("by a query of the default stream", asked, false);
    Ok(())
}

/// It is not documented whether an allocation is an action too: the driver's answer is recorded.
pub(super) fn allocation_as_an_action(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    keep_everything(d)?;
    let (first, second) = (blocking(d)?, blocking(d)?);
    let pair = Pair::new(d, first.raw, second.raw)?;
    let mut kept = Vec::new();
    for (name, stream, bytes) in [
        ("fresh", LEGACY, 3 << 20),
        ("reused", LEGACY, BYTES),
        ("fresh, in its own stream", second.raw, 5 << 20),
    ] {
        if name == "reused" {
            let block = alloc_async(d, bytes, stream)?;
            free_async(d, block, stream)?;
            must!(d, cuCtxSynchronize());
        }
        let waited = pair.is_ordered_by(true, || {
            kept.push(alloc_async(d, bytes, stream)?);
            Ok(())
        })?;
        case.observe(name, waited);
    }
    for block in kept {
        free_async(d, block, LEGACY)?;
    }
    synchronize(d, LEGACY)
}

/// A block is freed in a blocking stream while the default stream, which uses it, is held.
fn freed_behind_default(
    case: &mut Case,
    label: &str,
    stream: CUstream,
    wait: impl FnOnce() -> Verdict,
) -> Verdict {
    let d = case.driver;
    let (kernels, errors) = Kernels::ready(d)?;
    keep_everything(d)?;
    let address = stamped(d, &kernels, LARGE, 1)?;
    let other = Stream::non_blocking(d)?;
    let hold = Hold::close(d, LEGACY)?;
    kernels.check(LEGACY, address, LARGE, 1, errors.address())?;
    let waited = hold.blocks(SOON, || {
        free_async(d, address, stream)?;
        wait()
    })?;
    let again = alloc_async(d, LARGE, other.raw)?;
    kernels.stamp(other.raw, again, LARGE, 2)?;
    synchronize(d, other.raw)?;
    synchronize(d, LEGACY)?;
    case.expect_that(&format!("{label}: the wait includes the free"), waited);
    case.expect_eq(&format!("{label}: words that the next owner wrote too early"), errors.count()?, 0);
    free_async(d, again, other.raw)?;
    synchronize(d, other.raw)
}

pub(super) fn wait_for_a_free(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = blocking(d)?;
    freed_behind_default(case, "cuStreamSynchronize", stream.raw, || synchronize(d, stream.raw))?;
    freed_behind_default(case, "cuStreamQuery", stream.raw, || {
        while cu!(d, cuStreamQuery(stream.raw)) == CUresult::NOT_READY {
            std::thread::yield_now();
        }
        Ok(())
    })?;
    let event = Event::new(d, CU_EVENT_DISABLE_TIMING)?;
    freed_behind_default(case, "cuEventSynchronize", stream.raw, || {
        event.record(stream.raw)?;
        must!(d, cuEventSynchronize(event.raw));
        Ok(())
    })?;
    freed_behind_default(case, "the thread's default stream", CUstream::PER_THREAD, || {
        synchronize(d, CUstream::PER_THREAD)
    })
}

/// The result of a wait for an idle stream while the default stream, or a blocking stream, is held.
pub(super) fn waits_of_idle_streams(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (stream, other) = (blocking(d)?, Stream::non_blocking(d)?);
    for (name, held, idle) in [
        ("a blocking stream, while the default stream is held", LEGACY, stream.raw),
        ("the default stream, while a blocking stream is held", stream.raw, LEGACY),
        ("a non-blocking stream, while the default stream is held", LEGACY, other.raw),
        ("the thread's stream, while the default stream is held", LEGACY, CUstream::PER_THREAD),
        ("the default stream, while the thread's is held", CUstream::PER_THREAD, LEGACY),
    ] {
        must!(d, cuCtxSynchronize());
        let hold = Hold::close(d, held)?;
        case.code(format!("query of {name}"), cu!(d, cuStreamQuery(idle)));
        case.observe(format!("wait for {name}"), hold.blocks(SOON, || synchronize(d, idle))?);
    }
    must!(d, cuCtxSynchronize());
    Ok(())
}

/// Allocation and free in a blocking stream that is behind the held default stream.
pub(super) fn behind_the_default_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = blocking(d)?;
    for (name, stream) in [("blocking", stream.raw), ("the thread's", CUstream::PER_THREAD)] {
        must!(d, cuCtxSynchronize());
        let hold = Hold::close(d, LEGACY)?;
        let address = alloc_async(d, BYTES, stream)?;
        case.expect_eq(&format!("{name}: the allocation returned while held"), hold.is_open(), false);
        // An H200 reports that the first stream is done, and the second is not: programs may rely
        // on neither.
        let code = cu!(d, cuStreamQuery(stream));
        case.observe_machine(format!("{name}: query after the allocation"), crate::case::short(code));
        free_async(d, address, stream)?;
        case.expect_eq(&format!("{name}: the free returned while held"), hold.is_open(), false);
        let code = cu!(d, cuStreamQuery(stream));
        case.expect_code(&format!("{name}: query after the free"), code, CUresult::NOT_READY);
        let waited = hold.blocks(SOON, || synchronize(d, stream))?;
        case.expect_that(&format!("{name}: a wait after the free waits"), waited);
    }
    Ok(())
}

/// The same with streams that are not part of the barrier.
pub(super) fn beside_the_default_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (stream, bytes) = (Stream::non_blocking(d)?, Memory::new(d, 4096)?);
    let hold = Hold::close(d, LEGACY)?;
    let waited = hold.blocks(LATE, || {
        let address = alloc_async(d, BYTES, stream.raw)?;
        must!(d, cuMemsetD8Async(address, 1, BYTES, stream.raw));
        free_async(d, address, stream.raw)?;
        must!(d, cuMemsetD8Async(bytes.address, 1, 4096, stream.raw));
        synchronize(d, stream.raw)
    })?;
    case.expect_eq("a non-blocking stream waited for the default stream", waited, false);
    hold.open();
    must!(d, cuCtxSynchronize());
    let hold = Hold::close(d, stream.raw)?;
    let waited = hold.blocks(LATE, || {
        let address = alloc_async(d, BYTES, LEGACY)?;
        must!(d, cuMemsetD8Async(address, 1, BYTES, LEGACY));
        free_async(d, address, LEGACY)?;
        synchronize(d, LEGACY)
    })?;
    case.expect_eq("the default stream waited for a non-blocking stream", waited, false);
    hold.open();
    synchronize(d, stream.raw)
}

/// One stream writes and another reads; only the program's temporaries order them.
fn passed_on(case: &mut Case, label: &str, judged: bool, between: impl FnOnce() -> Verdict) -> Verdict {
    let d = case.driver;
    let (kernels, errors): (Kernels, Errors) = Kernels::ready(d)?;
    let (writer, reader) = (blocking(d)?, blocking(d)?);
    let data = Memory::new(d, BYTES)?;
    kernels.stamp(LEGACY, data.address, BYTES, 1)?;
    must!(d, cuCtxSynchronize());
    let hold = Hold::close(d, writer.raw)?;
    kernels.stamp(writer.raw, data.address, BYTES, 2)?;
    hold.open_after(SOON);
    between()?;
    kernels.check(reader.raw, data.address, BYTES, 2, errors.address())?;
    must!(d, cuCtxSynchronize());
    let right = errors.count()? == 0;
    case.observe(format!("{label}: the reader found what was written"), right);
    case.expect(right || !judged, format!("{label}: the reader overtook the writer"));
    Ok(())
}

pub(super) fn data_ordered_by_temporaries(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    keep_everything(d)?;
    let block = alloc_async(d, BYTES, LEGACY)?;
    passed_on(case, "by a free", true, || free_async(d, block, LEGACY))?;
    let mut block = 0;
    passed_on(case, "by an allocation that reuses", false, || {
        block = alloc_async(d, BYTES, LEGACY)?;
        Ok(())
    })?;
    passed_on(case, "by a free and an allocation", true, || {
        free_async(d, block, LEGACY)?;
        block = alloc_async(d, BYTES, LEGACY)?;
        Ok(())
    })?;
    free_async(d, block, LEGACY)?;
    synchronize(d, LEGACY)
}
