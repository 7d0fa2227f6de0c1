//! Copies in two and three dimensions: pitches, origins, memory types, arrays.
//!
//! Each copy is compared with the same copy done byte by byte on the host, background bytes
//! included.

use std::ptr::{null, null_mut};

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::fixture::{Memory, Primary, Stream, pattern, synchronize};
use crate::{cu, must, supported};

const BACKGROUND: u8 = 0xEE;

fn plane() -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: null(),
        srcDevice: 0,
        srcArray: CUarray::NULL,
        srcPitch: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstHost: null_mut(),
        dstDevice: 0,
        dstArray: CUarray::NULL,
        dstPitch: 0,
        WidthInBytes: 0,
        Height: 0,
    }
}

fn volume() -> CUDA_MEMCPY3D {
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    unsafe { std::mem::zeroed() }
}

/// 20 rows of 30 bytes, from row 2 and column 5 of pitch 100 to row 1 and column 7 of pitch 64.
const ROWS: usize = 20;
const WIDTH: usize = 30;
const FROM_PITCH: usize = 100;
const TO_PITCH: usize = 64;

fn inner(mut copy: CUDA_MEMCPY2D) -> CUDA_MEMCPY2D {
    (copy.srcXInBytes, copy.srcY, copy.srcPitch) = (5, 2, FROM_PITCH);
    (copy.dstXInBytes, copy.dstY, copy.dstPitch) = (7, 1, TO_PITCH);
    (copy.WidthInBytes, copy.Height) = (WIDTH, ROWS);
    copy
}

fn expected_plane(source: &[u8]) -> Vec<u8> {
    let mut target = vec![BACKGROUND; TO_PITCH * 24];
    for row in 0..ROWS {
        let (from, to) = ((row + 2) * FROM_PITCH + 5, (row + 1) * TO_PITCH + 7);
        target[to..to + WIDTH].copy_from_slice(&source[from..from + WIDTH]);
    }
    target
}

pub(super) fn planes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let source = pattern(FROM_PITCH * 24, 1);
    let (there, target) = (Memory::holding(d, &source)?, Memory::new(d, TO_PITCH * 24)?);
    let unified = CU_MEMORYTYPE_UNIFIED;
    for (name, from_host, type_) in [
        ("host", true, CU_MEMORYTYPE_HOST),
        ("device", false, CU_MEMORYTYPE_DEVICE),
        ("unified host", true, unified),
        ("unified device", false, unified),
    ] {
        must!(d, cuMemsetD8_v2(target.address, BACKGROUND, target.bytes));
        let mut copy = inner(plane());
        copy.srcMemoryType = type_;
        copy.srcHost = source.as_ptr().cast();
        copy.srcDevice = if from_host { source.as_ptr() as u64 } else { there.address };
        copy.dstDevice = target.address;
        case.expect_ok(&format!("{name}: copy"), cu!(d, cuMemcpy2D_v2(&copy)));
        must!(d, cuCtxSynchronize());
        case.expect_that(&format!("{name}: bytes"), target.read()? == expected_plane(&source));
    }
    Ok(())
}

pub(super) fn planes_to_host(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let source = pattern(FROM_PITCH * 24, 2);
    let there = Memory::holding(d, &source)?;
    let mut copy = inner(plane());
    (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, there.address);
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    for form in ["aligned", "unaligned", "asynchronous", "per thread"] {
        let mut target = vec![BACKGROUND; TO_PITCH * 24];
        copy.dstHost = target.as_mut_ptr().cast();
        let code = match form {
            "aligned" => cu!(d, cuMemcpy2D_v2(&copy)),
            "unaligned" => cu!(d, cuMemcpy2DUnaligned_v2(&copy)),
            "asynchronous" => cu!(d, cuMemcpy2DAsync_v2(&copy, stream.raw)),
            _ => cu!(d, cuMemcpy2DAsync_v2_ptsz(&copy, CUstream::NULL)),
        };
        case.expect_ok(form, code);
        synchronize(d, stream.raw)?;
        must!(d, cuCtxSynchronize());
        case.expect_that(&format!("{form}: bytes"), target == expected_plane(&source));
    }
    Ok(())
}

pub(super) fn plane_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let bytes = pattern(4096, 3);
    let target = Memory::new(d, 4096)?;
    let mut good = plane();
    (good.srcHost, good.srcPitch) = (bytes.as_ptr().cast(), 64);
    (good.dstDevice, good.dstPitch) = (target.address, 64);
    (good.WidthInBytes, good.Height) = (64, 64);
    let wrong = CUresult::INVALID_VALUE;
    case.expect_ok("good", cu!(d, cuMemcpy2D_v2(&good)));
    case.expect_code("null", cu!(d, cuMemcpy2D_v2(null())), wrong);
    let copy = CUDA_MEMCPY2D { srcPitch: 32, ..good };
    case.expect_code("pitch below width", cu!(d, cuMemcpy2D_v2(&copy)), wrong);
    let copy = CUDA_MEMCPY2D { srcMemoryType: 77, ..good };
    case.expect_code("memory type 77", cu!(d, cuMemcpy2D_v2(&copy)), wrong);
    let copy = CUDA_MEMCPY2D { Height: 0, ..good };
    case.expect_ok("height 0", cu!(d, cuMemcpy2D_v2(&copy)));
    let copy = CUDA_MEMCPY2D { WidthInBytes: 0, ..good };
    case.expect_ok("width 0", cu!(d, cuMemcpy2D_v2(&copy)));
    let copy = CUDA_MEMCPY2D { dstDevice: 8, ..good };
    case.expect_code("to address 8", cu!(d, cuMemcpy2D_v2(&copy)), wrong);
    Ok(())
}

