//! Row numbers that repeat in a gather over islands: a row of another island crosses once, to one
//! of the positions that name it, and is copied from there to the others. So no chunk of rows needs
//! to know more than one position of a row, and a row is converted once.

use wm_kernels::wholememory::{FindRepeats, IslandRows, Numbers, PositionMap};

use crate::error::Result;
use crate::operations::moves::{PackedRows, Places, RowDirection, RowLaunch};
use crate::operations::scratch::{Scratch, Workspace};
use crate::operations::upload;

/// A table keeps a free slot for each one that is taken, at least: probes are short.
const SLOTS_A_NUMBER: u64 = 2;

/// Can repeats of so many numbers be found? Positions have 31 bits.
pub(super) fn can_be_found(count: u64) -> bool {
    (2..1 << 31).contains(&count)
}

/// See the file's text.
#[derive(Debug)]
pub(super) struct Repeats {
    _scratch: Scratch,
    /// The numbers, with -1 for each that repeats another one.
    pub(super) asked: Numbers,
    /// The position that a row is copied from, or -1 where none is.
    sources: Numbers,
}

impl Repeats {
    /// Those of some numbers, where the table has such rows. None without memory to find them: then
    /// each number crosses.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn find(
        workspace: &Workspace<'_>,
        numbers: Numbers,
        rows: IslandRows,
    ) -> Result<Option<Self>> {
        let capacity = (SLOTS_A_NUMBER * numbers.count).next_power_of_two();
        let sizes = [4 * capacity, u64::from(numbers.bytes) * numbers.count, 4 * numbers.count];
        let Ok((scratch, [slots, asked, sources])) = workspace.allocate(sizes) else { return Ok(None) };
        let (communicator, stream) = (workspace.communicator, workspace.stream);
        upload::fill_bytes(communicator, slots, 4 * capacity, u8::MAX, stream)?;
        let map = PositionMap { slots, capacity };
        let finding = FindRepeats { numbers, rows, map, asked, sources };
        communicator.kernels()?.launch(&finding, numbers.count, 0, stream)?;
        let (asked, sources) =
            (Numbers { address: asked, ..numbers }, Numbers { address: sources, bytes: 4, ..numbers });
        Ok(Some(Self { _scratch: scratch, asked, sources }))
    }

    /// Copies rows that have come to the positions of their repeats. No row that is read is
    /// written.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn copy(&self, workspace: &Workspace<'_>, packed: PackedRows, multiprocessors: i32) -> Result {
        let (places, numbers) = (Places::at(&packed, self.sources.count), self.sources);
        RowLaunch { workspace, multiprocessors, places, packed, numbers }.run(RowDirection::Gather)
    }
}
