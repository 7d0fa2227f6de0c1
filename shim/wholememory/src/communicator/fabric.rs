//! The fabric of a communicator whose ranks are on several islands: made by the first memory that
//! spans them.

use std::sync::{Arc, MutexGuard, PoisonError};

use wm_trust::environment;

use super::{Communicator, SharedPart};
use crate::error::{Error, Result};
use crate::nccl::library::{ID_BYTES, Nccl, UniqueId};
use crate::spanning::fabric::{Fabric, FabricPlace};
use crate::spanning::gpu::RankGpu;
use crate::spanning::meeting::RankMeeting;
use crate::spanning::rails::{self, Partners};
use crate::spanning::steps::StagingShape;
use crate::vocabulary::codes::Location;
use crate::vocabulary::islands::Islands;

/// Bytes of all chunks of a step that one rank has of a kind, for large tables: enough that a step
/// lasts longer than its begin also over links between GPUs.
const STEP_BYTES: u64 = 32 << 20;
/// The same for small tables, whose staging memory should not be larger than they are.
const SMALL_STEP_BYTES: u64 = 8 << 20;

/// Bytes of a step for a table of so many.
fn step_bytes(table: u64) -> u64 {
    (table / 8).clamp(SMALL_STEP_BYTES, STEP_BYTES)
}

/// Do gathers and scatters return only when the rows of all ranks have moved?
/// `WMSHIM_WHOLEMEMORY_WAIT`.
fn waits_for_rows() -> bool {
    let Some(text) = environment::text("WMSHIM_WHOLEMEMORY_WAIT") else { return false };
    environment::switch(&text).unwrap_or_else(|| {
        log::warn!("WMSHIM_WHOLEMEMORY_WAIT={text}: neither on nor off; off is used");
        false
    })
}

impl Communicator {
    /// The staging memory of a table of so many rows of so many bytes, between islands.
    pub(crate) fn staging(islands: &Islands, (rows, row_bytes): (u64, u64)) -> StagingShape {
        let bytes = step_bytes(rows.saturating_mul(row_bytes));
        StagingShape::new(rails::most_partners(islands), bytes, row_bytes)
    }

    /// Connects the islands, if none of this communicator's memory has, and has room for their
    /// exchanges of a table's rows, given how many there are and bytes of a row. Returns a number
    /// for the memory. A collective call.
    ///
    /// # Errors
    /// The same on every rank: [`Error::NotSupported`] without NCCL; [`Error::Communication`] where
    /// ranks do not meet, which ends the communicator; the driver's.
    pub(crate) fn connect(&self, islands: &Islands, rows: (u64, u64)) -> Result<u64> {
        let nccl = Nccl::of_process();
        self.agree("open NCCL", nccl.as_ref().map(drop).map_err(Clone::clone), &[])?;
        let mut fabric = self.fabric.lock().unwrap_or_else(PoisonError::into_inner);
        if fabric.is_none() {
            *fabric = Some(self.meet_by(nccl?)?);
        }
        let fabric = fabric.as_mut().ok_or_else(|| Error::Logic("no fabric".to_owned()))?;
        let reserved = fabric.is_whole();
        let reserved = reserved.and_then(|()| fabric.reserve(Self::staging(islands, rows).bytes()));
        self.agree("memory between islands", reserved, &[])?;
        Ok(fabric.number_of_memory())
    }

    fn meet_by(&self, nccl: &'static Nccl) -> Result<Fabric> {
        let id = if self.rank() == 0 { nccl.unique_id() } else { Ok(UniqueId([0; ID_BYTES])) };
        self.agree("ncclGetUniqueId", id.as_ref().map(drop).map_err(Clone::clone), &[])?;
        let told = self.round("NCCL's id", &id?.0)?;
        let id = told.first().and_then(|part| part.bytes.first_chunk());
        let id = UniqueId(*id.ok_or_else(|| Error::Communication("rank 0 sent no id of NCCL".to_owned()))?);
        let gpu = RankGpu { driver: self.driver(), device: self.device(), context: self.context() };
        let (ranks, waits) = (Arc::clone(&self.exchange), waits_for_rows());
        let place =
            self.kernels().map(|kernels| FabricPlace { gpu, kernels: Arc::clone(kernels), ranks, waits });
        let divisions = [Location::Device, Location::Host].map(|location| self.islands(location));
        let most = divisions.iter().map(|islands| islands.count()).max().unwrap_or(1);
        let (rank, size) = (self.rank(), self.size());
        let partners = Partners::new(&divisions, rank);
        let meeting = RankMeeting { nccl, id, rank, size, partners };
        let begun = place.and_then(|place| Fabric::begin(place, meeting, most));
        self.agree("begin NCCL", begun.as_ref().map(drop).map_err(Clone::clone), &[])?;
        let mut fabric = begun?;
        // A rank that fails here cannot tell the others, which wait for it in NCCL.
        fabric.meet()?;
        self.agree("meet by NCCL", Ok(()), &[]).map(|()| fabric)
    }

    /// The fabric, for one operation: collective calls of one communicator are made one after the
    /// other.
    pub(crate) fn fabric(&self) -> MutexGuard<'_, Option<Fabric>> {
        self.fabric.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place for what ranks of an island share in exchanges of all of its memory. It is there
    /// as long as the communicator, because the ranks make it together.
    pub(crate) fn landing(&self) -> MutexGuard<'_, Option<SharedPart>> {
        self.landing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Do the GPUs of each island do atomic operations in each other's memory? All ranks know the
    /// same.
    pub(crate) fn are_atomic(&self) -> bool {
        self.islands.are_atomic(&self.ranks)
    }

    /// Waits for the rows of gathers and scatters over islands that have returned.
    ///
    /// # Errors
    /// [`Error::Communication`] where a rank was lost meanwhile.
    pub(crate) fn drain(&self) -> Result {
        // In a child of the process the lock may be held by a thread that there is not.
        if self.exchange.is_own().is_err() {
            return Ok(());
        }
        self.fabric().as_ref().map_or(Ok(()), Fabric::drain)
    }

    /// Why a rank was lost, if that came before an error of the GPU's.
    pub(crate) fn reason(&self, error: Error) -> Error {
        self.fabric().as_ref().and_then(|fabric| fabric.is_whole().err()).unwrap_or(error)
    }

    /// Ends the communicator for all ranks.
    pub(crate) fn break_off(&self, error: &Error) {
        self.exchange.break_off(error);
    }
}
