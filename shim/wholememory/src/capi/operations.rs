//! Functions of `wholememory_op.h`: rows by their numbers.

use std::ffi::{c_int, c_void};

use wm_abi::CUstream;

use super::call::answer;
use super::exports::exports;
use super::registry::{ObjectHandle, TENSORS};
use crate::environment::{Environment, Functions};
use crate::operations::rows::{RowDirection, copy};
use crate::operations::scratch::Workspace;

/// The caller's functions, where there are any for temporary memory.
///
/// # Safety
/// Null, or functions that behave as the API specifies.
pub(super) unsafe fn temporary(functions: *const Functions) -> Option<Environment> {
    if functions.is_null() {
        return None;
    }
    // SAFETY: not null; the caller's word for the rest.
    Some(unsafe { Environment::new(functions.read()) }).filter(Environment::has_temporary)
}

exports! {
    /// Copies rows out of a table. Without the caller's functions, memory that it takes comes from
    /// the driver.
    fn wholememory_gather(
        table: ObjectHandle, indices: ObjectHandle, output: ObjectHandle, functions: *const Functions, stream: *mut c_void, gather_sms: c_int,
    ) -> u32 {
        answer("wholememory_gather", || {
            let [table, indices, output] = [TENSORS.get(table)?, TENSORS.get(indices)?, TENSORS.get(output)?];
            // SAFETY: the caller's word.
            let environment = unsafe { temporary(functions) };
            let (communicator, stream) = (table.memory()?.communicator(), CUstream(stream as usize));
            let workspace = Workspace { communicator, stream, environment: environment.as_ref() };
            copy(RowDirection::Gather, &table, &indices, &output, &workspace, gather_sms)
        })
    }

    /// Copies rows into a table. Memory as of [`wholememory_gather`].
    fn wholememory_scatter(
        input: ObjectHandle, indices: ObjectHandle, table: ObjectHandle, functions: *const Functions, stream: *mut c_void, scatter_sms: c_int,
    ) -> u32 {
        answer("wholememory_scatter", || {
            let [table, indices, input] = [TENSORS.get(table)?, TENSORS.get(indices)?, TENSORS.get(input)?];
            // SAFETY: the caller's word.
            let environment = unsafe { temporary(functions) };
            let (communicator, stream) = (table.memory()?.communicator(), CUstream(stream as usize));
            let workspace = Workspace { communicator, stream, environment: environment.as_ref() };
            copy(RowDirection::Scatter, &table, &indices, &input, &workspace, scatter_sms)
        })
    }
}
