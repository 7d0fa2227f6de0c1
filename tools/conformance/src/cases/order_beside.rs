//! Calls that a library may make beside a program: contexts of its own on the program's device,
//! memory that belongs to no context, and threads that release such objects while a stream of the
//! program waits for the host.
//!
//! A library between program and driver makes calls which the program did not make. If one of them
//! waits for the program's streams, or blocks the program's own calls, the program deadlocks
//! because of the library.

use std::ffi::c_void;

use wm_abi::*;

use super::order_contexts::{create, enter};
use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{
    Event, Hold, LATE, Memory, Physical, Pinned, Primary, Range, SOON, Stream, granularity, host_properties,
    synchronize,
};
use crate::{cu, must, supported};

const BYTES: usize = 4 << 20;

/// While the program's stream is held, does a call wait for it?
fn waits(
    d: &'static Driver,
    held: CUstream,
    program: CUcontext,
    call: impl FnOnce() -> Verdict,
) -> Verdict<bool> {
    let hold = {
        let mut before = CUcontext::NULL;
        must!(d, cuCtxGetCurrent(&mut before));
        enter(d, program)?;
        let hold = Hold::close(d, held)?;
        enter(d, before)?;
        hold
    };
    let waited = hold.blocks(LATE, call)?;
    hold.open();
    Ok(waited)
}

/// A second context on the same device: does the program's stream delay any call there?
pub(super) fn another_context(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let held = Stream::non_blocking(d)?;
    let (program, mut own) = (primary.context, CUcontext::NULL);
    let made = waits(d, held.raw, program, || {
        own = create(d)?;
        Ok(())
    })?;
    // On a busy machine it may.
    case.observe("making a context waited", made);
    let (mut stream, mut event) = (CUstream::NULL, CUevent::NULL);
    let furnished = waits(d, held.raw, program, || {
        must!(d, cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
        must!(d, cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING));
        Ok(())
    })?;
    case.expect_eq("making a stream and an event waited", furnished, false);
    let (mut device, mut host) = (None, None);
    let mapped = waits(d, held.raw, program, || {
        device = Some(Range::of_device(d, BYTES, 0)?);
        host = Some(host_range(d)?);
        Ok(())
    })?;
    case.expect_eq("mapping memory of the device and of the host waited", mapped, false);
    let (to, from) = (device.as_ref().map_or(0, |r| r.address), host.as_ref().map_or(0, |r| r.address));
    let copied = waits(d, held.raw, program, || {
        must!(d, cuMemcpyHtoDAsync_v2(to, from as *const c_void, BYTES, stream));
        must!(d, cuEventRecord(event, stream));
        must!(d, cuEventSynchronize(event));
        synchronize(d, stream)
    })?;
    case.expect_eq("a copy and a wait for it waited", copied, false);
    let unmapped = waits(d, held.raw, program, || {
        drop((device.take(), host.take()));
        Ok(())
    })?;
    case.expect_eq("unmapping waited", unmapped, false);
    let retired = waits(d, held.raw, program, || {
        must!(d, cuEventDestroy_v2(event));
        must!(d, cuStreamDestroy_v2(stream));
        Ok(())
    })?;
    case.expect_eq("destroying a stream and an event waited", retired, false);
    let mut pinned = None;
    let allocated = waits(d, held.raw, program, || {
        pinned = Some(Pinned::new(d, BYTES, 0)?);
        Ok(())
    })?;
    case.observe("cuMemHostAlloc waited", allocated);
    let freed = waits(d, held.raw, program, || {
        drop(pinned.take());
        Ok(())
    })?;
    case.observe("cuMemFreeHost waited", freed);
    let ended = waits(d, held.raw, program, || {
        must!(d, cuCtxDestroy_v2(own));
        Ok(())
    })?;
    // An H200's driver waits, with and without other contexts; programs cannot rely on it.
    case.observe("destroying the context waited", ended);
    enter(d, program)?;
    synchronize(d, held.raw)
}

