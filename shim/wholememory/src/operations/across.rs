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

mod buffers;

use wm_abi::CUdeviceptr;
use wm_kernels::wholememory::{DivideCount, DivideFew, DivideMove, DividedNumbers, Numbers};

use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::kernels::THREADS;
use crate::memory::Memory;
use crate::operations::claims::{RowArrival, RowClaims};
use crate::operations::lookups::RowCache;
use crate::operations::moves::{PackedRows, Places, RowDirection, RowLaunch, RowRequest};
use crate::operations::repeats::{self, Repeats};
use crate::operations::scratch::{Scratch, Workspace};
use crate::operations::upload;
use crate::spanning::claiming::ToldCounts;
use crate::spanning::fabric::Fabric;
use crate::spanning::record::{self, CallHeader, RowOperation};
use crate::spanning::steps::{ExchangePlan, Pair};
use crate::storage::landing::Landing;
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::ElementType;
use buffers::Buffers;

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
        (Ok(Err(error)), Ok(_)) => {
            fabric.has_failed();
            return Err(error);
        }
        (Ok(_), Err(error)) => {
            fabric.has_failed();
            return Err(error.clone());
        }
        (Ok(Ok(told)), Ok((call, divided))) => match call.pass(fabric, divided, &told) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        },
        (Err(error), _) => error,
    };
    if !fabric.give_up(&lost, workspace.stream) {
        // The network may still write to memory that was handed out.
        std::mem::forget((begun, memory.landing().cloned()));
    }
    Err(lost)
}

