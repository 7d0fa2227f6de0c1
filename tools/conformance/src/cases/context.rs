//! Contexts: the calls that need one, the counts of primary contexts, the stack of created ones,
//! and the objects that end with them.

use std::ffi::c_uint;
use std::ptr::null_mut;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{Memory, Primary, Stream, init, pattern, read};
use crate::{cu, must};

fn current(driver: &'static Driver) -> Verdict<CUcontext> {
    let mut context = CUcontext::NULL;
    must!(driver, cuCtxGetCurrent(&mut context));
    Ok(context)
}

fn create(driver: &'static Driver) -> Verdict<CUcontext> {
    let mut context = CUcontext::NULL;
    must!(driver, cuCtxCreate_v2(&mut context, 0, 0));
    Ok(context)
}

fn primary_active(driver: &'static Driver) -> Verdict<bool> {
    let (mut flags, mut active): (c_uint, _) = (0, -1);
    must!(driver, cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    Ok(active == 1)
}

pub(super) fn needs_one(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let refused = CUresult::INVALID_CONTEXT;
    let (mut address, mut bytes, mut device, mut pitch) = (0, 0, 0, 0);
    let (mut stream, mut event, mut host) = (CUstream::NULL, CUevent::NULL, null_mut());
    case.expect_that("none is current", current(d)?.is_null());
    case.expect_code("cuCtxGetDevice", cu!(d, cuCtxGetDevice(&mut device)), refused);
    case.expect_code("cuCtxSynchronize", cu!(d, cuCtxSynchronize()), refused);
    case.expect_code("cuMemAlloc", cu!(d, cuMemAlloc_v2(&mut address, 4096)), refused);
    case.expect_code(
        "cuMemAllocPitch",
        cu!(d, cuMemAllocPitch_v2(&mut address, &mut pitch, 64, 4, 4)),
        refused,
    );
    case.expect_code("cuMemAllocAsync", cu!(d, cuMemAllocAsync(&mut address, 4096, CUstream::NULL)), refused);
    case.expect_code("cuMemHostAlloc", cu!(d, cuMemHostAlloc(&mut host, 4096, 0)), refused);
    case.expect_code("cuMemGetInfo", cu!(d, cuMemGetInfo_v2(&mut bytes, &mut pitch)), refused);
    case.expect_code("cuStreamCreate", cu!(d, cuStreamCreate(&mut stream, 0)), refused);
    case.expect_code("cuStreamSynchronize", cu!(d, cuStreamSynchronize(CUstream::NULL)), refused);
    case.expect_code("cuEventCreate", cu!(d, cuEventCreate(&mut event, 0)), refused);
    case.expect_ok("cuMemFree(0)", cu!(d, cuMemFree_v2(0)));
    Ok(())
}

pub(super) fn primary_counts(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let (mut first, mut second) = (CUcontext::NULL, CUcontext::NULL);
    case.expect_that("inactive at first", !primary_active(d)?);
    must!(d, cuDevicePrimaryCtxRetain(&mut first, 0));
    must!(d, cuDevicePrimaryCtxRetain(&mut second, 0));
    case.expect_that("both retains give one context", first == second);
    case.expect_that("retaining makes nothing current", current(d)?.is_null());
    must!(d, cuDevicePrimaryCtxRelease_v2(0));
    case.expect_that("active after one release", primary_active(d)?);
    must!(d, cuDevicePrimaryCtxRelease_v2(0));
    case.expect_that("inactive after both", !primary_active(d)?);
    let again = cu!(d, cuDevicePrimaryCtxRelease_v2(0));
    case.expect_code("one release too many", again, CUresult::INVALID_CONTEXT);
    Ok(())
}

pub(super) fn primary_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let mut context = CUcontext::NULL;
    let code = cu!(d, cuDevicePrimaryCtxRetain(&mut context, 4096));
    case.expect_code("device 4096", code, CUresult::INVALID_DEVICE);
    let code = cu!(d, cuDevicePrimaryCtxRetain(null_mut(), 0));
    case.expect_code("null", code, CUresult::INVALID_VALUE);
    let code = cu!(d, cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
    case.expect_ok("set flags", code);
    let (mut flags, mut active) = (0, 0);
    must!(d, cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    case.expect_eq("flags", flags, CU_CTX_SCHED_BLOCKING_SYNC);
    let code = cu!(d, cuDevicePrimaryCtxSetFlags_v2(0, 1 << 20));
    case.expect_code("unknown flags", code, CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn release_frees_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let mut lost = 0;
    must!(d, cuMemAlloc_v2(&mut lost, 8 << 20));
    drop(primary);
    let _primary = Primary::new(d)?;
    let mut bytes = 0;
    let code = cu!(d, cuMemGetAddressRange_v2(null_mut(), &mut bytes, lost));
    case.expect_one_of("range of lost memory", code, &[CUresult::NOT_FOUND, CUresult::INVALID_VALUE]);
    case.expect_code("free of lost memory", cu!(d, cuMemFree_v2(lost)), CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn inner_release_keeps_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _outer = Primary::new(d)?;
    let kept = Memory::holding(d, &pattern(4096, 1))?;
    drop(Primary::new(d)?);
    case.expect_that("contents are kept", kept.read()? == pattern(4096, 1));
    Ok(())
}

pub(super) fn reset(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let mut address = 0;
    must!(d, cuMemAlloc_v2(&mut address, 1 << 20));
    case.expect_ok("reset", cu!(d, cuDevicePrimaryCtxReset_v2(0)));
    case.code("allocation in a context that was reset", cu!(d, cuMemAlloc_v2(&mut address, 4096)));
    case.observe("active after reset", primary_active(d)?);
    std::mem::forget(primary);
    Ok(())
}

pub(super) fn create_and_destroy(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let context = create(d)?;
    case.expect_that("a created context is current", current(d)? == context);
    let (mut device, mut version) = (-1, 0);
    must!(d, cuCtxGetDevice(&mut device));
    case.expect_eq("its device", device, 0);
    case.expect_ok("cuCtxGetApiVersion", cu!(d, cuCtxGetApiVersion(context, &mut version)));
    case.expect_that("it has an API version", version > 0);
    case.expect_ok("destroy", cu!(d, cuCtxDestroy_v2(context)));
    case.expect_that("none is current then", current(d)?.is_null());
    case.expect_one_of(
        "destroy null",
        cu!(d, cuCtxDestroy_v2(CUcontext::NULL)),
        &[CUresult::INVALID_CONTEXT, CUresult::INVALID_VALUE],
    );
    let mut refused = CUcontext::NULL;
    case.expect_code("device 4096", cu!(d, cuCtxCreate_v2(&mut refused, 0, 4096)), CUresult::INVALID_DEVICE);
    case.expect_code("null", cu!(d, cuCtxCreate_v2(null_mut(), 0, 0)), CUresult::INVALID_VALUE);
    case.expect_code("flags", cu!(d, cuCtxCreate_v2(&mut refused, 1 << 20, 0)), CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn stack(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let (first, second) = (create(d)?, create(d)?);
    let mut popped = CUcontext::NULL;
    case.expect_that("the last created is on top", current(d)? == second);
    must!(d, cuCtxPopCurrent_v2(&mut popped));
    case.expect_that("pop gives the top", popped == second);
    case.expect_that("below is the first", current(d)? == first);
    must!(d, cuCtxPushCurrent_v2(second));
    must!(d, cuCtxSetCurrent(first));
    must!(d, cuCtxPopCurrent_v2(&mut popped));
    case.expect_that("set replaced the top", popped == first && current(d)? == first);
    must!(d, cuCtxSetCurrent(CUcontext::NULL));
    case.expect_that("setting null pops", current(d)?.is_null());
    let code = cu!(d, cuCtxPopCurrent_v2(&mut popped));
    case.expect_code("pop of an empty stack", code, CUresult::INVALID_CONTEXT);
    let code = cu!(d, cuCtxPushCurrent_v2(CUcontext::NULL));
    case.expect_one_of("push null", code, &[CUresult::INVALID_CONTEXT, CUresult::INVALID_VALUE]);
    must!(d, cuCtxDestroy_v2(first));
    must!(d, cuCtxDestroy_v2(second));
    Ok(())
}

pub(super) fn stack_of_thread(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let in_thread = std::thread::spawn(move || current(d).map_err(|_| ()));
    let found = in_thread.join().unwrap_or(Err(()));
    case.expect_that("a new thread has no context", found == Ok(CUcontext::NULL));
    case.expect_that("this thread keeps its own", current(d)? == primary.context);
    Ok(())
}

pub(super) fn destroy_frees_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let (first, second) = (create(d)?, create(d)?);
    let mut lost = 0;
    must!(d, cuMemAlloc_v2(&mut lost, 4 << 20));
    must!(d, cuCtxDestroy_v2(second));
    must!(d, cuCtxSetCurrent(first));
    case.expect_code("free of lost memory", cu!(d, cuMemFree_v2(lost)), CUresult::INVALID_VALUE);
    must!(d, cuCtxDestroy_v2(first));
    Ok(())
}

pub(super) fn memory_crosses_contexts(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let first = create(d)?;
    let memory = Memory::holding(d, &pattern(10_000, 3))?;
    let second = create(d)?;
    let mut owner = CUcontext::NULL;
    let out = (&raw mut owner).cast();
    must!(d, cuPointerGetAttribute(out, CU_POINTER_ATTRIBUTE_CONTEXT, memory.address));
    case.expect_that("its context is the first", owner == first);
    case.expect_that("read from the second", read(d, memory.address, 10_000)? == pattern(10_000, 3));
    let address = memory.address;
    std::mem::forget(memory);
    case.expect_ok("freed from the second", cu!(d, cuMemFree_v2(address)));
    case.expect_code("freed again from the first", cu!(d, cuMemFree_v2(address)), CUresult::INVALID_VALUE);
    must!(d, cuCtxDestroy_v2(second));
    must!(d, cuCtxDestroy_v2(first));
    Ok(())
}

pub(super) fn identity(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (mut one, mut other, mut flags, mut device) = (0, 0, c_uint::MAX, -1);
    must!(d, cuCtxGetId(primary.context, &mut one));
    let created = create(d)?;
    must!(d, cuCtxGetId(created, &mut other));
    case.expect_that("contexts have ids of their own", one != other);
    case.expect_ok("cuCtxGetFlags", cu!(d, cuCtxGetFlags(&mut flags)));
    case.observe("flags of a context created with 0", flags);
    let stream = Stream::non_blocking(d)?;
    let mut of_stream = CUcontext::NULL;
    must!(d, cuStreamGetCtx(stream.raw, &mut of_stream));
    case.expect_that("a stream knows its context", of_stream == created);
    must!(d, cuCtxGetDevice(&mut device));
    case.expect_eq("device", device, 0);
    drop(stream);
    must!(d, cuCtxDestroy_v2(created));
    Ok(())
}

/// `CU_LIMIT_STACK_SIZE` and `CU_LIMIT_MALLOC_HEAP_SIZE`.
const LIMITS: [(&str, c_uint); 2] = [("stack size", 0), ("malloc heap size", 2)];

pub(super) fn limits(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut bytes = 0;
    for (name, limit) in LIMITS {
        case.expect_ok(name, cu!(d, cuCtxGetLimit(&mut bytes, limit)));
        case.observe_machine(format!("{name} in bytes"), bytes as u64);
    }
    case.expect_ok("set the stack size", cu!(d, cuCtxSetLimit(0, 4096)));
    must!(d, cuCtxGetLimit(&mut bytes, 0));
    case.expect_that("the stack size is kept", bytes >= 4096);
    let code = cu!(d, cuCtxGetLimit(&mut bytes, 999));
    case.expect_one_of("limit 999", code, &[CUresult::UNSUPPORTED_LIMIT, CUresult::INVALID_VALUE]);
    Ok(())
}

/// The older and newer names of calls that begin and end contexts: memory belongs to the right one
/// for each of them.
pub(super) fn other_names(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let mut context = CUcontext::NULL;
    case.expect_ok("cuCtxCreate_v3", cu!(d, cuCtxCreate_v3(&mut context, null_mut(), 0, 0, 0)));
    let kept = Memory::holding(d, &pattern(5000, 1))?;
    case.expect_that("memory under it", kept.read()? == pattern(5000, 1));
    let lost = kept.address;
    std::mem::forget(kept);
    case.expect_ok("cuCtxDestroy", cu!(d, cuCtxDestroy(context)));
    case.expect_ok("cuCtxCreate", cu!(d, cuCtxCreate(&mut context, 0, 0)));
    let mut stream = CUstream::NULL;
    must!(d, cuStreamCreate(&mut stream, 0));
    case.expect_ok("cuStreamDestroy", cu!(d, cuStreamDestroy(stream)));
    must!(d, cuCtxDestroy_v2(context));
    let primary = Primary::new(d)?;
    case.expect_code("free of lost memory", cu!(d, cuMemFree_v2(lost)), CUresult::INVALID_VALUE);
    let mut lost = 0;
    must!(d, cuMemAlloc_v2(&mut lost, 3 << 20));
    std::mem::forget(primary);
    case.expect_ok("cuDevicePrimaryCtxRelease", cu!(d, cuDevicePrimaryCtxRelease(0)));
    let _again = Primary::new(d)?;
    case.expect_code("free after the release", cu!(d, cuMemFree_v2(lost)), CUresult::INVALID_VALUE);
    case.expect_ok("cuDevicePrimaryCtxReset", cu!(d, cuDevicePrimaryCtxReset(0)));
    Ok(())
}

/// The call of CUDA 12.5 and later to create a context.
pub(super) fn newest_create(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let mut context = CUcontext::NULL;
    case.expect_ok("cuCtxCreate_v4", cu!(d, cuCtxCreate_v4(&mut context, null_mut(), 0, 0)));
    let memory = Memory::holding(d, &pattern(5000, 1))?;
    case.expect_that("memory under it", memory.read()? == pattern(5000, 1));
    let mut owner = CUcontext::NULL;
    let out = (&raw mut owner).cast();
    must!(d, cuPointerGetAttribute(out, CU_POINTER_ATTRIBUTE_CONTEXT, memory.address));
    case.expect_that("its context is the new one", owner == context);
    drop(memory);
    must!(d, cuCtxDestroy_v2(context));
    Ok(())
}

/// A wait for a context by handle, which need not be the current one.
pub(super) fn wait_for_named(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let memory = Memory::holding(d, &[0; 4096])?;
    must!(d, cuMemsetD8Async(memory.address, 6, 4096, CUstream::NULL));
    must!(d, cuCtxSetCurrent(CUcontext::NULL));
    case.expect_ok("wait", cu!(d, cuCtxSynchronize_v2(primary.context)));
    primary.enter()?;
    case.expect_that("the work is done", memory.read()? == [6; 4096]);
    Ok(())
}
