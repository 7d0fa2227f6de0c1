//! Hazard (vacuous test): plain or stream-ordered allocation accepts what the driver refuses, or
//! counts wrongly.

mod common;

use std::ffi::c_void;

use common::*;

const FREE: u32 = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;

fn pool() -> CUmemoryPool {
    let mut pool = CUmemoryPool::NULL;
    ok!(cuDeviceGetDefaultMemPool(&raw mut pool, 0));
    pool
}

fn get(pool: CUmemoryPool, attribute: u32) -> u64 {
    let mut value = 0_u64;
    ok!(cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
    value
}

fn set_attribute(pool: CUmemoryPool, attribute: u32, mut value: u64) {
    ok!(cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast()));
}

fn allocate_in(bytes: usize, stream: CUstream) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAllocAsync(&raw mut address, bytes, stream));
    address
}

#[test]
fn wrong_calls_get_the_drivers_errors() {
    let null = std::ptr::null_mut::<CUdeviceptr>();
    fails!(NOT_INITIALIZED, cuMemAlloc_v2(null, 16));
    fails!(INVALID_VALUE, cuInit(1));
    ok!(cuInit(0));
    let mut address = 0;
    fails!(INVALID_CONTEXT, cuMemAlloc_v2(&raw mut address, 16));
    fails!(INVALID_VALUE, cuMemFree_v2(16));
    context(0);
    fails!(INVALID_VALUE, cuMemAlloc_v2(null, 16));
    fails!(INVALID_VALUE, cuMemAlloc_v2(&raw mut address, 0));
    fails!(OUT_OF_MEMORY, cuMemAlloc_v2(&raw mut address, 1 << 60));
    ok!(cuMemFree_v2(0));
    ok!(cuMemGetInfo_v2(std::ptr::null_mut(), std::ptr::null_mut()));
}

#[test]
fn free_takes_a_base_and_takes_it_once() {
    start(&[]);
    let (before, block) = (free_memory(), allocate(10_000));
    assert!(free_memory() < before);
    fails!(INVALID_VALUE, cuMemFree_v2(block + 8));
    ok!(cuMemFree_v2(block));
    fails!(INVALID_VALUE, cuMemFree_v2(block));
    assert_eq!(free_memory(), before);
}

#[test]
fn host_memory_is_freed_by_its_own_call() {
    start(&[]);
    let place = flag().cast::<c_void>();
    fails!(INVALID_VALUE, cuMemFree_v2(place as u64));
    let mut flags = 0;
    ok!(cuMemHostGetFlags(&raw mut flags, place));
    ok!(cuMemFreeHost(place));
    fails!(INVALID_VALUE, cuMemFreeHost(place));
}

#[test]
fn a_context_takes_its_plain_memory_along() {
    start(&[]);
    let before = free_memory();
    let mut own = CUcontext::NULL;
    ok!(cuCtxCreate_v2(&raw mut own, 0, 0));
    allocate(UNIT);
    let (range, _) = mapped(UNIT);
    ok!(cuCtxDestroy_v2(own));
    assert_eq!(free_memory(), before - UNIT);
    upload(range, &[1]);
}

#[test]
fn a_block_is_reused_at_once_in_its_own_stream_only() {
    start(&[]);
    let (go, own, other) = (flag(), stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let first = allocate_in(UNIT, own);
    hold(go, own);
    ok!(cuMemFreeAsync(first, own));
    fails!(INVALID_VALUE, cuMemFreeAsync(first, own));
    let elsewhere = allocate_in(UNIT, other);
    assert_ne!(elsewhere, first);
    assert_eq!(allocate_in(UNIT, own), first);
    set(go, 1);
    ok!(cuCtxSynchronize());
}

#[test]
fn a_block_is_reused_elsewhere_once_its_stream_has_passed() {
    start(&[]);
    let (own, other) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    set_attribute(pool(), FREE, u64::MAX);
    let first = allocate_in(UNIT, own);
    ok!(cuMemFreeAsync(first, own));
    ok!(cuStreamSynchronize(own));
    assert_eq!(allocate_in(UNIT, other), first);
}

#[test]
fn a_pool_counts_and_gives_back_at_synchronisation() {
    start(&[]);
    let (pool, before) = (pool(), free_memory());
    let block = allocate_in(UNIT, CUstream::NULL);
    assert_eq!(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), UNIT as u64);
    ok!(cuMemFreeAsync(block, CUstream::NULL));
    assert_eq!(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    ok!(cuStreamSynchronize(CUstream::NULL));
    assert_eq!((get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), free_memory()), (0, before));
    assert_eq!(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), UNIT as u64);
    set_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
    assert_eq!(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    set_attribute(pool, FREE, u64::MAX);
    let block = allocate_in(UNIT, CUstream::NULL);
    ok!(cuMemFreeAsync(block, CUstream::NULL));
    ok!(cuStreamSynchronize(CUstream::NULL));
    assert_eq!(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), UNIT as u64);
    ok!(cuMemPoolTrimTo(pool, 0));
    assert_eq!(free_memory(), before);
}