/// Host memory that belongs to no context.
fn host_range(d: &'static Driver) -> Verdict<Range> {
    let mut node = 0;
    must!(d, cuDeviceGetAttribute(&mut node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0));
    let properties = host_properties(node.max(0));
    let bytes = BYTES.next_multiple_of(granularity(d, &properties)?);
    let mut physical = 0;
    supported!(d, cuMemCreate(&mut physical, bytes, &properties, 0));
    let range = Range::holding(d, &Physical::adopt(d, physical, bytes), 0)?;
    let access = CUmemAccessDesc { location: properties.location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    must!(d, cuMemSetAccess(range.address, bytes, &access, 1));
    Ok(range)
}

/// A thread releases pinned memory, which may wait; meanwhile the program makes the calls that end
/// the wait.
pub(super) fn beside_a_thread_that_waits(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (held, other) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let own = create(d)?;
    let pinned = Pinned::new(d, BYTES, 0)?;
    primary.enter()?;
    let memory = Memory::new(d, 4096)?;
    let hold = Hold::close(d, held.raw)?;
    let (context, pointer) = (own.0, pinned.address());
    std::mem::forget(pinned);
    let thread = std::thread::spawn(move || -> Verdict {
        enter(d, CUcontext(context))?;
        must!(d, cuMemFreeHost(pointer as *mut c_void));
        must!(d, cuCtxDestroy_v2(CUcontext(context)));
        Ok(())
    });
    // The thread is most likely in its call by now; if not, the answer is the same.
    std::thread::sleep(SOON);
    let waited = hold.blocks(LATE, || {
        must!(d, cuMemsetD8Async(memory.address, 1, 4096, other.raw));
        synchronize(d, other.raw)
    })?;
    case.observe("the program's calls waited for the thread", waited);
    hold.open();
    thread.join().map_err(|_| crate::case::Halt::Failed("a thread panicked".into()))??;
    synchronize(d, held.raw)
}

/// The program resets or releases its device: the objects of another context live on, with its
/// mappings.
pub(super) fn the_primary_ends(case: &mut Case) -> Verdict {
    let d = case.driver;
    for (name, end) in [("reset", true), ("release", false)] {
        let primary = Primary::new(d)?;
        let own = create(d)?;
        let (stream, range) = (Stream::non_blocking(d)?, Range::of_device(d, BYTES, 0)?);
        must!(d, cuMemsetD8Async(range.address, 7, BYTES, stream.raw));
        synchronize(d, stream.raw)?;
        let hold = Hold::close(d, stream.raw)?;
        must!(d, cuMemsetD8Async(range.address, 8, BYTES / 2, stream.raw));
        primary.enter()?;
        let mut ended = CUresult::SUCCESS;
        let waited = hold.blocks(LATE, || {
            ended = if end {
                cu!(d, cuDevicePrimaryCtxReset_v2(0))
            } else {
                cu!(d, cuDevicePrimaryCtxRelease_v2(0))
            };
            Ok(())
        })?;
        std::mem::forget(primary);
        case.expect_ok(name, ended);
        case.observe(format!("{name} waited for the other context's stream"), waited);
        hold.open();
        enter(d, own)?;
        synchronize(d, stream.raw)?;
        let (first, last) = (
            crate::fixture::read(d, range.address, 1)?,
            crate::fixture::read(d, range.address + BYTES as u64 - 1, 1)?,
        );
        case.expect_that(&format!("{name}: bytes of the other context"), (first[0], last[0]) == (8, 7));
        must!(d, cuMemsetD8Async(range.address, 9, BYTES, stream.raw));
        case.expect_ok(&format!("{name}: its stream works"), cu!(d, cuStreamSynchronize(stream.raw)));
        drop((stream, range, hold));
        must!(d, cuCtxDestroy_v2(own));
    }
    Ok(())
}

/// A primary context has one handle in all its lives. The case checks for a number that differs
/// between lives.
pub(super) fn lives_are_numbered(case: &mut Case) -> Verdict {
    let d = case.driver;
    let number = |context: CUcontext| {
        let mut number = 0;
        must!(d, cuCtxGetId(context, &mut number));
        Ok(number)
    };
    let first = Primary::new(d)?;
    let (handle, before) = (first.context, number(first.context)?);
    let other = create(d)?;
    case.expect_that("two contexts have two numbers", number(other)? != before);
    must!(d, cuCtxDestroy_v2(other));
    must!(d, cuDevicePrimaryCtxReset_v2(0));
    std::mem::forget(first);
    let second = Primary::new(d)?;
    case.observe("the handle is the same after a reset", second.context == handle);
    case.expect_that("the number is another one after a reset", number(second.context)? != before);
    let before = number(second.context)?;
    drop(second);
    // The reset may have left the first reference in place: only the last release ends the context.
    for _ in 0..4 {
        if cu!(d, cuDevicePrimaryCtxRelease_v2(0)) != CUresult::SUCCESS {
            break;
        }
    }
    let third = Primary::new(d)?;
    case.expect_that("the number is another one after a release", number(third.context)? != before);
    Ok(())
}

/// A wait for an event in a blocking stream: does later work of the default stream wait for it too?
pub(super) fn waits_for_events(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (apart, memory) = (Stream::non_blocking(d)?, Memory::new(d, 4096)?);
    for (name, works) in [("a wait alone", false), ("a wait behind work", true)] {
        let stream = Stream::new(d, CU_STREAM_DEFAULT)?;
        let (event, done) =
            (Event::new(d, CU_EVENT_DISABLE_TIMING)?, Event::new(d, CU_EVENT_DISABLE_TIMING)?);
        let hold = Hold::close(d, apart.raw)?;
        event.record(apart.raw)?;
        if works {
            must!(d, cuMemsetD8Async(memory.address, 1, 4096, stream.raw));
        }
        must!(d, cuStreamWaitEvent(stream.raw, event.raw, 0));
        let waited = hold.blocks(SOON, || {
            must!(d, cuMemsetD8Async(memory.address, 2, 4096, CUstream::LEGACY));
            done.record(CUstream::LEGACY)?;
            must!(d, cuEventSynchronize(done.raw));
            Ok(())
        })?;
        case.observe(format!("{name}: work of the default stream waited"), waited);
        hold.open();
        synchronize(d, stream.raw)?;
        synchronize(d, CUstream::LEGACY)?;
    }
    Ok(())
}

/// A copy of pageable memory in a held stream: does its call return?
pub(super) fn pageable_copies_in_held_streams(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (stream, memory) = (Stream::non_blocking(d)?, Memory::new(d, 4 * LARGEST)?);
    let mut host = vec![1_u8; 4 * LARGEST];
    for bytes in [4 << 10, 256 << 10, LARGEST, 4 * LARGEST] {
        let hold = Hold::close(d, stream.raw)?;
        let into = hold.blocks(SOON, || {
            must!(d, cuMemcpyHtoDAsync_v2(memory.address, host.as_ptr().cast(), bytes, stream.raw));
            Ok(())
        })?;
        hold.open();
        synchronize(d, stream.raw)?;
        case.observe(format!("cuMemcpyHtoDAsync of {bytes} bytes waited"), into);
        let hold = Hold::close(d, stream.raw)?;
        let out = hold.blocks(SOON, || {
            must!(d, cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), memory.address, bytes, stream.raw));
            Ok(())
        })?;
        hold.open();
        case.observe(format!("cuMemcpyDtoHAsync of {bytes} bytes waited"), out);
        synchronize(d, stream.raw)?;
    }
    Ok(())
}

