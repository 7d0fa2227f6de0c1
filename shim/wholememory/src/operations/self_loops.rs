//! A graph with an edge from each node to itself, before the node's others.

use wm_kernels::wholememory::AddSelfLoops;

use super::array::Array;
use crate::error::{Result, require};
use crate::kernels::WARP;
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::ElementType;

/// Writes the graph. The caller guarantees that the row pointers are those of the graph.
///
/// # Errors
/// [`Error::Input`](crate::error::Error::Input) for arrays that are not of 32-bit integers, or do
/// not fit each other; the driver's.
pub fn add(
    [row_ptr, col]: [&Tensor; 2],
    [output_row_ptr, output_col]: [&Tensor; 2],
    stream: &CallerStream,
) -> Result {
    let array = |tensor, what| Array::new(tensor, &[ElementType::Int], what);
    let (row_ptr, col) = (array(row_ptr, "row pointers")?, array(col, "neighbours")?);
    let output = (
        array(output_row_ptr, "row pointers that are written")?,
        array(output_col, "neighbours that are written")?,
    );
    require(row_ptr.count > 0, "row pointers are one more than rows")?;
    let rows = row_ptr.count - 1;
    require(output.0.count == row_ptr.count, "not as many row pointers as in the graph")?;
    require(output.1.count == col.count + rows, "there is one neighbour more for each row")?;
    let (output_row_ptr, output_col) = (output.0.address, output.1.address);
    let arguments =
        AddSelfLoops { row_ptr: row_ptr.address, col: col.address, rows, output_row_ptr, output_col };
    // A warp has a row.
    stream.launch(&arguments, rows.saturating_mul(WARP))
}
