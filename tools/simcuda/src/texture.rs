//! Texture and surface objects: memory that kernels read through an object and not through an
//! address.
//!
//! A texture object's handle is the address of a small record, which kernels compiled for the CPU
//! read (`wm::Texture` in `kernels/cuda/device.cuh`). They read single 32-bit words without
//! filtering, so only such textures can be made here; other ones are `NOT_SUPPORTED`. A record is
//! never freed: work in flight may still read through a destroyed object, as on a device.

use std::sync::{MutexGuard, PoisonError};

use wm_abi::*;

use crate::array::{Array, element};
use crate::attributes::attribute;
use crate::context::Context;
use crate::entry::{Outcome, exports, get, put, require};
use crate::state::driver;

/// A kernel's view of a texture: rows of words.
#[repr(C)]
struct Texels {
    base: u64,
    pitch: u64,
    width: u64,
    height: u64,
}

/// The parameters of a texture, for its queries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Texture {
    resource: CUDA_RESOURCE_DESC,
    reading: CUDA_TEXTURE_DESC,
}

/// A surface object. No kernel here uses one.
#[derive(Debug)]
pub(crate) struct Surface {
    resource: CUDA_RESOURCE_DESC,
}

fn textures() -> MutexGuard<'static, std::collections::HashMap<u64, Texture>> {
    driver().textures.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One channel of 32 bits: the only format that kernels read.
fn check_words(format: u32, channels: u32) -> Outcome {
    require(element(format, channels)? == 4 && channels == 1, CUresult::NOT_SUPPORTED)
}

fn check_reading(reading: &CUDA_TEXTURE_DESC) -> Outcome {
    let plain = reading.flags & !CU_TRSF_READ_AS_INTEGER == 0;
    require(plain && reading.filterMode == CU_TR_FILTER_MODE_POINT, CUresult::NOT_SUPPORTED)
}

fn check_address(context: &Context, address: u64) -> Outcome {
    let alignment = attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, context.device)?;
    require(address.is_multiple_of(alignment as u64), CUresult::INVALID_VALUE)?;
    require(driver().memory().place(address).is_some(), CUresult::INVALID_VALUE)
}

fn texels(context: &Context, resource: &CUDA_RESOURCE_DESC) -> Outcome<Texels> {
    // SAFETY: every pattern is valid for every part of the union.
    let (array, linear, rows) = unsafe { (resource.res.array, resource.res.linear, resource.res.pitch2D) };
    match resource.resType {
        CU_RESOURCE_TYPE_ARRAY => of_array(&*Array::of(array)?),
        CU_RESOURCE_TYPE_LINEAR => {
            check_address(context, linear.devPtr)?;
            check_words(linear.format, linear.numChannels)?;
            let bytes = linear.sizeInBytes as u64;
            Ok(Texels { base: linear.devPtr, pitch: bytes, width: bytes / 4, height: 1 })
        }
        CU_RESOURCE_TYPE_PITCH2D => {
            check_address(context, rows.devPtr)?;
            check_words(rows.format, rows.numChannels)?;
            let (width, height) = (rows.width as u64, rows.height as u64);
            require(rows.pitchInBytes as u64 >= width * 4, CUresult::INVALID_VALUE)?;
            Ok(Texels { base: rows.devPtr, pitch: rows.pitchInBytes as u64, width, height })
        }
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => Err(CUresult::NOT_SUPPORTED),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn of_array(array: &Array) -> Outcome<Texels> {
    check_words(array.layout.Format, array.layout.NumChannels)?;
    let (width, height) = (array.layout.Width as u64, array.rows() as u64);
    Ok(Texels { base: array.address, pitch: array.pitch as u64, width, height })
}

fn surface(resource: CUDA_RESOURCE_DESC) -> Outcome<u64> {
    require(resource.resType == CU_RESOURCE_TYPE_ARRAY, CUresult::INVALID_VALUE)?;
    // SAFETY: every pattern is valid for every part of the union.
    let array = Array::of(unsafe { resource.res.array })?;
    require(array.layout.Flags & CUDA_ARRAY3D_SURFACE_LDST != 0, CUresult::INVALID_VALUE)?;
    Ok(driver().surfaces.insert(|_| Surface { resource }).0 as u64)
}

fn known(object: u64) -> Outcome<Texture> {
    textures().get(&object).copied().ok_or(CUresult::INVALID_VALUE)
}

exports! {
    fn cuTexObjectCreate(pTexObject: *mut u64, pResDesc: *const std::ffi::c_void, pTexDesc: *const std::ffi::c_void, pResViewDesc: *const std::ffi::c_void) |call| {
        let context = call.context()?;
        require(!pTexObject.is_null(), CUresult::INVALID_VALUE)?;
        require(pResViewDesc.is_null(), CUresult::NOT_SUPPORTED)?;
        let resource = get(pResDesc.cast::<CUDA_RESOURCE_DESC>())?;
        let reading = get(pTexDesc.cast::<CUDA_TEXTURE_DESC>())?;
        check_reading(&reading)?;
        let object = std::ptr::from_ref(Box::leak(Box::new(texels(&context, &resource)?))) as u64;
        textures().insert(object, Texture { resource, reading });
        put(pTexObject, object)
    }

    fn cuTexObjectDestroy(texObject: u64) |call| {
        textures().remove(&texObject).map(drop).ok_or(CUresult::INVALID_VALUE)
    }

    fn cuTexObjectGetResourceDesc(pResDesc: *mut std::ffi::c_void, texObject: u64) |call| {
        put(pResDesc.cast(), known(texObject)?.resource)
    }

    fn cuTexObjectGetTextureDesc(pTexDesc: *mut std::ffi::c_void, texObject: u64) |call| {
        put(pTexDesc.cast(), known(texObject)?.reading)
    }

    fn cuSurfObjectCreate(pSurfObject: *mut u64, pResDesc: *const std::ffi::c_void) |call| {
        call.context()?;
        require(!pSurfObject.is_null(), CUresult::INVALID_VALUE)?;
        put(pSurfObject, surface(get(pResDesc.cast::<CUDA_RESOURCE_DESC>())?)?)
    }

    fn cuSurfObjectDestroy(surfObject: u64) |call| {
        driver().surfaces.remove(surfObject as usize).map(drop).ok_or(CUresult::INVALID_VALUE)
    }

    fn cuSurfObjectGetResourceDesc(pResDesc: *mut std::ffi::c_void, surfObject: u64) |call| {
        let surface = driver().surfaces.get(surfObject as usize).ok_or(CUresult::INVALID_VALUE)?;
        put(pResDesc.cast(), surface.resource)
    }
}
