//! Functions of `wholememory_op.h`: rows by their numbers.

use std::ffi::{c_int, c_void};

use wm_abi::CUstream;

use super::call::answer;
use super::exports::exports;
use super::names::{ErrorCode, TensorHandle};
use super::registry::TENSORS;
use crate::environment::{Environment, Functions};
use crate::operations::rows::{RowDirection, copy, refuse};
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
    // wholememory_op.h: Rows by number.
    // wholememory_op.h: Rows by number.
    // wholememory_op.h: Rows by number.
    /// Copies rows `indices[i]` of `table` to rows `i` of `output`. `indices` is an array of `INT`
    /// or `INT64`, `output` a matrix of as many rows as numbers and as many columns as the table
    /// has; both are in memory that the GPU reaches. A number that is negative or beyond the table
    /// is skipped: its row of `output` stays. Types may differ within a family: floating-point
    /// numbers, or integers.
    ///
    /// Temporary memory comes from `functions`, and from the driver if it is null. `gather_sms`
    /// bounds the multiprocessors; all are used below 1.
    ///
    /// Collective if the table's memory spans islands of ranks: all ranks gather the same columns
    /// of one table in the same types, each by numbers of its own.
    ///
    /// * Stream: `stream` (a `cudaStream_t`) of the GPU of this rank. The call does not wait,
    ///   unless it is collective: then it returns when all ranks have called.
    /// * Errors: `INVALID_INPUT` for shapes or types that do not fit each other; `OUT_OF_MEMORY`;
    ///   `CUDA_ERROR`. If the call is collective, also `LOGIC_ERROR` for calls that differ,
    ///   `NOT_SUPPORTED` for a stream that is captured, and `COMMUNICATION_ERROR`; all ranks get an
    ///   error.
    fn wholememory_gather(
        table: TensorHandle, indices: TensorHandle, output: TensorHandle, functions: *mut Functions,
        stream: *mut c_void, gather_sms: c_int = -1,
    ) -> ErrorCode {
        answer("wholememory_gather", || {
            let table = TENSORS.get(table)?;
            let others = TENSORS.get(indices).and_then(|indices| Ok((indices, TENSORS.get(output)?)));
            // SAFETY: the caller's word.
            let environment = unsafe { temporary(functions) };
            let (communicator, stream) = (table.memory()?.communicator(), CUstream(stream as usize));
            let workspace = Workspace { communicator, stream, environment: environment.as_ref() };
            match others {
                Ok((indices, output)) => copy(RowDirection::Gather, &table, &indices, &output, &workspace, gather_sms),
                Err(error) => refuse(RowDirection::Gather, &table, error, &workspace),
            }
        })
    }

    /// Copies rows `i` of `input` to rows `indices[i]` of `table`. Shapes, types and memory are as
    /// of `wholememory_gather`. If a number is repeated, one of its rows is written.
    ///
    /// Other ranks read the rows after this rank's work is done and the ranks have met, as in
    /// `wholememory_communicator_barrier`. Copies in a cache do not change: see
    /// `wholememory_embedding_drop_all_cache`.
    ///
    /// * Stream: `stream` of the GPU of this rank. The call waits, and is collective, where
    ///   `wholememory_gather` is.
    /// * Errors: as of `wholememory_gather`.
    fn wholememory_scatter(
        input: TensorHandle, indices: TensorHandle, table: TensorHandle, functions: *mut Functions,
        stream: *mut c_void, scatter_sms: c_int = -1,
    ) -> ErrorCode {
        answer("wholememory_scatter", || {
            let table = TENSORS.get(table)?;
            let others = TENSORS.get(indices).and_then(|indices| Ok((indices, TENSORS.get(input)?)));
            // SAFETY: the caller's word.
            let environment = unsafe { temporary(functions) };
            let (communicator, stream) = (table.memory()?.communicator(), CUstream(stream as usize));
            let workspace = Workspace { communicator, stream, environment: environment.as_ref() };
            match others {
                Ok((indices, input)) => copy(RowDirection::Scatter, &table, &indices, &input, &workspace, scatter_sms),
                Err(error) => refuse(RowDirection::Scatter, &table, error, &workspace),
            }
        })
    }
}
