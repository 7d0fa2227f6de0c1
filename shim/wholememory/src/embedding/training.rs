//! A step of training: the gradients that all ranks have for rows are summed up at the row's owner,
//! which changes it.
//!
//! Ranks hand in their row numbers and gradients through memory that all map. Each owner sorts the
//! numbers of all ranks, leaves out the rows of others, sums the gradients of each row in the order
//! of ranks and positions, and makes one step of the optimizer on it. So a step gives the same bits
//! with any timing.
//!
//! Invariant: no rank reads the gradients before all ranks have written theirs, and no rank writes
//! again before all have read.

use std::sync::{Arc, Mutex, PoisonError};

use wm_abi::{CUdeviceptr, CUstream};
use wm_driver::Api;
use wm_kernels::wholememory::{
    AdaGrad, AdvancePowers, GatherRows, Gradients, LazyAdam, Numbers, OptimizeAdagrad, OptimizeLazyAdam,
    OptimizeRmsprop, OptimizeSgd, Powers, RmsProp, RowNames, RowSet, Sgd, SortBegin, SortKeys, Step, Strided,
    Table,
};

use crate::communicator::Communicator;
use crate::embedding::Embedding;
use crate::embedding::optimizer::Optimizer;
use crate::embedding::states::{self, RowState};
use crate::error::{Error, Result, require};
use crate::kernels::WARP;
use crate::memory::{Memory, MemoryRequest};
use crate::operations::array::numbers;
use crate::operations::scratch::Workspace;
use crate::operations::sort::{RowRuns, Unsorted, runs};
use crate::operations::upload;
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::{ElementType, Location, MemoryType, OptimizerType};

/// Places for gradients of all ranks: the sort counts in 32 bits.
const MOST: u64 = 1 << 31;

/// The optimizer of an embedding, its states, and the memory through which gradients go.
#[derive(Debug)]
pub struct Training {
    optimizer: Arc<Optimizer>,
    states: Vec<RowState>,
    staging: Mutex<Option<Staging>>,
}

/// Memory through which ranks hand in: as many row numbers and rows of gradients for each rank.
#[derive(Debug)]
struct Staging {
    indices: Memory,
    gradients: Memory,
    capacity: u64,
}

/// The numbers and gradients that a rank hands in.
#[derive(Debug, Clone, Copy)]
struct HandedIn {
    numbers: Numbers,
    rows: Strided,
    kind: ElementType,
    columns: u64,
}

impl HandedIn {
    fn new(embedding: &Embedding, indices: &Tensor, gradients: &Tensor) -> Result<Self> {
        let numbers = numbers(indices)?;
        let (matrix, kind) = (gradients.description().rows()?, gradients.description().element_type()?);
        require(
            matrix.sizes[0].cast_unsigned() == numbers.count,
            "not as many gradients as numbers of rows",
        )?;
        require(
            matrix.sizes[1] == embedding.rows().description().sizes[1],
            "gradients of another length than the rows",
        )?;
        require(kind.is_float() && kind.bytes() <= 4, "gradients are 16 or 32-bit floating-point numbers")?;
        let stride = (matrix.stride * kind.bytes() as i64).unsigned_abs();
        let rows = Strided { address: gradients.address()?, stride };
        Ok(Self { numbers, rows, kind, columns: matrix.sizes[1].unsigned_abs() })
    }

    fn row_bytes(&self) -> u64 {
        self.columns * self.kind.bytes() as u64
    }
}

impl Training {
    /// Makes the optimizer's states. A collective call.
    ///
    /// # Errors
    /// As [`Embedding::new`].
    pub fn new(embedding: &Embedding, optimizer: Arc<Optimizer>) -> Result<Self> {
        let states = states::make(embedding, optimizer.kind())?;
        Ok(Self { optimizer, states, staging: Mutex::default() })
    }

    /// The states of each row.
    pub fn states(&self) -> &[RowState] {
        &self.states
    }

    /// Which optimizer it is.
    pub fn kind(&self) -> OptimizerType {
        self.optimizer.kind()
    }

