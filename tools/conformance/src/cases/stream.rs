//! Streams: order, truth of queries, waits, callbacks, events.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::fixture::{Event, Gate, Kernels, Memory, Pinned, Primary, Stream, synchronize};
use crate::{cu, must, supported};

pub(super) fn query(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    case.expect_ok("an empty stream", cu!(d, cuStreamQuery(stream.raw)));
    let gate = Gate::close(d, stream.raw)?;
    case.expect_code("a busy stream", cu!(d, cuStreamQuery(stream.raw)), CUresult::NOT_READY);
    gate.open();
    case.expect_ok("synchronize", cu!(d, cuStreamSynchronize(stream.raw)));
    case.expect_ok("a finished stream", cu!(d, cuStreamQuery(stream.raw)));
    Ok(())
}

pub(super) fn synchronize_waits(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    for what in ["stream", "context"] {
        let gate = Gate::close(d, stream.raw)?;
        gate.open_after(Duration::from_millis(30));
        let code = if what == "stream" {
            cu!(d, cuStreamSynchronize(stream.raw))
        } else {
            cu!(d, cuCtxSynchronize())
        };
        case.expect_ok(what, code);
        case.expect_that(&format!("{what}: it waited"), gate.is_open());
    }
    Ok(())
}

pub(super) fn non_blocking_runs_beside_default(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let memory = Memory::new(d, 4096)?;
    let gate = Gate::close(d, CUstream::NULL)?;
    must!(d, cuMemsetD8Async(memory.address, 1, 4096, stream.raw));
    case.expect_ok("it ends while the default stream is held up", cu!(d, cuStreamSynchronize(stream.raw)));
    let code = cu!(d, cuStreamQuery(CUstream::NULL));
    case.expect_code("the default stream", code, CUresult::NOT_READY);
    gate.open();
    synchronize(d, CUstream::NULL)
}

pub(super) fn blocking_waits_for_default(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::new(d, CU_STREAM_DEFAULT)?;
    let memory = Memory::new(d, 4096)?;
    let gate = Gate::close(d, CUstream::NULL)?;
    must!(d, cuMemsetD8Async(memory.address, 1, 4096, stream.raw));
    gate.open_after(Duration::from_millis(30));
    case.expect_ok("synchronize", cu!(d, cuStreamSynchronize(stream.raw)));
    case.expect_that("it waited for the default stream", gate.is_open());
    Ok(())
}

pub(super) fn default_waits_for_blocking(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (blocking, other) = (Stream::new(d, CU_STREAM_DEFAULT)?, Stream::new(d, CU_STREAM_DEFAULT)?);
    let memory = Memory::new(d, 4096)?;
    let gate = Gate::close(d, blocking.raw)?;
    must!(d, cuMemsetD8Async(memory.address, 1, 4096, CUstream::NULL));
    must!(d, cuMemsetD8Async(memory.address, 2, 4096, other.raw));
    gate.open_after(Duration::from_millis(30));
    case.expect_ok("synchronize another blocking stream", cu!(d, cuStreamSynchronize(other.raw)));
    case.expect_that("it waited through the default stream", gate.is_open());
    case.expect_that("the last write is last", memory.read()? == [2; 4096]);
    Ok(())
}

pub(super) fn per_thread_is_of_thread(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let gate = Gate::close(d, CUstream::PER_THREAD)?;
    let other = std::thread::scope(|scope| {
        let ask = || {
            let entered = cu!(d, cuCtxSetCurrent(primary.context));
            [
                entered,
                cu!(d, cuStreamQuery(CUstream::PER_THREAD)),
                cu!(d, cuStreamSynchronize(CUstream::PER_THREAD)),
            ]
        };
        scope.spawn(ask).join()
    });
    let others = other.unwrap_or([CUresult::UNKNOWN; 3]);
    case.expect_that("another thread's stream is free", others == [CUresult::SUCCESS; 3]);
    let code = cu!(d, cuStreamQuery(CUstream::PER_THREAD));
    case.expect_code("this thread's stream", code, CUresult::NOT_READY);
    gate.open();
    synchronize(d, CUstream::PER_THREAD)
}

pub(super) fn wait_event(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (first, second) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let event = Event::new(d, CU_EVENT_DISABLE_TIMING)?;
    case.expect_ok(
        "wait for an event that was never recorded",
        cu!(d, cuStreamWaitEvent(second.raw, event.raw, 0)),
    );
    case.expect_ok("it does not wait", cu!(d, cuStreamSynchronize(second.raw)));
    let gate = Gate::close(d, first.raw)?;
    event.record(first.raw)?;
    must!(d, cuStreamWaitEvent(second.raw, event.raw, 0));
    // Recorded again on an idle stream: the wait above still means the first record.
    let idle = Stream::non_blocking(d)?;
    event.record(idle.raw)?;
    case.expect_code("the waiting stream", cu!(d, cuStreamQuery(second.raw)), CUresult::NOT_READY);
    gate.open();
    case.expect_ok("then it ends", cu!(d, cuStreamSynchronize(second.raw)));
    Ok(())
}

