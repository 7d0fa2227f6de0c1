//! Launches of the kernels that move rows between a table and packed memory, as they are or
//! converted.

use wm_kernels::Arguments;
use wm_kernels::wholememory::{
    GatherConverted, GatherConvertedRuns, GatherRows, Numbers, RowSet, ScatterConverted,
    ScatterConvertedRuns, ScatterRows, Strided, Table,
};

use crate::error::{Result, require};
use crate::memory::Memory;
use crate::operations::array::numbers;
use crate::operations::scratch::Workspace;
use crate::tensor::Tensor;
use crate::vocabulary::codes::{ElementType, Location};

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

/// A table, as the kernels that move its rows find it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub(super) columns: u64,
    pub(super) kind: ElementType,
    pub(super) table: Table,
    /// The address of every chunk is a multiple of it.
    chunk_alignment: u64,
}

impl Places {
    /// All rows of a tensor over memory that this rank maps.
    ///
    /// # Errors
    /// [`Error::NotSupported`](crate::error::Error::NotSupported) for memory that spans islands.
    pub(super) fn new(memory: &Memory, tensor: &Tensor) -> Result<Self> {
        let (matrix, kind) = (tensor.description().rows()?, tensor.description().element_type()?);
        let offset = matrix.storage_offset as u64 * kind.bytes() as u64;
        let (rows, stride) = (matrix.sizes[0] as u64, memory.request().granularity);
        // The kernels ask all GPUs at once of a table in chunks, also where these are one range.
        let table = match memory.request().location == Location::Device && memory.partition().ranks() > 1 {
            true => Table::over(memory.chunks()?, rows, stride, offset),
            false => memory.table(rows, stride, offset)?,
        };
        let chunk_alignment = alignment(memory, &table);
        Ok(Self { columns: matrix.sizes[1] as u64, kind, table, chunk_alignment })
    }

    /// The columns of a tensor in all rows of this rank's island, which are numbered from 0.
    ///
    /// # Errors
    /// As of the tensor's description.
    pub(super) fn of_island(memory: &Memory, tensor: &Tensor) -> Result<Self> {
        let (matrix, kind) = (tensor.description().rows()?, tensor.description().element_type()?);
        let offset = matrix.storage_offset as u64 * kind.bytes() as u64;
        let table = memory.table_of_island(offset % memory.request().granularity);
        let chunk_alignment = alignment(memory, &table);
        Ok(Self { columns: matrix.sizes[1] as u64, kind, table, chunk_alignment })
    }

    /// So many rows at one address.
    pub(super) fn at(packed: &PackedRows, rows: u64) -> Self {
        let PackedRows { columns, kind, rows: Strided { address, stride } } = *packed;
        let table = Table::at(address, rows, stride);
        Self { columns, kind, table, chunk_alignment: alignment_of(address) }
    }

    /// All columns of a table whose chunks begin where any word may.
    pub(super) fn over(table: Table, columns: u64, kind: ElementType) -> Self {
        Self { columns, kind, table, chunk_alignment: WIDEST }
    }

    /// The rows of this side of a copy.
    fn side(&self) -> RowSide {
        let alignment = alignment_of(self.chunk_alignment | self.table.offset | self.table.stride);
        RowSide { kind: self.kind, alignment }
    }
}

/// The alignment of a table's chunks.
fn alignment(memory: &Memory, table: &Table) -> u64 {
    let addresses = (0..memory.partition().ranks()).map(|rank| memory.part(rank).address);
    match table.chunks.count {
        1 => alignment_of(table.base),
        _ => addresses.map(alignment_of).min().unwrap_or(1),
    }
}

/// Rows that lie one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackedRows {
    pub(super) columns: u64,
    pub(super) kind: ElementType,
    pub(super) rows: Strided,
}

impl PackedRows {
    /// Bytes of a row, and bytes of the widest words that these rows can be accessed in.
    pub(super) fn widest(&self) -> (u64, u32) {
        let row_bytes = self.columns * self.kind.bytes() as u64;
        (row_bytes, alignment_of(self.side().alignment | row_bytes) as u32)
    }

    /// The rows of this side of a copy.
    fn side(&self) -> RowSide {
        RowSide { kind: self.kind, alignment: alignment_of(self.rows.address | self.rows.stride) }
    }
}

/// The numbers of rows, and their packed memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowRequest {
    pub(super) numbers: Numbers,
    pub(super) packed: PackedRows,
}

impl RowRequest {
    /// Checked against each other and against the table.
    ///
    /// # Errors
    /// [`Error::Input`](crate::error::Error::Input) for shapes or types that do not fit.
    pub(super) fn new(table: &Tensor, indices: &Tensor, packed: &Tensor) -> Result<Self> {
        let (numbers, matrix, kind) =
            (numbers(indices)?, packed.description().rows()?, packed.description().element_type()?);
        let (rows, table_kind) = (table.description().rows()?, table.description().element_type()?);
        require(matrix.sizes[1] == rows.sizes[1], "rows of different lengths")?;
        require(matrix.sizes[0] as u64 == numbers.count, "not as many rows as numbers")?;
        require(
            kind.is_float() == table_kind.is_float(),
            "floating-point numbers are not converted to integers, nor back",
        )?;
        let stride = matrix.stride as u64 * kind.bytes() as u64;
        let rows = Strided { address: packed.address()?, stride };
        Ok(Self { numbers, packed: PackedRows { columns: matrix.sizes[1] as u64, kind, rows } })
    }
}

