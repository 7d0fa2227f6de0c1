//! Textures over addresses: objects store the address that they were made over. So memory must stay
//! in place, have the alignment of textures, and be readable through the texture units, for every
//! family.

use std::ptr::null;

use wm_abi::*;

use super::array::Array;
use crate::case::{Case, Halt, Verdict};
use crate::driver::Driver;
use crate::fixture::{Kernels, Memory, Primary, Stream, alloc_async, pattern, read, synchronize, write};
use crate::{cu, must, supported};

const WORDS: usize = 4096;
const BYTES: usize = WORDS * 4;

/// Words of a row of memory.
pub(super) fn linear(address: CUdeviceptr, bytes: usize) -> CUDA_RESOURCE_DESC {
    let linear = CUresourceLinear {
        devPtr: address,
        format: CU_AD_FORMAT_UNSIGNED_INT32,
        numChannels: 1,
        sizeInBytes: bytes,
    };
    CUDA_RESOURCE_DESC { res: CUresource { linear }, ..CUDA_RESOURCE_DESC::empty(CU_RESOURCE_TYPE_LINEAR) }
}

fn rows(address: CUdeviceptr, width: usize, height: usize, pitch: usize) -> CUDA_RESOURCE_DESC {
    let plane = CUresourcePitch2D {
        devPtr: address,
        format: CU_AD_FORMAT_UNSIGNED_INT32,
        numChannels: 1,
        width,
        height,
        pitchInBytes: pitch,
    };
    CUDA_RESOURCE_DESC {
        res: CUresource { pitch2D: plane },
        ..CUDA_RESOURCE_DESC::empty(CU_RESOURCE_TYPE_PITCH2D)
    }
}

fn of_array(array: CUarray) -> CUDA_RESOURCE_DESC {
    CUDA_RESOURCE_DESC { res: CUresource { array }, ..CUDA_RESOURCE_DESC::empty(CU_RESOURCE_TYPE_ARRAY) }
}

/// Unfiltered, clamped, by element.
fn plainly() -> CUDA_TEXTURE_DESC {
    let clamped = [CU_TR_ADDRESS_MODE_CLAMP; 3];
    CUDA_TEXTURE_DESC { addressMode: clamped, flags: CU_TRSF_READ_AS_INTEGER, ..CUDA_TEXTURE_DESC::default() }
}

fn create(driver: &'static Driver, over: &CUDA_RESOURCE_DESC) -> (CUresult, u64) {
    let (mut object, reading) = (0, plainly());
    let (over, reading) = (std::ptr::from_ref(over).cast(), (&raw const reading).cast());
    (cu!(driver, cuTexObjectCreate(&mut object, over, reading, null())), object)
}

/// A texture; if the driver has none, the case is skipped.
fn texture(driver: &'static Driver, over: &CUDA_RESOURCE_DESC) -> Verdict<u64> {
    match create(driver, over) {
        (CUresult::SUCCESS, object) => Ok(object),
        (CUresult::NOT_SUPPORTED, _) => Err(Halt::Skipped("needs cuTexObjectCreate".into())),
        (code, _) => Err(Halt::Failed(format!("cuTexObjectCreate returned {code}"))),
    }
}

/// The words that a kernel reads through a linear texture.
fn texels(driver: &'static Driver, kernels: &Kernels, object: u64) -> Verdict<Vec<u8>> {
    let out = Memory::new(driver, BYTES)?;
    kernels.launch(c"wm_texels_u32", CUstream::NULL, &[out.address, object, WORDS as u64])?;
    must!(driver, cuCtxSynchronize());
    out.read()
}

