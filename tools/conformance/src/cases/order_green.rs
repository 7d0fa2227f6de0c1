//! Green contexts: their streams belong to a device's primary context in some respects only.
//!
//! Whether a wait for the primary context, or a `cuMemFree`, covers work in a green context's
//! stream decides when memory may be reused. A library that stores handles of contexts also sees
//! green ones, and their end.

use std::ffi::c_void;
use std::ptr::null_mut;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{
    Errors, Event, Green, Hold, Kernels, LATE, Memory, Primary, SOON, Stream, alloc_async, free_async,
    pattern, read, synchronize, until_back,
};
use crate::{cu, must};

const BYTES: usize = 32 << 20;

fn current(driver: &'static Driver) -> Verdict<CUcontext> {
    let mut context = CUcontext::NULL;
    must!(driver, cuCtxGetCurrent(&mut context));
    Ok(context)
}

/// A context's name that is the same in every run.
fn named(context: CUcontext, primary: &Primary, green: &Green) -> &'static str {
    match context {
        CUcontext::NULL => "none",
        _ if context == primary.context => "primary",
        _ if context == green.context => "green",
        _ => "another",
    }
}

fn owner(driver: &'static Driver, address: CUdeviceptr) -> Verdict<CUcontext> {
    let mut context = CUcontext::NULL;
    must!(driver, cuPointerGetAttribute((&raw mut context).cast(), CU_POINTER_ATTRIBUTE_CONTEXT, address));
    Ok(context)
}

pub(super) fn identity(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (green, other) = Green::pair(d)?;
    case.expect_that("two green contexts differ", green.context != other.context);
    case.observe("a green context as a context", named(green.context, &primary, &green));
    case.observe("current after its creation", named(current(d)?, &primary, &green));
    let stream = green.stream()?;
    let mut context = CUcontext::NULL;
    case.code("cuStreamGetCtx of its stream", cu!(d, cuStreamGetCtx(stream, &mut context)));
    case.observe("it says", named(context, &primary, &green));
    let (mut context, mut of_stream): (_, *mut c_void) = (CUcontext::NULL, null_mut());
    let place = (&raw mut of_stream).cast();
    case.code("cuStreamGetCtx_v2 of its stream", cu!(d, cuStreamGetCtx_v2(stream, &mut context, place)));
    case.observe("it says of the context", named(context, &primary, &green));
    case.observe("it says the green context", of_stream == green.raw);
    let plain = Stream::non_blocking(d)?;
    let (mut context, mut of_stream): (_, *mut c_void) = (CUcontext::NULL, null_mut());
    let place = (&raw mut of_stream).cast();
    case.code("cuStreamGetCtx_v2 of another", cu!(d, cuStreamGetCtx_v2(plain.raw, &mut context, place)));
    case.observe("it says of that context", named(context, &primary, &green));
    case.observe("it says a green context", !of_stream.is_null());
    let mut flags = 0;
    case.code("cuStreamGetFlags", cu!(d, cuStreamGetFlags(stream, &mut flags)));
    case.observe("flags", flags);
    green.enter()?;
    case.observe("current after it was entered", named(current(d)?, &primary, &green));
    let mut device = -1;
    case.code("cuCtxGetDevice", cu!(d, cuCtxGetDevice(&mut device)));
    case.observe("device", device);
    let (mut ids, mut codes) = ([0; 3], Vec::new());
    for (id, context) in ids.iter_mut().zip([primary.context, green.context, CUcontext::NULL]) {
        codes.push(cu!(d, cuCtxGetId(context, id)));
    }
    case.observe("ids are had", codes.iter().all(|code| *code == CUresult::SUCCESS));
    case.observe("the green one has its own", ids[0] != ids[1]);
    case.observe("the current one is the green one", ids[1] == ids[2]);
    let (mut blocking, mut made) = (CUstream::NULL, CUstream::NULL);
    case.code("cuStreamCreate, blocking", cu!(d, cuStreamCreate(&mut blocking, CU_STREAM_DEFAULT)));
    case.code("cuStreamCreate", cu!(d, cuStreamCreate(&mut made, CU_STREAM_NON_BLOCKING)));
    let (mut context, mut of_stream): (_, *mut c_void) = (CUcontext::NULL, null_mut());
    let place = (&raw mut of_stream).cast();
    case.code("cuStreamGetCtx_v2 of that", cu!(d, cuStreamGetCtx_v2(made, &mut context, place)));
    case.observe("it is of the context", named(context, &primary, &green));
    case.observe("it is of the green context", of_stream == green.raw);
    case.code("cuStreamSynchronize of stream 0", cu!(d, cuStreamSynchronize(CUstream::NULL)));
    case.code("cuStreamSynchronize of the thread's", cu!(d, cuStreamSynchronize(CUstream::PER_THREAD)));
    primary.enter()
}