#[test]
fn what_a_pool_keeps_is_given_up_before_memory_runs_out() {
    start(&[("SIMCUDA_MEMORY", "4MiB")]);
    set_attribute(pool(), FREE, u64::MAX);
    let block = allocate_in(2 * UNIT, CUstream::NULL);
    ok!(cuMemFreeAsync(block, CUstream::NULL));
    ok!(cuCtxSynchronize());
    assert_eq!(free_memory(), 0);
    allocate(2 * UNIT);
}

#[test]
fn pointers_tell_what_they_are() {
    start(&[]);
    let ask = |address: CUdeviceptr, attribute: u32| {
        let mut value = 0_u64;
        ok!(cuPointerGetAttribute((&raw mut value).cast(), attribute, address));
        value
    };
    let (plain, host, pooled) = (allocate(100), flag() as u64, allocate_in(100, CUstream::NULL));
    assert_eq!(ask(plain + 50, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), plain);
    assert_eq!(ask(plain + 50, CU_POINTER_ATTRIBUTE_RANGE_SIZE), 100);
    assert_eq!(ask(plain, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), u64::from(CU_MEMORYTYPE_DEVICE));
    assert_eq!(ask(host, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), u64::from(CU_MEMORYTYPE_HOST));
    assert_eq!(ask(host, CU_POINTER_ATTRIBUTE_HOST_POINTER), host);
    assert_eq!(ask(pooled, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE), pool().0 as u64);
    assert_ne!(ask(plain, CU_POINTER_ATTRIBUTE_BUFFER_ID), ask(host, CU_POINTER_ATTRIBUTE_BUFFER_ID));
    let mut value = 0_u64;
    fails!(
        INVALID_VALUE,
        cuPointerGetAttribute((&raw mut value).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4096)
    );
    fails!(
        INVALID_VALUE,
        cuPointerGetAttribute((&raw mut value).cast(), CU_POINTER_ATTRIBUTE_HOST_POINTER, plain)
    );
    let (mut kind, mut context) = (9_u32, 9_usize);
    let mut wanted = [CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT];
    let mut places: [*mut c_void; 2] = [(&raw mut kind).cast(), (&raw mut context).cast()];
    ok!(cuPointerGetAttributes(2, wanted.as_mut_ptr(), places.as_mut_ptr(), 4096));
    assert_eq!((kind, context), (0, 0));
}

#[test]
fn the_chosen_call_fails_and_changes_nothing() {
    start(&[("SIMCUDA_FAIL", "cuMemCreate:2,cuMemAlloc:3+,cuMemUnmap:1")]);
    let before = free_memory();
    let (mut handle, wanted) = (0, properties(CU_MEM_LOCATION_TYPE_DEVICE, 0));
    ok!(cuMemCreate(&raw mut handle, UNIT, &raw const wanted, 0));
    fails!(OUT_OF_MEMORY, cuMemCreate(&raw mut handle, UNIT, &raw const wanted, 0));
    assert_eq!(free_memory(), before - UNIT);
    ok!(cuMemCreate(&raw mut handle, UNIT, &raw const wanted, 0));
    let mut address = 0;
    ok!(cuMemAlloc_v2(&raw mut address, 16));
    ok!(cuMemAlloc_v2(&raw mut address, 16));
    fails!(OUT_OF_MEMORY, cuMemAlloc_v2(&raw mut address, 16));
    fails!(OUT_OF_MEMORY, cuMemAlloc_v2(&raw mut address, 16));
    let range = reserve(UNIT);
    ok!(cuMemMap(range, UNIT, 0, handle, 0));
    fails!(UNKNOWN, cuMemUnmap(range, UNIT));
    ok!(cuMemUnmap(range, UNIT));
}

/// A pool may be destroyed while a free of its last block is still ahead in a stream.
#[test]
fn a_destroyed_pool_gives_back_what_was_in_flight() {
    start(&[]);
    let (stream, gate) = (stream(CU_STREAM_NON_BLOCKING), flag());
    // SAFETY: a structure of numbers and a pointer, for all of which zero is a value.
    let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    let (mut pool, mut block) = (CUmemoryPool::NULL, 0);
    ok!(cuMemPoolCreate(&raw mut pool, &raw const properties));
    ok!(cuMemAllocFromPoolAsync(&raw mut block, UNIT, pool, stream));
    hold(gate, stream);
    ok!(cuMemFreeAsync(block, stream));
    let held = free_memory();
    ok!(cuMemPoolDestroy(pool));
    fails!(INVALID_VALUE, cuMemPoolDestroy(pool));
    assert_eq!(free_memory(), held, "the stream has not reached the free");
    set(gate, 1);
    ok!(cuStreamSynchronize(stream));
    assert_eq!(free_memory(), held + UNIT);
}

#[test]
fn work_that_is_queued_outlives_a_smaller_block_in_its_place() {
    start(&[]);
    let (stream, gate) = (stream(CU_STREAM_NON_BLOCKING), flag());
    let large = allocate_in(64 << 10, stream);
    hold(gate, stream);
    ok!(cuMemsetD32Async(large, 7, (64 << 10) / 4, stream));
    ok!(cuMemFreeAsync(large, stream));
    assert_eq!(allocate_in(40 << 10, stream), large, "the stream's own order makes it safe");
    set(gate, 1);
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download(large, 1), [7]);
}
