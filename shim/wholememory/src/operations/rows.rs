//! Gather and scatter: rows of a table go to packed memory, or come from there.
//!
//! A number that is negative, or beyond the table, is skipped. Elements are converted within a
//! family of types: floating-point numbers, or integers.

use wm_abi::CUdeviceptr;
use wm_kernels::Arguments;
use wm_kernels::wholememory::{
    CacheGather, GatherConverted, GatherOrderedRows, GatherRows, ScatterConverted, ScatterOrderedRows,
    ScatterRows,
};

use crate::error::{Result, require};
use crate::memory::Memory;
use crate::operations::array::Numbers;
use crate::operations::order::RowOrder;
use crate::operations::scratch::Workspace;
use crate::tensor::Tensor;
use crate::vocabulary::codes::ElementType;
use crate::vocabulary::description::MatrixDescription;

/// Widest word that a thread moves, bytes.
const WIDEST: u64 = 16;

/// Where rows go.
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

/// Where copies of rows lie: what kernels need to find a row's set (`cache.cuh`).
#[derive(Debug, Clone, Copy)]
pub struct CacheTables {
    /// Address of each part.
    pub bases: CUdeviceptr,
    /// First row of each part; not read where parts are equal. 0 where rows are spread over parts.
    pub row_starts: CUdeviceptr,
    /// Parts.
    pub parts: u32,
    /// Rows of each part but the last ones, or 0.
    pub rows_equal: u64,
    /// First set of each part, and the number of all sets.
    pub set_starts: CUdeviceptr,
    /// Has it so few lines that many rows come from home?
    pub is_small: bool,
}

/// Gathers rows as [`copy`] does, through a cache of all columns of the table. Rows that are
/// converted come from the table.
///
/// # Errors
/// As [`copy`].
pub fn gather_cached(
    cache: CacheTables,
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
    cache: Option<CacheTables>,
    table: &Tensor,
    indices: &Tensor,
    packed: &Tensor,
    workspace: &Workspace<'_>,
    multiprocessors: i32,
) -> Result {
    let memory = table.memory()?;
    let places = Places::new(memory, table)?;
    let numbers = Numbers::new(indices)?;
    let rows = PackedRows::new(packed)?;
    require(rows.matrix.sizes[1] == places.matrix.sizes[1], "rows of different lengths")?;
    require(rows.matrix.sizes[0] as u64 == numbers.count, "not as many rows as numbers")?;
    require(
        rows.kind.is_float() == places.kind.is_float(),
        "floating-point numbers are not converted to integers, nor back",
    )?;
    if numbers.count == 0 || places.matrix.sizes[1] == 0 {
        return Ok(());
    }
    let launch = RowLaunch { memory, workspace, multiprocessors };
    match cache {
        _ if rows.kind != places.kind => launch.convert_rows(direction, &places, &numbers, &rows),
        Some(cache) => launch.gather_cached(cache, &places, &numbers, &rows),
        None => launch.move_rows(direction, &places, &numbers, &rows),
    }
}

/// A table as kernels find its rows.
struct Places {
    matrix: MatrixDescription,
    kind: ElementType,
    /// Of the first chunk, if there is but one; else 0.
    base: CUdeviceptr,
    bases: CUdeviceptr,
    starts: CUdeviceptr,
    chunks: u32,
    /// Rows of each chunk but the last, or 0.
    equal: u64,
    /// Bytes from a row to the next.
    stride: u64,
    /// Bytes from the memory's first row to the table's first element.
    offset: u64,
    /// What the address of every chunk is a multiple of.
    alignment: u64,
}

impl Places {
    fn new(memory: &Memory, table: &Tensor) -> Result<Self> {
        let (matrix, kind) = (table.description().rows()?, table.description().element_type()?);
        let bytes = kind.bytes() as u64;
        let (stride, offset) = (memory.request().granularity, matrix.storage_offset as u64 * bytes);
        let tables = memory.tables();
        let (partition, is_one) = (memory.partition(), memory.is_one_range());
        let base = if is_one { memory.part(0).address } else { 0 };
        let chunks = if is_one { 1 } else { partition.ranks() as u32 };
        let addresses = (0..partition.ranks()).map(|rank| memory.part(rank).address);
        let alignment =
            if is_one { alignment_of(base) } else { addresses.map(alignment_of).min().unwrap_or(1) };
        let (bases, starts, equal) = (tables.bases, tables.starts, partition.equal_count());
        Ok(Self { matrix, kind, base, bases, starts, chunks, equal, stride, offset, alignment })
    }

    fn rows(&self) -> u64 {
        self.matrix.sizes[0] as u64
    }
}

/// Rows that lie one after the other.
struct PackedRows {
    matrix: MatrixDescription,
    kind: ElementType,
    address: CUdeviceptr,
    /// Bytes from a row to the next.
    stride: u64,
}

impl PackedRows {
    fn new(tensor: &Tensor) -> Result<Self> {
        let (matrix, kind) = (tensor.description().rows()?, tensor.description().element_type()?);
        Ok(Self {
            matrix,
            kind,
            address: tensor.address()?,
            stride: matrix.stride as u64 * kind.bytes() as u64,
        })
    }
}

struct RowLaunch<'a> {
    memory: &'a Memory,
    workspace: &'a Workspace<'a>,
    multiprocessors: i32,
}

/// The arguments of a kernel over a table: those that say where its rows are, and the others.
macro_rules! over {
    ($table:expr, $kernel:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $kernel {
            base: $table.base,
            bases: $table.bases,
            starts: $table.starts,
            chunks: $table.chunks,
            equal: $table.equal,
            rows_in_table: $table.rows(),
            stride: $table.stride,
            $($field $(: $value)?),*
        }
    };
}

