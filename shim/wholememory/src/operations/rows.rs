//! Gather and scatter: rows of a table go to packed memory, or come from there.
//!
//! A number that is negative, or beyond the table, is skipped. Elements are converted within a
//! family of types: floating-point numbers, or integers.

use wm_kernels::Arguments;
use wm_kernels::wholememory::{
    CacheGather, CacheTables, GatherConverted, GatherOrderedRows, GatherRows, Numbers, RowSet,
    ScatterConverted, ScatterOrderedRows, ScatterRows, Strided, Table,
};

use crate::error::{Result, require};
use crate::memory::Memory;
use crate::operations::array::numbers;
use crate::operations::order::RowOrder;
use crate::operations::scratch::Workspace;
use crate::tensor::Tensor;
use crate::vocabulary::codes::ElementType;
use crate::vocabulary::description::MatrixDescription;

/// Widest word that a thread moves, bytes.
const WIDEST: u64 = 16;

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowDirection {
    /// Out of the table.
    Gather,
    /// Into the table.
    Scatter,
}

/// Copies rows between a table and packed memory: row `indices[i]` of the table, and row `i` there.
///
/// `multiprocessors` bounds how many of the GPU's are used; all for a number below 1.
///
/// # Errors
/// [`Error::Input`](crate::error::Error::Input) for shapes or types that do not fit each other; the
/// driver's.
pub fn copy(
    direction: RowDirection,
    table: &Tensor,
    indices: &Tensor,
    packed: &Tensor,
    workspace: &Workspace<'_>,
    multiprocessors: i32,
) -> Result {
    copy_by(direction, None, table, indices, packed, workspace, multiprocessors)
}

/// The copies of rows in a cache.
#[derive(Debug, Clone, Copy)]
pub struct RowCache {
    /// Its parts.
    pub tables: CacheTables,
    /// It has so few lines that many rows come from the table.
    pub is_small: bool,
}

/// Gathers rows as [`copy`] does, through a cache of all columns of the table. Rows that are
/// converted come from the table.
///
/// # Errors
/// As [`copy`].
pub fn gather_cached(
    cache: RowCache,
    table: &Tensor,
    indices: &Tensor,
    packed: &Tensor,
    workspace: &Workspace<'_>,
    multiprocessors: i32,
) -> Result {
    copy_by(RowDirection::Gather, Some(cache), table, indices, packed, workspace, multiprocessors)
}

fn copy_by(
    direction: RowDirection,
    cache: Option<RowCache>,
    table: &Tensor,
    indices: &Tensor,
    packed: &Tensor,
    workspace: &Workspace<'_>,
    multiprocessors: i32,
) -> Result {
    let memory = table.memory()?;
    let places = Places::new(memory, table)?;
    let (numbers, packed) = (numbers(indices)?, PackedRows::new(packed)?);
    require(packed.matrix.sizes[1] == places.matrix.sizes[1], "rows of different lengths")?;
    require(packed.matrix.sizes[0] as u64 == numbers.count, "not as many rows as numbers")?;
    require(
        packed.kind.is_float() == places.kind.is_float(),
        "floating-point numbers are not converted to integers, nor back",
    )?;
    if numbers.count == 0 || places.columns() == 0 {
        return Ok(());
    }
    let is_converted = packed.kind != places.kind;
    let launch = RowLaunch { memory, workspace, multiprocessors, places, packed, numbers };
    match cache {
        _ if is_converted => launch.convert_rows(direction),
        Some(cache) => launch.gather_cached(&cache),
        None => launch.move_rows(direction),
    }
}

/// A table, as the kernels that move its rows find it.
struct Places {
    matrix: MatrixDescription,
    kind: ElementType,
    table: Table,
    /// The address of every chunk is a multiple of it.
    alignment: u64,
}

impl Places {
    fn new(memory: &Memory, table: &Tensor) -> Result<Self> {
        let (matrix, kind) = (table.description().rows()?, table.description().element_type()?);
        let offset = matrix.storage_offset as u64 * kind.bytes() as u64;
        let table = memory.table(matrix.sizes[0] as u64, memory.request().granularity, offset);
        let addresses = (0..memory.partition().ranks()).map(|rank| memory.part(rank).address);
        let alignment = match table.chunks.count {
            1 => alignment_of(table.base),
            _ => addresses.map(alignment_of).min().unwrap_or(1),
        };
        Ok(Self { matrix, kind, table, alignment })
    }

