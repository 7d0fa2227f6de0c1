//! Descriptions of copies of two and three dimensions, all converted to one form:
//! `CUDA_MEMCPY3D_PEER`, which names both ends' contexts.
//!
//! A description may leave a pitch or a height 0, which means rows without gaps. [`filled`] writes
//! the numbers in, because a part of a copy has shorter rows than the whole.

use wm_abi::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED, CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_BATCH_OP,
    CUDA_MEMCPY3D_PEER, CUarray, CUcontext,
};

use super::cut::CopyPart;
use crate::copies::{CopyEnd, CopySize, EndKind, StridedRange};

/// A description of a copy that can be converted to a `CUDA_MEMCPY3D_PEER` and back.
pub(in crate::hooks) trait Description: Copy {
    /// Does the form name both ends' contexts?
    const NAMES_CONTEXTS: bool = false;

    /// The same copy as a `CUDA_MEMCPY3D_PEER`. Its contexts are null if this form does not name
    /// them.
    fn general(&self) -> CUDA_MEMCPY3D_PEER;

    /// This description with the offsets, pitches and sizes of a general one.
    fn with(&self, general: &CUDA_MEMCPY3D_PEER) -> Self;
}

impl Description for CUDA_MEMCPY3D_PEER {
    const NAMES_CONTEXTS: bool = true;

    fn general(&self) -> CUDA_MEMCPY3D_PEER {
        *self
    }

    fn with(&self, general: &CUDA_MEMCPY3D_PEER) -> Self {
        *general
    }
}

impl Description for CUDA_MEMCPY3D {
    fn general(&self) -> CUDA_MEMCPY3D_PEER {
        CUDA_MEMCPY3D_PEER {
            srcXInBytes: self.srcXInBytes,
            srcY: self.srcY,
            srcZ: self.srcZ,
            srcLOD: self.srcLOD,
            srcMemoryType: self.srcMemoryType,
            srcHost: self.srcHost,
            srcDevice: self.srcDevice,
            srcArray: self.srcArray,
            srcContext: CUcontext::NULL,
            srcPitch: self.srcPitch,
            srcHeight: self.srcHeight,
            dstXInBytes: self.dstXInBytes,
            dstY: self.dstY,
            dstZ: self.dstZ,
            dstLOD: self.dstLOD,
            dstMemoryType: self.dstMemoryType,
            dstHost: self.dstHost,
            dstDevice: self.dstDevice,
            dstArray: self.dstArray,
            dstContext: CUcontext::NULL,
            dstPitch: self.dstPitch,
            dstHeight: self.dstHeight,
            WidthInBytes: self.WidthInBytes,
            Height: self.Height,
            Depth: self.Depth,
        }
    }

    fn with(&self, general: &CUDA_MEMCPY3D_PEER) -> Self {
        Self {
            srcXInBytes: general.srcXInBytes,
            srcY: general.srcY,
            srcZ: general.srcZ,
            srcPitch: general.srcPitch,
            srcHeight: general.srcHeight,
            dstXInBytes: general.dstXInBytes,
            dstY: general.dstY,
            dstZ: general.dstZ,
            dstPitch: general.dstPitch,
            dstHeight: general.dstHeight,
            WidthInBytes: general.WidthInBytes,
            Height: general.Height,
            Depth: general.Depth,
            ..*self
        }
    }
}

impl Description for CUDA_MEMCPY2D {
    fn general(&self) -> CUDA_MEMCPY3D_PEER {
        CUDA_MEMCPY3D_PEER {
            srcXInBytes: self.srcXInBytes,
            srcY: self.srcY,
            srcMemoryType: self.srcMemoryType,
            srcHost: self.srcHost,
            srcDevice: self.srcDevice,
            srcArray: self.srcArray,
            srcPitch: self.srcPitch,
            dstXInBytes: self.dstXInBytes,
            dstY: self.dstY,
            dstMemoryType: self.dstMemoryType,
            dstHost: self.dstHost,
            dstDevice: self.dstDevice,
            dstArray: self.dstArray,
            dstPitch: self.dstPitch,
            WidthInBytes: self.WidthInBytes,
            Height: self.Height,
            Depth: 1,
            ..EMPTY
        }
    }

