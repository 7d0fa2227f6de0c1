//! Contexts and devices: a wait for one of them does not end the work of another.
//!
//! A block is freed in a stream of another context or device, where its last user still works; then
//! the block's own side waits, allocates, and writes. If the block is reused too early, the last
//! user reads the next owner's bytes.

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{
    Errors, Event, Hold, Kernels, LATE, Memory, Primary, SOON, Stream, alloc_async, free_async, init,
    synchronize, until_back,
};
use crate::{cu, must};

/// Large enough that an allocator searches freed memory before it creates more.
pub(super) const BYTES: usize = 64 << 20;

pub(super) fn enter(driver: &'static Driver, context: CUcontext) -> Verdict {
    must!(driver, cuCtxSetCurrent(context));
    Ok(())
}

/// A new context of device 0, which is then current.
pub(super) fn create(driver: &'static Driver) -> Verdict<CUcontext> {
    let mut context = CUcontext::NULL;
    must!(driver, cuCtxCreate_v2(&mut context, 0, 0));
    Ok(context)
}

/// One context with the objects for work in it.
pub(super) struct Side {
    driver: &'static Driver,
    context: CUcontext,
    kernels: Kernels,
    pub(super) errors: Errors,
    pub(super) stream: Stream,
}

impl Side {
    /// Makes the context current, and works in a non-blocking stream of it.
    pub(super) fn new(driver: &'static Driver, context: CUcontext) -> Verdict<Self> {
        enter(driver, context)?;
        let (kernels, errors) = Kernels::ready(driver)?;
        Ok(Self { driver, context, kernels, errors, stream: Stream::non_blocking(driver)? })
    }

    pub(super) fn enter(&self) -> Verdict {
        enter(self.driver, self.context)
    }

    /// A block of the context's device from its pool, filled with `stamp`.
    pub(super) fn stamped(&self, stamp: u64) -> Verdict<CUdeviceptr> {
        let address = alloc_async(self.driver, BYTES, self.stream.raw)?;
        self.kernels.stamp(self.stream.raw, address, BYTES, stamp)?;
        synchronize(self.driver, self.stream.raw)?;
        Ok(address)
    }

    /// Starts a check of a block for `stamp`.
    fn check(&self, address: CUdeviceptr, stamp: u64) -> Verdict {
        self.kernels.check(self.stream.raw, address, BYTES, stamp, self.errors.address())
    }

    /// Allocates a block, possibly a reused one, and writes `stamp` into it.
    pub(super) fn take_and_stamp(&self, stamp: u64) -> Verdict<CUdeviceptr> {
        let address = alloc_async(self.driver, BYTES, self.stream.raw)?;
        self.kernels.stamp(self.stream.raw, address, BYTES, stamp)?;
        Ok(address)
    }
}

/// Memory of `home` is read by `away` and freed in the stream of `away` while that is held; then
/// `home` goes on.
fn freed_away(
    case: &mut Case,
    label: &str,
    home: &Side,
    away: &Side,
    go_on: impl FnOnce() -> Verdict,
) -> Verdict {
    let d = case.driver;
    home.enter()?;
    let address = home.stamped(1)?;
    away.enter()?;
    let hold = Hold::close(d, away.stream.raw)?;
    away.check(address, 1)?;
    // A return of the block must not deadlock: a driver may let the next owner wait for the last.
    hold.open_after(LATE);
    free_async(d, address, away.stream.raw)?;
    home.enter()?;
    go_on()?;
    let held = !hold.is_open();
    let next = home.take_and_stamp(2)?;
    synchronize(d, home.stream.raw)?;
    hold.open();
    away.enter()?;
    synchronize(d, away.stream.raw)?;
    case.expect_that(&format!("{label}: the other stream is not waited for"), held);
    let wrong = away.errors.count()?;
    case.expect_eq(&format!("{label}: words that the last owner found changed"), wrong, 0);
    home.enter()?;
    free_async(d, next, home.stream.raw)?;
    synchronize(d, home.stream.raw)
}