pub(super) fn handles(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut stream = CUstream::NULL;
    case.expect_code("flags 2", cu!(d, cuStreamCreate(&mut stream, 2)), CUresult::INVALID_VALUE);
    case.expect_code("null", cu!(d, cuStreamCreate(null_mut(), 0)), CUresult::INVALID_VALUE);
    for (name, wanted) in [("default", CU_STREAM_DEFAULT), ("non-blocking", CU_STREAM_NON_BLOCKING)] {
        let stream = Stream::new(d, wanted)?;
        let mut flags = u32::MAX;
        must!(d, cuStreamGetFlags(stream.raw, &mut flags));
        case.expect_eq(name, flags, wanted);
    }
    case.code("destroy the default stream", cu!(d, cuStreamDestroy_v2(CUstream::NULL)));
    let (mut one, mut other) = (0, 0);
    let (first, second) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    must!(d, cuStreamGetId(first.raw, &mut one));
    must!(d, cuStreamGetId(second.raw, &mut other));
    case.expect_that("streams have ids of their own", one != other);
    Ok(())
}

pub(super) fn priorities(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (mut least, mut greatest) = (1, 1);
    must!(d, cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    case.observe_machine("range", format!("{least} to {greatest}"));
    case.expect_that("the least is 0 and the greatest below", least == 0 && greatest <= 0);
    for (name, asked, wanted) in
        [("least", least, least), ("greatest", greatest, greatest), ("below", -99, greatest)]
    {
        let (mut stream, mut priority) = (CUstream::NULL, 99);
        must!(d, cuStreamCreateWithPriority(&mut stream, CU_STREAM_NON_BLOCKING, asked));
        must!(d, cuStreamGetPriority(stream, &mut priority));
        case.expect_that(&format!("{name} is kept or clamped"), priority == wanted);
        must!(d, cuStreamDestroy_v2(stream));
    }
    Ok(())
}

pub(super) fn destroyed_while_busy(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let out = Pinned::new(d, 4096, 0)?;
    let stream = Stream::non_blocking(d)?;
    let gate = Gate::close(d, stream.raw)?;
    must!(d, cuMemsetD8Async(out.address(), 9, 4096, stream.raw));
    // It returns at once: no other thread opens the gate.
    case.expect_ok("destroy", cu!(d, cuStreamDestroy_v2(stream.raw)));
    std::mem::forget(stream);
    gate.open();
    case.expect_ok("synchronize the context", cu!(d, cuCtxSynchronize()));
    case.expect_that("its work was done", out.get() == vec![9; 4096]);
    Ok(())
}

static CALLS: AtomicU64 = AtomicU64::new(0);

extern "C" fn host_function(data: *mut c_void) {
    CALLS.fetch_add(data as u64, Ordering::SeqCst);
}

extern "C" fn callback(_stream: CUstream, status: CUresult, data: *mut c_void) {
    CALLS.fetch_add(data as u64 + u64::from(status.0), Ordering::SeqCst);
}

pub(super) fn callbacks(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let gate = Gate::close(d, stream.raw)?;
    must!(d, cuLaunchHostFunc(stream.raw, host_function as *mut c_void, 5 as *mut c_void));
    must!(d, cuStreamAddCallback(stream.raw, callback as *mut c_void, 70 as *mut c_void, 0));
    case.expect_eq("called before their turn", CALLS.load(Ordering::SeqCst), 0);
    gate.open();
    synchronize(d, stream.raw)?;
    case.expect_eq("called once each, with success", CALLS.load(Ordering::SeqCst), 75);
    let code = cu!(d, cuLaunchHostFunc(stream.raw, null_mut(), null_mut()));
    case.expect_code("null function", code, CUresult::INVALID_VALUE);
    Ok(())
}

/// The program chooses how a host function waits for the work before it: the function is called
/// exactly once in each mode.
pub(super) fn host_function_with_a_mode(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    for mode in [0, 1] {
        let gate = Gate::close(d, stream.raw)?;
        let before = CALLS.load(Ordering::SeqCst);
        let function = host_function as *mut c_void;
        // A function of later drivers, which the library exports everywhere.
        supported!(d, cuLaunchHostFunc_v2(stream.raw, function, 5 as *mut c_void, mode));
        let early = CALLS.load(Ordering::SeqCst) - before;
        case.expect_eq(&format!("mode {mode}: called before its turn"), early, 0);
        gate.open();
        synchronize(d, stream.raw)?;
        case.expect_eq(&format!("mode {mode}: called"), CALLS.load(Ordering::SeqCst) - before, 5);
    }
    Ok(())
}

pub(super) fn kernels_in_order(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, stream, memory) = (Kernels::load(d)?, Stream::non_blocking(d)?, Memory::new(d, 64 << 10)?);
    for value in 0..200_u32 {
        kernels.fill(stream.raw, memory.address, 16 << 10, value.wrapping_mul(0x0101_0101))?;
    }
    synchronize(d, stream.raw)?;
    case.expect_that("the last launch is last", memory.read()? == vec![199; 64 << 10]);
    Ok(())
}

