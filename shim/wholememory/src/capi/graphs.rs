//! Functions of `wholegraph_op.h` and `graph_op.h`, and `wholememory_env_test_op`: those that take
//! memory of the caller's functions.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use wm_abi::CUstream;
use wm_driver::api::Named;

use super::call::{answer, read};
use super::exports::exports;
use super::registry::{ObjectHandle, TENSORS, driver};
use crate::environment::{Environment, Functions, MemoryContext};
use crate::error::Result;
use crate::operations::sample::{Graph, Outputs, SampleRequest, sample};
use crate::operations::{self_loops, test, unique};
use crate::stream::CallerStream;
use crate::tensor::{Place, Tensor};

/// The caller's functions.
///
/// # Safety
/// Null, or functions that behave as the API specifies.
unsafe fn environment(functions: *const Functions) -> Result<Environment> {
    // SAFETY: null is refused; the caller's word for the rest.
    unsafe { Ok(Environment::new(read(functions, "the memory functions")?)) }
}

/// The caller's stream: of the communicator's context where a tensor is over memory of all ranks,
/// as all operations on it are.
fn stream_for(tensors: &[&Arc<Tensor>], stream: *mut c_void) -> Result<CallerStream> {
    let stream = CUstream(stream as usize);
    let memory = tensors.iter().find_map(|tensor| match tensor.place() {
        Place::Memory(memory) => Some(memory),
        Place::Pointer(_) => None,
    });
    match memory {
        Some(memory) => Ok(CallerStream::with(memory.communicator().kernels()?, stream)),
        None => CallerStream::new(Named(driver()?), stream),
    }
}

/// The arguments of both samplings, as C has them.
struct SampleArguments {
    graph: [ObjectHandle; 2],
    weights: Option<ObjectHandle>,
    centers: ObjectHandle,
    most: c_int,
    offsets: ObjectHandle,
    contexts: [MemoryContext; 3],
    seed: u64,
    functions: *const Functions,
    stream: *mut c_void,
}

/// # Safety
/// As of [`environment`].
unsafe fn sample_neighbors(arguments: &SampleArguments) -> Result {
    let [row_ptr, col] = [TENSORS.get(arguments.graph[0])?, TENSORS.get(arguments.graph[1])?];
    let weights = arguments.weights.map(|weights| TENSORS.get(weights)).transpose()?;
    let (centers, offsets) = (TENSORS.get(arguments.centers)?, TENSORS.get(arguments.offsets)?);
    // SAFETY: the caller's word.
    let environment = unsafe { environment(arguments.functions) }?;
    let tensors: Vec<_> = [&row_ptr, &col].into_iter().chain(&weights).collect();
    let stream = stream_for(&tensors, arguments.stream)?;
    let graph = Graph { row_ptr: &row_ptr, col: &col, weights: weights.as_deref() };
    let request = SampleRequest { centers: &centers, most: arguments.most, seed: arguments.seed };
    let [destinations, centers, edges] = arguments.contexts;
    sample(graph, request, Outputs { offsets: &offsets, destinations, centers, edges }, &environment, &stream)
}

exports! {
    /// Samples neighbours, each as likely as the others. An output with a null context is not
    /// written.
    fn wholegraph_csr_unweighted_sample_without_replacement(
        row_ptr: ObjectHandle, col: ObjectHandle, centers: ObjectHandle, max_sample_count: c_int, offsets: ObjectHandle, destinations: MemoryContext,
        center_numbers: MemoryContext, edges: MemoryContext, seed: u64, functions: *const Functions, stream: *mut c_void,
    ) -> u32 {
        answer("wholegraph_csr_unweighted_sample_without_replacement", || {
            let (most, contexts) = (max_sample_count, [destinations, center_numbers, edges]);
            let arguments =
                SampleArguments { graph: [row_ptr, col], weights: None, centers, most, offsets, contexts, seed, functions, stream };
            // SAFETY: the caller's word.
            unsafe { sample_neighbors(&arguments) }
        })
    }

    /// Samples neighbours by the weights of their edges. An output with a null context is not
    /// written.
    fn wholegraph_csr_weighted_sample_without_replacement(
        row_ptr: ObjectHandle, col: ObjectHandle, weights: ObjectHandle, centers: ObjectHandle, max_sample_count: c_int, offsets: ObjectHandle,
        destinations: MemoryContext, center_numbers: MemoryContext, edges: MemoryContext, seed: u64, functions: *const Functions,
        stream: *mut c_void,
    ) -> u32 {
        answer("wholegraph_csr_weighted_sample_without_replacement", || {
            let (most, contexts) = (max_sample_count, [destinations, center_numbers, edges]);
            let arguments =
                SampleArguments { graph: [row_ptr, col], weights: Some(weights), centers, most, offsets, contexts, seed, functions, stream };
            // SAFETY: the caller's word.
            unsafe { sample_neighbors(&arguments) }
        })
    }

    /// Lists targets, and the neighbours that are none of them, each once. Without a mapping's
    /// tensor, or with one over null, none is written.
    fn graph_append_unique(
        targets: ObjectHandle, neighbors: ObjectHandle, list: MemoryContext, mapping: ObjectHandle, functions: *const Functions, stream: *mut c_void,
    ) -> u32 {
        answer("graph_append_unique", || {
            let (targets, neighbors) = (TENSORS.get(targets)?, TENSORS.get(neighbors)?);
            // A binding wraps an absent mapping as a tensor without a type, over null.
            let mapping = if mapping.is_null() { None } else { Some(TENSORS.get(mapping)?) };
            let mapping = mapping.filter(|tensor| !matches!(tensor.place(), Place::Pointer(0)));
            // SAFETY: the caller's word.
            let environment = unsafe { environment(functions) }?;
            let stream = stream_for(&[&targets, &neighbors], stream)?;
            unique::append(&targets, &neighbors, list, mapping.as_deref(), &environment, &stream)
        })
    }

    /// Adds an edge from each node to itself.
    fn csr_add_self_loop(
        row_ptr: ObjectHandle, col: ObjectHandle, output_row_ptr: ObjectHandle, output_col: ObjectHandle, stream: *mut c_void,
    ) -> u32 {
        answer("csr_add_self_loop", || {
            let (row_ptr, col) = (TENSORS.get(row_ptr)?, TENSORS.get(col)?);
            let (output_row_ptr, output_col) = (TENSORS.get(output_row_ptr)?, TENSORS.get(output_col)?);
            let stream = stream_for(&[&row_ptr, &col], stream)?;
            self_loops::add([&row_ptr, &col], [&output_row_ptr, &output_col], &stream)
        })
    }

    /// Tests the caller's functions and stream.
    fn wholememory_env_test_op(
        input: ObjectHandle, output_fixed: ObjectHandle, output_device: MemoryContext, output_pinned: MemoryContext, output_host: MemoryContext,
        output_rows: i64, functions: *const Functions, stream: *mut c_void,
    ) -> u32 {
        answer("wholememory_env_test_op", || {
            let (input, fixed) = (TENSORS.get(input)?, TENSORS.get(output_fixed)?);
            // SAFETY: the caller's word.
            let environment = unsafe { environment(functions) }?;
            let stream = stream_for(&[&input, &fixed], stream)?;
            test::run(&input, &fixed, [output_device, output_pinned, output_host], output_rows, &environment, &stream)
        })
    }
}
