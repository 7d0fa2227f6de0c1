//! Tables and chunks as the host makes them.

use wm_abi::CUdeviceptr;

use crate::wholememory::{Chunks, Table};

impl Table {
    /// Rows at one address.
    pub fn at(base: CUdeviceptr, rows: u64, stride: u64) -> Self {
        Self { chunks: Chunks { count: 1, ..Chunks::default() }, base, rows, stride, ..Self::default() }
    }

    /// Rows of several chunks, from `offset` bytes behind the first row on.
    pub fn over(chunks: Chunks, rows: u64, stride: u64, offset: u64) -> Self {
        let first = offset.checked_div(stride).unwrap_or(0);
        Self { chunks, base: 0, rows, stride, offset: offset - first * stride, first }
    }
}
