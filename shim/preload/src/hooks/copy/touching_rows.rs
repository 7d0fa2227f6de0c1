//! Two-dimensional copies whose rows lie one behind the other at both ends: each is one copy of
//! consecutive bytes.

use wm_abi::{CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CUDA_MEMCPY2D, CUstream};

use crate::copies::LinearCopy;

/// One end of a two-dimensional copy, as its description gives it.
struct DescribedEnd {
    base: u64,
    pitch: usize,
    x: usize,
    y: usize,
}

/// The copy of consecutive bytes that a two-dimensional copy is. `None` if there are gaps between
/// its rows.
pub(super) fn linear(copy: &CUDA_MEMCPY2D, stream: CUstream, waits: bool) -> Option<LinearCopy> {
    let (width, height) = (copy.WidthInBytes, copy.Height);
    let from = source(copy)?.start(width, height)?;
    let to = destination(copy)?.start(width, height)?;
    let bytes = width.checked_mul(height).filter(|bytes| *bytes > 0)?;
    Some(LinearCopy::unified(to, from, bytes, stream, waits))
}

fn source(copy: &CUDA_MEMCPY2D) -> Option<DescribedEnd> {
    let base = base(copy.srcMemoryType, copy.srcHost as u64, copy.srcDevice)?;
    Some(DescribedEnd { base, pitch: copy.srcPitch, x: copy.srcXInBytes, y: copy.srcY })
}

fn destination(copy: &CUDA_MEMCPY2D) -> Option<DescribedEnd> {
    let base = base(copy.dstMemoryType, copy.dstHost as u64, copy.dstDevice)?;
    Some(DescribedEnd { base, pitch: copy.dstPitch, x: copy.dstXInBytes, y: copy.dstY })
}

/// The address that an end begins at. `None` for an array.
fn base(kind: u32, host: u64, device: u64) -> Option<u64> {
    match kind {
        CU_MEMORYTYPE_HOST => Some(host),
        CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => Some(device),
        _ => None,
    }
}

impl DescribedEnd {
    /// The first byte, if the rows lie one behind the other.
    fn start(&self, width: usize, height: usize) -> Option<u64> {
        // A row that ends behind its pitch is refused by the driver.
        let fits = self.x.checked_add(width).is_some_and(|end| end <= self.pitch);
        let touches = fits && (height == 1 || self.pitch == width);
        let offset = self.y.checked_mul(self.pitch)?.checked_add(self.x)?;
        touches.then(|| self.base.checked_add(offset as u64)).flatten()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a copy overwrites gaps between rows, or starts at another row.
    use super::*;

    fn copy(width: usize, height: usize, pitch: usize) -> CUDA_MEMCPY2D {
        CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 2,
            srcMemoryType: CU_MEMORYTYPE_HOST,
            srcHost: 0x1000 as *const _,
            srcDevice: 0,
            srcArray: wm_abi::CUarray::NULL,
            srcPitch: pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CU_MEMORYTYPE_DEVICE,
            dstHost: std::ptr::null_mut(),
            dstDevice: 0x9000,
            dstArray: wm_abi::CUarray::NULL,
            dstPitch: width,
            WidthInBytes: width,
            Height: height,
        }
    }

    #[test]
    fn rows_that_touch_are_one_copy() {
        let linear = linear(&copy(64, 8, 64), CUstream::LEGACY, true).expect("linear");
        assert_eq!((linear.from.address(), linear.to.address(), linear.bytes), (0x1000 + 128, 0x9000, 512));
    }

    #[test]
    fn rows_with_gaps_and_arrays_are_not() {
        assert!(linear(&copy(64, 8, 65), CUstream::LEGACY, true).is_none());
        let array = CUDA_MEMCPY2D { srcMemoryType: wm_abi::CU_MEMORYTYPE_ARRAY, ..copy(64, 8, 64) };
        assert!(linear(&array, CUstream::LEGACY, true).is_none());
        assert!(linear(&copy(0, 8, 0), CUstream::LEGACY, true).is_none());
    }

    #[test]
    fn a_row_that_ends_behind_its_pitch_is_the_drivers_to_refuse() {
        let shifted = CUDA_MEMCPY2D { srcXInBytes: 8, ..copy(64, 8, 64) };
        assert!(linear(&shifted, CUstream::LEGACY, true).is_none());
        assert!(linear(&copy(64, 1, 32), CUstream::LEGACY, true).is_none());
    }

    #[test]
    fn one_row_touches_nothing() {
        let one = linear(&copy(64, 1, 4096), CUstream::LEGACY, true).expect("linear");
        assert_eq!((one.from.address(), one.bytes), (0x1000 + 2 * 4096, 64));
    }
}
