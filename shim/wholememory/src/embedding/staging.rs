//! Memory through which ranks hand in gradients: in each island a slot for every rank of the world,
//! in the order of ranks, that all ranks of the island map.
//!
//! A rank writes its own slot. If ranks are on several islands, each rank sends its slot to its
//! server in every other island, which receives it into the same slot there. So each owner finds
//! the gradients of all ranks in the same order, however ranks lie on islands.
//!
//! Invariant: NCCL reads and writes the slots themselves. They are shared memory, which never
//! moves.

use std::sync::Arc;

use wm_abi::{CUdeviceptr, CUstream};
use wm_driver::Api;
use wm_kernels::wholememory::{GatherRows, Numbers, RowSet, SortBegin, SortKeys, Strided, Table};

use crate::communicator::Communicator;
use crate::error::{Error, Result, require};
use crate::memory::{Memory, MemoryRequest};
use crate::nccl::link::NcclTransfer;
use crate::operations::array::numbers;
use crate::operations::scratch::Workspace;
use crate::operations::upload;
use crate::spanning::fabric::Fabric;
use crate::spanning::rails;
use crate::spanning::slots;
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::{ElementType, Location, MemoryType};

/// As many row numbers and rows of gradients for each rank.
#[derive(Debug)]
pub(super) struct Staging {
    indices: Memory,
    gradients: Memory,
    capacity: u64,
}

/// A loss of the network, with the communicator.
pub(super) struct Lost {
    /// Why.
    pub(super) error: Error,
    /// Nothing writes to the slots any more.
    pub(super) is_over: bool,
}

/// The numbers and gradients that a rank hands in.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandedIn {
    /// Its row numbers.
    pub(super) numbers: Numbers,
    /// Its gradients.
    pub(super) rows: Strided,
    /// Their type.
    pub(super) kind: ElementType,
    /// Their columns.
    pub(super) columns: u64,
}

impl HandedIn {
    /// Checks the caller's tensors, for an embedding of so many columns.
    ///
    /// # Errors
    /// [`Error::Input`] for shapes and types that do not fit the embedding.
    pub(super) fn new(columns: i64, indices: &Tensor, gradients: &Tensor) -> Result<Self> {
        let numbers = numbers(indices)?;
        let (matrix, kind) = (gradients.description().rows()?, gradients.description().element_type()?);
        require(
            matrix.sizes[0].cast_unsigned() == numbers.count,
            "not as many gradients as numbers of rows",
        )?;
        require(matrix.sizes[1] == columns, "gradients of another length than the rows")?;
        require(kind.is_float() && kind.bytes() <= 4, "gradients are 16 or 32-bit floating-point numbers")?;
        let stride = (matrix.stride * kind.bytes() as i64).unsigned_abs();
        let rows = Strided { address: gradients.address()?, stride };
        Ok(Self { numbers, rows, kind, columns: matrix.sizes[1].unsigned_abs() })
    }

    /// Bytes of a packed row of gradients.
    pub(super) fn row_bytes(&self) -> u64 {
        self.columns * self.kind.bytes() as u64
    }
}

