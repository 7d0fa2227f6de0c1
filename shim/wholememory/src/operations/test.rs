//! The operation by which a program tests that its functions for memory and its stream work.
//!
//! Row `i` of each output is the input, an array, plus `i`. All outputs are of the same shape;
//! those of the caller's functions may be left out.

use wm_kernels::wholememory::EnvTest;

use crate::environment::{Environment, MemoryContext, Output, ScratchLayout};
use crate::error::{Error, Result, require};
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::AllocationType;
use crate::vocabulary::description::MatrixDescription;

/// Outputs of the caller's functions: on the GPU, in pinned memory, in memory of the host.
const PLACES: [AllocationType; 3] = [AllocationType::Device, AllocationType::Pinned, AllocationType::Host];

/// Writes all outputs, and waits for them: `fixed`, of `rows` rows as long as the input, and one
/// alike for each context that is not null.
///
/// # Errors
/// [`Error::Input`] for shapes or types that do not fit each other; those of the environment; the
/// driver's.
pub fn run(
    input: &Tensor,
    fixed: &Tensor,
    contexts: [MemoryContext; 3],
    rows: i64,
    environment: &Environment,
    stream: &CallerStream,
) -> Result {
    let array = input.description().to_array();
    let array = array.ok_or_else(|| Error::Input("the input is no array without gaps".into()))?;
    let to = fixed.description().rows()?;
    require(to.sizes == [rows, array.size], "the output has not as many rows, or not as long ones")?;
    require(array.dtype == to.dtype, "input and output are of different types")?;
    stream.can_wait()?;

    let bytes = input.description().element_type()?.bytes() as u64;
    let (input, fixed, element_type) = (input.address()?, fixed.address()?, to.dtype);
    let [rows, columns] = to.sizes.map(i64::unsigned_abs);
    let all = rows.saturating_mul(columns);
    let add = |output, output_stride| {
        stream.launch(&EnvTest { input, output, element_type, rows, columns, output_stride }, all)
    };

    let mut parts = ScratchLayout::default();
    let packed = parts.add(all.max(1), bytes)?;
    let memory = environment.temporary(parts)?;
    let packed = memory.at(packed);
    let shape = MatrixDescription { stride: to.sizes[1], storage_offset: 0, ..to };
    let output = |number: usize| -> Result<Option<Output>> {
        let wanted = (!contexts[number].is_null()).then_some(contexts[number]);
        wanted.map(|context| environment.output(context, shape.into(), PLACES[number])).transpose()
    };
    let outputs = [output(0)?, output(1)?, output(2)?];
    if all > 0 {
        add(fixed, to.stride.unsigned_abs())?;
        add(packed, columns)?;
        let [device, pinned, host] = outputs.each_ref().map(|output| output.as_ref().map(Output::address));
        let on_device = device.map_or(Ok(()), |to| stream.copy(to, packed, all * bytes));
        let on_host = [pinned, host].into_iter().flatten();
        let copied: Vec<_> = on_host.map(|to| stream.copy_to_host(to, packed, all * bytes)).collect();
        // No copy may be on its way to memory that is given back.
        let waited = stream.wait();
        copied.into_iter().chain([on_device, waited]).collect::<Result>()?;
    }
    outputs.into_iter().flatten().for_each(Output::hand_over);
    Ok(())
}
