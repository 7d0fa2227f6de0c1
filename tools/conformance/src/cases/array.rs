//! Arrays: the driver's own memory, which no allocator can serve from mappings. The driver keeps
//! them, and every form of copy between them and served memory works.

use std::ptr::null_mut;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{Memory, Primary, Stream, alloc_async, pattern, read, synchronize, write};
use crate::{cu, must, supported};

const WIDTH: usize = 64;
const HEIGHT: usize = 16;
/// Words of 32 bits.
const PITCH: usize = WIDTH * 4;

/// An array of 32-bit words. A height or depth of 0 means none.
#[derive(Debug)]
pub(super) struct Array {
    driver: &'static Driver,
    pub(super) raw: CUarray,
}

impl Array {
    /// Skips the case if the driver has no arrays.
    pub(super) fn of_words(
        driver: &'static Driver,
        [width, height, depth]: [usize; 3],
        flags: u32,
    ) -> Verdict<Self> {
        let (mut raw, layout) = (CUarray::NULL, layout([width, height, depth], flags));
        supported!(driver, cuArray3DCreate_v2(&mut raw, &layout));
        Ok(Self { driver, raw })
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        let _ = cu!(self.driver, cuArrayDestroy(self.raw));
    }
}

fn layout([width, height, depth]: [usize; 3], flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: CU_AD_FORMAT_UNSIGNED_INT32,
        NumChannels: 1,
        Flags: flags,
    }
}

/// Bytes of a row go from memory to one array, to another, and back, by every call that names an
/// array and an offset.
pub(super) fn rows(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let (first, second) = (Array::of_words(d, [WIDTH, 0, 0], 0)?, Array::of_words(d, [WIDTH, 0, 0], 0)?);
    let (source, target) = (Memory::holding(d, &pattern(PITCH, 1))?, Memory::holding(d, &[0; PITCH])?);
    case.expect_ok("device to array", cu!(d, cuMemcpyDtoA_v2(first.raw, 0, source.address, PITCH)));
    case.expect_ok("array to array", cu!(d, cuMemcpyAtoA_v2(second.raw, 16, first.raw, 0, PITCH - 16)));
    case.expect_ok(
        "array to device",
        cu!(d, cuMemcpyAtoD_v2(target.address + 16, second.raw, 16, PITCH - 16)),
    );
    must!(d, cuCtxSynchronize());
    case.expect_that("bytes", target.read()?[16..] == pattern(PITCH, 1)[..PITCH - 16]);
    let (bytes, mut back) = (pattern(PITCH, 2), vec![0_u8; PITCH]);
    case.expect_ok("host to array", cu!(d, cuMemcpyHtoA_v2(first.raw, 0, bytes.as_ptr().cast(), PITCH)));
    case.expect_ok("array to host", cu!(d, cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), first.raw, 0, PITCH)));
    case.expect_that("bytes by the host", back == bytes);
    let bytes = pattern(PITCH, 3);
    let code = cu!(d, cuMemcpyHtoAAsync_v2(second.raw, 0, bytes.as_ptr().cast(), PITCH, stream.raw));
    case.expect_ok("host to array, asynchronous", code);
    let code = cu!(d, cuMemcpyAtoHAsync_v2(back.as_mut_ptr().cast(), second.raw, 0, PITCH, stream.raw));
    case.expect_ok("array to host, asynchronous", code);
    synchronize(d, stream.raw)?;
    case.expect_that("bytes, asynchronous", back == bytes);
    Ok(())
}

fn into_array(from: CUdeviceptr, pitch: usize, to: CUarray, height: usize) -> CUDA_MEMCPY2D {
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    let zero: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
    CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        srcPitch: pitch,
        dstMemoryType: CU_MEMORYTYPE_ARRAY,
        dstArray: to,
        WidthInBytes: PITCH,
        Height: height,
        ..zero
    }
}

fn out_of_array(copy: &CUDA_MEMCPY2D, to: CUdeviceptr) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_ARRAY,
        srcArray: copy.dstArray,
        dstMemoryType: CU_MEMORYTYPE_UNIFIED,
        dstDevice: to,
        dstPitch: copy.srcPitch,
        ..*copy
    }
}

/// Memory of each family of allocations goes through an array and comes back.
pub(super) fn planes_of_every_family(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let array = Array::of_words(d, [WIDTH, HEIGHT, 0], 0)?;
    let (mut pitched, mut pitch) = (0, 0);
    must!(d, cuMemAllocPitch_v2(&mut pitched, &mut pitch, PITCH, HEIGHT, 4));
    let ordered = alloc_async(d, PITCH * HEIGHT, stream.raw)?;
    let plain = Memory::new(d, PITCH * HEIGHT)?;
    synchronize(d, stream.raw)?;
    for (name, address, pitch) in
        [("plain", plain.address, PITCH), ("pitched", pitched, pitch), ("ordered", ordered, PITCH)]
    {
        let bytes = pattern(pitch * (HEIGHT - 1) + PITCH, pitch as u64);
        write(d, address, &bytes)?;
        let copy = into_array(address, pitch, array.raw, HEIGHT);
        case.expect_ok(&format!("{name}: in"), cu!(d, cuMemcpy2D_v2(&copy)));
        must!(d, cuMemsetD8_v2(address, 0, bytes.len()));
        must!(d, cuCtxSynchronize());
        let back = out_of_array(&copy, address);
        case.expect_ok(&format!("{name}: out"), cu!(d, cuMemcpy2DAsync_v2(&back, stream.raw)));
        synchronize(d, stream.raw)?;
        let same =
            |row: usize| Ok(read(d, address + (row * pitch) as u64, PITCH)? == bytes[row * pitch..][..PITCH]);
        let same = (0..HEIGHT).map(same).collect::<Verdict<Vec<bool>>>()?;
        case.expect_that(&format!("{name}: bytes"), same.iter().all(|same| *same));
    }
    case.expect_ok("free of pitched", cu!(d, cuMemFree_v2(pitched)));
    case.expect_ok("free of ordered", cu!(d, cuMemFreeAsync(ordered, stream.raw)));
    Ok(())
}