/// Memory of each family, read through a texture while neighbours are allocated and freed.
pub(super) fn linear_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, stream) = (Kernels::load(d)?, Stream::non_blocking(d)?);
    let (large, small) = (Memory::new(d, 4 << 20)?, Memory::new(d, BYTES)?);
    let ordered = alloc_async(d, BYTES, stream.raw)?;
    synchronize(d, stream.raw)?;
    let inside = large.address + (2 << 20) + 512;
    for (seed, (name, address)) in
        [("large", large.address), ("inside", inside), ("small", small.address), ("ordered", ordered)]
            .into_iter()
            .enumerate()
    {
        write(d, address, &pattern(BYTES, seed as u64))?;
        let object = texture(d, &linear(address, BYTES))?;
        case.expect_that(
            &format!("{name}: texels"),
            texels(d, &kernels, object)? == pattern(BYTES, seed as u64),
        );
        let neighbours = (0..8).map(|_| Memory::new(d, 3 << 20)).collect::<Verdict<Vec<_>>>()?;
        drop(neighbours);
        write(d, address, &pattern(BYTES, 100 + seed as u64))?;
        let later = texels(d, &kernels, object)?;
        case.expect_that(&format!("{name}: texels later"), later == pattern(BYTES, 100 + seed as u64));
        case.expect_ok(&format!("{name}: destroy"), cu!(d, cuTexObjectDestroy(object)));
    }
    must!(d, cuMemFreeAsync(ordered, stream.raw));
    Ok(())
}

/// Rows of `cuMemAllocPitch`, whose pitch fits textures.
pub(super) fn pitched_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let kernels = Kernels::load(d)?;
    let (width, height) = (100, 40);
    let (mut address, mut pitch) = (0, 0);
    must!(d, cuMemAllocPitch_v2(&mut address, &mut pitch, width * 4, height, 4));
    let bytes = pattern(pitch * height, 9);
    write(d, address, &bytes)?;
    let object = texture(d, &rows(address, width, height, pitch))?;
    let out = Memory::new(d, width * height * 4)?;
    let arguments = [out.address, object, width as u64, height as u64];
    kernels.launch(c"wm_texels_2d_u32", CUstream::NULL, &arguments)?;
    must!(d, cuCtxSynchronize());
    let wanted: Vec<u8> = bytes.chunks(pitch).flat_map(|row| &row[..width * 4]).copied().collect();
    case.expect_that("texels", out.read()? == wanted);
    must!(d, cuTexObjectDestroy(object));
    must!(d, cuMemFree_v2(address));
    Ok(())
}

/// An array's words through a texture: the array is the driver's, the kernel's output may be
/// served.
pub(super) fn array_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, array) = (Kernels::load(d)?, Array::of_words(d, [64, 16, 0], 0)?);
    let source = Memory::holding(d, &pattern(64 * 16 * 4, 3))?;
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    let mut copy: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
    (copy.srcMemoryType, copy.srcDevice, copy.srcPitch) = (CU_MEMORYTYPE_DEVICE, source.address, 256);
    (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, array.raw);
    (copy.WidthInBytes, copy.Height) = (256, 16);
    must!(d, cuMemcpy2D_v2(&copy));
    let object = texture(d, &of_array(array.raw))?;
    let out = Memory::new(d, 64 * 16 * 4)?;
    kernels.launch(c"wm_texels_2d_u32", CUstream::NULL, &[out.address, object, 64, 16])?;
    must!(d, cuCtxSynchronize());
    case.expect_that("texels", out.read()? == pattern(64 * 16 * 4, 3));
    must!(d, cuTexObjectDestroy(object));
    Ok(())
}