    /// Makes a step. A collective call; it returns when every rank's rows are changed.
    ///
    /// # Errors
    /// [`Error::Input`] for shapes and types that do not fit the embedding, or differ between
    /// ranks; the driver's.
    pub fn step(
        &self,
        embedding: &Embedding,
        indices: &Tensor,
        gradients: &Tensor,
        rate: f32,
        workspace: &Workspace<'_>,
    ) -> Result {
        let communicator = embedding.rows().memory()?.communicator();
        // A wait would end a capture.
        let can_wait = communicator
            .kernels()
            .and_then(|kernels| CallerStream::with(kernels, workspace.stream).can_wait());
        let own = can_wait.and_then(|()| HandedIn::new(embedding, indices, gradients));
        let alike = own
            .as_ref()
            .map(|own| format!("{} {:?} {rate}", own.numbers.bytes, own.kind))
            .unwrap_or_default();
        let count = own.as_ref().map(|own| own.numbers.count).map_err(Clone::clone);
        let counts = communicator.agree_on("gradients", count, alike.as_bytes())?;
        let (own, most) = (own?, counts.into_iter().max().unwrap_or_default());
        if most == 0 || own.columns == 0 {
            return Ok(());
        }
        // All ranks find the same.
        let all =
            most.checked_next_power_of_two().and_then(|most| most.checked_mul(communicator.size() as u64));
        require(all.is_some_and(|all| all < MOST), "more gradients than 31 bits can count")?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let staging = Staging::of(&mut staging, communicator, &own, most)?;
        let handed_in = staging.hand_in(&own, workspace);
        communicator.agree("gradients are there", handed_in, &[])?;
        let applied = self.apply(embedding, staging, &own, rate, workspace);
        communicator.agree("gradients are applied", applied, &[])
    }

    /// Changes this rank's rows.
    fn apply(
        &self,
        embedding: &Embedding,
        staging: &Staging,
        own: &HandedIn,
        rate: f32,
        workspace: &Workspace<'_>,
    ) -> Result {
        let memory = embedding.rows().memory()?;
        let (communicator, partition, stream) = (memory.communicator(), memory.partition(), workspace.stream);
        let _current = communicator.enter()?;
        let rank = communicator.rank();
        let rows = partition.count(rank);
        if rows == 0 {
            return Ok(());
        }
        let indices = staging.indices.part(0).address;
        let count = staging.capacity * communicator.size() as u64;
        let numbers = Numbers { address: indices, count, bytes: own.numbers.bytes };
        let named = runs(workspace, Unsorted { numbers, first_row: partition.start(rank), rows })?;
        // The GPU alone has their number: a wait for it would leave the GPU without work.
        let most = count.min(rows);
        let gradients = Strided { address: staging.gradients.part(0).address, stride: own.row_bytes() };
        let step = StepLaunch { named: &named, most, gradients, kind: own.kind, columns: own.columns, rate };
        self.optimize(embedding, &step, stream)?;
        if let Some(cache) = embedding.cache() {
            cache.renew(named.rows, named.count, most, stream)?;
        }
        Ok(communicator.driver().stream_synchronize(stream)?)
    }

    fn optimize(&self, embedding: &Embedding, launch: &StepLaunch<'_>, stream: CUstream) -> Result {
        let memory = embedding.rows().memory()?;
        let (kernels, table) = (memory.communicator().kernels()?, own_rows(memory));
        let kind = embedding.rows().description().element_type()?;
        let &StepLaunch { named, most, gradients, columns, rate, .. } = launch;
        let mut places = vec![(table, kind), (gradients, launch.kind)];
        for state in &self.states {
            places.push((own_rows(state.rows.rows().memory()?), ElementType::Float));
        }
        let lane_columns = lane_columns(columns, &places);
        let work = most.saturating_mul(columns.div_ceil(lane_columns.into()));
        let rows_in_table = memory.partition().count(memory.communicator().rank());
        let names = RowNames { rows: named.rows, count: named.count, rows_in_table };
        let gradients = Gradients {
            address: gradients.address,
            order: named.positions,
            stride: gradients.stride as u32,
            kind: launch.kind.code(),
        };
        let (starts, table_type) = (named.starts, kind.code());
        let step = Step { table, names, starts, gradients, columns, table_type, lane_columns };

        let state = |at: usize| places[2 + at].0;
        let value = |name| self.optimizer.get(name).unwrap_or_default();
        let (decay, epsilon) = (value("weight_decay"), value("epsilon"));
        match self.optimizer.kind() {
            OptimizerType::Sgd => {
                kernels.launch(&OptimizeSgd { step, rule: Sgd { rate, decay } }, work, 0, stream)
            }
            OptimizerType::LazyAdam => {
                let powers = Powers { rows: state(2), beta1: value("beta1"), beta2: value("beta2") };
                let adam_w = u32::from(value("adam_w") > 0.5);
                let rule = LazyAdam { m: state(0), v: state(1), powers, rate, decay, epsilon, adam_w };
                kernels.launch(&OptimizeLazyAdam { step, rule }, work, 0, stream)?;
                if columns <= u64::from(lane_columns) * WARP {
                    return Ok(());
                }
                // Several warps have pieces of a row: none of them knows when all have read the
                // powers.
                kernels.launch(&AdvancePowers { names, powers }, most, 0, stream)
            }
            OptimizerType::RmsProp => {
                let rule = RmsProp { v: state(0), rate, decay, epsilon, alpha: value("alpha") };
                kernels.launch(&OptimizeRmsprop { step, rule }, work, 0, stream)
            }
            OptimizerType::AdaGrad => {
                let rule = AdaGrad { sums: state(0), rate, decay, epsilon };
                kernels.launch(&OptimizeAdagrad { step, rule }, work, 0, stream)
            }
        }
    }
}

