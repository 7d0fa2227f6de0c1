//! Memory of all ranks: rows that are divided among them, on their GPUs or in memory of the host.
//!
//! Every rank maps all of it. The memory's type says which pointers the API returns: one, one for
//! each rank, or the rank's own.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock, Weak};

use wm_kernels::wholememory::{Chunks, Table};

use crate::communicator::Communicator;
use crate::error::{Error, Result, require};
use crate::storage::Storage;
use crate::storage::layout::StorageLayout;
use crate::storage::tables::{DeviceTables, Tables};
use crate::vocabulary::codes::{Location, MemoryType};
use crate::vocabulary::partition::Partition;

/// The request for memory, alike on all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRequest {
    /// Bytes of all ranks' parts together.
    pub bytes: u64,
    /// How ranks reach each other's part.
    pub memory_type: MemoryType,
    /// Its location.
    pub location: Location,
    /// Bytes of a row: a part has whole rows.
    pub granularity: u64,
    /// Rows of each rank; equal parts without it.
    pub partition: Option<Vec<u64>>,
}

/// A rank's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankMemory {
    /// Its address at the rank that asks.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of the parts before it.
    pub offset: u64,
}

/// The owner of copies of a memory's rows.
pub trait RowCopies: Debug + Send + Sync {
    /// Forgets this rank's copies, when rows were written; returns when that is done.
    ///
    /// # Errors
    /// The driver's.
    fn forget(&self) -> Result;
}

/// Memory of all ranks, as one of them sees it.
#[derive(Debug)]
pub struct Memory {
    communicator: Arc<Communicator>,
    request: MemoryRequest,
    partition: Partition,
    layout: StorageLayout,
    storage: Storage,
    tables: Tables,
    /// Of hierarchical memory: the ranks of this machine, and those of this number on every
    /// machine.
    parts: Option<[Arc<Communicator>; 2]>,
    /// On all ranks or on none. They may be gone.
    copies: OnceLock<Weak<dyn RowCopies>>,
}

impl Memory {
    /// Makes memory. A collective call.
    ///
    /// # Errors
    /// The same on every rank, with nothing left behind: [`Error::Input`] for sizes that do not fit
    /// each other or arguments that differ, [`Error::Memory`], [`Error::NotSupported`].
    pub fn new(communicator: &Arc<Communicator>, request: MemoryRequest) -> Result<Self> {
        let text = format!("{request:?}");
        let partition = plan(communicator, &request);
        communicator.agree("malloc", partition.as_ref().map(drop).map_err(Clone::clone), text.as_bytes())?;
        let partition = partition?;
        let page = Storage::page(communicator, request.location)?;
        let layout = StorageLayout::new(
            (request.memory_type, request.location),
            &partition,
            request.granularity,
            page,
        );
        let parts = match request.memory_type {
            MemoryType::Hierarchy => Some(divide(communicator)?),
            _ => None,
        };
        let storage = Storage::new(communicator, request.location, &layout)?;
        let tables = Tables::new(communicator, &layout, &partition, request.granularity, storage.base());
        communicator.agree("malloc tables", tables.as_ref().map(drop).map_err(Clone::clone), &[])?;
        let (communicator, tables) = (Arc::clone(communicator), tables?);
        let copies = OnceLock::new();
        Ok(Self { communicator, request, partition, layout, storage, tables, parts, copies })
    }

    /// Sets the owner of copies of its rows, once.
    pub fn has_copies(&self, copies: Weak<dyn RowCopies>) {
        let _first = self.copies.set(copies);
    }

    /// All ranks have written rows, and forget copies of them. A collective call.
    ///
    /// # Errors
    /// The driver's, on any rank.
    pub fn forget_copies(&self, call: &str) -> Result {
        let Some(copies) = self.copies.get() else { return Ok(()) };
        let forgotten = copies.upgrade().map_or(Ok(()), |copies| copies.forget());
        self.communicator.agree(call, forgotten, &[])
    }

    /// The ranks that have it.
    pub fn communicator(&self) -> &Arc<Communicator> {
        &self.communicator
    }

    /// The request.
    pub fn request(&self) -> &MemoryRequest {
        &self.request
    }

    /// Which rank has which rows.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Of hierarchical memory, the ranks of this machine, and those of the same number on every
    /// machine.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for other types.
    pub fn parts(&self) -> Result<&[Arc<Communicator>; 2]> {
        let reason = "only hierarchical memory has a communicator for each level";
        self.parts.as_ref().ok_or_else(|| Error::NotSupported(reason.to_owned()))
    }