/// The owner of memory that was allocated with a green context current.
pub(super) fn memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (green, other) = Green::pair(d)?;
    let stream = green.stream()?;
    green.enter()?;
    let plain = Memory::holding(d, &pattern(4096, 1))?;
    case.observe("context of cuMemAlloc memory", named(owner(d, plain.address)?, &primary, &green));
    let pooled = alloc_async(d, 4096, stream)?;
    must!(d, cuMemsetD8Async(pooled, 3, 4096, stream));
    synchronize(d, stream)?;
    case.observe("context of pool memory", named(owner(d, pooled)?, &primary, &green));
    other.enter()?;
    case.expect_that("read in another green context", plain.read()? == pattern(4096, 1));
    primary.enter()?;
    case.expect_that("read in the primary context", plain.read()? == pattern(4096, 1));
    case.expect_ok("destroy", green.destroy());
    let (mut base, mut size) = (0, 0);
    case.code("its range then", cu!(d, cuMemGetAddressRange_v2(&mut base, &mut size, plain.address)));
    let mut bytes = vec![0; 4096];
    let code = cu!(d, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), plain.address, 4096));
    case.code("a copy of it then", code);
    case.observe("its bytes are there", bytes == pattern(4096, 1));
    let address = plain.address;
    std::mem::forget(plain);
    case.code("cuMemFree", cu!(d, cuMemFree_v2(address)));
    case.expect_that("pool memory is there", read(d, pooled, 4096)? == [3; 4096]);
    case.expect_ok("cuMemFreeAsync", cu!(d, cuMemFreeAsync(pooled, CUstream::NULL)));
    synchronize(d, CUstream::NULL)
}

/// The calls that wait for a held stream of a green context.
pub(super) fn waits(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (green, other) = Green::pair(d)?;
    let stream = green.stream()?;
    let ask = |case: &mut Case, label: &str, call: &dyn Fn() -> CUresult| {
        let block = Memory::new(d, 4 << 20)?;
        let hold = Hold::close(d, stream)?;
        must!(d, cuMemsetD8Async(block.address, 1, 4096, stream));
        let mut code = CUresult::UNKNOWN;
        let waited = hold.blocks(SOON, || {
            code = call();
            Ok(())
        })?;
        case.code(label, code);
        case.observe(format!("{label}: waited"), waited);
        hold.open();
        synchronize(d, stream)
    };
    let event = Event::new(d, CU_EVENT_DISABLE_TIMING)?;
    let record = |context: CUcontext| {
        let code = cu!(d, cuCtxRecordEvent(context, event.raw));
        if code == CUresult::SUCCESS { cu!(d, cuEventSynchronize(event.raw)) } else { code }
    };
    ask(case, "cuCtxSynchronize of the primary context", &|| cu!(d, cuCtxSynchronize()))?;
    ask(case, "an event of the primary context", &|| record(primary.context))?;
    ask(case, "an event of the green context", &|| record(green.context))?;
    ask(case, "cuGreenCtxRecordEvent", &|| {
        let code = cu!(d, cuGreenCtxRecordEvent(green.raw, event.raw));
        if code == CUresult::SUCCESS { cu!(d, cuEventSynchronize(event.raw)) } else { code }
    })?;
    ask(case, "stream 0 of the primary context", &|| cu!(d, cuStreamSynchronize(CUstream::NULL)))?;
    ask(case, "cuCtxSynchronize_v2 of the green context", &|| cu!(d, cuCtxSynchronize_v2(green.context)))?;
    ask(case, "cuCtxSynchronize_v2 of another", &|| cu!(d, cuCtxSynchronize_v2(other.context)))?;
    let mut address = 0;
    must!(d, cuMemAlloc_v2(&mut address, 4 << 20));
    ask(case, "cuMemFree", &|| cu!(d, cuMemFree_v2(address)))?;
    green.enter()?;
    ask(case, "cuCtxSynchronize with it current", &|| cu!(d, cuCtxSynchronize()))?;
    other.enter()?;
    ask(case, "cuCtxSynchronize with another current", &|| cu!(d, cuCtxSynchronize()))?;
    must!(d, cuMemAlloc_v2(&mut address, 4 << 20));
    ask(case, "cuMemFree with another current", &|| cu!(d, cuMemFree_v2(address)))?;
    primary.enter()
}