    fn with(&self, general: &CUDA_MEMCPY3D_PEER) -> Self {
        Self {
            srcXInBytes: general.srcXInBytes,
            srcY: general.srcY,
            srcPitch: general.srcPitch,
            dstXInBytes: general.dstXInBytes,
            dstY: general.dstY,
            dstPitch: general.dstPitch,
            WidthInBytes: general.WidthInBytes,
            Height: general.Height,
            ..*self
        }
    }
}

/// Both ends are pointers: an end that is an array has no place in the general form.
impl Description for CUDA_MEMCPY3D_BATCH_OP {
    fn general(&self) -> CUDA_MEMCPY3D_PEER {
        CUDA_MEMCPY3D_PEER {
            srcDevice: self.src.ptr,
            srcPitch: self.src.rowLength,
            srcHeight: self.src.layerHeight,
            dstDevice: self.dst.ptr,
            dstPitch: self.dst.rowLength,
            dstHeight: self.dst.layerHeight,
            WidthInBytes: self.width,
            Height: self.height,
            Depth: self.depth,
            ..EMPTY
        }
    }

    fn with(&self, general: &CUDA_MEMCPY3D_PEER) -> Self {
        let [to, from] = ends(general).map(|end| end.map_or(0, |end| end.address()));
        let (mut src, mut dst) = (self.src, self.dst);
        (src.ptr, src.rowLength, src.layerHeight) = (from, general.srcPitch, general.srcHeight);
        (dst.ptr, dst.rowLength, dst.layerHeight) = (to, general.dstPitch, general.dstHeight);
        let (width, height, depth) = (general.WidthInBytes, general.Height, general.Depth);
        Self { src, dst, width, height, depth, ..*self }
    }
}

/// A copy of nothing between unified addresses.
pub(super) const EMPTY: CUDA_MEMCPY3D_PEER = CUDA_MEMCPY3D_PEER {
    srcXInBytes: 0,
    srcY: 0,
    srcZ: 0,
    srcLOD: 0,
    srcMemoryType: CU_MEMORYTYPE_UNIFIED,
    srcHost: std::ptr::null(),
    srcDevice: 0,
    srcArray: CUarray::NULL,
    srcContext: CUcontext::NULL,
    srcPitch: 0,
    srcHeight: 0,
    dstXInBytes: 0,
    dstY: 0,
    dstZ: 0,
    dstLOD: 0,
    dstMemoryType: CU_MEMORYTYPE_UNIFIED,
    dstHost: std::ptr::null_mut(),
    dstDevice: 0,
    dstArray: CUarray::NULL,
    dstContext: CUcontext::NULL,
    dstPitch: 0,
    dstHeight: 0,
    WidthInBytes: 0,
    Height: 1,
    Depth: 1,
};

/// Bytes, rows and layers.
pub(in crate::hooks) fn size(copy: &CUDA_MEMCPY3D_PEER) -> CopySize {
    [copy.WidthInBytes as u64, copy.Height as u64, copy.Depth as u64]
}

/// Destination and source. `None` for an array, and for memory that the description says is the
/// host's.
pub(in crate::hooks) fn ends(copy: &CUDA_MEMCPY3D_PEER) -> [Option<CopyEnd>; 2] {
    let to = [copy.dstXInBytes, copy.dstY, copy.dstZ];
    let from = [copy.srcXInBytes, copy.srcY, copy.srcZ];
    [
        end(copy.dstMemoryType, copy.dstDevice, to, [copy.dstPitch, copy.dstHeight]),
        end(copy.srcMemoryType, copy.srcDevice, from, [copy.srcPitch, copy.srcHeight]),
    ]
}

/// An end whose first byte lies at `place` (byte, row, layer) behind `base`.
fn end(memory_type: u32, base: u64, place: [usize; 3], [pitch, rows]: [usize; 2]) -> Option<CopyEnd> {
    let kind = match memory_type {
        CU_MEMORYTYPE_DEVICE => EndKind::Device,
        CU_MEMORYTYPE_UNIFIED => EndKind::Unified,
        _ => return None,
    };
    let whole =
        StridedRange { address: base, steps: [1, pitch as u64, (pitch as u64).wrapping_mul(rows as u64)] };
    let address = whole.byte_at(&place.map(|at| at as u64));
    Some(CopyEnd::new(StridedRange { address, ..whole }, kind))
}

