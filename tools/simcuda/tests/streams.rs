//! Hazard (stream order): a simulated stream orders more than a real one and hides a missing
//! event, or orders less and fails correct programs.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};

use common::*;

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    start(&[]);
    let (go, blocking) = (flag(), stream(CU_STREAM_DEFAULT));
    let word = allocate(4);
    hold(go, blocking);
    ok!(cuMemsetD32Async(word, 1, 1, CUstream::LEGACY));
    fails!(NOT_READY, cuStreamQuery(CUstream::LEGACY));
    ok!(cuMemsetD32Async(word, 2, 1, blocking));
    set(go, 1);
    ok!(cuStreamSynchronize(blocking));
    assert_eq!(download(word, 1), [2]);
}

#[test]
fn a_non_blocking_stream_waits_for_nobody() {
    start(&[]);
    let (go, free) = (flag(), stream(CU_STREAM_NON_BLOCKING));
    let word = allocate(4);
    hold(go, CUstream::LEGACY);
    ok!(cuMemsetD32Async(word, 5, 1, free));
    ok!(cuStreamSynchronize(free));
    fails!(NOT_READY, cuStreamQuery(CUstream::LEGACY));
    set(go, 1);
    ok!(cuCtxSynchronize());
}

#[test]
fn the_per_thread_stream_is_blocking_and_each_threads_own() {
    let context = start(&[]);
    let go = flag();
    hold(go, CUstream::PER_THREAD);
    let other = std::thread::spawn(move || {
        ok!(cuCtxSetCurrent(context));
        ok!(cuStreamSynchronize_ptsz(CUstream::NULL));
        ok!(cuStreamQuery(CUstream::PER_THREAD));
    });
    other.join().unwrap();
    fails!(NOT_READY, cuStreamQuery_ptsz(CUstream::NULL));
    fails!(NOT_READY, cuStreamQuery(CUstream::NULL));
    set(go, 1);
    ok!(cuStreamSynchronize(CUstream::NULL));
    ok!(cuStreamQuery(CUstream::PER_THREAD));
}