/// 3 slices of 4 rows of 10 bytes out of a volume of pitch 16 and height 8, into one of pitch 12
/// and height 5.
fn brick(mut copy: CUDA_MEMCPY3D) -> CUDA_MEMCPY3D {
    (copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcPitch, copy.srcHeight) = (3, 2, 1, 16, 8);
    (copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstPitch, copy.dstHeight) = (1, 1, 2, 12, 5);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (10, 4, 3);
    copy
}

fn expected_volume(source: &[u8]) -> Vec<u8> {
    let mut target = vec![BACKGROUND; 12 * 5 * 6];
    for slice in 0..3 {
        for row in 0..4 {
            let from = ((slice + 1) * 8 + row + 2) * 16 + 3;
            let to = ((slice + 2) * 5 + row + 1) * 12 + 1;
            target[to..to + 10].copy_from_slice(&source[from..from + 10]);
        }
    }
    target
}

pub(super) fn volumes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let source = pattern(16 * 8 * 5, 4);
    let there = Memory::holding(d, &source)?;
    let target = Memory::new(d, 12 * 5 * 6)?;
    for form in ["host to device", "device to device", "asynchronous", "per thread"] {
        must!(d, cuMemsetD8_v2(target.address, BACKGROUND, target.bytes));
        must!(d, cuCtxSynchronize());
        let mut copy = brick(volume());
        (copy.srcMemoryType, copy.srcHost) = (CU_MEMORYTYPE_HOST, source.as_ptr().cast());
        if form != "host to device" {
            (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, there.address);
        }
        (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, target.address);
        let code = match form {
            "asynchronous" => cu!(d, cuMemcpy3DAsync_v2(&copy, stream.raw)),
            "per thread" => cu!(d, cuMemcpy3D_v2_ptds(&copy)),
            _ => cu!(d, cuMemcpy3D_v2(&copy)),
        };
        case.expect_ok(form, code);
        must!(d, cuCtxSynchronize());
        case.expect_that(&format!("{form}: bytes"), target.read()? == expected_volume(&source));
    }
    Ok(())
}

pub(super) fn volume_to_host(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let source = pattern(16 * 8 * 5, 5);
    let there = Memory::holding(d, &source)?;
    let mut target = vec![BACKGROUND; 12 * 5 * 6];
    let mut copy = brick(volume());
    (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_UNIFIED, there.address);
    (copy.dstMemoryType, copy.dstHost) = (CU_MEMORYTYPE_HOST, target.as_mut_ptr().cast());
    case.expect_ok("copy", cu!(d, cuMemcpy3D_v2(&copy)));
    case.expect_that("bytes", target == expected_volume(&source));
    let wrong = CUDA_MEMCPY3D { srcHeight: 3, ..copy };
    case.code("height below the copy's", cu!(d, cuMemcpy3D_v2(&wrong)));
    let wrong = CUDA_MEMCPY3D { srcPitch: 5, ..copy };
    case.expect_code("pitch below width", cu!(d, cuMemcpy3D_v2(&wrong)), CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn volume_between_contexts(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let source = pattern(16 * 8 * 5, 6);
    let (there, target) = (Memory::holding(d, &source)?, Memory::holding(d, &[BACKGROUND; 12 * 5 * 6])?);
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    let mut copy: CUDA_MEMCPY3D_PEER = unsafe { std::mem::zeroed() };
    (copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcPitch, copy.srcHeight) = (3, 2, 1, 16, 8);
    (copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstPitch, copy.dstHeight) = (1, 1, 2, 12, 5);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (10, 4, 3);
    (copy.srcMemoryType, copy.srcDevice, copy.srcContext) =
        (CU_MEMORYTYPE_DEVICE, there.address, primary.context);
    (copy.dstMemoryType, copy.dstDevice, copy.dstContext) =
        (CU_MEMORYTYPE_DEVICE, target.address, primary.context);
    case.expect_ok("copy", cu!(d, cuMemcpy3DPeer(&copy)));
    must!(d, cuCtxSynchronize());
    case.expect_that("bytes", target.read()? == expected_volume(&source));
    Ok(())
}

pub(super) fn arrays(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let layout =
        CUDA_ARRAY_DESCRIPTOR { Width: 64, Height: 16, Format: CU_AD_FORMAT_UNSIGNED_INT8, NumChannels: 4 };
    let mut array = CUarray::NULL;
    supported!(d, cuArrayCreate_v2(&mut array, &layout));
    let (source, mut back) = (pattern(64 * 4 * 16, 7), vec![0_u8; 64 * 4 * 16]);
    let mut copy = plane();
    (copy.WidthInBytes, copy.Height) = (256, 16);
    (copy.srcHost, copy.srcPitch) = (source.as_ptr().cast(), 256);
    (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, array);
    case.expect_ok("host to array", cu!(d, cuMemcpy2D_v2(&copy)));
    (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, array);
    (copy.dstMemoryType, copy.dstHost, copy.dstPitch) = (CU_MEMORYTYPE_HOST, back.as_mut_ptr().cast(), 256);
    case.expect_ok("array to host", cu!(d, cuMemcpy2D_v2(&copy)));
    case.expect_that("bytes", back == source);
    let mut answered = CUDA_ARRAY_DESCRIPTOR::default();
    must!(d, cuArrayGetDescriptor_v2(&mut answered, array));
    case.expect_that("its descriptor comes back", answered == layout);
    case.expect_ok("destroy", cu!(d, cuArrayDestroy(array)));
    Ok(())
}
