//! Arrays: memory with a layout that only the driver knows. Here it is plain rows, so that every
//! form of copy reaches it.
//!
//! A program never sees an array's address: the bytes are an area of the address map that no call
//! can name. Invariant: an array's area exists exactly while its handle does.

use std::ffi::c_uint;
use std::sync::Arc;

use wm_abi::*;

use crate::context::Context;
use crate::entry::{Outcome, exports, get, put, require};
use crate::memory::{self, Area, Owner, Place};
use crate::pool::with_reclaim;
use crate::state::driver;

/// One array. Sizes are elements; a height or depth of 0 means that the array lacks this dimension.
#[derive(Debug)]
pub(crate) struct Array {
    /// Its description.
    pub(crate) layout: CUDA_ARRAY3D_DESCRIPTOR,
    /// Its first byte.
    pub(crate) address: u64,
    /// Bytes of a row. Rows, and layers, follow each other without a gap.
    pub(crate) pitch: usize,
    /// Its context's [`Context::id`].
    pub(crate) context_id: u64,
    /// Is it a level of a mipmapped array, and ends with it?
    is_level: bool,
}

/// Arrays of halving size.
#[derive(Debug)]
pub(crate) struct Mipmapped {
    levels: Vec<usize>,
}

impl Mipmapped {
    fn discard(&self) {
        self.levels.iter().for_each(|level| Array::discard(*level));
    }
}

const KNOWN_FLAGS: c_uint = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST;

/// Bytes of one element.
///
/// # Errors
/// `INVALID_VALUE` for an unknown format or a number of channels other than 1, 2 and 4.
pub(crate) fn element(format: c_uint, channels: c_uint) -> Outcome<usize> {
    require(matches!(channels, 1 | 2 | 4), CUresult::INVALID_VALUE)?;
    let bytes = match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    Ok(bytes * channels as usize)
}

impl Array {
    /// The array of a handle.
    ///
    /// # Errors
    /// `INVALID_HANDLE` if there is none.
    pub(crate) fn of(handle: CUarray) -> Outcome<Arc<Self>> {
        driver().arrays.get(handle.0).ok_or(CUresult::INVALID_HANDLE)
    }

    /// Rows of a layer.
    pub(crate) fn rows(&self) -> usize {
        self.layout.Height.max(1)
    }

    /// All its bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pitch * self.rows() * self.layout.Depth.max(1)
    }

    fn create(context: &Context, layout: CUDA_ARRAY3D_DESCRIPTOR, is_level: bool) -> Outcome<usize> {
        require(layout.Width > 0, CUresult::INVALID_VALUE)?;
        require(layout.Flags & !KNOWN_FLAGS == 0, CUresult::NOT_SUPPORTED)?;
        let wide = layout.Width.checked_mul(element(layout.Format, layout.NumChannels)?);
        let pitch = wide.ok_or(CUresult::INVALID_VALUE)?;
        let layers = layout.Height.max(1).checked_mul(layout.Depth.max(1));
        let bytes = layers.and_then(|rows| rows.checked_mul(pitch)).ok_or(CUresult::INVALID_VALUE)?;
        let place = Place::Device(context.device);
        let block = with_reclaim(place, || memory::allocate(place, bytes as u64))?;
        let owner = |physical| Owner::Array { physical, context: context.owner_handle() };
        let address = block.enter(bytes as u64, owner);
        let array = Self { layout, address, pitch, context_id: context.id, is_level };
        Ok(driver().arrays.insert(|_| array).0)
    }

    fn discard(handle: usize) {
        let Some(array) = driver().arrays.remove(handle) else { return };
        crate::context::synchronize_device(array.device());
        let is_it = |area: &Area| matches!(area.owner, Owner::Array { .. });
        let area = driver().memory_mut().remove_if(array.address, is_it);
        area.into_iter().for_each(Area::discard);
    }

    fn device(&self) -> usize {
        match driver().memory().place(self.address) {
            Some(Place::Device(ordinal)) => ordinal,
            _ => 0,
        }
    }
}