/// The rows of a copy: row `numbers[i]` of the places, and packed row `i`.
#[derive(Debug)]
pub(super) struct RowLaunch<'a> {
    pub(super) workspace: &'a Workspace<'a>,
    /// How many of the GPU's are used; all for a number below 1.
    pub(super) multiprocessors: i32,
    pub(super) places: Places,
    pub(super) packed: PackedRows,
    pub(super) numbers: Numbers,
}

impl RowLaunch<'_> {
    /// Launches a kernel with threads for so many words of each row.
    pub(super) fn launch<A: Arguments>(&self, arguments: &A, words: u64) -> Result {
        let (kernels, work) =
            (self.workspace.communicator.kernels()?, self.numbers.count.saturating_mul(words));
        kernels.launch(arguments, work, self.multiprocessors, self.workspace.stream)
    }

    /// The rows, in an order by positions (an address) or as their numbers come (0).
    pub(super) fn rows(&self, order: u64) -> RowSet {
        RowSet { table: self.places.table, numbers: self.numbers, packed: self.packed.rows, order }
    }

    /// Moves the rows as their numbers come, converted if need be.
    pub(super) fn run(&self, direction: RowDirection) -> Result {
        match (self.numbers.count, self.places.columns) {
            (0, _) | (_, 0) => Ok(()),
            _ if self.places.kind == self.packed.kind => self.move_rows(direction),
            _ => self.convert_rows(direction),
        }
    }

    fn move_rows(&self, direction: RowDirection) -> Result {
        let (rows, (row_bytes, width, words)) = (self.rows(0), self.words());
        match direction {
            RowDirection::Gather => self.launch(&GatherRows { rows, row_bytes, width }, words),
            RowDirection::Scatter => self.launch(&ScatterRows { rows, row_bytes, width }, words),
        }
    }

    pub(super) fn convert_rows(&self, direction: RowDirection) -> Result {
        let (rows, columns) = (self.rows(0), self.places.columns);
        let (table_type, packed_type) = (self.places.kind.code(), self.packed.kind.code());
        let run = run_of(direction, columns, [self.places.side(), self.packed.side()]);
        let words = columns / run;
        match (direction, run > 1) {
            (RowDirection::Gather, true) => {
                self.launch(&GatherConvertedRuns { rows, columns, table_type, packed_type }, words)
            }
            (RowDirection::Gather, false) => {
                self.launch(&GatherConverted { rows, columns, table_type, packed_type }, words)
            }
            (RowDirection::Scatter, true) => {
                self.launch(&ScatterConvertedRuns { rows, columns, table_type, packed_type }, words)
            }
            (RowDirection::Scatter, false) => {
                self.launch(&ScatterConverted { rows, columns, table_type, packed_type }, words)
            }
        }
    }

    /// Bytes of a row, bytes of the widest words that it can be moved in, and the number of these.
    pub(super) fn words(&self) -> (u64, u32, u64) {
        let row_bytes = self.places.columns * self.places.kind.bytes() as u64;
        let width = alignment_of(self.places.side().alignment | self.packed.side().alignment | row_bytes);
        (row_bytes, width as u32, row_bytes.div_ceil(width))
    }
}

/// The rows of one side of a conversion.
#[derive(Debug, Clone, Copy)]
struct RowSide {
    kind: ElementType,
    /// Each row's address is a multiple of it.
    alignment: u64,
}

/// Elements that a thread converts at a time: those of a run in `wm_gather_converted_runs` and
/// `wm_scatter_converted_runs` where rows divide into runs and both sides (the table's first) are
/// aligned for them, else 1.
fn run_of(direction: RowDirection, columns: u64, sides: [RowSide; 2]) -> u64 {
    let [table, packed] = sides.map(|side| side.kind.bytes());
    let is_long = match direction {
        RowDirection::Gather => table < 8,
        RowDirection::Scatter => table <= 2 && packed < 8,
    };
    let run = if is_long { 4 } else { 2 };
    let is_aligned = |side: &RowSide| side.alignment >= (run * side.kind.bytes() as u64).min(WIDEST);
    if columns.is_multiple_of(run) && sides.iter().all(is_aligned) { run } else { 1 }
}

/// The largest power of two up to [`WIDEST`] that divides a number of bytes, or several whose bits
/// are united.
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

    #[test]
    fn runs_fit_both_sides() {
        let found = |direction, columns, table: (ElementType, u64), packed: (ElementType, u64)| {
            let side = |(kind, alignment)| RowSide { kind, alignment };
            run_of(direction, columns, [side(table), side(packed)])
        };
        let (half, float, double) = (ElementType::Half, ElementType::Float, ElementType::Double);
        for (columns, table, packed, gathered, scattered) in [
            (128, (half, 16), (float, 16), 4, 4),
            (126, (half, 16), (float, 16), 1, 1),
            (127, (half, 16), (float, 16), 1, 1),
            (126, (half, 16), (double, 16), 1, 2),
            (126, (float, 16), (half, 16), 1, 2),
            (128, (float, 16), (half, 4), 1, 2),
            (128, (half, 4), (float, 16), 1, 1),
            (128, (half, 8), (float, 8), 1, 1),
            (128, (double, 16), (half, 4), 2, 2),
            (128, (double, 8), (half, 16), 1, 1),
            (128, (float, 16), (double, 16), 4, 2),
        ] {
            assert_eq!(found(RowDirection::Gather, columns, table, packed), gathered, "{table:?} {packed:?}");
            assert_eq!(
                found(RowDirection::Scatter, columns, table, packed),
                scattered,
                "{table:?} {packed:?}"
            );
        }
    }
}