/// The calls at home between the free and the next allocation. None of them waits for the other
/// stream.
fn ways(case: &mut Case, home: &Side, away: &Side) -> Verdict {
    let d = case.driver;
    let pool = super::pool::default_pool(d)?;
    super::pool::set_threshold(d, pool, u64::MAX)?;
    let event = {
        home.enter()?;
        Event::new(d, CU_EVENT_DISABLE_TIMING)?
    };
    freed_away(case, "nothing", home, away, || Ok(()))?;
    freed_away(case, "cuCtxSynchronize", home, away, || {
        must!(d, cuCtxSynchronize());
        Ok(())
    })?;
    freed_away(case, "cuStreamSynchronize", home, away, || synchronize(d, home.stream.raw))?;
    freed_away(case, "cuEventSynchronize", home, away, || {
        event.record(CUstream::NULL)?;
        must!(d, cuEventSynchronize(event.raw));
        Ok(())
    })?;
    freed_away(case, "cuMemAlloc", home, away, || {
        // Its free is left out: it may wait for more than this context.
        std::mem::forget(Memory::new(d, 8 << 20)?);
        Ok(())
    })?;
    freed_away(case, "cuMemPoolTrimTo", home, away, || {
        must!(d, cuMemPoolTrimTo(pool, 0));
        Ok(())
    })?;
    super::pool::set_threshold(d, pool, 0)?;
    freed_away(case, "cuStreamSynchronize without a threshold", home, away, || {
        synchronize(d, home.stream.raw)
    })
}

/// As [`ways`], with a `cuMemFree` before: drivers may wait differently, but the bytes must be
/// right.
fn after_a_plain_free(case: &mut Case, home: &Side, away: &Side) -> Verdict {
    let d = case.driver;
    super::pool::set_threshold(d, super::pool::default_pool(d)?, u64::MAX)?;
    home.enter()?;
    let address = home.stamped(1)?;
    let plain = Memory::new(d, BYTES)?;
    away.enter()?;
    let hold = Hold::close(d, away.stream.raw)?;
    away.check(address, 1)?;
    hold.open_after(LATE);
    free_async(d, address, away.stream.raw)?;
    home.enter()?;
    drop(plain);
    case.observe("cuMemFree waited for the other stream", hold.is_open());
    let next = until_back(address, || {
        let mut next = 0;
        must!(d, cuMemAlloc_v2(&mut next, BYTES));
        home.kernels.stamp(home.stream.raw, next, BYTES, 2)?;
        synchronize(d, home.stream.raw)?;
        Ok(next)
    })?;
    synchronize(d, home.stream.raw)?;
    hold.open();
    away.enter()?;
    synchronize(d, away.stream.raw)?;
    case.expect_eq("words that the last owner found changed", away.errors.count()?, 0);
    home.enter()?;
    for block in next {
        must!(d, cuMemFree_v2(block));
    }
    Ok(())
}

/// Device 1 may access memory of device 0's pool.
fn devices(driver: &'static Driver) -> Verdict<(Primary, Primary)> {
    let both = super::peer::both(driver)?;
    let location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 1 };
    let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    must!(driver, cuMemPoolSetAccess(super::pool::default_pool(driver)?, &access, 1));
    Ok(both)
}

/// An order between two sides: the first one's context owns the memory.
type OrderOfSides = fn(&mut Case, &Side, &Side) -> Verdict;

/// The sides are the primary contexts of two devices, which live on.
fn between_devices(case: &mut Case, order: OrderOfSides) -> Verdict {
    let d = case.driver;
    let (first, second) = devices(d)?;
    let (home, away) = (Side::new(d, first.context)?, Side::new(d, second.context)?);
    order(case, &home, &away)?;
    std::mem::forget((home, away));
    Ok(())
}

/// The sides are two contexts of device 0, which live on.
fn between_contexts(case: &mut Case, order: OrderOfSides) -> Verdict {
    let d = case.driver;
    init(d)?;
    let (home, away) = (Side::new(d, create(d)?)?, Side::new(d, create(d)?)?);
    order(case, &home, &away)?;
    std::mem::forget((home, away));
    Ok(())
}

pub(super) fn freed_in_another_device(case: &mut Case) -> Verdict {
    between_devices(case, ways)
}

pub(super) fn plain_free_beside_another_device(case: &mut Case) -> Verdict {
    between_devices(case, after_a_plain_free)
}

pub(super) fn freed_in_another_context(case: &mut Case) -> Verdict {
    between_contexts(case, ways)
}

pub(super) fn plain_free_beside_another_context(case: &mut Case) -> Verdict {
    between_contexts(case, after_a_plain_free)
}

