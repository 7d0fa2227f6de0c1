//! The fabric of a communicator whose ranks are on several islands: made by the first memory that
//! spans them.

use std::sync::{MutexGuard, PoisonError};

use super::Communicator;
use crate::error::{Error, Result};
use crate::nccl::library::{ID_BYTES, Nccl, UniqueId};
use crate::spanning::fabric::Fabric;
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
        let place = RankGpu { driver: self.driver(), device: self.device(), context: self.context() };
        let divisions = [Location::Device, Location::Host].map(|location| self.islands(location));
        let most = divisions.iter().map(|islands| islands.count()).max().unwrap_or(1);
        let (rank, size) = (self.rank(), self.size());
        let partners = Partners::new(&divisions, rank);
        let begun =
            Fabric::begin(place, self.patience(), RankMeeting { nccl, id, rank, size, partners }, most);
        self.agree("begin NCCL", begun.as_ref().map(drop).map_err(Clone::clone), &[])?;
        let mut fabric = begun?;
        // A rank that fails here cannot tell the others, which wait for it in NCCL.
        fabric.meet(&|| self.check()).inspect_err(|error| self.break_off(error))?;
        self.agree("meet by NCCL", Ok(()), &[]).map(|()| fabric)
    }

    /// The fabric, for one operation: collective calls of one communicator are made one after the
    /// other.
    pub(crate) fn fabric(&self) -> MutexGuard<'_, Option<Fabric>> {
        self.fabric.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Are all ranks there, as far as this one sees? Does not wait.
    ///
    /// # Errors
    /// [`Error::Communication`] where one has ended.
    pub(crate) fn check(&self) -> Result {
        self.exchange.check()
    }

    /// Ends the communicator for all ranks.
    pub(crate) fn break_off(&self, error: &Error) {
        self.exchange.break_off(error);
    }
}