pub(super) fn events(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let event = Event::new(d, CU_EVENT_DEFAULT)?;
    case.expect_ok("query of a fresh event", cu!(d, cuEventQuery(event.raw)));
    case.expect_ok("wait for a fresh event", cu!(d, cuEventSynchronize(event.raw)));
    let gate = Gate::close(d, stream.raw)?;
    event.record(stream.raw)?;
    case.expect_code("query before its turn", cu!(d, cuEventQuery(event.raw)), CUresult::NOT_READY);
    gate.open_after(Duration::from_millis(30));
    case.expect_ok("wait", cu!(d, cuEventSynchronize(event.raw)));
    case.expect_that("it waited", gate.is_open());
    case.expect_ok("query after", cu!(d, cuEventQuery(event.raw)));
    let gate = Gate::close(d, stream.raw)?;
    must!(d, cuEventRecordWithFlags(event.raw, stream.raw, 0));
    let code = cu!(d, cuEventQuery(event.raw));
    case.expect(code == CUresult::NOT_READY, "an event recorded with flags was passed before its turn");
    gate.open();
    must!(d, cuEventSynchronize(event.raw));
    let mut made = CUevent::NULL;
    case.expect_code("flags 64", cu!(d, cuEventCreate(&mut made, 64)), CUresult::INVALID_VALUE);
    let alone = CU_EVENT_INTERPROCESS;
    case.expect_code(
        "interprocess with timing",
        cu!(d, cuEventCreate(&mut made, alone)),
        CUresult::INVALID_VALUE,
    );
    let code = cu!(d, cuEventQuery(CUevent::NULL));
    case.expect_one_of("query null", code, &[CUresult::INVALID_HANDLE, CUresult::INVALID_VALUE]);
    Ok(())
}

pub(super) fn elapsed_time(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, stream) = (Kernels::load(d)?, Stream::non_blocking(d)?);
    let (start, end) = (Event::new(d, CU_EVENT_DEFAULT)?, Event::new(d, CU_EVENT_DEFAULT)?);
    let untimed = Event::new(d, CU_EVENT_DISABLE_TIMING)?;
    let mut milliseconds = -1.0;
    start.record(stream.raw)?;
    kernels.spin(stream.raw, 20_000_000)?;
    end.record(stream.raw)?;
    untimed.record(stream.raw)?;
    case.expect_code(
        "before the end",
        cu!(d, cuEventElapsedTime(&mut milliseconds, start.raw, end.raw)),
        CUresult::NOT_READY,
    );
    synchronize(d, stream.raw)?;
    case.expect_ok("after", cu!(d, cuEventElapsedTime(&mut milliseconds, start.raw, end.raw)));
    case.expect((19.0..2000.0).contains(&milliseconds), format!("20 ms took {milliseconds} ms"));
    let code = cu!(d, cuEventElapsedTime(&mut milliseconds, start.raw, untimed.raw));
    case.expect_code("an event without timing", code, CUresult::INVALID_HANDLE);
    Ok(())
}

pub(super) fn event_destroyed_early(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (first, second) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let gate = Gate::close(d, first.raw)?;
    let event = Event::new(d, CU_EVENT_DISABLE_TIMING)?;
    event.record(first.raw)?;
    must!(d, cuStreamWaitEvent(second.raw, event.raw, 0));
    drop(event);
    case.expect_code("the wait outlives the event", cu!(d, cuStreamQuery(second.raw)), CUresult::NOT_READY);
    gate.open();
    case.expect_ok("then it ends", cu!(d, cuStreamSynchronize(second.raw)));
    Ok(())
}

static FOUND: [AtomicU64; 3] = [const { AtomicU64::new(u64::MAX) }; 3];

/// Driver calls are forbidden in a host function; a driver returns an error instead of waiting for
/// itself.
extern "C" fn calls_the_driver(driver: *mut c_void) {
    // SAFETY: the case passes its driver, which stays until the process ends.
    let d: &'static crate::driver::Driver = unsafe { &*driver.cast() };
    let (mut address, mut free, mut total) = (0, 0, 0);
    let codes = [
        cu!(d, cuMemAlloc_v2(&mut address, 4096)),
        cu!(d, cuMemAllocAsync(&mut address, 4096, CUstream::NULL)),
        cu!(d, cuMemGetInfo_v2(&mut free, &mut total)),
    ];
    for (place, code) in FOUND.iter().zip(codes) {
        place.store(code.0.into(), Ordering::SeqCst);
    }
}