unsafe extern "C" fn make(bytes: *mut c_void) {
    std::thread::sleep(SOON);
    // SAFETY: the case's own buffer, as long as the largest copy.
    unsafe { std::ptr::write_bytes(bytes.cast::<u8>(), 9, LARGEST) };
}

const LARGEST: usize = 16 << 20;

/// The source of a copy is made by a host function ahead of it in the stream: when is pageable
/// memory read?
pub(super) fn pageable_sources(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (stream, memory) = (Stream::new(d, CU_STREAM_DEFAULT)?, Memory::new(d, LARGEST)?);
    let mut host = vec![0_u8; LARGEST];
    for bytes in [4 << 10, 256 << 10, LARGEST] {
        for waits in [true, false] {
            host.fill(0);
            let (data, source) = (host.as_mut_ptr().cast::<c_void>(), host.as_ptr().cast::<c_void>());
            must!(d, cuLaunchHostFunc(stream.raw, make as *mut c_void, data));
            if waits {
                must!(d, cuMemcpyHtoD_v2(memory.address, source, bytes));
            } else {
                must!(d, cuMemcpyHtoDAsync_v2(memory.address, source, bytes, stream.raw));
            }
            must!(d, cuCtxSynchronize());
            let first = crate::fixture::read(d, memory.address, 1)?[0];
            let last = crate::fixture::read(d, memory.address + bytes as u64 - 1, 1)?[0];
            let form = if waits { "cuMemcpyHtoD" } else { "cuMemcpyHtoDAsync" };
            case.observe(format!("{form} of {bytes} bytes read what was made"), (first, last) == (9, 9));
        }
    }
    Ok(())
}
