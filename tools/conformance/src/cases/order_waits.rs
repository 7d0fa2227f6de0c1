//! Waits: a call, or a stream, that waits for more than the program asked for.
//!
//! A stream that waits for the host stands for an NCCL receive, a persistent kernel or a host
//! function: the program releases it only after the calls that are tested here. A call that waits
//! for such a stream is a deadlock in the program; here the stream is released by itself after a
//! while, and the answer is wrong.

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{
    Event, Gate, Hold, Kernels, LATE, Memory, Pinned, Primary, SOON, Stream, Word, alloc_async, free_async,
    synchronize,
};
use crate::{cu, must};

const BYTES: usize = 4 << 20;

fn set_byte(driver: &'static Driver, address: CUdeviceptr, stream: CUstream) -> Verdict {
    must!(driver, cuMemsetD8Async(address, 1, 4096, stream));
    Ok(())
}

/// A pool's switch, on or off.
fn switch(driver: &'static Driver, attribute: u32, mut on: i32) -> Verdict {
    let pool = super::pool::default_pool(driver)?;
    must!(driver, cuMemPoolSetAttribute(pool, attribute, (&raw mut on).cast()));
    Ok(())
}

fn keep_everything(driver: &'static Driver) -> Verdict {
    super::pool::set_threshold(driver, super::pool::default_pool(driver)?, u64::MAX)
}

/// `call` must return while a stream with freed memory is held.
fn does_not_wait(case: &mut Case, label: &str, held: CUstream, call: impl FnOnce() -> Verdict) -> Verdict {
    let d = case.driver;
    let address = alloc_async(d, BYTES, held)?;
    let hold = Hold::close(d, held)?;
    set_byte(d, address, held)?;
    free_async(d, address, held)?;
    let waited = hold.blocks(LATE, call)?;
    case.expect_eq(&format!("{label} waited for the held stream"), waited, false);
    hold.open();
    synchronize(d, held)
}

/// The default threshold, with which a wait releases memory.
pub(super) fn other_waits(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (held, other) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let (event, bytes) = (Event::new(d, CU_EVENT_DISABLE_TIMING)?, Memory::new(d, 4096)?);
    let pool = super::pool::default_pool(d)?;
    does_not_wait(case, "cuStreamSynchronize of another stream", held.raw, || {
        set_byte(d, bytes.address, other.raw)?;
        synchronize(d, other.raw)
    })?;
    does_not_wait(case, "cuStreamSynchronize of an idle stream", held.raw, || synchronize(d, other.raw))?;
    does_not_wait(case, "cuStreamSynchronize of the default stream", held.raw, || {
        synchronize(d, CUstream::NULL)
    })?;
    does_not_wait(case, "cuEventSynchronize of another stream", held.raw, || {
        set_byte(d, bytes.address, other.raw)?;
        event.record(other.raw)?;
        must!(d, cuEventSynchronize(event.raw));
        Ok(())
    })?;
    does_not_wait(case, "cuMemPoolTrimTo", held.raw, || {
        must!(d, cuMemPoolTrimTo(pool, 0));
        Ok(())
    })?;
    does_not_wait(case, "a copy to the host", held.raw, || bytes.read().map(drop))?;
    does_not_wait(case, "an allocation and a free in another stream", held.raw, || {
        let address = alloc_async(d, BYTES, other.raw)?;
        set_byte(d, address, other.raw)?;
        free_async(d, address, other.raw)?;
        synchronize(d, other.raw)
    })
}

/// The calls by which a program learns that a stream is empty.
#[derive(Clone, Copy, PartialEq)]
enum Drained {
    Wait,
    Query,
    Word,
}

fn drain(driver: &'static Driver, stream: CUstream, how: Drained) -> Verdict {
    match how {
        Drained::Wait => synchronize(driver, stream)?,
        Drained::Query => {
            while cu!(driver, cuStreamQuery(stream)) == CUresult::NOT_READY {
                std::thread::yield_now();
            }
        }
        Drained::Word => {
            let word = Word::new(driver)?;
            must!(driver, cuStreamWriteValue32_v2(stream, word.address(), 1, 0));
            while word.get() == 0 {
                std::thread::yield_now();
            }
        }
    }
    Ok(())
}

