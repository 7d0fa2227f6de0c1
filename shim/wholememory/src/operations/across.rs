//! Gather and scatter over memory that spans islands: collective calls, which return when they know
//! what passes. The caller's stream waits for the rows of all ranks.
//!
//! 1. A kernel divides the numbers by the island that has the row. The own island's rows are moved
//!    at once, by their addresses.
//! 2. All ranks tell each other their counts, and that they make the same call: the one wait of the
//!    host for other ranks' numbers. A rank that cannot take part says so, and all get an error.
//!    The first numbers for each server pass with this.
//! 3. Further numbers and the rows pass between each rank and its servers, in
//!    [steps](crate::spanning::steps). A row crosses in the narrower of the two types and is
//!    converted once, as within an island.
//!
//! A call whose numbers have all passed in step 2, and whose rows of a pair are one chunk, does the
//! rest in the fabric's stream: kernels of it have nothing to do beside the network, and no stream
//! waits for another one.
//!
//! After an error of the network all ranks abort together, and the communicator is lost.

use wm_abi::CUdeviceptr;
use wm_kernels::wholememory::{DivideCount, DivideFew, DivideMove, DividedNumbers, Numbers, Strided};

use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::kernels::THREADS;
use crate::memory::Memory;
use crate::nccl::link::NcclTransfer;
use crate::operations::lookups::RowCache;
use crate::operations::moves::{PackedRows, Places, RowDirection, RowLaunch, RowRequest};
use crate::operations::repeats::{self, Repeats};
use crate::operations::scratch::{Scratch, Workspace};
use crate::operations::upload;
use crate::spanning::fabric::Fabric;
use crate::spanning::record::{self, CallHeader, RowOperation};
use crate::spanning::steps::{ExchangePlan, Message, RowChunk, StagingShape, Task, Use};
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::ElementType;

/// Numbers that a block divides at once.
const DIVIDE_TILE: u64 = 1024;

/// Copies rows; a gather reads rows of each island through the island's cache, if there is one.
/// `request` is why this rank cannot, if it cannot.
pub(super) fn copy(
    direction: RowDirection,
    cache: Option<RowCache<'_>>,
    table: &Tensor,
    request: Result<RowRequest>,
    workspace: &Workspace<'_>,
    multiprocessors: i32,
) -> Result {
    let memory = table.memory()?;
    let communicator = memory.communicator();
    let mut fabric = communicator.fabric();
    let fabric = fabric.as_mut().ok_or_else(|| Error::Logic("no connection of islands".to_owned()))?;
    fabric.is_whole()?;
    let _current = communicator.enter()?;
    let begun = request.and_then(|request| {
        let call = RowCall::new(direction, memory, table, request, workspace, multiprocessors)?;
        let call = RowCall { cache, ..call };
        let divided = call.divide(fabric)?;
        Ok((call, divided))
    });
    let sequence = fabric.number_of_operation();
    let told = tell(memory, fabric, begun.as_ref(), sequence);
    let lost = match (told, &begun) {
        // All ranks have heard of this rank's error, or of another one's.
        (Ok(Err(error)), Ok(_)) => return Err(error),
        (Ok(_), Err(error)) => return Err(error.clone()),
        (Ok(Ok(counts)), Ok((call, divided))) => match call.pass(fabric, divided, &counts) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        },
        (Err(error), _) => error,
    };
    if !fabric.give_up(&lost, workspace.stream) {
        // The network may still write to memory that was handed out.
        std::mem::forget(begun);
    }
    Err(lost)
}

/// Tells all ranks this one's record, and returns the counts of all, or the error that all ranks
/// have. Rows of the own island move meanwhile.
///
/// # Errors
/// Those after which ranks do not understand each other any more.
fn tell(
    memory: &Memory,
    fabric: &mut Fabric,
    begun: Result<&(RowCall<'_>, Divided), &Error>,
    sequence: u64,
) -> Result<Result<Vec<Vec<u64>>>> {
    let ready = match begun {
        Ok((call, divided)) => call.move_own(divided).map(|()| call.header(sequence)),
        Err(error) => Err(error.clone()),
    };
    let header = record::header(ready.as_ref().copied());
    let records = fabric.tell(header, memory.islands())?;
    // This rank's own error says more than its record.
    Ok(ready.and_then(|_| record::judge(&records, fabric.islands())))
}

/// A call, ready to be made.
#[derive(Clone, Copy)]
struct RowCall<'a> {
    direction: RowDirection,
    memory: &'a Memory,
    workspace: &'a Workspace<'a>,
    multiprocessors: i32,
    request: RowRequest,
    /// Copies of the island's rows, for a gather.
    cache: Option<RowCache<'a>>,
    /// The island's rows.
    places: Places,
    /// The first row of the tensor in its memory, and how many it has.
    rows: (u64, u64),
    wire: ElementType,
}

