//! The operation by which a program tests that its functions for memory and its stream work.
//!
//! Row `i` of each output is row `i` of the input, plus `i`. The API's page does not say what is in an output of more rows than the
//! input has: here its rows begin again, so row `i` is row `i` modulo the input's rows, plus `i`. Nor does it say whether the three
//! outputs of the caller's functions may be left out: here all are needed, since they are what is tested.

use wm_kernels::wholememory::EnvTest;

use crate::environment::{Environment, MemoryContext, Output, ScratchLayout};
use crate::error::{Result, require};
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::AllocationType;
use crate::vocabulary::description::MatrixDescription;

/// Outputs of the caller's functions: on the GPU, in pinned memory, in memory of the host.
const PLACES: [AllocationType; 3] = [AllocationType::Device, AllocationType::Pinned, AllocationType::Host];

/// Writes all outputs, and waits for them: `fixed` of the input's shape, and one of `rows` rows for each of three contexts.
///
/// # Errors
/// [`Error::Input`](crate::error::Error::Input) for shapes or types that do not fit each other, or a context that is null; those of the
/// environment; the driver's.
pub fn run(
    input: &Tensor,
    fixed: &Tensor,
    contexts: [MemoryContext; 3],
    rows: i64,
    environment: &Environment,
    stream: &CallerStream,
) -> Result {
    let (from, to) = (input.description().rows()?, fixed.description().rows()?);
    require(
        from.sizes == to.sizes && from.dtype == to.dtype,
        "input and output are of different shapes or types",
    )?;
    require(contexts.iter().all(|context| !context.is_null()), "the context of an output is null")?;
    require(rows >= 0, "a number of rows is negative")?;
    require(from.sizes[0] > 0 || rows == 0, "there are no rows to repeat")?;
    stream.can_wait()?;

    let bytes = input.description().element_type()?.bytes() as u64;
    let (input, fixed) = (input.address()?, fixed.address()?);
    let columns = from.sizes[1].unsigned_abs();
    let add = |input, input_stride: i64, output, output_stride: i64, rows: i64| {
        let (input_stride, output_stride, rows) =
            (input_stride.unsigned_abs(), output_stride.unsigned_abs(), rows.unsigned_abs());
        let element_type = from.dtype;
        stream.launch(
            &EnvTest { input, output, element_type, rows, columns, input_stride, output_stride },
            rows.saturating_mul(columns),
        )
    };
    add(input, from.stride, fixed, to.stride, from.sizes[0])?;

    let sizes = [rows, from.sizes[1]];
    let shape = MatrixDescription { sizes, stride: sizes[1], storage_offset: 0, dtype: from.dtype };
    let all = rows.unsigned_abs().saturating_mul(columns);
    let mut parts = ScratchLayout::default();
    let repeated = parts.add(all.max(1), bytes)?;
    let memory = environment.temporary(parts)?;
    let repeated = memory.at(repeated);
    let output = |number: usize| environment.output(contexts[number], shape.into(), PLACES[number]);
    let outputs = [output(0)?, output(1)?, output(2)?];
    if all > 0 {
        repeat(input, from, repeated, sizes[0], bytes, stream)?;
        let [device, pinned, host] = outputs.each_ref().map(Output::address);
        add(repeated, sizes[1], device, sizes[1], rows)?;
        // A GPU need not reach either: they are copied to.
        let copied = [pinned, host].map(|to| stream.copy_to_host(to, device, all * bytes));
        // No copy may be on its way to memory that is given back.
        let waited = stream.wait();
        copied.into_iter().chain([waited]).collect::<Result>()?;
    }
    outputs.into_iter().for_each(Output::keep);
    Ok(())
}

/// Copies the input's rows, again and again, until there are so many.
fn repeat(
    input: u64,
    matrix: MatrixDescription,
    to: u64,
    rows: i64,
    bytes: u64,
    stream: &CallerStream,
) -> Result {
    let row = matrix.sizes[1].unsigned_abs() * bytes;
    let (first, rows) = (matrix.sizes[0].min(rows).unsigned_abs(), rows.unsigned_abs());
    if matrix.stride == matrix.sizes[1] {
        stream.copy(to, input, first * row)?;
    } else {
        let stride = matrix.stride.unsigned_abs() * bytes;
        (0..first).try_for_each(|number| stream.copy(to + number * row, input + number * stride, row))?;
    }
    let mut done = first;
    while done < rows {
        let more = done.min(rows - done);
        stream.copy(to + done * row, to, more * row)?;
        done += more;
    }
    Ok(())
}
