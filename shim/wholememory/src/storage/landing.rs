//! Memory that the ranks of an island share in gathers from other islands: buffers in which rows
//! arrive at each rank, and slots by which ranks say which of them asks for a row.
//!
//! Invariants: NCCL writes to a rank's buffers alone, which are on its GPU, and do not move,
//! because they are shared memory. Slots are free between two calls, unless a call has failed since
//! they were wiped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wm_abi::{CUdeviceptr, CUstream};
use wm_driver::Api;

use crate::communicator::Communicator;
use crate::error::Result;
use crate::spanning::rails;
use crate::spanning::steps::StagingShape;
use crate::storage::Storage;
use crate::storage::layout::StorageLayout;
use crate::storage::tables::DeviceWords;
use crate::vocabulary::codes::{Location, MemoryType};
use crate::vocabulary::islands::Islands;
use crate::vocabulary::partition::Partition;

/// Bytes of all chunks of a step that one rank asks for, where rows are shared.
const STEP_BYTES: u64 = 8 << 20;
/// Bytes of a slot.
const SLOT_BYTES: u64 = 16;
/// Slots on each GPU for a row of the table, and at most: further rows cross for each rank.
const SLOTS_A_ROW: u64 = 2;
const MOST_SLOTS: u64 = 1 << 20;

/// See the file's text.
#[derive(Debug)]
pub struct Landing {
    slots: Storage,
    buffers: Storage,
    /// The address of each buffer, of all members.
    bases: DeviceWords,
    /// Bytes of a member's slots, and of its buffers.
    parts: (u64, u64),
    shape: StagingShape,
    members: u64,
    /// This rank's number among them.
    number: u64,
    /// The calls that had failed when all slots were free.
    clean: AtomicU64,
}

impl Landing {
    /// Memory for a table of so many rows of so many bytes, of which each rank of the communicator
    /// gets its island's; that of a table before, if it is enough. `None` where ranks cannot share
    /// rows. A collective call; the islands are connected.
    ///
    /// # Errors
    /// The same on every rank.
    pub fn of(
        communicator: &Communicator,
        islands: &Islands,
        (rows, row_bytes): (u64, u64),
    ) -> Result<Option<Arc<Self>>> {
        let has_mates = (0..islands.count()).any(|island| islands.members(island).len() > 1);
        // Rows of the host lie with all ranks of a machine, of which not all may reach each other's
        // GPUs.
        if !has_mates || islands != communicator.islands(Location::Device) || !communicator.are_atomic() {
            return Ok(None);
        }
        let before = communicator.landing().clone().and_then(|landing| landing.downcast::<Self>().ok());
        let slots = (SLOTS_A_ROW * rows).clamp(1, MOST_SLOTS);
        if let Some(before) = before.filter(|before| before.has(slots, row_bytes)) {
            return Ok(Some(before));
        }
        let made = Arc::new(Self::new(communicator, islands, slots, row_bytes)?);
        let shared: Arc<Self> = Arc::clone(&made);
        *communicator.landing() = Some(shared);
        Ok(Some(made))
    }

    fn has(&self, slots: u64, row_bytes: u64) -> bool {
        self.parts.0 >= slots * SLOT_BYTES && self.shape.fits(row_bytes)
    }

    fn new(communicator: &Communicator, islands: &Islands, slots: u64, row_bytes: u64) -> Result<Self> {
        let rank = communicator.rank();
        let members = islands.members(islands.of(rank));
        let page = Storage::page(communicator, Location::Device)?;
        let storage = |bytes: u64| {
            let each = Partition::equal(members.len() as u64, members.len());
            let layout = StorageLayout::new((MemoryType::Continuous, Location::Device), &each, bytes, page);
            Storage::new(communicator, members, Location::Device, &layout)
        };
        let shape = StagingShape::new(rails::most_partners(islands), STEP_BYTES, row_bytes);
        // A member's part begins with a page, so it is on its own GPU.
        let parts = [slots * SLOT_BYTES, shape.shared_bytes()].map(|bytes| bytes.next_multiple_of(page));
        let parts = (parts[0], parts[1]);
        let (slots, buffers) = (storage(parts.0)?, storage(parts.1)?);
        let (members, number) = (members.len() as u64, islands.number(rank) as u64);
        let base = |member: u64| buffers.base() + member * parts.1;
        let bases: Vec<_> = (0..members)
            .flat_map(|member| {
                (0..shape.shared_buffers()).map(move |buffer| base(member) + shape.shared_at(buffer))
            })
            .collect();
        let bases = DeviceWords::new(communicator, &bases);
        let failures = communicator.fabric().as_ref().map_or(0, |fabric| fabric.failures());
        let made = bases.and_then(|bases| {
            let clean = AtomicU64::new(failures);
            let made = Self { slots, buffers, bases, parts, shape, members, number, clean };
            let (driver, _current) = (communicator.driver(), communicator.enter()?);
            made.wipe(communicator, CUstream::NULL)?;
            driver.stream_synchronize(CUstream::NULL)?;
            Ok(made)
        });
        communicator.agree("memory of an island", made.as_ref().map(drop).map_err(Clone::clone), &[])?;
        made
    }

    /// How rows are cut into chunks.
    pub fn shape(&self) -> StagingShape {
        self.shape
    }

    /// The address of the island's slots, and how many there are.
    pub fn slots(&self) -> (CUdeviceptr, u64) {
        (self.slots.base(), self.members * self.parts.0 / SLOT_BYTES)
    }

    /// The array of all buffers' addresses, and how many there are.
    pub fn buffers(&self) -> (CUdeviceptr, u64) {
        (self.bases.address(), self.members * self.shape.shared_buffers())
    }

    /// The number of this rank's buffer for a chunk among all.
    pub fn buffer(&self, partner: usize, chunk: u64) -> u64 {
        self.number * self.shape.shared_buffers() + self.shape.shared_buffer(partner, chunk)
    }

    /// The address of that buffer.
    pub fn buffer_at(&self, partner: usize, chunk: u64) -> CUdeviceptr {
        let buffer = self.shape.shared_buffer(partner, chunk);
        self.buffers.base() + self.number * self.parts.1 + self.shape.shared_at(buffer)
    }

    /// Are slots free, when so many calls have failed? The same at all ranks.
    pub fn is_clean(&self, failures: u64) -> bool {
        self.clean.load(Relaxed) == failures
    }

    /// Frees this rank's slots, in a stream. The context is current.
    ///
    /// # Errors
    /// The driver's.
    pub fn wipe(&self, communicator: &Communicator, stream: CUstream) -> Result {
        let (to, bytes) = (self.slots.base() + self.number * self.parts.0, self.parts.0 as usize);
        // SAFETY: this rank's part of the slots.
        Ok(unsafe { communicator.driver().memset_d8_async(to, 0, bytes, stream) }?)
    }

    /// All ranks have wiped their slots, when so many calls had failed.
    pub fn is_wiped(&self, failures: u64) {
        self.clean.store(failures, Relaxed);
    }
}