/// Numbers, divided by islands.
struct Divided {
    _scratch: Scratch,
    /// Numbers that repeat, if they were looked for: of each row one position crosses.
    repeats: Option<Repeats>,
    /// Rows of this rank's island, in the places of their numbers.
    own: Numbers,
    /// Rows of the other islands, island by island.
    sent: CUdeviceptr,
    /// Where each of them came from.
    positions: CUdeviceptr,
}

/// The bytes of the narrowest signed numbers below a limit.
fn number_bytes(limit: u64) -> u32 {
    if i32::try_from(limit).is_ok() { 4 } else { 8 }
}

impl<'a> RowCall<'a> {
    fn new(
        direction: RowDirection,
        memory: &'a Memory,
        table: &Tensor,
        request: RowRequest,
        workspace: &'a Workspace<'a>,
        multiprocessors: i32,
    ) -> Result<Self> {
        CallerStream::with(memory.communicator().kernels()?, workspace.stream).can_wait()?;
        let (matrix, kind) = (table.description().rows()?, table.description().element_type()?);
        let first = matrix.storage_offset as u64 * kind.bytes() as u64 / memory.request().granularity;
        let rows = (first, matrix.sizes[0] as u64);
        let places = Places::of_island(memory, table)?;
        // Rows cross in as few bytes as one of the sides has.
        let wire = if request.packed.kind.bytes() < kind.bytes() { request.packed.kind } else { kind };
        let cache = None;
        Ok(Self { direction, memory, workspace, multiprocessors, request, cache, places, rows, wire })
    }

    fn row_bytes(&self) -> u64 {
        self.places.columns * self.wire.bytes() as u64
    }

    /// Bytes of a row number that crosses: alike on all ranks.
    fn number_bytes(&self) -> u32 {
        number_bytes(self.memory.partition().rows())
    }

    fn header(&self, sequence: u64) -> CallHeader {
        CallHeader {
            sequence,
            operation: operation(self.direction),
            memory: self.memory.span().unwrap_or_default(),
            wire_type: self.wire.code().into(),
            row_bytes: self.row_bytes(),
            offset: self.places.table.offset,
        }
    }

    /// Divides the numbers in the caller's stream, for which the fabric's stream waits. The counts
    /// and the first numbers of each island lie where [`Fabric::tell`] sends them.
    fn divide(&self, fabric: &Fabric) -> Result<Divided> {
        let opening = fabric.begin_opening()?;
        let (count, stream) = (self.request.numbers.count, self.workspace.stream);
        let (row_bytes, position_bytes) = (self.number_bytes(), self.position_bytes());
        let list = count * u64::from(row_bytes);
        let sizes = [list, list, count * u64::from(position_bytes)];
        let (scratch, [own, sent, positions]) = self.workspace.allocate(sizes)?;
        let rows = self.memory.rows_of_islands(self.rows.0, self.rows.1);
        let repeats =
            if self.searches() { Repeats::find(self.workspace, self.request.numbers, rows)? } else { None };
        let division = DividedNumbers {
            numbers: repeats.as_ref().map_or(self.request.numbers, |repeats| repeats.asked),
            rows,
            own,
            sent,
            positions,
            openings: opening.numbers,
            told: opening.counts,
            opening_bytes: opening.bytes,
            row_bytes,
            position_bytes,
        };
        self.launch_division(division)?;
        fabric.after(stream).inspect_err(|_| {
            // The next operation writes to the opening: this one's kernel must have ended before.
            let _ended = self
                .memory
                .communicator()
                .kernels()
                .map(|kernels| CallerStream::with(kernels, stream).wait());
        })?;
        let own = Numbers { address: own, count, bytes: row_bytes };
        Ok(Divided { _scratch: scratch, repeats, own, sent, positions })
    }

