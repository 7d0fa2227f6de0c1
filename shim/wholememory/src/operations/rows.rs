//! Gather and scatter: rows of a table go to packed memory, or come from there.
//!
//! A number that is negative, or beyond the table, is skipped. Elements are converted within a
//! family of types: floating-point numbers, or integers.
//!
//! Over memory that spans islands both are collective ([`across`]).

use wm_kernels::wholememory::{GatherOrderedRows, GatherRows, ScatterOrderedRows, ScatterRows};

use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::operations::lookups::RowCache;
use crate::operations::moves::{Places, RowLaunch, RowRequest};
use crate::operations::order::RowOrder;
use crate::operations::scratch::Workspace;
use crate::operations::{across, around};
use crate::tensor::Tensor;

pub use crate::operations::moves::RowDirection;

/// Copies rows between a table and packed memory: row `indices[i]` of the table, and row `i` there.
///
/// `multiprocessors` bounds how many of the GPU's are used; all for a number below 1.
///
/// # Errors
/// [`Error::Input`] for shapes or types that do not fit each other; the driver's. Over memory that
/// spans islands also [`Error::Logic`] where ranks make different calls, and
/// [`Error::Communication`] where one has ended; the same at every rank.
pub fn copy(
    direction: RowDirection,
    table: &Tensor,
    indices: &Tensor,
    packed: &Tensor,
    workspace: &Workspace<'_>,
    multiprocessors: i32,
) -> Result {
    let request = RowRequest::new(table, indices, packed);
    let memory = table.memory()?;
    if memory.span().is_some() {
        return across::copy(direction, None, table, request, workspace, multiprocessors);
    }
    copy_by(direction, None, table, request?, workspace, multiprocessors)
}

/// Says to the other ranks of a table that spans islands that this one cannot take part in a copy;
/// returns the error.
///
/// # Errors
/// The error; that of another rank's end.
pub fn refuse(direction: RowDirection, table: &Tensor, error: Error, workspace: &Workspace<'_>) -> Result {
    match table.memory()?.span() {
        Some(_) => across::copy(direction, None, table, Err(error), workspace, 0),
        None => Err(error),
    }
}

/// Gathers rows as [`copy`] does, through a cache of all columns of the table, which may be
/// adjusted afterwards. Rows that are converted come from the table.
///
/// Over memory that spans islands the rows of each island pass through the island's cache; or a
/// rank has copies of the rows of all islands, and asks for the others.
///
/// # Errors
/// As [`copy`].
pub fn gather_cached(
    cache: RowCache<'_>,
    table: &Tensor,
    indices: &Tensor,
    packed: &Tensor,
    workspace: &Workspace<'_>,
    multiprocessors: i32,
) -> Result {
    let request = RowRequest::new(table, indices, packed);
    if table.memory()?.span().is_some() {
        if cache.is_of_all {
            return around::gather(cache, table, request, workspace, multiprocessors);
        }
        let gather = RowDirection::Gather;
        return across::copy(gather, Some(cache), table, request, workspace, multiprocessors);
    }
    let request = request?;
    copy_by(RowDirection::Gather, Some(cache), table, request, workspace, multiprocessors)?;
    cache.adjust(request.numbers, workspace.stream)
}

fn copy_by(
    direction: RowDirection,
    cache: Option<RowCache<'_>>,
    table: &Tensor,
    request: RowRequest,
    workspace: &Workspace<'_>,
    multiprocessors: i32,
) -> Result {
    let memory = table.memory()?;
    let places = Places::new(memory, table)?;
    let RowRequest { numbers, packed } = request;
    if numbers.count == 0 || places.columns == 0 {
        return Ok(());
    }
    let launch = RowLaunch { workspace, multiprocessors, places, packed, numbers };
    match cache {
        _ if packed.kind != places.kind => launch.convert_rows(direction),
        Some(cache) => gather_by(&cache, memory, &launch),
        None => move_rows(direction, memory, &launch),
    }
}

fn order(memory: &Memory, launch: &RowLaunch<'_>, row_bytes: u64) -> Result<Option<RowOrder>> {
    RowOrder::of(memory, launch.places.table.rows, row_bytes, &launch.numbers, launch.workspace)
}

fn move_rows(direction: RowDirection, memory: &Memory, launch: &RowLaunch<'_>) -> Result {
    let (row_bytes, width, words) = launch.words();
    let order = order(memory, launch, row_bytes)?;
    let rows = launch.rows(order.as_ref().map_or(0, |order| order.positions));
    match (direction, order.is_some()) {
        (RowDirection::Gather, false) => launch.launch(&GatherRows { rows, row_bytes, width }, words),
        (RowDirection::Scatter, false) => launch.launch(&ScatterRows { rows, row_bytes, width }, words),
        (RowDirection::Gather, true) => launch.launch(&GatherOrderedRows { rows, row_bytes, width }, words),
        (RowDirection::Scatter, true) => launch.launch(&ScatterOrderedRows { rows, row_bytes, width }, words),
    }
}

fn gather_by(cache: &RowCache<'_>, memory: &Memory, launch: &RowLaunch<'_>) -> Result {
    let (row_bytes, ..) = launch.words();
    let order = if cache.is_small { order(memory, launch, row_bytes)? } else { None };
    cache.gather(launch, order.as_ref().map_or(0, |order| order.positions))
}