pub(super) fn driver_calls_in_callback(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let data = std::ptr::from_ref(d).cast_mut().cast();
    must!(d, cuLaunchHostFunc(stream.raw, calls_the_driver as *mut c_void, data));
    synchronize(d, stream.raw)?;
    for (label, place) in ["cuMemAlloc", "cuMemAllocAsync", "cuMemGetInfo"].into_iter().zip(&FOUND) {
        case.code(label, CUresult(place.load(Ordering::SeqCst) as u32));
    }
    Ok(())
}

pub(super) fn memory_operations(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (first, second) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let word = Memory::holding(d, &[0; 8])?;
    // Flags 0: wait until the word is at least 5.
    case.expect_ok("wait", cu!(d, cuStreamWaitValue32_v2(first.raw, word.address, 5, 0)));
    case.expect_code("the waiting stream", cu!(d, cuStreamQuery(first.raw)), CUresult::NOT_READY);
    case.expect_ok("write", cu!(d, cuStreamWriteValue32_v2(second.raw, word.address, 7, 0)));
    case.expect_ok("then it ends", cu!(d, cuStreamSynchronize(first.raw)));
    synchronize(d, second.raw)?;
    case.expect_that("the word was written", word.read()? == [7, 0, 0, 0, 0, 0, 0, 0]);
    let code = cu!(d, cuStreamWriteValue32_v2(second.raw, 8, 7, 0));
    case.expect_code("write to address 8", code, CUresult::INVALID_VALUE);
    Ok(())
}

/// Words of 64 bits, and several operations in one call.
pub(super) fn wide_memory_operations(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (first, second) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let words = Memory::holding(d, &[0; 16])?;
    case.expect_ok("wait", cu!(d, cuStreamWaitValue64_v2(first.raw, words.address, 1 << 40, 0)));
    case.expect_code("the waiting stream", cu!(d, cuStreamQuery(first.raw)), CUresult::NOT_READY);
    case.expect_ok("write", cu!(d, cuStreamWriteValue64_v2(second.raw, words.address, 1 << 41, 0)));
    case.expect_ok("then it ends", cu!(d, cuStreamSynchronize(first.raw)));
    // CU_STREAM_MEM_OP_WRITE_VALUE_32: operation, address, value, flags, alias, and one word more.
    let write = |address: u64, value: u64| [2_u64, address, value, 0, 0, 0];
    let mut both = [write(words.address, 3), write(words.address + 8, 4)];
    supported!(d, cuStreamBatchMemOp_v2(second.raw, 2, both.as_mut_ptr().cast(), 0));
    synchronize(d, second.raw)?;
    let wanted = [3, 0, 0, 0, 0, 2, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
    case.expect_that("both words were written", words.read()? == wanted);
    Ok(())
}

/// The first versions, which a driver has only with an option of its kernel module: they write and
/// wait, or are refused.
pub(super) fn older_memory_operations(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (stream, words) = (Stream::non_blocking(d)?, Memory::holding(d, &[0; 24])?);
    let (s, at) = (stream.raw, words.address);
    let mut batch = [[2_u64, at + 16, 5, 0, 0, 0]];
    let codes = [
        ("cuStreamWriteValue32", cu!(d, cuStreamWriteValue32(s, at, 3, 0))),
        ("cuStreamWaitValue32", cu!(d, cuStreamWaitValue32(s, at, 0, 0))),
        ("cuStreamWriteValue64", cu!(d, cuStreamWriteValue64(s, at + 8, 4, 0))),
        ("cuStreamWaitValue64", cu!(d, cuStreamWaitValue64(s, at + 8, 0, 0))),
        ("cuStreamBatchMemOp", cu!(d, cuStreamBatchMemOp(s, 1, batch.as_mut_ptr().cast(), 0))),
    ];
    for (name, code) in codes {
        case.observe_machine(name, crate::case::short(code));
        let known = [CUresult::SUCCESS, CUresult::NOT_SUPPORTED];
        case.expect(known.contains(&code), format!("{name}: {}", crate::case::short(code)));
    }
    synchronize(d, s)?;
    let written = |index: usize, value: u8| if codes[index].1 == CUresult::SUCCESS { value } else { 0 };
    let bytes = words.read()?;
    let right = [bytes[0], bytes[8], bytes[16]] == [written(0, 3), written(2, 4), written(4, 5)];
    case.expect_that("what was accepted was written", right);
    Ok(())
}