fn flat(layout: &CUDA_ARRAY_DESCRIPTOR) -> CUDA_ARRAY3D_DESCRIPTOR {
    let CUDA_ARRAY_DESCRIPTOR { Width, Height, Format, NumChannels } = *layout;
    CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth: 0, Format, NumChannels, Flags: 0 }
}

fn halved(layout: &CUDA_ARRAY3D_DESCRIPTOR, level: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    let half = |size: usize| if size == 0 { 0 } else { (size >> level).max(1) };
    let is_layered = layout.Flags & CUDA_ARRAY3D_LAYERED != 0;
    let depth = if is_layered { layout.Depth } else { half(layout.Depth) };
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: half(layout.Width),
        Height: half(layout.Height),
        Depth: depth,
        ..*layout
    }
}

fn mipmapped(context: &Context, layout: &CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) -> Outcome<usize> {
    let longest = layout.Width.max(layout.Height).max(layout.Depth).max(1);
    let levels = levels.clamp(1, longest.ilog2() + 1);
    let mut made = Mipmapped { levels: Vec::new() };
    for level in 0..levels {
        match Array::create(context, halved(layout, level), true) {
            Ok(array) => made.levels.push(array),
            Err(code) => {
                made.discard();
                return Err(code);
            }
        }
    }
    Ok(driver().mipmapped.insert(|_| made).0)
}

exports! {
    fn cuArrayCreate_v2(pHandle: *mut CUarray, pAllocateArray: *const CUDA_ARRAY_DESCRIPTOR) |call| {
        let context = call.context()?;
        require(!pHandle.is_null(), CUresult::INVALID_VALUE)?;
        put(pHandle, CUarray(Array::create(&context, flat(&get(pAllocateArray)?), false)?))
    }

    fn cuArray3DCreate_v2(pHandle: *mut CUarray, pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR) |call| {
        let context = call.context()?;
        require(!pHandle.is_null(), CUresult::INVALID_VALUE)?;
        put(pHandle, CUarray(Array::create(&context, get(pAllocateArray)?, false)?))
    }

    fn cuArrayGetDescriptor_v2(pArrayDescriptor: *mut CUDA_ARRAY_DESCRIPTOR, hArray: CUarray) |call| {
        let CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Format, NumChannels, .. } = Array::of(hArray)?.layout;
        put(pArrayDescriptor, CUDA_ARRAY_DESCRIPTOR { Width, Height, Format, NumChannels })
    }

    fn cuArray3DGetDescriptor_v2(pArrayDescriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, hArray: CUarray) |call| {
        put(pArrayDescriptor, Array::of(hArray)?.layout)
    }

    fn cuArrayDestroy(hArray: CUarray) |call| {
        require(!Array::of(hArray)?.is_level, CUresult::INVALID_VALUE)?;
        Array::discard(hArray.0);
        Ok(())
    }

    fn cuMipmappedArrayCreate(pHandle: *mut CUmipmappedArray, pMipmappedArrayDesc: *const CUDA_ARRAY3D_DESCRIPTOR, numMipmapLevels: c_uint) |call| {
        let context = call.context()?;
        require(!pHandle.is_null(), CUresult::INVALID_VALUE)?;
        let handle = mipmapped(&context, &get(pMipmappedArrayDesc)?, numMipmapLevels)?;
        put(pHandle, CUmipmappedArray(handle))
    }

    fn cuMipmappedArrayGetLevel(pLevelArray: *mut CUarray, hMipmappedArray: CUmipmappedArray, level: c_uint) |call| {
        let array = driver().mipmapped.get(hMipmappedArray.0).ok_or(CUresult::INVALID_HANDLE)?;
        put(pLevelArray, CUarray(*array.levels.get(level as usize).ok_or(CUresult::INVALID_VALUE)?))
    }

    fn cuMipmappedArrayDestroy(hMipmappedArray: CUmipmappedArray) |call| {
        let array = driver().mipmapped.remove(hMipmappedArray.0).ok_or(CUresult::INVALID_HANDLE)?;
        array.discard();
        Ok(())
    }
}