/// All calls about memory are made with one context current, in a stream of another context that
/// makes no such call.
pub(super) fn stream_of_another_context(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let home = Side::new(d, create(d)?)?;
    super::pool::set_threshold(d, super::pool::default_pool(d)?, u64::MAX)?;
    let away = create(d)?;
    let (kernels, stream) = (Kernels::load(d)?, Stream::non_blocking(d)?);
    home.enter()?;
    let address = alloc_async(d, BYTES, stream.raw)?;
    enter(d, away)?;
    kernels.stamp(stream.raw, address, BYTES, 1)?;
    kernels.check(stream.raw, address, BYTES, 1, home.errors.address())?;
    synchronize(d, stream.raw)?;
    let hold = Hold::close(d, stream.raw)?;
    kernels.check(stream.raw, address, BYTES, 1, home.errors.address())?;
    hold.open_after(LATE);
    home.enter()?;
    case.expect_ok("free", cu!(d, cuMemFreeAsync(address, stream.raw)));
    case.expect_ok("wait for the current context", cu!(d, cuCtxSynchronize()));
    case.expect_eq("it waited for the other context", hold.is_open(), false);
    let next = home.take_and_stamp(2)?;
    synchronize(d, home.stream.raw)?;
    hold.open();
    synchronize(d, stream.raw)?;
    case.expect_eq("words that the last owner found changed", home.errors.count()?, 0);
    free_async(d, next, home.stream.raw)?;
    synchronize(d, home.stream.raw)?;
    std::mem::forget((home, kernels, stream));
    Ok(())
}

/// Each context has a default stream of its own: an action in one orders no stream of another.
pub(super) fn default_streams_are_apart(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let one = create(d)?;
    let held = Stream::new(d, CU_STREAM_DEFAULT)?;
    let other = create(d)?;
    let (stream, bytes) = (Stream::new(d, CU_STREAM_DEFAULT)?, Memory::new(d, 4096)?);
    let block = alloc_async(d, BYTES, CUstream::NULL)?;
    synchronize(d, CUstream::NULL)?;
    enter(d, one)?;
    let hold = Hold::close(d, held.raw)?;
    enter(d, other)?;
    let waited = hold.blocks(LATE, || {
        free_async(d, block, CUstream::NULL)?;
        must!(d, cuMemsetD8Async(bytes.address, 1, 4096, stream.raw));
        synchronize(d, stream.raw)?;
        synchronize(d, CUstream::NULL)
    })?;
    case.expect_eq("a stream of one context waited for another context's", waited, false);
    hold.open();
    synchronize(d, held.raw)
}

/// The contexts whose work `cuMemFree` waits for. A program may rely on the wait only if the driver
/// makes it.
fn contexts_waited_for(
    case: &mut Case,
    label: &str,
    block: CUcontext,
    held: CUcontext,
    current: CUcontext,
) -> Verdict {
    let d = case.driver;
    enter(d, block)?;
    let memory = Memory::new(d, BYTES)?;
    enter(d, held)?;
    let stream = Stream::non_blocking(d)?;
    let hold = Hold::close(d, stream.raw)?;
    enter(d, current)?;
    let address = memory.address;
    std::mem::forget(memory);
    let waited = hold.blocks(SOON, || {
        must!(d, cuMemFree_v2(address));
        Ok(())
    })?;
    case.observe(label, waited);
    hold.open();
    enter(d, held)?;
    synchronize(d, stream.raw)
}

pub(super) fn plain_free_waits_for(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let (one, other) = (create(d)?, create(d)?);
    contexts_waited_for(case, "the block's own context", one, one, one)?;
    contexts_waited_for(case, "the block's context, which is not current", one, one, other)?;
    contexts_waited_for(case, "another context, which is current", one, other, other)?;
    contexts_waited_for(case, "another context, which is not current", one, other, one)
}

pub(super) fn plain_free_waits_for_devices(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (first, second) = super::peer::both(d)?;
    let (one, other) = (first.context, second.context);
    contexts_waited_for(case, "the block's device, while the other is current", one, one, other)?;
    contexts_waited_for(case, "the other device, which is current", one, other, other)?;
    contexts_waited_for(case, "the other device, which is not current", one, other, one)?;
    enter(d, one)
}
