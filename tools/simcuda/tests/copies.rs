//! Hazard (wrong result): a form of copy or memset moves the wrong bytes, or moves bytes where the
//! driver refuses the call.

mod common;

use std::ffi::c_void;

use common::*;

fn numbers(count: usize) -> Vec<u32> {
    (0..count as u32).collect()
}

fn zeroed<T>() -> T {
    // SAFETY: used for C structures of numbers and pointers only.
    unsafe { std::mem::zeroed() }
}

#[test]
fn unified_copies_find_out_what_an_address_is() {
    start(&[]);
    let (device, source, mut back) = (allocate(4096), numbers(1024), numbers(1024));
    ok!(cuMemcpy(device, source.as_ptr() as u64, 4096));
    back.fill(0);
    ok!(cuMemcpy(back.as_mut_ptr() as u64, device, 4096));
    assert_eq!(back, source);
}

#[test]
fn ranges_that_the_driver_does_not_know_are_refused() {
    start(&[]);
    let (block, mut word) = (allocate(4096), 0_u32);
    let here: *mut c_void = (&raw mut word).cast();
    fails!(INVALID_VALUE, cuMemcpyHtoD_v2(0x1234_0000, here, 4));
    fails!(INVALID_VALUE, cuMemcpyHtoD_v2(here as u64, here, 4));
    fails!(INVALID_VALUE, cuMemcpyDtoHAsync_v2(here, 0x1234_0000, 4, CUstream::NULL));
    fails!(INVALID_VALUE, cuMemcpyDtoH_v2(here, block + 4094, 4));
    fails!(INVALID_VALUE, cuMemsetD32_v2(block + 2, 0, 1));
    fails!(INVALID_VALUE, cuMemsetD8_v2(block, 0, 4097));
    ok!(cuMemcpyHtoD_v2(0, std::ptr::null(), 0));
    ok!(cuCtxSynchronize());
}

#[test]
fn a_small_pageable_source_may_be_reused_at_once() {
    start(&[]);
    let (go, busy, block) = (flag(), stream(CU_STREAM_NON_BLOCKING), allocate(16));
    hold(go, busy);
    let mut source = [1_u32, 2, 3, 4];
    ok!(cuMemcpyHtoDAsync_v2(block, source.as_ptr().cast(), 16, busy));
    source.fill(9);
    set(go, 1);
    ok!(cuStreamSynchronize(busy));
    assert_eq!(download(block, 4), [1, 2, 3, 4]);
    assert_eq!(source, [9; 4]);
}

#[test]
fn a_pinned_source_is_read_when_its_turn_comes() {
    start(&[]);
    let (go, busy, block, source) = (flag(), stream(CU_STREAM_NON_BLOCKING), allocate(4), flag());
    hold(go, busy);
    set(source, 1);
    ok!(cuMemcpyHtoDAsync_v2(block, source.cast(), 4, busy));
    set(source, 2);
    set(go, 1);
    ok!(cuStreamSynchronize(busy));
    assert_eq!(download(block, 1), [2]);
}

#[test]
fn memory_that_is_unmapped_under_a_copy_faults_the_context() {
    start(&[]);
    let (go, busy, source) = (flag(), stream(CU_STREAM_NON_BLOCKING), flag());
    let (range, _) = mapped(UNIT);
    hold(go, busy);
    ok!(cuMemcpyHtoDAsync_v2(range, source.cast(), 4, busy));
    ok!(cuMemUnmap(range, UNIT));
    set(go, 1);
    fails!(ILLEGAL_ADDRESS, cuStreamSynchronize(busy));
}

#[test]
fn two_dimensions() {
    start(&[]);
    let (mut device, mut pitch) = (0, 0);
    ok!(cuMemAllocPitch_v2(&raw mut device, &raw mut pitch, 20, 4, 4));
    assert_eq!(pitch % 512, 0);
    let source = numbers(20);
    let mut copy = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: source.as_ptr().cast(),
        srcPitch: 20,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: device,
        dstPitch: pitch,
        WidthInBytes: 20,
        Height: 4,
        ..zeroed()
    };
    ok!(cuMemcpy2D_v2(&raw const copy));
    assert_eq!(download(device + pitch as u64, 5), source[5..10]);
    // The right half of the last two rows.
    let mut back = [0_u32; 4];
    copy = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_UNIFIED,
        srcDevice: device,
        srcPitch: pitch,
        srcXInBytes: 12,
        srcY: 2,
        dstMemoryType: CU_MEMORYTYPE_HOST,
        dstHost: back.as_mut_ptr().cast(),
        dstPitch: 8,
        WidthInBytes: 8,
        Height: 2,
        ..zeroed()
    };
    ok!(cuMemcpy2DAsync_v2(&raw const copy, CUstream::NULL));
    assert_eq!(back, [13, 14, 18, 19]);
    copy.srcPitch = 4;
    fails!(INVALID_VALUE, cuMemcpy2D_v2(&raw const copy));
}

#[test]
fn three_dimensions() {
    start(&[]);
    let (device, source, mut back) = (allocate(4 * 60), numbers(60), [0_u32; 8]);
    upload(device, &source);
    // 5 x 4 x 3 words; the block from (1, 1, 1) of 2 x 2 x 2.
    let copy = CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: device,
        srcPitch: 20,
        srcHeight: 4,
        srcXInBytes: 4,
        srcY: 1,
        srcZ: 1,
        dstMemoryType: CU_MEMORYTYPE_HOST,
        dstHost: back.as_mut_ptr().cast(),
        dstPitch: 8,
        dstHeight: 2,
        WidthInBytes: 8,
        Height: 2,
        Depth: 2,
        ..zeroed()
    };
    ok!(cuMemcpy3D_v2(&raw const copy));
    assert_eq!(back, [26, 27, 31, 32, 46, 47, 51, 52]);
}

