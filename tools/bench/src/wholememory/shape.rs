//! The library's description of a tensor, as its C API takes it.

use std::ffi::{c_int, c_uint};

use super::orders::ElementKind;

/// `wholememory_tensor_description_t`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct TensorShape {
    pub(super) sizes: [i64; 8],
    strides: [i64; 8],
    storage_offset: i64,
    pub(super) dim: c_int,
    pub(super) dtype: c_uint,
}

impl TensorShape {
    /// Row numbers.
    pub(super) fn numbers(count: u64) -> Self {
        Self { dim: 1, ..Self::rows(count, 1, ElementKind::Int64) }
    }

    /// Rows without gaps.
    pub(super) fn rows(rows: u64, columns: u64, kind: ElementKind) -> Self {
        let (mut sizes, mut strides) = ([1; 8], [1; 8]);
        (sizes[0], sizes[1], strides[0]) = (rows as i64, columns as i64, columns as i64);
        Self { sizes, strides, storage_offset: 0, dim: 2, dtype: kind as c_uint }
    }

    /// Its size without gaps.
    pub(super) fn bytes(&self) -> usize {
        // By `WHOLEMEMORY_DT_*`: unknown, float, half, double, bfloat16, int, int64, int16, int8.
        let element = [0, 4, 2, 8, 2, 4, 8, 2, 1].get(self.dtype as usize).copied().unwrap_or(8);
        let sizes = self.sizes.iter().take(usize::try_from(self.dim).unwrap_or(0));
        sizes.map(|size| usize::try_from(*size).unwrap_or(0)).product::<usize>() * element
    }
}