/// A whole green context waits for an event.
pub(super) fn waits_for_an_event(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (green, other) = Green::pair(d)?;
    let (stream, beside, held) = (green.stream()?, other.stream()?, Stream::non_blocking(d)?);
    let (event, bytes) = (Event::new(d, CU_EVENT_DISABLE_TIMING)?, Memory::new(d, 4096)?);
    for (name, stream) in [("its stream", stream), ("another green context's stream", beside)] {
        let hold = Hold::close(d, held.raw)?;
        let waited = hold.blocks(SOON, || {
            event.record(held.raw)?;
            must!(d, cuGreenCtxWaitEvent(green.raw, event.raw));
            must!(d, cuMemsetD8Async(bytes.address, 1, 4096, stream));
            synchronize(d, stream)
        })?;
        case.observe(format!("{name} waits"), waited);
        hold.open();
        must!(d, cuCtxSynchronize());
    }
    Ok(())
}

/// Work in a green context's stream. Its kernels are loaded with that context current; no call
/// about memory is made there.
struct Worker {
    driver: &'static Driver,
    kernels: Kernels,
    errors: Errors,
    stream: CUstream,
}

impl Worker {
    /// Memory belongs to `home`, which is then current.
    fn new(driver: &'static Driver, home: CUcontext, green: &Green) -> Verdict<Self> {
        must!(driver, cuCtxSetCurrent(home));
        let (errors, scratch) = (Errors::new(driver)?, Memory::new(driver, 4096)?);
        green.enter()?;
        let (kernels, stream) = (Kernels::load(driver)?, green.stream()?);
        kernels.stamp(stream, scratch.address, 4096, 1)?;
        kernels.check(stream, scratch.address, 4096, 1, errors.address())?;
        synchronize(driver, stream)?;
        must!(driver, cuCtxSetCurrent(home));
        drop(scratch);
        Ok(Self { driver, kernels, errors, stream })
    }

    fn stamp(&self, address: CUdeviceptr, stamp: u64) -> Verdict {
        self.kernels.stamp(self.stream, address, BYTES, stamp)
    }

    fn check(&self, address: CUdeviceptr, stamp: u64) -> Verdict {
        self.kernels.check(self.stream, address, BYTES, stamp, self.errors.address())
    }

    fn wait(&self) -> Verdict {
        synchronize(self.driver, self.stream)
    }
}