    fn launch_division(&self, division: DividedNumbers) -> Result {
        let (communicator, stream) = (self.memory.communicator(), self.workspace.stream);
        let (kernels, tiles) = (communicator.kernels()?, division.numbers.count.div_ceil(DIVIDE_TILE));
        match tiles {
            0 => return Ok(()),
            1 => return kernels.launch_blocks(&DivideFew { division }, 1, THREADS, stream),
            _ => {}
        }
        let bytes = 8 * u64::from(division.rows.count);
        let (_scratch, [counts, cursors]) = self.workspace.allocate([bytes; 2])?;
        for zeros in [counts, cursors] {
            upload::fill_bytes(communicator, zeros, bytes, 0, stream)?;
        }
        let counting = DivideCount { numbers: division.numbers, rows: division.rows, counts };
        kernels.launch_blocks(&counting, tiles, THREADS, stream)?;
        kernels.launch_blocks(&DivideMove { division, counts, cursors }, tiles, THREADS, stream)
    }

    /// Does this call look for numbers that repeat? Rows that a scatter writes to one place
    /// differ, so all of them cross.
    fn searches(&self) -> bool {
        let count = self.request.numbers.count;
        let bytes = count.saturating_mul(self.row_bytes() + u64::from(self.number_bytes()));
        self.direction == RowDirection::Gather
            && repeats::can_be_found(count)
            && self.memory.repeats().searches(bytes)
    }

    /// The policy learns from the counts that this rank has told.
    fn learn(&self, counts: &[u64]) {
        let own = counts[self.memory.islands().of(self.memory.communicator().rank())];
        let crossing = counts.iter().sum::<u64>() - own;
        self.memory.repeats().learn(self.request.numbers.count.saturating_sub(own), crossing);
    }

    fn position_bytes(&self) -> u32 {
        number_bytes(self.request.numbers.count)
    }

    fn launch(
        &self,
        direction: RowDirection,
        places: Places,
        packed: PackedRows,
        numbers: Numbers,
    ) -> Result {
        let (workspace, multiprocessors) = (self.workspace, self.multiprocessors);
        RowLaunch { workspace, multiprocessors, places, packed, numbers }.run(direction)
    }

    /// Moves the rows of this rank's island.
    fn move_own(&self, divided: &Divided) -> Result {
        match self.direction {
            RowDirection::Gather => self.look_up(self.request.packed, divided.own),
            RowDirection::Scatter => {
                self.launch(RowDirection::Scatter, self.places, self.request.packed, divided.own)
            }
        }
    }

    /// Gathers rows of this rank's island, through its cache if it has one.
    fn look_up(&self, packed: PackedRows, numbers: Numbers) -> Result {
        let (workspace, multiprocessors, places) = (self.workspace, self.multiprocessors, self.places);
        let launch = RowLaunch { workspace, multiprocessors, places, packed, numbers };
        match &self.cache {
            Some(cache) => cache.look_up(&launch),
            None => launch.run(RowDirection::Gather),
        }
    }

    /// Exchanges the other islands' rows: the caller's stream waits for them.
    fn pass(&self, fabric: &Fabric, divided: &Divided, counts: &[Vec<u64>]) -> Result {
        let (communicator, islands) = (self.memory.communicator(), self.memory.islands());
        let rows = (self.memory.partition().rows(), self.memory.request().granularity);
        let shape = Communicator::staging(islands, rows);
        if divided.repeats.is_some() {
            self.learn(&counts[communicator.rank()]);
        }
        let number_bytes = u64::from(self.number_bytes());
        let chunk_rows = shape.chunk_rows(self.row_bytes(), number_bytes);
        let (operation, rows) =
            (operation(self.direction), (chunk_rows, fabric.opening_bytes() / number_bytes));
        let plan = ExchangePlan::new(operation, islands, communicator.rank(), counts, rows);
        // A cache is adjusted in the caller's stream, after its lookups of the own island's rows.
        let is_alone = plan.is_short() && self.cache.is_none();
        let caller = self.workspace.stream;
        let stream = if is_alone { fabric.stream() } else { caller };
        let workspace = Workspace { stream, ..*self.workspace };
        let call = &RowCall { workspace: &workspace, ..*self };
        let buffers = Buffers { call, divided, shape, fabric, base: fabric.staging()? };
        fabric.begin_rows();
        for step in plan.steps() {
            fabric.before(stream)?;
            fabric.after(stream)?;
            let transfers: Vec<_> = step.messages.iter().map(|message| buffers.transfer(*message)).collect();
            fabric.pass(&transfers)?;
            step.tasks.iter().try_for_each(|task| buffers.run(*task))?;
        }
        if let Some(repeats) = &divided.repeats {
            repeats.copy(&workspace, self.request.packed, self.multiprocessors)?;
        }
        fabric.return_to(caller, stream)
    }
}

