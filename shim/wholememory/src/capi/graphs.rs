//! Functions of `wholegraph_op.h` and `graph_op.h`, and `wholememory_env_test_op`: those that take
//! memory of the caller's functions.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use wm_abi::CUstream;
use wm_driver::api::Named;

use super::call::{answer, read};
use super::exports::exports;
use super::names::{ErrorCode, TensorHandle};
use super::registry::{ObjectHandle, TENSORS, driver};
use crate::environment::{Environment, Functions, MemoryContext};
use crate::error::{Error, Result};
use crate::operations::gathers::Gathers;
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

/// The arrays of a graph, or why a handle is none.
struct GraphTensors {
    row_ptr: Result<Arc<Tensor>>,
    weights: Result<Option<Arc<Tensor>>>,
    col: Result<Arc<Tensor>>,
}

impl GraphTensors {
    /// Gathers from those that there are: other ranks hear there of any error of this one.
    fn gathers(&self, stream: *mut c_void) -> Gathers<'_> {
        let weights = self.weights.as_ref().ok().and_then(Option::as_ref);
        let known = [self.row_ptr.as_ref().ok(), weights, self.col.as_ref().ok()];
        Gathers::of(known.into_iter().flatten().map(Arc::as_ref), CUstream(stream as usize))
    }
}

/// # Safety
/// As of [`environment`].
unsafe fn sample_neighbors(arguments: &SampleArguments) -> Result {
    let tensors = GraphTensors {
        row_ptr: TENSORS.get(arguments.graph[0]),
        weights: arguments.weights.map(|weights| TENSORS.get(weights)).transpose(),
        col: TENSORS.get(arguments.graph[1]),
    };
    let mut gathers = tensors.gathers(arguments.stream);
    // SAFETY: the caller's word.
    let sampled = unsafe { sample_from(&tensors, arguments, &mut gathers) };
    gathers.end(sampled)
}

/// # Safety
/// As of [`environment`].
unsafe fn sample_from(
    tensors: &GraphTensors,
    arguments: &SampleArguments,
    gathers: &mut Gathers<'_>,
) -> Result {
    let GraphTensors { row_ptr, weights, col } = tensors;
    let [row_ptr, col] = [row_ptr.as_ref().map_err(Error::clone)?, col.as_ref().map_err(Error::clone)?];
    let weights = weights.as_ref().map_err(Error::clone)?.as_ref();
    let (centers, offsets) = (TENSORS.get(arguments.centers)?, TENSORS.get(arguments.offsets)?);
    // SAFETY: the caller's word.
    let environment = unsafe { environment(arguments.functions) }?;
    let tensors: Vec<_> = [row_ptr, col].into_iter().chain(weights).collect();
    let stream = stream_for(&tensors, arguments.stream)?;
    let graph = Graph { row_ptr, col, weights: weights.map(Arc::as_ref) };
    let request = SampleRequest { centers: &centers, most: arguments.most, seed: arguments.seed };
    let [destinations, centers, edges] = arguments.contexts;
    let outputs = Outputs { offsets: &offsets, destinations, centers, edges };
    sample(graph, request, outputs, &environment, &stream, gathers)
}