/// A green context's stream reads a block while it is held; the block is freed, and another
/// allocation may reuse it.
fn next_owner(
    case: &mut Case,
    label: &str,
    [reader, writer]: [&Green; 2],
    current: CUcontext,
    go_on: impl FnOnce(CUdeviceptr, CUstream) -> Verdict<Vec<CUdeviceptr>>,
    pooled: bool,
) -> Verdict {
    let d = case.driver;
    let (reading, writing) = (Worker::new(d, current, reader)?, Worker::new(d, current, writer)?);
    must!(d, cuCtxSetCurrent(current));
    let mut address = 0;
    if pooled {
        address = alloc_async(d, BYTES, reading.stream)?;
    } else {
        must!(d, cuMemAlloc_v2(&mut address, BYTES));
    }
    reader.enter()?;
    reading.stamp(address, 1)?;
    reading.wait()?;
    let hold = Hold::close(d, reading.stream)?;
    reading.check(address, 1)?;
    must!(d, cuCtxSetCurrent(current));
    hold.open_after(SOON);
    let next = go_on(address, reading.stream)?;
    writer.enter()?;
    for block in &next {
        writing.stamp(*block, 2)?;
    }
    writing.wait()?;
    hold.open();
    reader.enter()?;
    reading.wait()?;
    must!(d, cuCtxSetCurrent(current));
    case.expect_eq(&format!("{label}: words that the last owner found changed"), reading.errors.count()?, 0);
    for block in next {
        must!(d, cuMemFree_v2(block));
    }
    std::mem::forget((reading, writing));
    Ok(())
}

pub(super) fn reused_after_a_plain_free(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (green, other) = Green::pair(d)?;
    let go_on = |address, _| {
        must!(d, cuMemFree_v2(address));
        until_back(address, || {
            let mut next = 0;
            must!(d, cuMemAlloc_v2(&mut next, BYTES));
            Ok(next)
        })
    };
    // A library that has seen no other context may treat the current one as the whole device.
    next_owner(case, "another green current", [&green, &other], other.context, go_on, false)?;
    next_owner(case, "primary current", [&green, &other], primary.context, go_on, false)?;
    next_owner(case, "green current", [&green, &other], green.context, go_on, false)?;
    primary.enter()?;
    std::mem::forget((green, other));
    Ok(())
}

pub(super) fn reused_after_a_free_in_order(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    super::pool::set_threshold(d, super::pool::default_pool(d)?, u64::MAX)?;
    let (green, other) = Green::pair(d)?;
    for (name, context) in
        [("primary current", primary.context), ("green current", green.context), ("other", other.context)]
    {
        let go_on = |address, freed_in| {
            free_async(d, address, freed_in)?;
            // With or without a wait for the green stream here, the next owner must come behind the
            // last.
            must!(d, cuCtxSynchronize());
            let stream = Stream::non_blocking(d)?;
            let next = until_back(address, || alloc_async(d, BYTES, stream.raw))?;
            synchronize(d, stream.raw)?;
            Ok(next)
        };
        next_owner(case, name, [&green, &other], context, go_on, true)?;
    }
    primary.enter()?;
    std::mem::forget((green, other));
    Ok(())
}

/// A green context ends with memory freed in its streams, and the process goes on.
pub(super) fn destroyed(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    for round in 0..3 {
        let (green, other) = Green::pair(d)?;
        let stream = green.stream()?;
        green.enter()?;
        let (event, plain) = (Event::new(d, CU_EVENT_DISABLE_TIMING)?, Memory::new(d, BYTES)?);
        for _ in 0..4 {
            let address = alloc_async(d, BYTES, stream)?;
            must!(d, cuMemsetD8Async(address, 1, BYTES, stream));
            free_async(d, address, stream)?;
        }
        let hold = Hold::close(d, stream)?;
        hold.open_after(SOON);
        let last = alloc_async(d, BYTES, stream)?;
        must!(d, cuMemsetD8Async(last, 2, BYTES, stream));
        event.record(stream)?;
        free_async(d, last, stream)?;
        primary.enter()?;
        case.code(format!("{round}: destroy"), green.destroy());
        drop(plain);
        hold.open();
        std::mem::forget(event);
        for step in 0..8 {
            let memory = Memory::new(d, BYTES >> (step % 4))?;
            must!(d, cuMemsetD8_v2(memory.address, 3, 4096));
            let own = Stream::non_blocking(d)?;
            let address = alloc_async(d, BYTES >> (step % 3), own.raw)?;
            must!(d, cuMemsetD8Async(address, 4, 4096, own.raw));
            free_async(d, address, own.raw)?;
            case.expect(cu!(d, cuStreamSynchronize(own.raw)) == CUresult::SUCCESS, "a stream is broken");
        }
        case.expect_ok(&format!("{round}: wait for the context"), cu!(d, cuCtxSynchronize()));
        case.expect_ok(&format!("{round}: destroy the other"), other.destroy());
    }
    Ok(())
}