pub(super) fn descriptions(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::new(d, BYTES)?;
    let over = linear(memory.address, BYTES);
    let object = texture(d, &over)?;
    let (mut resource, mut reading) = (CUDA_RESOURCE_DESC::empty(999), CUDA_TEXTURE_DESC::default());
    must!(d, cuTexObjectGetResourceDesc((&raw mut resource).cast(), object));
    must!(d, cuTexObjectGetTextureDesc((&raw mut reading).cast(), object));
    // SAFETY: the kind was checked first; every pattern is valid for this part anyway.
    let same = resource.resType == over.resType && unsafe { resource.res.linear == over.res.linear };
    case.expect_that("its memory comes back", same);
    case.expect_that("its reading comes back", reading.flags == plainly().flags);
    must!(d, cuTexObjectDestroy(object));
    case.code("over address 0", create(d, &linear(0, BYTES)).0);
    case.code("over a misaligned address", create(d, &linear(memory.address + 4, 64)).0);
    let strange = CUDA_RESOURCE_DESC::empty(77);
    case.expect_code("over nothing known", create(d, &strange).0, CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn surfaces(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let array = Array::of_words(d, [64, 16, 0], CUDA_ARRAY3D_SURFACE_LDST)?;
    let (over, mut object) = (of_array(array.raw), 0);
    supported!(d, cuSurfObjectCreate(&mut object, (&raw const over).cast()));
    let mut told = CUDA_RESOURCE_DESC::empty(999);
    case.expect_ok("ask", cu!(d, cuSurfObjectGetResourceDesc((&raw mut told).cast(), object)));
    // SAFETY: every pattern is valid for every part of the union.
    case.expect_that("its array comes back", unsafe { told.res.array } == array.raw);
    case.expect_ok("destroy", cu!(d, cuSurfObjectDestroy(object)));
    let (memory, mut none) = (Memory::new(d, BYTES)?, 0);
    let over = linear(memory.address, BYTES);
    let code = cu!(d, cuSurfObjectCreate(&mut none, (&raw const over).cast()));
    case.expect_code("over linear memory", code, CUresult::INVALID_VALUE);
    Ok(())
}

/// The older way: a reference that is bound to an address. A query returns the address, without a
/// kernel.
pub(super) fn references(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::new(d, BYTES)?;
    let (mut reference, mut offset, mut answered) = (CUtexref::NULL, 0, 0);
    supported!(d, cuTexRefCreate(&mut reference));
    case.expect_ok("format", cu!(d, cuTexRefSetFormat(reference, CU_AD_FORMAT_UNSIGNED_INT32, 1)));
    let code = cu!(d, cuTexRefSetAddress_v2(&mut offset, reference, memory.address, BYTES));
    case.expect_ok("address", code);
    case.expect_eq("offset", offset as u64, 0);
    must!(d, cuTexRefGetAddress_v2(&mut answered, reference));
    case.expect_that("the address comes back", answered == memory.address);
    let layout =
        CUDA_ARRAY_DESCRIPTOR { Width: 64, Height: 16, Format: CU_AD_FORMAT_UNSIGNED_INT32, NumChannels: 1 };
    let code = cu!(d, cuTexRefSetAddress2D_v3(reference, &layout, memory.address, 256));
    case.expect_ok("rows", code);
    case.expect_ok("destroy", cu!(d, cuTexRefDestroy(reference)));
    // The bytes are unchanged: a reference only reads.
    write(d, memory.address, &pattern(64, 1))?;
    case.expect_that("the memory lives on", read(d, memory.address, 64)? == pattern(64, 1));
    Ok(())
}

/// A map of a tile for the copy engines of newer GPUs: it contains an address too, and is made on
/// the host.
pub(super) fn tensor_maps(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::new(d, 1 << 20)?;
    let (sizes, strides, tile, steps) = ([256_u64, 256], [1024_u64], [64_u32, 16], [1_u32, 1]);
    let encode = |address: CUdeviceptr| {
        #[repr(align(64))]
        struct Map([u64; 16]);
        let mut map = Map([0; 16]);
        let out = map.0.as_mut_ptr().cast();
        // CU_TENSOR_MAP_DATA_TYPE_UINT32, two dimensions; no interleave, swizzle, promotion or
        // fill.
        let (sizes, strides, tile, steps) = (sizes.as_ptr(), strides.as_ptr(), tile.as_ptr(), steps.as_ptr());
        cu!(d, cuTensorMapEncodeTiled(out, 2, 2, address as *mut _, sizes, strides, tile, steps, 0, 0, 0, 0))
    };
    match encode(memory.address) {
        CUresult::NOT_SUPPORTED => return Err(Halt::Skipped("needs cuTensorMapEncodeTiled".into())),
        code => case.expect_ok("a tile of memory", code),
    }
    case.expect_code("a misaligned tile", encode(memory.address + 4), CUresult::INVALID_VALUE);
    Ok(())
}