/// A block is freed in a stream, the stream becomes empty, and then waits for the host: another
/// stream's allocation does not depend on that wait.
fn submitted_later(case: &mut Case, label: &str, bytes: usize, how: Drained) -> Verdict {
    let d = case.driver;
    let (first, second) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let address = alloc_async(d, bytes, first.raw)?;
    set_byte(d, address, first.raw)?;
    free_async(d, address, first.raw)?;
    drain(d, first.raw, how)?;
    let hold = Hold::close(d, first.raw)?;
    let waited = hold.blocks(LATE, || {
        let again = alloc_async(d, bytes, second.raw)?;
        set_byte(d, again, second.raw)?;
        free_async(d, again, second.raw)?;
        synchronize(d, second.raw)
    })?;
    case.expect_eq(&format!("{label}: the allocation waited for later work"), waited, false);
    hold.open();
    synchronize(d, first.raw)
}

fn submitted_later_each(case: &mut Case) -> Verdict {
    for (name, how) in [("wait", Drained::Wait), ("query", Drained::Query), ("word", Drained::Word)] {
        submitted_later(case, &format!("{name}, 4 MiB"), BYTES, how)?;
        submitted_later(case, &format!("{name}, 64 MiB"), 64 << 20, how)?;
        submitted_later(case, &format!("{name}, 32 KiB"), 32 << 10, how)?;
    }
    Ok(())
}

pub(super) fn work_after_the_free(case: &mut Case) -> Verdict {
    let _primary = Primary::new(case.driver)?;
    keep_everything(case.driver)?;
    submitted_later_each(case)
}

pub(super) fn without_internal_dependencies(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    keep_everything(d)?;
    switch(d, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0)?;
    submitted_later_each(case)?;
    let (first, second) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    does_not_wait(case, "an allocation in another stream", first.raw, || {
        let address = alloc_async(d, BYTES, second.raw)?;
        set_byte(d, address, second.raw)?;
        free_async(d, address, second.raw)?;
        synchronize(d, second.raw)
    })
}

/// Releases held streams one after another until another stream's work is done. Returns the number
/// of streams that it waited for.
fn let_go_until_done(driver: &'static Driver, holds: &[Hold], stream: CUstream) -> Verdict<usize> {
    // Longer than a loaded machine delays a thread: work that does not wait for the hold must be
    // seen as done.
    let patience = std::time::Duration::from_millis(500);
    for (count, hold) in holds.iter().enumerate() {
        let begun = std::time::Instant::now();
        while begun.elapsed() < patience {
            if cu!(driver, cuStreamQuery(stream)) == CUresult::SUCCESS {
                holds.iter().for_each(Hold::open);
                return Ok(count);
            }
            std::thread::yield_now();
        }
        hold.open();
    }
    synchronize(driver, stream)?;
    Ok(holds.len())
}

/// Each stream has freed a small block, behind a hold of its own.
fn holders(driver: &'static Driver, streams: &[Stream]) -> Verdict<Vec<Hold>> {
    let holds = streams.iter().map(|_| Hold::new(driver)).collect::<Verdict<Vec<_>>>()?;
    for (stream, hold) in streams.iter().zip(&holds) {
        let address = alloc_async(driver, 32 << 10, stream.raw)?;
        hold.also(driver, stream.raw)?;
        set_byte(driver, address, stream.raw)?;
        free_async(driver, address, stream.raw)?;
    }
    Ok(holds)
}

/// A GPU has a few queues for all streams of a context (8 by default), and a stream may wait for
/// another one in its queue, independent of allocations. So a stream that does not allocate is
/// tested too, and the number of streams that it waits for is not recorded.
pub(super) fn many_streams(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    keep_everything(d)?;
    let (other, bytes) = (Stream::non_blocking(d)?, Memory::new(d, 4096)?);
    let streams = (0..4).map(|_| Stream::non_blocking(d)).collect::<Verdict<Vec<_>>>()?;
    let holds = holders(d, &streams)?;
    set_byte(d, bytes.address, other.raw)?;
    let without = let_go_until_done(d, &holds, other.raw)?;
    must!(d, cuCtxSynchronize());
    let holds = holders(d, &streams)?;
    let address = alloc_async(d, 32 << 10, other.raw)?;
    set_byte(d, address, other.raw)?;
    free_async(d, address, other.raw)?;
    let with = let_go_until_done(d, &holds, other.raw)?;
    must!(d, cuCtxSynchronize());
    case.expect_eq("an allocation with room waits for held streams", with > without, false);
    Ok(())
}