/// Three-dimensional and layered arrays.
pub(super) fn volumes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let bytes = pattern(PITCH * HEIGHT * 4, 5);
    for (name, flags) in [("depth", 0), ("layers", CUDA_ARRAY3D_LAYERED)] {
        let array = Array::of_words(d, [WIDTH, HEIGHT, 4], flags)?;
        let (source, target) = (Memory::holding(d, &bytes)?, Memory::holding(d, &vec![0; bytes.len()])?);
        // SAFETY: numbers, null handles and null pointers are all zeroes.
        let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, source.address);
        (copy.srcPitch, copy.srcHeight) = (PITCH, HEIGHT);
        (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, array.raw);
        (copy.WidthInBytes, copy.Height, copy.Depth) = (PITCH, HEIGHT, 4);
        case.expect_ok(&format!("{name}: in"), cu!(d, cuMemcpy3D_v2(&copy)));
        (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, array.raw);
        (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, target.address);
        (copy.dstPitch, copy.dstHeight) = (PITCH, HEIGHT);
        case.expect_ok(&format!("{name}: out"), cu!(d, cuMemcpy3D_v2(&copy)));
        must!(d, cuCtxSynchronize());
        case.expect_that(&format!("{name}: bytes"), target.read()? == bytes);
        let mut answered = CUDA_ARRAY3D_DESCRIPTOR::default();
        must!(d, cuArray3DGetDescriptor_v2(&mut answered, array.raw));
        case.expect_that(&format!("{name}: its descriptor"), answered == layout([WIDTH, HEIGHT, 4], flags));
    }
    Ok(())
}

pub(super) fn levels(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (mut mipmapped, layout) = (CUmipmappedArray::NULL, layout([WIDTH, HEIGHT, 0], 0));
    supported!(d, cuMipmappedArrayCreate(&mut mipmapped, &layout, 3));
    let (mut level, mut answered) = (CUarray::NULL, CUDA_ARRAY_DESCRIPTOR::default());
    case.expect_ok("level 2", cu!(d, cuMipmappedArrayGetLevel(&mut level, mipmapped, 2)));
    must!(d, cuArrayGetDescriptor_v2(&mut answered, level));
    case.expect_eq("its size", vec![answered.Width, answered.Height], vec![WIDTH / 4, HEIGHT / 4]);
    let (source, mut back) = (Memory::holding(d, &pattern(PITCH / 4, 6))?, vec![0_u8; PITCH / 4]);
    let copy = into_array(source.address, PITCH / 4, level, 1);
    let copy = CUDA_MEMCPY2D { WidthInBytes: PITCH / 4, ..copy };
    case.expect_ok("device to level", cu!(d, cuMemcpy2D_v2(&copy)));
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    let mut out: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
    (out.srcMemoryType, out.srcArray) = (CU_MEMORYTYPE_ARRAY, level);
    (out.dstMemoryType, out.dstHost) = (CU_MEMORYTYPE_HOST, back.as_mut_ptr().cast());
    (out.WidthInBytes, out.Height) = (PITCH / 4, 1);
    case.expect_ok("level to host", cu!(d, cuMemcpy2D_v2(&out)));
    case.expect_that("bytes", back == pattern(PITCH / 4, 6));
    case.code("level 3 of 3", cu!(d, cuMipmappedArrayGetLevel(&mut level, mipmapped, 3)));
    case.expect_ok("destroy", cu!(d, cuMipmappedArrayDestroy(mipmapped)));
    Ok(())
}

pub(super) fn arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let array = Array::of_words(d, [WIDTH, HEIGHT, 0], 0)?;
    let wrong = CUresult::INVALID_VALUE;
    let mut raw = CUarray::NULL;
    let mut create = |layout| cu!(d, cuArray3DCreate_v2(&mut raw, &layout));
    case.expect_code("width 0", create(layout([0, 4, 0], 0)), wrong);
    let three = CUDA_ARRAY3D_DESCRIPTOR { NumChannels: 3, ..layout([4, 4, 0], 0) };
    case.expect_code("three channels", create(three), wrong);
    let strange = CUDA_ARRAY3D_DESCRIPTOR { Format: 999, ..layout([4, 4, 0], 0) };
    case.expect_code("format 999", create(strange), wrong);
    case.expect_code("null", cu!(d, cuArray3DCreate_v2(null_mut(), &layout([4, 4, 0], 0))), wrong);
    let memory = Memory::new(d, PITCH * HEIGHT)?;
    let copy = into_array(memory.address, PITCH, array.raw, HEIGHT + 1);
    case.expect_code("more rows than there are", cu!(d, cuMemcpy2D_v2(&copy)), wrong);
    let copy = CUDA_MEMCPY2D { dstXInBytes: 4, ..into_array(memory.address, PITCH, array.raw, 1) };
    case.expect_code("past the end of a row", cu!(d, cuMemcpy2D_v2(&copy)), wrong);
    case.expect_ok("the context lives on", cu!(d, cuCtxSynchronize()));
    Ok(())
}