/// This rank's rows of memory.
fn own_rows(memory: &Memory) -> Strided {
    Strided { address: memory.own_part().address, stride: memory.request().granularity }
}

/// A step of this rank's, before its kernels are chosen.
struct StepLaunch<'a> {
    named: &'a RowRuns,
    /// No more rows are named.
    most: u64,
    gradients: Strided,
    /// The type of the gradients.
    kind: ElementType,
    columns: u64,
    rate: f32,
}

/// How many columns a lane of an optimizer has: four, where these are one aligned word in each row
/// of all places, which it reads and writes; else one.
fn lane_columns(columns: u64, places: &[(Strided, ElementType)]) -> u32 {
    let is_aligned = |(rows, kind): &(Strided, ElementType)| {
        (rows.address | rows.stride).is_multiple_of(4 * kind.bytes() as u64)
    };
    if columns.is_multiple_of(4) && places.iter().all(is_aligned) { 4 } else { 1 }
}

impl Staging {
    /// Staging for as many as a rank has at most. A collective call, if there is not enough.
    fn of<'a>(
        place: &'a mut Option<Self>,
        communicator: &Arc<Communicator>,
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
            let capacity = most.next_power_of_two();
            let memory = |granularity: u64| {
                let bytes = granularity * capacity * communicator.size() as u64;
                let (memory_type, location) = (MemoryType::Continuous, Location::Device);
                Memory::new(
                    communicator,
                    MemoryRequest { bytes, memory_type, location, granularity, partition: None },
                )
            };
            *place = Some(Self {
                indices: memory(u64::from(own.numbers.bytes))?,
                gradients: memory(own.row_bytes())?,
                capacity,
            });
        }
        place.as_ref().ok_or_else(|| Error::Memory("no memory for gradients".to_owned()))
    }

    /// Writes this rank's numbers and gradients, and numbers that name nothing behind them.
    fn hand_in(&self, own: &HandedIn, workspace: &Workspace<'_>) -> Result {
        let &Workspace { communicator, stream, .. } = workspace;
        let _current = communicator.enter()?;
        let (indices, rows) = (self.indices.own_part().address, self.gradients.own_part().address);
        let (bytes, caller) = (
            own.numbers.count * u64::from(own.numbers.bytes),
            CallerStream::with(communicator.kernels()?, stream),
        );
        if own.numbers.count < self.capacity {
            let rest = (self.capacity - own.numbers.count) * u64::from(own.numbers.bytes);
            upload::fill_bytes(communicator, indices + bytes, rest, 0xff, stream)?;
        }
        if own.numbers.count > 0 {
            caller.copy(indices, own.numbers.address, bytes)?;
            if own.rows.stride == own.row_bytes() {
                caller.copy(rows, own.rows.address, own.numbers.count * own.row_bytes())?;
            } else {
                pack(own, rows, workspace)?;
            }
        }
        Ok(communicator.driver().stream_synchronize(stream)?)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Hazard: a kernel loads a word that is not aligned.
    #[test]
    fn words_of_columns_are_aligned_in_every_row() {
        let (float, half) = (ElementType::Float, ElementType::Half);
        let rows = |address, stride, kind| (Strided { address, stride }, kind);
        assert_eq!(lane_columns(128, &[rows(0x1000, 512, float), rows(0x2000, 256, half)]), 4);
        assert_eq!(lane_columns(4, &[rows(0x1008, 8, half)]), 4);
        assert_eq!(lane_columns(4, &[rows(0x1000, 16, float), rows(0x1008, 16, float)]), 1);
        assert_eq!(lane_columns(4, &[rows(0x1000, 16, float), rows(0x1000, 24, float)]), 1);
        assert_eq!(lane_columns(4, &[rows(0x1004, 8, half)]), 1);
        assert_eq!(lane_columns(6, &[rows(0x1000, 32, float)]), 1);
    }
}
