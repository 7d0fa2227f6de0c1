//! Bytes that an array takes at least.

use wm_abi::{CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR};

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`: the call makes no memory.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

/// The description of an array, as a call has it.
pub(in crate::hooks) trait DescribesArray {
    /// The bytes of its elements; 0: not known.
    fn bytes(&self) -> u64;
}

impl DescribesArray for CUDA_ARRAY_DESCRIPTOR {
    fn bytes(&self) -> u64 {
        elements([self.Width, self.Height, 1], self.Format, self.NumChannels)
    }
}

impl DescribesArray for CUDA_ARRAY3D_DESCRIPTOR {
    fn bytes(&self) -> u64 {
        let bytes = elements([self.Width, self.Height, self.Depth], self.Format, self.NumChannels);
        if self.Flags & WITHOUT_MEMORY == 0 { bytes } else { 0 }
    }
}

/// The bytes of a call's array; 0: not known.
#[inline]
pub(in crate::hooks) fn least_bytes(array: *const impl DescribesArray) -> u64 {
    // SAFETY: null, or the program's description, which the call is about to read or has read.
    unsafe { array.as_ref() }.map_or(0, DescribesArray::bytes)
}

/// An extent of 0 is that of an array with fewer dimensions.
fn elements(extents: [usize; 3], format: u32, channels: u32) -> u64 {
    let count = extents.iter().fold(1_u64, |count, extent| count.saturating_mul((*extent).max(1) as u64));
    count.saturating_mul(u64::from(channels)).saturating_mul(element(format))
}

/// Bytes of one channel of an element; 0 for compressed and planar formats.
fn element(format: u32) -> u64 {
    match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): a call that could succeed is not made again, since its array is
    //! taken for larger than it is.
    use super::*;

    #[test]
    fn an_array_has_the_bytes_of_its_elements_and_what_is_not_known_has_none() {
        let flat = CUDA_ARRAY_DESCRIPTOR { Width: 10, Height: 0, Format: 0x20, NumChannels: 4 };
        assert_eq!(least_bytes(&raw const flat), 160);
        let deep = CUDA_ARRAY3D_DESCRIPTOR {
            Width: 10,
            Height: 2,
            Depth: 3,
            Format: 0x10,
            NumChannels: 1,
            Flags: 0,
        };
        assert_eq!(deep.bytes(), 120);
        assert_eq!(CUDA_ARRAY3D_DESCRIPTOR { Flags: 0x40, ..deep }.bytes(), 0, "sparse");
        assert_eq!(CUDA_ARRAY3D_DESCRIPTOR { Format: 0x91, ..deep }.bytes(), 0, "compressed");
        assert_eq!(CUDA_ARRAY3D_DESCRIPTOR { Width: usize::MAX, ..deep }.bytes(), u64::MAX);
        assert_eq!(least_bytes(std::ptr::null::<CUDA_ARRAY_DESCRIPTOR>()), 0);
    }
}