impl Staging {
    /// Staging for as many as a rank has at most: memory of the island's ranks, where the rows span
    /// islands. A collective call of all ranks, if there is not enough.
    ///
    /// # Errors
    /// As [`Memory::new`], the same at every rank.
    pub(super) fn of<'a>(
        place: &'a mut Option<Self>,
        (communicator, island): (&Arc<Communicator>, Option<&Arc<Communicator>>),
        own: &HandedIn,
        most: u64,
    ) -> Result<&'a Self> {
        let fits = |staging: &Self| {
            let rows = staging.gradients.request().granularity;
            staging.capacity >= most
                && rows == own.row_bytes()
                && staging.indices.request().granularity == u64::from(own.numbers.bytes)
        };
        if !place.as_ref().is_some_and(fits) {
            *place = None;
            let owners = island.unwrap_or(communicator);
            let made = Self::new(owners, communicator.size() as u64, own, most.next_power_of_two());
            if island.is_some() {
                // Other islands may have memory where this one has none.
                let own = made.as_ref().map(drop).map_err(Clone::clone);
                communicator.agree("memory for gradients", own, &[])?;
            }
            *place = Some(made?);
        }
        place.as_ref().ok_or_else(|| Error::Memory("no memory for gradients".to_owned()))
    }

    fn new(owners: &Arc<Communicator>, ranks: u64, own: &HandedIn, capacity: u64) -> Result<Self> {
        let memory = |granularity: u64| {
            let bytes = granularity * capacity * ranks;
            let (memory_type, location) = (MemoryType::Continuous, Location::Device);
            Memory::new(owners, MemoryRequest { bytes, memory_type, location, granularity, partition: None })
        };
        let (indices, gradients) = (memory(u64::from(own.numbers.bytes))?, memory(own.row_bytes())?);
        Ok(Self { indices, gradients, capacity })
    }

    /// The row numbers and the gradients of so many ranks.
    pub(super) fn of_all(&self, ranks: usize) -> (Numbers, Strided) {
        let bytes = self.indices.request().granularity as u32;
        let count = self.capacity * ranks as u64;
        let rows = Strided { address: base(&self.gradients), stride: self.gradients.request().granularity };
        (Numbers { address: base(&self.indices), count, bytes }, rows)
    }

    fn slot(&self, memory: &Memory, rank: usize) -> CUdeviceptr {
        base(memory) + rank as u64 * self.capacity * memory.request().granularity
    }

    /// Writes this rank's numbers and gradients into its slot, and numbers that name nothing behind
    /// them. It does the latter in the slots of the ranks that it serves, too. `counts` are the
    /// numbers of each rank.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn hand_in(&self, own: &HandedIn, counts: &[u64], workspace: &Workspace<'_>) -> Result {
        let &Workspace { communicator, stream, .. } = workspace;
        let _current = communicator.enter()?;
        let rank = communicator.rank();
        let caller = CallerStream::with(communicator.kernels()?, stream);
        let served = rails::clients(communicator.islands(Location::Device), rank);
        for slot in served.into_iter().chain([rank]) {
            self.end_slot(slot, counts[slot], workspace)?;
        }
        if own.numbers.count > 0 {
            let (indices, rows) = (self.slot(&self.indices, rank), self.slot(&self.gradients, rank));
            caller.copy(indices, own.numbers.address, own.numbers.count * u64::from(own.numbers.bytes))?;
            if own.rows.stride == own.row_bytes() {
                caller.copy(rows, own.rows.address, own.numbers.count * own.row_bytes())?;
            } else {
                pack(own, rows, workspace)?;
            }
        }
        Ok(communicator.driver().stream_synchronize(stream)?)
    }

    /// Numbers that name nothing go behind the first `count` of a slot.
    fn end_slot(&self, rank: usize, count: u64, workspace: &Workspace<'_>) -> Result {
        let (bytes, rest) = (self.indices.request().granularity, self.capacity - count);
        if rest == 0 {
            return Ok(());
        }
        let end = self.slot(&self.indices, rank) + count * bytes;
        upload::fill_bytes(workspace.communicator, end, rest * bytes, 0xff, workspace.stream)
    }

    /// Passes the slots between islands; returns when all are there, at all ranks. A collective
    /// call, which all ranks begin when each has handed in.
    ///
    /// # Errors
    /// The network's: all ranks have lost the communicator.
    pub(super) fn pass(
        &self,
        communicator: &Communicator,
        counts: &[u64],
        stream: CUstream,
    ) -> Result<(), Lost> {
        let mut fabric = communicator.fabric();
        let Some(fabric) = fabric.as_mut() else {
            let error = Error::Logic("no connection of islands".to_owned());
            communicator.break_off(&error);
            return Err(Lost { error, is_over: true });
        };
        self.pass_by(fabric, communicator, counts, stream).map_err(|error| {
            let is_over = fabric.give_up(&error, stream);
            Lost { error, is_over }
        })
    }

    fn pass_by(
        &self,
        fabric: &Fabric,
        communicator: &Communicator,
        counts: &[u64],
        stream: CUstream,
    ) -> Result {
        let messages = slots::messages(communicator.islands(Location::Device), communicator.rank(), counts);
        let transfer = |message: &slots::SlotMessage, memory: &Memory| NcclTransfer {
            peer: message.peer,
            address: self.slot(memory, message.slot),
            bytes: counts[message.slot] * memory.request().granularity,
            is_sent: message.is_sent,
        };
        let both = |message| [&self.indices, &self.gradients].map(|memory| transfer(message, memory));
        let transfers: Vec<_> = messages.iter().flat_map(both).collect();
        fabric.after(stream)?;
        fabric.pass(&transfers)?;
        fabric.finish(stream)
    }
}

/// Where memory of one range begins.
fn base(memory: &Memory) -> CUdeviceptr {
    memory.part(0).address
}

/// Rows with gaps go side by side.
fn pack(own: &HandedIn, output: CUdeviceptr, workspace: &Workspace<'_>) -> Result {
    let count = own.numbers.count;
    let (_scratch, [numbers, positions]) = workspace.allocate([count * 4; 2])?;
    let (kernels, stream) = (workspace.communicator.kernels()?, workspace.stream);
    // Its positions are all numbers from 0 on.
    let keys = SortKeys { numbers, positions, n: count, kept: 0, bytes: 4 };
    let begin = SortBegin { rows: own.numbers, first_row: 0, rows_in_part: 0, keys };
    kernels.launch(&begin, count, 0, stream)?;
    let rows = RowSet {
        table: Table::at(own.rows.address, count, own.rows.stride),
        numbers: Numbers { address: positions, count, bytes: 4 },
        packed: Strided { address: output, stride: own.row_bytes() },
        order: 0,
    };
    let gather = GatherRows { rows, row_bytes: own.row_bytes(), width: own.kind.bytes() as u32 };
    kernels.launch(&gather, count * own.columns, 0, stream)
}