/// Large enough to be significant on this device, and at most 2 GiB.
fn large(driver: &'static Driver) -> Verdict<usize> {
    let mut total = 0;
    must!(driver, cuDeviceTotalMem_v2(&mut total, 0));
    Ok((total / 8 * 5).min(2 << 30) & !((2 << 20) - 1))
}

/// Memory that `cuMemFree` freed before a stream was held is reused at once.
pub(super) fn taken_again(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (stream, bytes) = (Stream::non_blocking(d)?, Memory::new(d, 4096)?);
    for (name, size, next) in [
        ("4 MiB", BYTES, BYTES),
        ("large", large(d)?, large(d)?),
        ("part of large", large(d)?, large(d)? / 2),
    ] {
        let memory = Memory::new(d, size)?;
        set_byte(d, memory.address, stream.raw)?;
        drop(memory);
        let hold = Hold::close(d, stream.raw)?;
        set_byte(d, bytes.address, stream.raw)?;
        let mut kept = None;
        let waited = hold.blocks(LATE, || {
            kept = Some(Memory::new(d, next)?);
            Ok(())
        })?;
        case.expect_eq(&format!("{name}: cuMemAlloc waited for later work"), waited, false);
        hold.open();
        synchronize(d, stream.raw)?;
    }
    Ok(())
}

/// `cuMemAlloc` in every state of the device except a full one.
pub(super) fn plain_allocation(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let busy = Memory::new(d, BYTES)?;
    for size in [1, 4096, 1 << 20, 3 << 20, 64 << 20] {
        let hold = Hold::close(d, stream.raw)?;
        set_byte(d, busy.address, stream.raw)?;
        let mut kept = None;
        let waited = hold.blocks(LATE, || {
            kept = Some(Memory::new(d, size)?);
            Ok(())
        })?;
        case.expect_eq(&format!("cuMemAlloc of {size} bytes waited"), waited, false);
        hold.open();
        synchronize(d, stream.raw)?;
    }
    let gate = Gate::close(d, stream.raw)?;
    gate.open_after(LATE);
    let _kept = Memory::new(d, BYTES)?;
    case.expect_eq("cuMemAlloc waited for a host function", gate.is_open(), false);
    gate.open();
    synchronize(d, stream.raw)
}

/// `cuMemFree` as a wait: the work in flight at the call, and the work that is done at the return.
pub(super) fn plain_free_as_a_wait(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (stream, source) = (Stream::non_blocking(d)?, Memory::holding(d, &[0x5A; BYTES])?);
    let pinned = Pinned::new(d, BYTES, 0)?;
    for (name, pooled) in [("cuMemAlloc memory", false), ("pool memory", true)] {
        let address = if pooled {
            alloc_async(d, BYTES, CUstream::NULL)?
        } else {
            std::mem::ManuallyDrop::new(Memory::new(d, BYTES)?).address
        };
        synchronize(d, CUstream::NULL)?;
        pinned.set(&vec![0; BYTES]);
        let hold = Hold::close(d, stream.raw)?;
        must!(d, cuMemcpyDtoHAsync_v2(pinned.pointer, source.address, BYTES, stream.raw));
        let waited = hold.blocks(SOON, || {
            must!(d, cuMemFree_v2(address));
            Ok(())
        })?;
        let arrived = waited && pinned.get() == [0x5A; BYTES];
        case.observe(format!("cuMemFree of {name} waited for the device"), waited);
        case.observe(format!("the copy was complete when cuMemFree of {name} returned"), arrived);
        hold.open();
        synchronize(d, stream.raw)?;
    }
    Ok(())
}

/// Memory of `cuMemAlloc` that is freed in stream order.
pub(super) fn plain_memory_freed_in_order(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let (kernels, errors) = Kernels::ready(d)?;
    let block = std::mem::ManuallyDrop::new(Memory::new(d, BYTES)?).address;
    kernels.stamp(stream.raw, block, BYTES, 1)?;
    synchronize(d, stream.raw)?;
    let hold = Hold::close(d, stream.raw)?;
    kernels.check(stream.raw, block, BYTES, 1, errors.address())?;
    let waited = hold.blocks(LATE, || free_async(d, block, stream.raw))?;
    case.expect_eq("cuMemFreeAsync of cuMemAlloc memory waited", waited, false);
    let other = Stream::non_blocking(d)?;
    let plain = std::mem::ManuallyDrop::new(Memory::new(d, BYTES)?);
    let next = [plain.address, alloc_async(d, BYTES, other.raw)?];
    case.expect_eq("cuMemAlloc waited for the stream", hold.is_open(), false);
    for address in next {
        kernels.stamp(other.raw, address, BYTES, 2)?;
    }
    hold.open();
    synchronize(d, other.raw)?;
    synchronize(d, stream.raw)?;
    case.expect_eq("words that the last owner found changed", errors.count()?, 0);
    free_async(d, next[1], other.raw)?;
    synchronize(d, other.raw)
}