fn operation(direction: RowDirection) -> RowOperation {
    match direction {
        RowDirection::Gather => RowOperation::Gather,
        RowDirection::Scatter => RowOperation::Scatter,
    }
}

/// Where the chunks of an exchange lie.
struct Buffers<'a> {
    call: &'a RowCall<'a>,
    divided: &'a Divided,
    shape: StagingShape,
    fabric: &'a Fabric,
    base: CUdeviceptr,
}

impl Buffers<'_> {
    fn at(&self, purpose: Use, chunk: &RowChunk) -> CUdeviceptr {
        self.base + self.shape.at(purpose, chunk.pair.partner, chunk.number)
    }

    fn transfer(&self, message: Message) -> NcclTransfer {
        let number_bytes = u64::from(self.call.number_bytes());
        let (chunk, address, row, is_sent) = match message {
            Message::SendNumbers(chunk) => {
                let first = chunk.pair.first + chunk.start;
                (chunk, self.divided.sent + first * number_bytes, number_bytes, true)
            }
            Message::ReceiveNumbers(chunk) => (chunk, self.at(Use::Numbers, &chunk), number_bytes, false),
            Message::SendRows(chunk) => (chunk, self.at(Use::Leaving, &chunk), self.call.row_bytes(), true),
            Message::ReceiveRows(chunk) => {
                (chunk, self.at(Use::Arriving, &chunk), self.call.row_bytes(), false)
            }
        };
        NcclTransfer { peer: chunk.pair.peer, address, bytes: chunk.rows * row, is_sent }
    }

    fn run(&self, task: Task) -> Result {
        use RowDirection::{Gather, Scatter};
        let call = self.call;
        let caller = || Places::at(&call.request.packed, call.request.numbers.count);
        match task {
            Task::Serve(chunk) => call.look_up(self.rows(Use::Leaving, &chunk), self.numbers(&chunk)?),
            Task::Apply(chunk) => {
                call.launch(Scatter, call.places, self.rows(Use::Arriving, &chunk), self.numbers(&chunk)?)
            }
            Task::Pack(chunk) => {
                call.launch(Gather, caller(), self.rows(Use::Leaving, &chunk), self.positions(&chunk))
            }
            Task::Deliver(chunk) => {
                call.launch(Scatter, caller(), self.rows(Use::Arriving, &chunk), self.positions(&chunk))
            }
        }
    }

    /// Rows of a chunk, as they cross.
    fn rows(&self, purpose: Use, chunk: &RowChunk) -> PackedRows {
        let rows = Strided { address: self.at(purpose, chunk), stride: self.call.row_bytes() };
        PackedRows { columns: self.call.places.columns, kind: self.call.wire, rows }
    }

    /// Numbers that have arrived.
    fn numbers(&self, chunk: &RowChunk) -> Result<Numbers> {
        let bytes = self.call.number_bytes();
        let address = match chunk.pair.is_opened {
            true => self.fabric.first_numbers_of(chunk.pair.peer)? + chunk.start * u64::from(bytes),
            false => self.at(Use::Numbers, chunk),
        };
        Ok(Numbers { address, count: chunk.rows, bytes })
    }

    /// Where the rows of a chunk are in the caller's memory.
    fn positions(&self, chunk: &RowChunk) -> Numbers {
        let (bytes, first) = (self.call.position_bytes(), chunk.pair.first + chunk.start);
        let address = self.divided.positions + first * u64::from(bytes);
        Numbers { address, count: chunk.rows, bytes }
    }
}
