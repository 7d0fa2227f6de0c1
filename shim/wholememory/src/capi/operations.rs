//! Functions of `wholememory_op.h`: rows by their numbers.

use std::ffi::{c_int, c_void};

use wm_abi::CUstream;

use super::registry::{ObjectHandle, TENSORS};
use super::{answer, exports};
use crate::operations::rows::{RowDirection, copy};

exports! {
    /// Copies rows out of a table. Memory of the caller's callbacks is not needed.
    fn wholememory_gather(
        table: ObjectHandle, indices: ObjectHandle, output: ObjectHandle, _environment: *const c_void, stream: *mut c_void, gather_sms: c_int,
    ) -> u32 {
        answer("wholememory_gather", || {
            let [table, indices, output] = [TENSORS.get(table)?, TENSORS.get(indices)?, TENSORS.get(output)?];
            copy(RowDirection::Gather, &table, &indices, &output, CUstream(stream as usize), gather_sms)
        })
    }

    /// Copies rows into a table. Memory of the caller's callbacks is not needed.
    fn wholememory_scatter(
        input: ObjectHandle, indices: ObjectHandle, table: ObjectHandle, _environment: *const c_void, stream: *mut c_void, scatter_sms: c_int,
    ) -> u32 {
        answer("wholememory_scatter", || {
            let [table, indices, input] = [TENSORS.get(table)?, TENSORS.get(indices)?, TENSORS.get(input)?];
            copy(RowDirection::Scatter, &table, &indices, &input, CUstream(stream as usize), scatter_sms)
        })
    }
}