impl RowLaunch<'_> {
    /// Launches a kernel with threads for so many words.
    fn launch<A: Arguments>(&self, arguments: &A, words: u64) -> Result {
        let kernels = self.memory.communicator().kernels()?;
        kernels.launch(arguments, words, self.multiprocessors, self.workspace.stream)
    }

    fn move_rows(
        &self,
        direction: RowDirection,
        table: &Places,
        numbers: &Numbers,
        rows: &PackedRows,
    ) -> Result {
        let (row_bytes, width) = words(table, rows);
        let &Numbers { address: indices, count, bytes: index_bytes } = numbers;
        let (offset, packed, packed_stride) = (table.offset, rows.address, rows.stride);
        let work = count.saturating_mul(row_bytes.div_ceil(width));
        let width = width as u32;
        let order = RowOrder::of(self.memory, table.rows(), row_bytes, numbers, self.workspace)?;
        let order = order.as_ref().map(|order| order.positions);
        match (direction, order) {
            (RowDirection::Gather, None) => {
                let (output, output_stride) = (packed, packed_stride);
                let arguments = over!(
                    table,
                    GatherRows {
                        offset,
                        row_bytes,
                        indices,
                        index_bytes,
                        count,
                        output,
                        output_stride,
                        width
                    }
                );
                self.launch(&arguments, work)
            }
            (RowDirection::Scatter, None) => {
                let (input, input_stride) = (packed, packed_stride);
                let arguments = over!(
                    table,
                    ScatterRows {
                        offset,
                        row_bytes,
                        indices,
                        index_bytes,
                        count,
                        input,
                        input_stride,
                        width
                    }
                );
                self.launch(&arguments, work)
            }
            (RowDirection::Gather, Some(order)) => {
                let (output, output_stride) = (packed, packed_stride);
                let arguments = over!(
                    table,
                    GatherOrderedRows {
                        offset,
                        row_bytes,
                        indices,
                        index_bytes,
                        count,
                        output,
                        output_stride,
                        width,
                        order,
                    }
                );
                self.launch(&arguments, work)
            }
            (RowDirection::Scatter, Some(order)) => {
                let (input, input_stride) = (packed, packed_stride);
                let arguments = over!(
                    table,
                    ScatterOrderedRows {
                        offset,
                        row_bytes,
                        indices,
                        index_bytes,
                        count,
                        input,
                        input_stride,
                        width,
                        order,
                    }
                );
                self.launch(&arguments, work)
            }
        }
    }

    fn gather_cached(
        &self,
        cache: CacheTables,
        table: &Places,
        numbers: &Numbers,
        rows: &PackedRows,
    ) -> Result {
        let (row_bytes, width) = words(table, rows);
        let &Numbers { address: indices, count, bytes: index_bytes } = numbers;
        let CacheTables { bases: cache_bases, row_starts, parts, rows_equal, set_starts, is_small } = cache;
        let order = match is_small {
            true => RowOrder::of(self.memory, table.rows(), row_bytes, numbers, self.workspace)?,
            false => None,
        };
        let arguments = over!(
            table,
            CacheGather {
                row_bytes,
                indices,
                index_bytes,
                count,
                output: rows.address,
                output_stride: rows.stride,
                width: width as u32,
                cache_bases,
                row_starts,
                parts,
                rows_equal,
                set_starts,
                order: order.as_ref().map_or(0, |order| order.positions),
            }
        );
        self.launch(&arguments, count.saturating_mul(row_bytes.div_ceil(width)))
    }

    fn convert_rows(
        &self,
        direction: RowDirection,
        table: &Places,
        numbers: &Numbers,
        rows: &PackedRows,
    ) -> Result {
        let &Numbers { address: indices, count, bytes: index_bytes } = numbers;
        let (offset, columns) = (table.offset, table.matrix.sizes[1] as u64);
        let (table_type, other_type) = (table.kind.code(), rows.kind.code());
        let work = count.saturating_mul(columns);
        match direction {
            RowDirection::Gather => {
                let (output, output_stride) = (rows.address, rows.stride);
                let arguments = over!(
                    table,
                    GatherConverted {
                        offset,
                        columns,
                        indices,
                        index_bytes,
                        count,
                        output,
                        output_stride,
                        table_type,
                        other_type,
                    }
                );
                self.launch(&arguments, work)
            }
            RowDirection::Scatter => {
                let (input, input_stride) = (rows.address, rows.stride);
                let arguments = over!(
                    table,
                    ScatterConverted {
                        offset,
                        columns,
                        indices,
                        index_bytes,
                        count,
                        input,
                        input_stride,
                        table_type,
                        other_type,
                    }
                );
                self.launch(&arguments, work)
            }
        }
    }
}

/// Bytes of a row, and of the widest words that it is moved in.
fn words(table: &Places, rows: &PackedRows) -> (u64, u64) {
    let row_bytes = table.matrix.sizes[1] as u64 * table.kind.bytes() as u64;
    let aligned = [table.alignment, table.offset, table.stride, row_bytes, rows.address, rows.stride];
    (row_bytes, aligned.into_iter().map(alignment_of).min().unwrap_or(1))
}

/// The largest power of two up to [`WIDEST`] that divides a number of bytes.
fn alignment_of(bytes: u64) -> u64 {
    (bytes | WIDEST) & (bytes | WIDEST).wrapping_neg()
}

#[cfg(test)]
mod tests {
    //! Hazard: a word that a thread moves lies across the border of what it may touch.
    use super::*;

    #[test]
    fn words_fit_addresses() {
        let found = [0, 1, 2, 6, 8, 12, 16, 24, 48, 4096].map(alignment_of);
        assert_eq!(found, [16, 1, 2, 2, 8, 4, 16, 8, 16, 16]);
    }
}