#[test]
fn an_event_is_passed_when_its_stream_has_come_so_far() {
    start(&[]);
    let (go, busy, behind) = (flag(), stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let (before, after) = (event(), event());
    ok!(cuEventQuery(after));
    ok!(cuEventRecord(before, busy));
    hold(go, busy);
    ok!(cuEventRecord(after, busy));
    ok!(cuEventSynchronize(before));
    fails!(NOT_READY, cuEventQuery(after));
    let mut milliseconds = -1.0;
    fails!(NOT_READY, cuEventElapsedTime(&raw mut milliseconds, before, after));
    ok!(cuStreamWaitEvent(behind, after, 0));
    fails!(NOT_READY, cuStreamQuery(behind));
    set(go, 1);
    ok!(cuStreamSynchronize(behind));
    ok!(cuEventQuery(after));
    ok!(cuEventElapsedTime(&raw mut milliseconds, before, after));
    assert!(milliseconds > 0.0);
}

#[test]
fn a_wait_is_for_the_record_that_was_there() {
    start(&[]);
    let (go, busy, behind) = (flag(), stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let event = event();
    ok!(cuEventRecord(event, busy));
    ok!(cuStreamWaitEvent(behind, event, 0));
    hold(go, busy);
    ok!(cuEventRecord(event, busy));
    ok!(cuStreamSynchronize(behind));
    set(go, 1);
    ok!(cuEventSynchronize(event));
}

#[test]
fn free_waits_for_the_blocks_context() {
    let context = start(&[]);
    let (go, busy) = (flag(), stream(CU_STREAM_NON_BLOCKING));
    let block = allocate(64);
    hold(go, busy);
    let (about_to, begins) = std::sync::mpsc::channel();
    let go_at = go as usize;
    let freeing = std::thread::spawn(move || {
        ok!(cuCtxSetCurrent(context));
        about_to.send(()).unwrap();
        ok!(cuMemFree_v2(block));
        // SAFETY: from `flag`, and every access is atomic.
        unsafe { AtomicU32::from_ptr(go_at as *mut u32) }.load(Ordering::SeqCst)
    });
    begins.recv().unwrap();
    // Enough time for a free that does not wait to return: a thousand calls.
    for _ in 0..1000 {
        fails!(NOT_READY, cuStreamQuery(busy));
    }
    ok!(cuMemGetAddressRange_v2(std::ptr::null_mut(), std::ptr::null_mut(), block));
    set(go, 1);
    assert_eq!(freeing.join().unwrap(), 1, "the free came back before the kernel had ended");
    ok!(cuStreamQuery(busy));
    fails!(NOT_FOUND, cuMemGetAddressRange_v2(std::ptr::null_mut(), std::ptr::null_mut(), block));
}

#[test]
fn a_destroyed_stream_finishes_its_work() {
    start(&[]);
    let (go, busy) = (flag(), stream(CU_STREAM_NON_BLOCKING));
    let word = allocate(4);
    hold(go, busy);
    ok!(cuMemsetD32Async(word, 8, 1, busy));
    ok!(cuStreamDestroy_v2(busy));
    fails!(INVALID_HANDLE, cuStreamQuery(busy));
    set(go, 1);
    ok!(cuCtxSynchronize());
    assert_eq!(download(word, 1), [8]);
}

/// One stream writes, another reads, with or without an event between. Returns how often the reader
/// was too early.
fn races(seed: &str, ordered: bool) -> usize {
    start(&[("SIMCUDA_SEED", seed)]);
    let (writer, reader) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let (from, to, event) = (allocate(4), allocate(4), event());
    (1..=40)
        .filter(|round| {
            ok!(cuMemsetD32Async(from, *round, 1, writer));
            ok!(cuEventRecord(event, writer));
            if ordered {
                ok!(cuStreamWaitEvent(reader, event, 0));
            }
            ok!(cuMemcpyDtoDAsync_v2(to, from, 4, reader));
            ok!(cuCtxSynchronize());
            download(to, 1) != [*round]
        })
        .count()
}

#[test]
fn a_seed_shows_a_missing_event() {
    assert!(races("7", false) > 0);
}

#[test]
fn no_seed_breaks_an_order_that_is_there() {
    assert_eq!(races("7", true), 0);
}

#[test]
fn host_functions_run_in_order_and_may_not_call_the_driver() {
    extern "C" fn ask(answer: *mut std::ffi::c_void) {
        let mut count = 0;
        // SAFETY: the test's own variables.
        unsafe { *answer.cast::<u32>() = cuDeviceGetCount(&raw mut count).0 };
    }
    start(&[]);
    let mut answer = 0_u32;
    ok!(cuLaunchHostFunc(CUstream::NULL, ask as *mut _, (&raw mut answer).cast()));
    ok!(cuStreamSynchronize(CUstream::NULL));
    assert_eq!(CUresult(answer), CUresult::NOT_PERMITTED);
}

#[test]
fn a_stream_waits_for_a_word() {
    start(&[]);
    let (waiting, writing) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let word = allocate(4);
    upload(word, &[0]);
    ok!(cuStreamWaitValue32_v2(waiting, word, 3, 0));
    fails!(NOT_READY, cuStreamQuery(waiting));
    ok!(cuStreamWriteValue32_v2(writing, word, 3, 0));
    ok!(cuStreamSynchronize(waiting));
}

#[test]
fn an_idle_default_stream_of_a_dead_context_is_an_error() {
    start(&[]);
    ok!(cuDevicePrimaryCtxReset_v2(0));
    fails!(CONTEXT_IS_DESTROYED, cuStreamSynchronize(CUstream::NULL));
    ok!(cuDevicePrimaryCtxReset_v2(0));
    context(0);
    ok!(cuStreamSynchronize(CUstream::NULL));
}

fn pool_of_first_device() -> CUmemoryPool {
    let mut pool = CUmemoryPool::NULL;
    ok!(cuDeviceGetDefaultMemPool(&raw mut pool, 0));
    pool
}

fn allow(reuse: u32, allowed: i32) {
    let mut value = allowed;
    ok!(cuMemPoolSetAttribute(pool_of_first_device(), reuse, at(&mut value)));
}

#[test]
fn a_full_pool_makes_a_stream_wait_for_another_if_it_may() {
    start(&[("SIMCUDA_MEMORY", "8MiB")]);
    let (holding, taking) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let (word, mut first, mut second) = (flag(), 0, 0);
    ok!(cuMemAllocAsync(&raw mut first, 6 * MIB, holding));
    ok!(cuStreamWaitValue32_v2(holding, word as u64, 1, 0));
    ok!(cuMemFreeAsync(first, holding));
    allow(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
    fails!(OUT_OF_MEMORY, cuMemAllocAsync(&raw mut second, 6 * MIB, taking));
    ok!(cuStreamSynchronize(taking));
    allow(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
    ok!(cuMemAllocAsync(&raw mut second, 6 * MIB, taking));
    assert_eq!(second, first);
    fails!(NOT_READY, cuStreamQuery(taking));
    set(word, 1);
    ok!(cuStreamSynchronize(taking));
}

#[test]
fn a_pool_takes_what_is_past_if_it_may() {
    start(&[]);
    let (freeing, taking) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let (mut first, mut second, mut third) = (0, 0, 0);
    ok!(cuMemAllocAsync(&raw mut first, MIB, freeing));
    ok!(cuMemFreeAsync(first, freeing));
    // The stream has reached the free, and the pool keeps its memory, because no synchronisation
    // happened.
    // SAFETY: a stream of this test's own.
    while unsafe { cuStreamQuery(freeing) } == CUresult::NOT_READY {}
    allow(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
    ok!(cuMemAllocAsync(&raw mut second, MIB, taking));
    allow(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 1);
    ok!(cuMemAllocAsync(&raw mut third, MIB, taking));
    assert!(second != first && third == first);
}

#[test]
fn an_allocation_in_the_default_stream_is_an_action() {
    start(&[]);
    let (one, other, word) = (stream(CU_STREAM_DEFAULT), stream(CU_STREAM_DEFAULT), flag());
    ok!(cuStreamWaitValue32_v2(one, word as u64, 1, 0));
    let (event, mut address) = (event(), 0);
    ok!(cuMemAllocAsync(&raw mut address, MIB, CUstream::LEGACY));
    ok!(cuEventRecord(event, other));
    fails!(NOT_READY, cuEventQuery(event));
    set(word, 1);
    ok!(cuEventSynchronize(event));
}