exports! {
    // wholegraph_op.h: Sampling.
    // wholegraph_op.h: Sampling.
    // wholegraph_op.h: Sampling.
    /// Samples at most `max_sample_count` neighbours of each of `centers`, each as likely as the
    /// others; all of them for a count below 1. The graph is in compressed sparse rows: `row_ptr`
    /// is an array of `INT64`, one longer than there are nodes, and `col` an array of `INT` or
    /// `INT64`; both may be over memory of all ranks, or of the caller's. `centers` is an array of
    /// `INT` or `INT64`.
    ///
    /// `offsets`, an array of `INT` one longer than `centers`, gets the number of samples before
    /// each center. The contexts get arrays of all samples: `destinations` the neighbours (the type
    /// of `col`), `center_numbers` the place of the center in `centers` (`INT`), `edges` the place
    /// of the edge in `col` (`INT64`). An output whose context is null is not written. The same
    /// seed draws the same samples with any number of ranks, of any number of islands.
    ///
    /// Collective if the memory of an array spans islands of ranks: all ranks sample from one
    /// graph. Each has centers, a count, a seed and contexts of its own; a rank without centers
    /// calls, too.
    ///
    /// * Stream: `stream`. The call waits for it once, because the number of samples is computed.
    ///   If it is collective, it returns when all ranks have called.
    /// * Errors: `INVALID_INPUT` for shapes or types that do not fit; `INVALID_VALUE` for more
    ///   samples than 31 bits can count; `OUT_OF_MEMORY` if a function gives none; `NOT_SUPPORTED`
    ///   in a stream that is captured. If the call is collective, also `LOGIC_ERROR` for calls that
    ///   differ, and `COMMUNICATION_ERROR`; all ranks get an error.
    fn wholegraph_csr_unweighted_sample_without_replacement(
        row_ptr: TensorHandle, col: TensorHandle, centers: TensorHandle, max_sample_count: c_int,
        offsets: TensorHandle, destinations: MemoryContext, center_numbers: MemoryContext,
        edges: MemoryContext, seed: u64, functions: *mut Functions, stream: *mut c_void,
    ) -> ErrorCode {
        answer("wholegraph_csr_unweighted_sample_without_replacement", || {
            let (most, contexts) = (max_sample_count, [destinations, center_numbers, edges]);
            let arguments =
                SampleArguments { graph: [row_ptr, col], weights: None, centers, most, offsets, contexts, seed, functions, stream };
            // SAFETY: the caller's word.
            unsafe { sample_neighbors(&arguments) }
        })
    }

    /// Samples neighbours by the weights of their edges. `weights` is an array of `FLOAT` or
    /// `DOUBLE`, as long as `col`. All else is as of
    /// `wholegraph_csr_unweighted_sample_without_replacement`. If their memory spans islands, the
    /// weights of all neighbours of each center that has more than `max_sample_count` are copied to
    /// temporary memory: 12 bytes a weight of `FLOAT` and 16 of `DOUBLE`, and more while they are
    /// gathered.
    ///
    /// * Stream: `stream`. The call waits for it once, and twice if the weights' memory spans
    ///   islands.
    /// * Errors: as of `wholegraph_csr_unweighted_sample_without_replacement`.
    fn wholegraph_csr_weighted_sample_without_replacement(
        row_ptr: TensorHandle, col: TensorHandle, weights: TensorHandle, centers: TensorHandle,
        max_sample_count: c_int, offsets: TensorHandle, destinations: MemoryContext,
        center_numbers: MemoryContext, edges: MemoryContext, seed: u64, functions: *mut Functions,
        stream: *mut c_void,
    ) -> ErrorCode {
        answer("wholegraph_csr_weighted_sample_without_replacement", || {
            let (most, contexts) = (max_sample_count, [destinations, center_numbers, edges]);
            let arguments =
                SampleArguments { graph: [row_ptr, col], weights: Some(weights), centers, most, offsets, contexts, seed, functions, stream };
            // SAFETY: the caller's word.
            unsafe { sample_neighbors(&arguments) }
        })
    }

    // graph_op.h: Graphs.
    // graph_op.h: Graphs.
    // graph_op.h: Graphs.
    /// Lists each node once: first `targets`, which are distinct, then the `neighbors` that are no
    /// target. Both are arrays of one type, `INT` or `INT64`. The context `list` gets the nodes.
    /// `mapping`, an array of `INT` as long as `neighbors`, gets the place of each neighbour in the
    /// list; it may be null.
    ///
    /// * Stream: `stream`. The call waits for it once, because the length of the list is computed.
    /// * Errors: `INVALID_INPUT` for shapes or types that do not fit; `OUT_OF_MEMORY` if a function
    ///   gives none; `NOT_SUPPORTED` in a stream that is captured.
    fn graph_append_unique(
        targets: TensorHandle, neighbors: TensorHandle, list: MemoryContext, mapping: TensorHandle,
        functions: *mut Functions, stream: *mut c_void,
    ) -> ErrorCode {
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

    /// Writes a graph with an edge from each node to itself before its other edges. All arrays are
    /// of `INT`. `output_row_ptr` is as long as `row_ptr`, and `output_col` is one longer than
    /// `col` for each node.
    ///
    /// * Stream: `stream`. The call does not wait.
    /// * Errors: `INVALID_INPUT` for shapes or types that do not fit; `CUDA_ERROR`.
    fn csr_add_self_loop(
        row_ptr: TensorHandle, col: TensorHandle, output_row_ptr: TensorHandle,
        output_col: TensorHandle, stream: *mut c_void,
    ) -> ErrorCode {
        answer("csr_add_self_loop", || {
            let (row_ptr, col) = (TENSORS.get(row_ptr)?, TENSORS.get(col)?);
            let (output_row_ptr, output_col) = (TENSORS.get(output_row_ptr)?, TENSORS.get(output_col)?);
            let stream = stream_for(&[&row_ptr, &col], stream)?;
            self_loops::add([&row_ptr, &col], [&output_row_ptr, &output_col], &stream)
        })
    }

    // wholememory_op.h: Rows by number.
    // wholememory_op.h: Rows by number.
    // wholememory_op.h: Rows by number.
    /// Tests the caller's functions and stream: row i of each output is `input`, an array, plus i.
    /// `output_fixed` is a matrix of `output_rows` rows; the outputs of the three contexts have the
    /// same shape, on the GPU, pinned and in the host. An output whose context is null is left out.
    ///
    /// * Stream: `stream`. The call waits for it.
    /// * Errors: `INVALID_INPUT` for shapes or types that do not fit each other; `OUT_OF_MEMORY` if
    ///   a function gives none; `NOT_SUPPORTED` in a stream that is captured.
    fn wholememory_env_test_op(
        input: TensorHandle, output_fixed: TensorHandle, output_device: MemoryContext,
        output_pinned: MemoryContext, output_host: MemoryContext, output_rows: i64,
        functions: *mut Functions, stream: *mut c_void,
    ) -> ErrorCode {
        answer("wholememory_env_test_op", || {
            let (input, fixed) = (TENSORS.get(input)?, TENSORS.get(output_fixed)?);
            // SAFETY: the caller's word.
            let environment = unsafe { environment(functions) }?;
            let stream = stream_for(&[&input, &fixed], stream)?;
            test::run(&input, &fixed, [output_device, output_pinned, output_host], output_rows, &environment, &stream)
        })
    }
}