/// Tells all ranks this one's record, and returns what all have told, or the error that all ranks
/// have. Rows of the own island move meanwhile.
///
/// # Errors
/// Those after which ranks do not understand each other any more.
fn tell(
    memory: &Memory,
    fabric: &mut Fabric,
    begun: Result<&(RowCall<'_>, Divided), &Error>,
    sequence: u64,
) -> Result<Result<ToldCounts>> {
    let ready = match begun {
        Ok((call, divided)) => call.move_own(divided).map(|()| (call.header(sequence), divided.claimed())),
        Err(error) => Err(error.clone()),
    };
    let header = record::header(ready.as_ref().copied());
    let records = fabric.tell(header, memory.islands())?;
    // This rank's own error says more than its record.
    let claimed = record::claimed(&records, fabric.islands());
    let counts = ready.and_then(|_| record::judge(&records, fabric.islands()));
    Ok(counts.map(|counts| ToldCounts { counts, claimed }))
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
    /// Rows that were claimed among the ranks of this island, if they were.
    claims: Option<RowClaims>,
    /// Rows of this rank's island, in the places of their numbers.
    own: Numbers,
    /// Rows of the other islands, island by island.
    sent: CUdeviceptr,
    /// Where each of them came from.
    positions: CUdeviceptr,
}

impl Divided {
    /// Where some of the rows that cross are in the caller's memory.
    fn positions(&self, first: u64, count: u64, bytes: u32) -> Numbers {
        Numbers { address: self.positions + first * u64::from(bytes), count, bytes }
    }

    /// For how many numbers rows were claimed.
    fn claimed(&self) -> u64 {
        self.claims.as_ref().map_or(0, |claims| claims.asked.count)
    }
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
        let numbers = self.request.numbers;
        let claims = match self.claims_in(fabric) {
            Some(landing) => RowClaims::make(self.workspace, numbers, rows, landing)?,
            None => None,
        };
        let searches = self.landing().is_none() && self.searches();
        let repeats = if searches { Repeats::find(self.workspace, numbers, rows)? } else { None };
        let asked = claims.as_ref().map(|claims| claims.asked);
        let asked = asked.or(repeats.as_ref().map(|repeats| repeats.asked));
        let division = DividedNumbers {
            numbers: asked.unwrap_or(numbers),
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
        Ok(Divided { _scratch: scratch, repeats, claims, own, sent, positions })
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
        self.direction == RowDirection::Gather
            && repeats::can_be_found(self.request.numbers.count)
            && self.memory.repeats().searches(self.bytes())
    }

    /// Bytes of this rank's numbers and rows.
    fn bytes(&self) -> u64 {
        let row = self.row_bytes() + u64::from(self.number_bytes());
        self.request.numbers.count.saturating_mul(row)
    }

    /// Where the ranks of this island share rows, in a gather of memory where they can.
    fn landing(&self) -> Option<&'a Landing> {
        self.memory.landing().map(AsRef::as_ref).filter(|_| self.direction == RowDirection::Gather)
    }

    /// The same, if this rank claims rows in this call.
    fn claims_in(&self, fabric: &Fabric) -> Option<&'a Landing> {
        let landing = self.landing().filter(|landing| landing.is_clean(fabric.failures()))?;
        self.memory.claims().claims(self.bytes()).then_some(landing)
    }

    /// The policies learn from what was told: this rank's from its own counts, that of the island
    /// from those of all of its ranks.
    fn learn(&self, divided: &Divided, told: &ToldCounts) {
        let (islands, rank) = (self.memory.islands(), self.memory.communicator().rank());
        let (island, counts) = (islands.of(rank), &told.counts[rank]);
        if divided.repeats.is_some() {
            let own = counts[island];
            let crossing = counts.iter().sum::<u64>() - own;
            self.memory.repeats().learn(self.request.numbers.count.saturating_sub(own), crossing);
        }
        if self.landing().is_some() {
            self.memory.claims().learn(told, islands, island);
        }
    }

    /// Gives back what this rank has claimed. After a call that failed all ranks free all slots,
    /// of which no rank has claimed one in this call.
    fn free_slots(
        &self,
        fabric: &Fabric,
        (divided, asking): (&Divided, &[Pair]),
        workspace: &Workspace<'_>,
    ) -> Result {
        if let Some(claims) = &divided.claims {
            let rows = asking.iter().map(|pair| pair.rows).sum();
            claims.release(workspace, divided.positions(0, rows, self.position_bytes()))?;
        }
        let failures = fabric.failures();
        if let Some(landing) = self.memory.landing().filter(|landing| !landing.is_clean(failures)) {
            landing.wipe(self.memory.communicator(), workspace.stream)?;
            landing.is_wiped(failures);
        }
        Ok(())
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
    fn pass(&self, fabric: &Fabric, divided: &Divided, told: &ToldCounts) -> Result {
        let (communicator, islands) = (self.memory.communicator(), self.memory.islands());
        let (rank, counts) = (communicator.rank(), &told.counts);
        let rows = (self.memory.partition().rows(), self.memory.request().granularity);
        // All ranks cut rows alike.
        let landing = self.landing().filter(|_| told.is_shared_anywhere(islands));
        let shape = landing.map_or_else(|| Communicator::staging(islands, rows), Landing::shape);
        self.learn(divided, told);
        let number_bytes = u64::from(self.number_bytes());
        let chunk_rows = shape.chunk_rows(self.row_bytes(), number_bytes);
        let (operation, rows) =
            (operation(self.direction), (chunk_rows, fabric.opening_bytes() / number_bytes));
        let plan = ExchangePlan::new(operation, islands, rank, counts, rows);
        let landing = landing.filter(|_| told.is_shared(islands, islands.of(rank)));
        let plan = if landing.is_some() { plan.sharing(islands, rank, counts) } else { plan };
        // A cache is adjusted in the caller's stream, after its lookups of the own island's rows.
        let is_alone = plan.is_short() && self.cache.is_none();
        let caller = self.workspace.stream;
        let stream = if is_alone { fabric.stream() } else { caller };
        let workspace = Workspace { stream, ..*self.workspace };
        let call = &RowCall { workspace: &workspace, ..*self };
        let row_bytes = self.row_bytes();
        let arrival = landing.map(|landing| RowArrival { landing, chunk_rows, row_bytes });
        let buffers = Buffers { call, divided, shape, fabric, base: fabric.staging()?, arrival };
        fabric.begin_rows();
        buffers.place(plan.asking())?;
        for step in plan.steps() {
            fabric.before(stream)?;
            fabric.after(stream)?;
            let mut transfers: Vec<_> =
                step.messages.iter().map(|message| buffers.transfer(*message)).collect();
            transfers.extend(step.meets.then(|| fabric.meeting()).into_iter().flatten());
            fabric.pass(&transfers)?;
            step.tasks.iter().try_for_each(|task| buffers.run(*task))?;
        }
        if let Some(repeats) = &divided.repeats {
            repeats.copy(&workspace, self.request.packed, self.multiprocessors)?;
        }
        self.free_slots(fabric, (divided, plan.asking()), &workspace)?;
        fabric.return_to(caller, stream)
    }
}

fn operation(direction: RowDirection) -> RowOperation {
    match direction {
        RowDirection::Gather => RowOperation::Gather,
        RowDirection::Scatter => RowOperation::Scatter,
    }
}