/// The description with every pitch and height written in, as the driver assumes them.
pub(in crate::hooks) fn filled(copy: &CUDA_MEMCPY3D_PEER) -> CUDA_MEMCPY3D_PEER {
    let or = |given: usize, at: usize, size: usize| if given == 0 { at.saturating_add(size) } else { given };
    CUDA_MEMCPY3D_PEER {
        srcPitch: or(copy.srcPitch, copy.srcXInBytes, copy.WidthInBytes),
        srcHeight: or(copy.srcHeight, copy.srcY, copy.Height),
        dstPitch: or(copy.dstPitch, copy.dstXInBytes, copy.WidthInBytes),
        dstHeight: or(copy.dstHeight, copy.dstY, copy.Height),
        ..*copy
    }
}

/// A part of a filled copy.
pub(in crate::hooks) fn sub_volume(copy: &CUDA_MEMCPY3D_PEER, part: &CopyPart) -> CUDA_MEMCPY3D_PEER {
    let ([x, y, z], [width, height, depth]) =
        (part.at.map(|at| at as usize), part.size.map(|size| size as usize));
    CUDA_MEMCPY3D_PEER {
        srcXInBytes: copy.srcXInBytes + x,
        srcY: copy.srcY + y,
        srcZ: copy.srcZ + z,
        dstXInBytes: copy.dstXInBytes + x,
        dstY: copy.dstY + y,
        dstZ: copy.dstZ + z,
        WidthInBytes: width,
        Height: height,
        Depth: depth,
        ..*copy
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a part of a copy lies at other addresses than in the whole, or a
    //! description loses a field.
    use super::*;

    const WHOLE: CUDA_MEMCPY3D_PEER = CUDA_MEMCPY3D_PEER {
        srcXInBytes: 3,
        srcY: 2,
        srcZ: 1,
        srcDevice: 0x1000,
        dstDevice: 0x9000,
        dstPitch: 64,
        dstHeight: 10,
        WidthInBytes: 20,
        Height: 5,
        Depth: 4,
        ..EMPTY
    };

    #[test]
    fn a_pitch_of_zero_means_rows_without_gaps() {
        let copy = filled(&WHOLE);
        assert_eq!((copy.srcPitch, copy.srcHeight, copy.dstPitch, copy.dstHeight), (23, 7, 64, 10));
        let [to, from] = ends(&copy).map(|end| end.expect("an address"));
        assert_eq!((to.bytes.address, to.bytes.steps), (0x9000, [1, 64, 640]));
        assert_eq!((from.bytes.address, from.bytes.steps), (0x1000 + 161 + 2 * 23 + 3, [1, 23, 161]));
    }

    #[test]
    fn a_part_starts_where_it_does_in_the_whole() {
        let (copy, piece) = (filled(&WHOLE), CopyPart { at: [7, 1, 2], size: [4, 3, 1] });
        let parted = sub_volume(&copy, &piece);
        for (whole, end) in ends(&copy).iter().zip(ends(&parted)) {
            let (whole, end) = (whole.as_ref().expect("an address"), end.expect("an address"));
            assert_eq!(
                (whole.bytes.byte_at(&piece.at), whole.bytes.steps),
                (end.bytes.address, end.bytes.steps)
            );
        }
        assert_eq!(size(&parted), piece.size);
    }

    #[test]
    fn every_form_comes_back_from_the_general_one() {
        let operation = CUDA_MEMCPY3D_BATCH_OP { width: 9, height: 2, depth: 1, ..Default::default() };
        let copy = filled(&CUDA_MEMCPY3D_BATCH_OP { srcAccessOrder: 3, ..operation }.general());
        let back = operation.with(&sub_volume(&copy, &CopyPart { at: [4, 1, 0], size: [5, 1, 1] }));
        assert_eq!((back.src.ptr, back.dst.ptr, back.width, back.height), (13, 13, 5, 1));
        assert_eq!((back.src.rowLength, back.src.layerHeight), (9, 2));
    }
}
