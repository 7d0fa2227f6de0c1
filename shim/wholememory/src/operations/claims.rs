//! Rows that ranks of an island share in a gather from other islands: one of them asks for each,
//! and the others borrow it where it arrives. A rank borrows from itself as from others, so a row
//! that one rank names several times is asked for once, too.

use wm_abi::CUdeviceptr;
use wm_kernels::wholememory::{
    ArrivingRows, ChooseArrived, Chunks, ClaimMap, ClaimRows, IslandRows, LocateClaims, Numbers, PlaceClaims,
    ReleaseClaims, Table,
};

use crate::error::Result;
use crate::operations::moves::{PackedRows, Places, RowDirection, RowLaunch};
use crate::operations::scratch::{Scratch, Workspace};
use crate::spanning::steps::{Pair, SHARED_TURNS};
use crate::storage::landing::Landing;
use crate::vocabulary::codes::ElementType;

/// Bytes of a place, and of a number of a row that has arrived.
const PLACE_BYTES: u64 = 8;

/// See the file's text.
#[derive(Debug)]
pub(super) struct RowClaims {
    _scratch: Scratch,
    /// The numbers, with -1 for each whose row another position or rank asks for.
    pub(super) asked: Numbers,
    slots: CUdeviceptr,
    places: CUdeviceptr,
    chosen: CUdeviceptr,
    map: ClaimMap,
}

/// How rows arrive.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowArrival<'a> {
    pub(super) landing: &'a Landing,
    pub(super) chunk_rows: u64,
    pub(super) row_bytes: u64,
}

impl RowClaims {
    /// Claims rows for some numbers, where the table has such rows. None without memory to do so:
    /// then each number asks.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn make(
        workspace: &Workspace<'_>,
        numbers: Numbers,
        rows: IslandRows,
        landing: &Landing,
    ) -> Result<Option<Self>> {
        let count = numbers.count;
        let sizes = [u64::from(numbers.bytes) * count, 4 * count, PLACE_BYTES * count, PLACE_BYTES * count];
        let Ok((scratch, [asked, slots, places, chosen])) = workspace.allocate(sizes) else {
            return Ok(None);
        };
        let (all, capacity) = landing.slots();
        let map = ClaimMap { slots: all, capacity };
        let claim = ClaimRows { numbers, rows, map, asked, slots };
        workspace.communicator.kernels()?.launch(&claim, count, 0, workspace.stream)?;
        let asked = Numbers { address: asked, ..numbers };
        Ok(Some(Self { _scratch: scratch, asked, slots, places, chosen, map }))
    }

    /// Says where the rows of a pair arrive, of which `positions` are those in this rank's call.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn place(
        &self,
        workspace: &Workspace<'_>,
        (pair, positions): (&Pair, Numbers),
        arrival: RowArrival<'_>,
    ) -> Result {
        let arriving = ArrivingRows {
            chunk_rows: arrival.chunk_rows,
            buffer: arrival.landing.buffer(pair.partner, 0),
            apart: arrival.landing.shape().shared_apart(),
            turns: SHARED_TURNS,
        };
        let place = PlaceClaims { positions, slots: self.slots, map: self.map, arriving };
        self.launch(workspace, &place, positions.count)
    }

    /// Finds where the rows arrive that are borrowed.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn locate(&self, workspace: &Workspace<'_>) -> Result {
        let (asked, slots, map, places) = (self.asked, self.slots, self.map, self.places);
        self.launch(workspace, &LocateClaims { asked, slots, map, places }, asked.count)
    }

    /// Copies the rows of one chunk of all pairs to the positions that borrow them.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn borrow(
        &self,
        workspace: &Workspace<'_>,
        (chunk, arrival): (u64, RowArrival<'_>),
        (wire, packed): (ElementType, PackedRows),
        multiprocessors: i32,
    ) -> Result {
        let (places, count, rows) = (self.places, self.asked.count, self.chosen);
        self.launch(workspace, &ChooseArrived { places, count, chunk, rows }, count)?;
        let (bases, buffers) = arrival.landing.buffers();
        let chunks = Chunks { bases, starts: 0, equal: arrival.chunk_rows, count: buffers as u32 };
        let table = Table::over(chunks, buffers * arrival.chunk_rows, arrival.row_bytes, 0);
        let places = Places::over(table, packed.columns, wire);
        let numbers = Numbers { address: rows, count, bytes: PLACE_BYTES as u32 };
        RowLaunch { workspace, multiprocessors, places, packed, numbers }.run(RowDirection::Gather)
    }

    /// Gives the slots back of all rows that this rank asks for, at some positions.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn release(&self, workspace: &Workspace<'_>, positions: Numbers) -> Result {
        let release = ReleaseClaims { positions, slots: self.slots, map: self.map };
        self.launch(workspace, &release, positions.count)
    }

    fn launch<A: wm_kernels::Arguments>(
        &self,
        workspace: &Workspace<'_>,
        arguments: &A,
        work: u64,
    ) -> Result {
        match work {
            0 => Ok(()),
            _ => workspace.communicator.kernels()?.launch(arguments, work, 0, workspace.stream),
        }
    }
}