/// Memory is allocated and freed by every call, and none of it is related to a held stream.
fn comes_and_goes(driver: &'static Driver, stream: CUstream) -> Verdict {
    for round in 0..20 {
        let bytes = BYTES >> (round % 5);
        let (pooled, plain) = (alloc_async(driver, bytes, stream)?, Memory::new(driver, bytes)?);
        set_byte(driver, pooled, stream)?;
        set_byte(driver, plain.address, stream)?;
        free_async(driver, pooled, stream)?;
        free_async(driver, std::mem::ManuallyDrop::new(plain).address, stream)?;
        synchronize(driver, stream)?;
    }
    Ok(())
}

/// A stream of each kind is held, with freed memory behind the hold.
pub(super) fn held_streams_of_every_kind(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (blocking, other) = (Stream::new(d, CU_STREAM_DEFAULT)?, Stream::non_blocking(d)?);
    let (apart, mut urgent) = (Stream::non_blocking(d)?, CUstream::NULL);
    must!(d, cuStreamCreateWithPriority(&mut urgent, CU_STREAM_NON_BLOCKING, -5));
    for (name, held) in [
        ("the default stream", CUstream::NULL),
        ("the thread's default stream", CUstream::PER_THREAD),
        ("a blocking stream", blocking.raw),
        ("a non-blocking stream", apart.raw),
        ("an urgent stream", urgent),
    ] {
        does_not_wait(case, &format!("memory of another stream than {name}"), held, || {
            comes_and_goes(d, other.raw)
        })?;
    }
    must!(d, cuStreamDestroy_v2(urgent));
    Ok(())
}

/// As above, held by a host function: the driver runs host functions one after another.
pub(super) fn held_by_a_host_function(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (held, other) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let address = alloc_async(d, BYTES, held.raw)?;
    let gate = Gate::close(d, held.raw)?;
    set_byte(d, address, held.raw)?;
    free_async(d, address, held.raw)?;
    gate.open_after(LATE);
    comes_and_goes(d, other.raw)?;
    case.expect_eq("memory of another stream waited for a host function", gate.is_open(), false);
    gate.open();
    synchronize(d, held.raw)
}

/// One thread waits in the driver; another one allocates and frees meanwhile.
pub(super) fn threads_that_wait(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (held, other) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let event = Event::new(d, CU_EVENT_DISABLE_TIMING)?;
    type Wait<'a> = (&'a str, &'a (dyn Fn() -> CUresult + Sync));
    let waits: [Wait<'_>; 3] = [
        ("cuStreamSynchronize", &|| cu!(d, cuStreamSynchronize(held.raw))),
        ("cuEventSynchronize", &|| cu!(d, cuEventSynchronize(event.raw))),
        ("cuCtxSynchronize", &|| cu!(d, cuCtxSynchronize())),
    ];
    for (name, wait) in waits {
        let address = alloc_async(d, BYTES, held.raw)?;
        let hold = Hold::close(d, held.raw)?;
        set_byte(d, address, held.raw)?;
        free_async(d, address, held.raw)?;
        event.record(held.raw)?;
        hold.open_after(LATE);
        let begun = std::sync::Barrier::new(2);
        let (mine, theirs) = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let entered = primary.enter();
                begun.wait();
                entered.map(|()| wait())
            });
            begun.wait();
            let mine = comes_and_goes(d, other.raw).map(|()| hold.is_open());
            hold.open();
            (mine, waiter.join())
        });
        case.expect_eq(&format!("memory waited for a thread in {name}"), mine?, false);
        let code = theirs.unwrap_or(Ok(CUresult::UNKNOWN))?;
        case.expect_ok(&format!("{name} of the other thread"), code);
        synchronize(d, held.raw)?;
    }
    Ok(())
}