    fn columns(&self) -> u64 {
        self.matrix.sizes[1] as u64
    }
}

/// Rows that lie one after the other.
struct PackedRows {
    matrix: MatrixDescription,
    kind: ElementType,
    rows: Strided,
}

impl PackedRows {
    fn new(tensor: &Tensor) -> Result<Self> {
        let (matrix, kind) = (tensor.description().rows()?, tensor.description().element_type()?);
        let stride = matrix.stride as u64 * kind.bytes() as u64;
        Ok(Self { matrix, kind, rows: Strided { address: tensor.address()?, stride } })
    }
}

struct RowLaunch<'a> {
    memory: &'a Memory,
    workspace: &'a Workspace<'a>,
    multiprocessors: i32,
    places: Places,
    packed: PackedRows,
    numbers: Numbers,
}

impl RowLaunch<'_> {
    /// Launches a kernel with threads for so many words of each row.
    fn launch<A: Arguments>(&self, arguments: &A, words: u64) -> Result {
        let (kernels, work) =
            (self.memory.communicator().kernels()?, self.numbers.count.saturating_mul(words));
        kernels.launch(arguments, work, self.multiprocessors, self.workspace.stream)
    }

    /// The rows, by an order or as their numbers come.
    fn rows(&self, order: Option<&RowOrder>) -> RowSet {
        RowSet {
            table: self.places.table,
            numbers: self.numbers,
            packed: self.packed.rows,
            order: order.map_or(0, |order| order.positions),
        }
    }

    fn order(&self, row_bytes: u64) -> Result<Option<RowOrder>> {
        RowOrder::of(self.memory, self.places.table.rows, row_bytes, &self.numbers, self.workspace)
    }

    fn move_rows(&self, direction: RowDirection) -> Result {
        let (row_bytes, width, words) = self.words();
        let order = self.order(row_bytes)?;
        let rows = self.rows(order.as_ref());
        match (direction, order.is_some()) {
            (RowDirection::Gather, false) => self.launch(&GatherRows { rows, row_bytes, width }, words),
            (RowDirection::Scatter, false) => self.launch(&ScatterRows { rows, row_bytes, width }, words),
            (RowDirection::Gather, true) => self.launch(&GatherOrderedRows { rows, row_bytes, width }, words),
            (RowDirection::Scatter, true) => {
                self.launch(&ScatterOrderedRows { rows, row_bytes, width }, words)
            }
        }
    }

    fn gather_cached(&self, cache: &RowCache) -> Result {
        let (row_bytes, width, words) = self.words();
        let order = if cache.is_small { self.order(row_bytes)? } else { None };
        let rows = self.rows(order.as_ref());
        self.launch(&CacheGather { rows, row_bytes, width, cache: cache.tables }, words)
    }

    fn convert_rows(&self, direction: RowDirection) -> Result {
        let (rows, columns) = (self.rows(None), self.places.columns());
        let (table_type, packed_type) = (self.places.kind.code(), self.packed.kind.code());
        match direction {
            RowDirection::Gather => {
                self.launch(&GatherConverted { rows, columns, table_type, packed_type }, columns)
            }
            RowDirection::Scatter => {
                self.launch(&ScatterConverted { rows, columns, table_type, packed_type }, columns)
            }
        }
    }

    /// Bytes of a row, bytes of the widest words that it can be moved in, and the number of these.
    fn words(&self) -> (u64, u32, u64) {
        let (table, packed) = (self.places.table, self.packed.rows);
        let row_bytes = self.places.columns() * self.places.kind.bytes() as u64;
        let sides = [self.places.alignment, table.offset, table.stride, packed.address, packed.stride];
        let width = sides.into_iter().chain([row_bytes]).map(alignment_of).min().unwrap_or(1);
        (row_bytes, width as u32, row_bytes.div_ceil(width))
    }
}

/// The largest power of two up to [`WIDEST`] that divides a number of bytes.
fn alignment_of(bytes: u64) -> u64 {
    (bytes | WIDEST) & (bytes | WIDEST).wrapping_neg()
}

#[cfg(test)]
mod tests {
    //! Hazard: a word that a thread moves lies across the border of the memory that the thread may
    //! access.
    use super::*;

    #[test]
    fn words_fit_addresses() {
        let found = [0, 1, 2, 6, 8, 12, 16, 24, 48, 4096].map(alignment_of);
        assert_eq!(found, [16, 1, 2, 2, 8, 4, 16, 8, 16, 16]);
    }
}
