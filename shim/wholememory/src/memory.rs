//! Memory of all ranks: rows that are divided among them, on their GPUs or in memory of the host.
//!
//! Every rank maps all parts of its island. The memory's type says which pointers the API returns:
//! one, one for each rank, or the rank's own. Distributed and hierarchical memory may *span*
//! several islands: then kernels find the rows of one island, and only operations that pass rows
//! between islands are supported.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use wm_kernels::wholememory::{Chunks, IslandRows, Table};

use crate::communicator::Communicator;
use crate::error::{Error, Result, require};
use crate::spanning::claiming::ClaimPolicy;
use crate::spanning::repeats::RepeatPolicy;
use crate::storage::Storage;
use crate::storage::landing::Landing;
use crate::storage::layout::StorageLayout;
use crate::storage::tables::{DeviceTables, Tables};
use crate::vocabulary::codes::{Location, MemoryType};
use crate::vocabulary::islands::Islands;
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
    /// Rows of the members of this rank's island.
    island: Partition,
    layout: StorageLayout,
    storage: Storage,
    tables: Tables,
    /// Of memory that spans islands: its number among such memory of the communicator.
    span: Option<u64>,
    /// Of such memory: whether gathers look for numbers that repeat.
    repeats: Mutex<RepeatPolicy>,
    /// Of hierarchical memory that spans islands: what its ranks share in gathers, if they can; and
    /// whether they do.
    landing: Option<Arc<Landing>>,
    claims: Mutex<ClaimPolicy>,
    /// Of hierarchical memory: the ranks of this machine, and those of this number on every
    /// machine.
    parts: Option<[Arc<Communicator>; 2]>,
    /// On all ranks or on none. They may be gone.
    copies: OnceLock<Weak<dyn RowCopies>>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.span.is_some() {
            // This rank serves rows to others in calls that have returned.
            let _lost = self.communicator.drain();
        }
    }
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
        let islands = communicator.islands(request.location);
        let members = islands.members(islands.of(communicator.rank()));
        let (island, row) = (partition.of_members(members), request.granularity);
        let layout = StorageLayout::new((request.memory_type, request.location), &island, row, page);
        let span = if islands.count() > 1 {
            Some(communicator.connect(islands, (partition.rows(), request.granularity))?)
        } else {
            None
        };
        let (parts, landing) = match request.memory_type {
            MemoryType::Hierarchy => {
                let rows = (partition.rows(), request.granularity);
                let landing = span.map(|_| Landing::of(communicator, islands, rows)).transpose()?.flatten();
                (Some(divide(communicator, islands)?), landing)
            }
            _ => (None, None),
        };
        let storage = Storage::new(communicator, members, request.location, &layout)?;
        let tables =
            Tables::new(communicator, (&layout, &island, storage.base()), (islands, &partition), row);
        communicator.agree("malloc tables", tables.as_ref().map(drop).map_err(Clone::clone), &[])?;
        Ok(Self {
            communicator: Arc::clone(communicator),
            request,
            partition,
            island,
            layout,
            storage,
            tables: tables?,
            span,
            repeats: Mutex::default(),
            landing,
            claims: Mutex::default(),
            parts,
            copies: OnceLock::new(),
        })
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

    /// How the ranks lie on islands, for this memory.
    pub fn islands(&self) -> &Islands {
        self.communicator.islands(self.request.location)
    }

    /// Of memory that spans islands: its number.
    pub fn span(&self) -> Option<u64> {
        self.span
    }

    /// Of memory that spans islands: whether gathers look for numbers that repeat.
    pub fn repeats(&self) -> MutexGuard<'_, RepeatPolicy> {
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What ranks of an island share in gathers, if they can.
    pub fn landing(&self) -> Option<&Arc<Landing>> {
        self.landing.as_ref()
    }

    /// Whether they do.
    pub fn claims(&self) -> MutexGuard<'_, ClaimPolicy> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses memory that spans islands, for an operation that finds all rows by addresses.
    ///
    /// # Errors
    /// [`Error::NotSupported`], the same at every rank.
    pub fn is_mapped(&self) -> Result {
        match self.span {
            None => Ok(()),
            Some(_) => Err(Error::NotSupported(format!(
                "this operation reaches rows by their addresses, and the memory spans {} islands of ranks: over \
                 these, rows are gathered, scattered, loaded and stored",
                self.islands().count()
            ))),
        }
    }

    /// A rank's part, wherever it lies: for operations of ours. The address is 0 in another island.
    pub fn part(&self, rank: usize) -> RankMemory {
        let (row, islands) = (self.request.granularity, self.islands());
        let is_mapped = islands.of(rank) == islands.of(self.communicator.rank());
        let address = || self.storage.base() + self.layout.parts[islands.number(rank)];
        RankMemory {
            address: if is_mapped { address() } else { 0 },
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

    /// Whether the island's parts follow each other without gaps, also where the API does not show
    /// it.
    fn is_one_range(&self) -> bool {
        let row = self.request.granularity;
        let follows = |member: usize| {
            self.island.count(member) == 0 || self.layout.parts[member] == self.island.start(member) * row
        };
        (0..self.island.ranks()).all(follows)
    }

    /// Arrays by which a kernel finds a row.
    ///
    /// # Errors
    /// As of [`Memory::is_mapped`].
    pub fn tables(&self) -> Result<DeviceTables> {
        self.is_mapped().map(|()| self.tables.places())
    }

    /// The parts, as kernels find them.
    ///
    /// # Errors
    /// As of [`Memory::is_mapped`].
    pub fn chunks(&self) -> Result<Chunks> {
        self.is_mapped().map(|()| self.chunks_of_island())
    }

    /// A table of rows of `stride` bytes, from byte `offset` on, as kernels find it.
    ///
    /// # Errors
    /// As of [`Memory::is_mapped`].
    pub fn table(&self, rows: u64, stride: u64, offset: u64) -> Result<Table> {
        self.is_mapped().map(|()| self.island_table(rows, stride, offset))
    }

    /// Rows of the members of this rank's island, in the order of its ranks.
    pub fn island(&self) -> &Partition {
        &self.island
    }

    /// The parts of this rank's island, as kernels find them.
    pub fn chunks_of_island(&self) -> Chunks {
        let DeviceTables { bases, starts, .. } = self.tables.places();
        Chunks { bases, starts, equal: self.island.equal_count(), count: self.island.ranks() as u32 }
    }

    fn island_table(&self, rows: u64, stride: u64, offset: u64) -> Table {
        if self.is_one_range() {
            let base = self.storage.base() + self.layout.parts[0];
            return Table { offset, ..Table::at(base, rows, stride) };
        }
        Table::over(self.chunks_of_island(), rows, stride, offset)
    }

    /// The rows of this rank's island, numbered from 0 in the order of its ranks, each from byte
    /// `offset` on, as kernels find them.
    pub fn table_of_island(&self, offset: u64) -> Table {
        self.island_table(self.island.rows(), self.request.granularity, offset)
    }

    /// Which island has which of `rows` rows from row `first` on, as kernels find it.
    pub fn rows_of_islands(&self, first: u64, rows: u64) -> IslandRows {
        let (tables, islands) = (self.tables.islands(), self.islands());
        let (equal, count) = (self.partition.equal_count(), self.partition.ranks() as u32);
        IslandRows {
            chunks: Chunks { bases: 0, starts: tables.starts, equal, count },
            islands: tables.islands,
            firsts: tables.firsts,
            rows,
            first,
            own: islands.of(self.communicator.rank()) as u32,
            count: islands.count() as u32,
        }
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
    let most_islands = 1024;
    if communicator.islands(request.location).count() > most_islands {
        return Err(Error::NotSupported(format!("more than {most_islands} islands")));
    }
    let (rows, ranks) = (bytes / granularity, communicator.size());
    match &request.partition {
        None => Ok(Partition::equal(rows, ranks)),
        Some(each) => {
            require(each.len() == ranks, &format!("a partition among {} for {ranks} ranks", each.len()))?;
            Partition::custom(rows, each)
        }
    }
}

/// One level has the ranks of an island, the other those of the same number on every island.
fn divide(communicator: &Communicator, islands: &Islands) -> Result<[Arc<Communicator>; 2]> {
    let lost = || Error::Communication("a part without this rank".to_owned());
    let rank = communicator.rank();
    let (island, number, key) = (islands.of(rank) as i32, islands.number(rank) as i32, rank as i32);
    let local = communicator.split(Ok((island, key)))?.ok_or_else(lost)?;
    let cross = communicator.split(Ok((number, key)))?.ok_or_else(lost)?;
    Ok([Arc::new(local), Arc::new(cross)])
}