    /// A rank's part, wherever it lies: for operations of ours.
    pub fn part(&self, rank: usize) -> RankMemory {
        let row = self.request.granularity;
        RankMemory {
            address: self.storage.base() + self.layout.parts[rank],
            bytes: self.partition.count(rank) * row,
            offset: self.partition.start(rank) * row,
        }
    }

    /// This rank's own part.
    pub fn own_part(&self) -> RankMemory {
        self.part(self.communicator.rank())
    }

    /// A rank's part, as far as the type shows it.
    ///
    /// # Errors
    /// [`Error::Input`] for a rank that there is not, and for another rank's part of distributed
    /// memory.
    pub fn rank_memory(&self, rank: i32) -> Result<RankMemory> {
        let rank = usize::try_from(rank).ok().filter(|rank| *rank < self.communicator.size());
        let rank = rank.ok_or_else(|| Error::Input(format!("not a rank of {}", self.communicator.size())))?;
        let is_shown = matches!(self.request.memory_type, MemoryType::Continuous | MemoryType::Chunked);
        require(
            is_shown || rank == self.communicator.rank(),
            "of distributed memory a rank sees its own part alone",
        )?;
        Ok(self.part(rank))
    }

    /// The address of all of it.
    ///
    /// # Errors
    /// [`Error::Input`] where there are several, or the type does not show it.
    pub fn global_pointer(&self) -> Result<u64> {
        let is_one = match (self.request.memory_type, self.request.location) {
            (MemoryType::Continuous, _) => true,
            // One range, as all memory of the host of one machine.
            (MemoryType::Chunked, Location::Host) => true,
            _ => false,
        };
        require(is_one, "this type of memory has no one address")?;
        Ok(self.storage.base())
    }

    /// Whether parts follow each other without gaps, also where the API does not show it.
    pub fn is_one_range(&self) -> bool {
        let row = self.request.granularity;
        let follows = |rank: usize| {
            self.partition.count(rank) == 0 || self.layout.parts[rank] == self.partition.start(rank) * row
        };
        (0..self.partition.ranks()).all(follows)
    }

    /// Arrays by which a kernel finds a row.
    pub fn tables(&self) -> DeviceTables {
        self.tables.places()
    }

    /// The parts, as kernels find them.
    pub fn chunks(&self) -> Chunks {
        let DeviceTables { bases, starts, .. } = self.tables();
        Chunks { bases, starts, equal: self.partition.equal_count(), count: self.partition.ranks() as u32 }
    }

    /// A table of rows of `stride` bytes, from byte `offset` on, as kernels find it.
    pub fn table(&self, rows: u64, stride: u64, offset: u64) -> Table {
        if self.is_one_range() {
            return Table { offset, ..Table::at(self.part(0).address, rows, stride) };
        }
        Table::over(self.chunks(), rows, stride, offset)
    }

    /// Bytes from one part to the next where that is the same between all, and the parts lie so;
    /// else 0.
    pub fn stride(&self) -> u64 {
        self.partition.equal_count() * self.request.granularity
    }
}

fn plan(communicator: &Communicator, request: &MemoryRequest) -> Result<Partition> {
    let MemoryRequest { bytes, granularity, .. } = *request;
    require(granularity > 0, "the granularity is 0")?;
    require(bytes % granularity == 0, &format!("{bytes} bytes are no whole rows of {granularity}"))?;
    let most = 1 << 47;
    if bytes >= most || granularity >= most {
        return Err(Error::Memory(format!("{bytes} bytes")));
    }
    communicator.supports(request.memory_type, request.location)?;
    let (rows, ranks) = (bytes / granularity, communicator.size());
    match &request.partition {
        None => Ok(Partition::equal(rows, ranks)),
        Some(each) => {
            require(each.len() == ranks, &format!("a partition among {} for {ranks} ranks", each.len()))?;
            Partition::custom(rows, each)
        }
    }
}

/// All ranks are on one machine: one level has all of them, the other is each rank alone.
fn divide(communicator: &Communicator) -> Result<[Arc<Communicator>; 2]> {
    let lost = || Error::Communication("a part without this rank".to_owned());
    let rank = communicator.rank() as i32;
    let local = communicator.split(Ok((0, rank)))?.ok_or_else(lost)?;
    let cross = communicator.split(Ok((rank, 0)))?.ok_or_else(lost)?;
    Ok([Arc::new(local), Arc::new(cross)])
}