#[test]
fn peers_copy_without_access() {
    start(&[("SIMCUDA_DEVICES", "2")]);
    let (first, here) = (context(0), allocate(4096));
    let (second, there) = (context(1), allocate(4096));
    upload(there, &numbers(1024));
    ok!(cuMemcpyPeer(here, first, there, second, 4096));
    ok!(cuCtxSynchronize());
    ok!(cuCtxSetCurrent(first));
    assert_eq!(download(here, 1024), numbers(1024));
    let mut place = CUDA_MEMCPY3D_PEER {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: here,
        srcContext: first,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: there + 2048,
        dstContext: second,
        WidthInBytes: 2048,
        Height: 1,
        Depth: 1,
        ..zeroed()
    };
    ok!(cuMemcpy3DPeer(&raw const place));
    ok!(cuCtxSynchronize());
    assert_eq!(download(there + 2048, 512), numbers(512));
    place.dstContext = CUcontext(12345);
    fails!(INVALID_CONTEXT, cuMemcpy3DPeer(&raw const place));
}

#[test]
fn a_batch_starts_as_a_whole_or_not_at_all() {
    start(&[]);
    let (stream, block) = (stream(CU_STREAM_NON_BLOCKING), allocate(64));
    upload(block, &[0; 16]);
    let (words, mut sizes) = (numbers(16), [8_usize, 8]);
    let (mut to, mut from) = ([block, block + 64], [words.as_ptr() as u64 + 4, words.as_ptr() as u64]);
    let mut attributes = CUmemcpyAttributes { srcAccessOrder: 1, ..CUmemcpyAttributes::default() };
    let (mut first, mut failed) = (0_usize, 99_usize);
    fails!(
        INVALID_VALUE,
        cuMemcpyBatchAsync(
            to.as_mut_ptr(),
            from.as_mut_ptr(),
            sizes.as_mut_ptr(),
            2,
            &raw mut attributes,
            &raw mut first,
            1,
            &raw mut failed,
            stream,
        )
    );
    assert_eq!(failed, 1);
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download(block, 2), [0, 0]);
    to[1] = block + 32;
    ok!(cuMemcpyBatchAsync_v2(
        to.as_mut_ptr(),
        from.as_mut_ptr(),
        sizes.as_mut_ptr(),
        2,
        &raw mut attributes,
        &raw mut first,
        1,
        stream,
    ));
    ok!(cuStreamSynchronize(stream));
    assert_eq!((download(block, 2), download(block + 32, 2)), (vec![1, 2], vec![0, 1]));
}

#[test]
fn memsets_of_every_width() {
    start(&[]);
    let block = allocate(64);
    ok!(cuMemsetD32_v2(block, 0, 16));
    ok!(cuMemsetD8_v2(block, 0x11, 4));
    ok!(cuMemsetD16_v2(block + 4, 0x2222, 2));
    ok!(cuMemsetD32Async(block + 8, 0x3333_3333, 1, CUstream::NULL));
    ok!(cuMemsetD2D8_v2(block + 16, 8, 0x44, 4, 2));
    ok!(cuMemsetD2D16Async(block + 32, 8, 0x5555, 2, 2, CUstream::NULL));
    ok!(cuMemsetD2D32_v2(block + 48, 8, 0x6666_6666, 1, 2));
    let expected = [
        0x1111_1111,
        0x2222_2222,
        0x3333_3333,
        0,
        0x4444_4444,
        0,
        0x4444_4444,
        0,
        0x5555_5555,
        0,
        0x5555_5555,
        0,
        0x6666_6666,
        0,
        0x6666_6666,
        0,
    ];
    assert_eq!(download(block, 16), expected);
    fails!(INVALID_VALUE, cuMemsetD2D8_v2(block, 2, 0, 4, 2));
}

#[test]
fn a_limited_link_takes_its_time() {
    start(&[("SIMCUDA_LINKS", "pcie=100MB/s,nvlink=1GB/s")]);
    let block = allocate(2_000_000);
    let source = vec![1_u8; 2_000_000];
    let began = std::time::Instant::now();
    ok!(cuMemcpyHtoD_v2(block, source.as_ptr().cast(), source.len()));
    assert!(began.elapsed().as_secs_f64() >= 0.02);
}

#[test]
fn registered_memory_is_pinned_until_it_is_not() {
    start(&[]);
    let mut words = numbers(1024);
    let place: *mut c_void = words.as_mut_ptr().cast();
    fails!(HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(place));
    ok!(cuMemHostRegister_v2(place, 4096, 0));
    fails!(HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(place.wrapping_add(100), 4096, 0));
    let mut device = 0;
    ok!(cuMemHostGetDevicePointer_v2(&raw mut device, place, 0));
    assert_eq!(fill(device, 4, 77, CUstream::NULL), CUresult::SUCCESS);
    ok!(cuCtxSynchronize());
    assert_eq!(words[..5], [77, 77, 77, 77, 4]);
    ok!(cuMemHostUnregister(place));
    fails!(INVALID_VALUE, cuMemHostGetDevicePointer_v2(&raw mut device, place, 0));
    fails!(INVALID_VALUE, cuMemHostRegister_v2(16 as *mut c_void, 4096, 0));
}