/// Does the end of a green context wait for its work, and does the work go on?
pub(super) fn destroyed_while_held(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (green, other) = Green::pair(d)?;
    let (stream, bytes) = (green.stream()?, Memory::new(d, 4096)?);
    must!(d, cuMemsetD8_v2(bytes.address, 1, 4096));
    must!(d, cuCtxSynchronize());
    let hold = Hold::close(d, stream)?;
    must!(d, cuMemsetD8Async(bytes.address, 2, 4096, stream));
    let waited = hold.blocks(SOON, || {
        case.expect_ok("destroy", green.destroy());
        Ok(())
    })?;
    case.observe("it waited", waited);
    hold.open();
    case.expect_ok("wait for the primary context", cu!(d, cuCtxSynchronize()));
    case.observe("the work was done", bytes.read()? == vec![2; 4096]);
    drop(other);
    primary.enter()
}

/// Streams of a green context take no part in the legacy stream's barrier.
pub(super) fn beside_the_default_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (green, other) = Green::pair(d)?;
    let (stream, bytes) = (green.stream()?, Memory::new(d, 4096)?);
    let hold = Hold::close(d, CUstream::NULL)?;
    let waited = hold.blocks(LATE, || {
        must!(d, cuMemsetD8Async(bytes.address, 1, 4096, stream));
        synchronize(d, stream)
    })?;
    case.observe("a green stream waits for the default stream", waited);
    hold.open();
    must!(d, cuCtxSynchronize());
    let hold = Hold::close(d, stream)?;
    let waited = hold.blocks(LATE, || {
        let address = alloc_async(d, BYTES, CUstream::NULL)?;
        must!(d, cuMemsetD8Async(address, 1, BYTES, CUstream::NULL));
        free_async(d, address, CUstream::NULL)?;
        synchronize(d, CUstream::NULL)
    })?;
    case.observe("the default stream waits for a green stream", waited);
    hold.open();
    synchronize(d, stream)?;
    drop((green, other));
    primary.enter()
}

/// A stream whose green context has ended, and memory that was freed or allocated in it.
pub(super) fn stream_outlives_it(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (green, other) = Green::pair(d)?;
    let stream = green.stream()?;
    let pooled = alloc_async(d, 4096, stream)?;
    must!(d, cuMemsetD8Async(pooled, 3, 4096, stream));
    free_async(d, alloc_async(d, BYTES, stream)?, stream)?;
    synchronize(d, stream)?;
    case.expect_ok("destroy", green.destroy());
    let (mut address, mut context) = (0, CUcontext::NULL);
    case.code("cuStreamQuery", cu!(d, cuStreamQuery(stream)));
    case.code("cuStreamSynchronize", cu!(d, cuStreamSynchronize(stream)));
    case.code("cuStreamGetCtx", cu!(d, cuStreamGetCtx(stream, &mut context)));
    case.code("cuMemAllocAsync in it", cu!(d, cuMemAllocAsync(&mut address, 4096, stream)));
    let code = cu!(d, cuMemFreeAsync(pooled, stream));
    case.code("cuMemFreeAsync in it", code);
    if code != CUresult::SUCCESS {
        case.expect_that("the block is there", read(d, pooled, 4096)? == [3; 4096]);
        case.expect_ok("cuMemFreeAsync elsewhere", cu!(d, cuMemFreeAsync(pooled, CUstream::NULL)));
    }
    case.code("cuStreamDestroy", cu!(d, cuStreamDestroy_v2(stream)));
    let next = alloc_async(d, BYTES, CUstream::NULL)?;
    must!(d, cuMemsetD8Async(next, 1, BYTES, CUstream::NULL));
    free_async(d, next, CUstream::NULL)?;
    case.expect_ok("wait for the primary context", cu!(d, cuCtxSynchronize()));
    drop(other);
    primary.enter()
}
