//! A step of training: the gradients that all ranks have for rows are summed up at the row's owner,
//! which changes it.
//!
//! Ranks hand in their row numbers and gradients through memory that all map. Each owner sorts the
//! numbers of all ranks, leaves out the rows of others, sums the gradients of each row in the order
//! of ranks and positions, and makes one step of the optimizer on it. So a step gives the same bits
//! whatever the timing.
//!
//! Invariant: no rank reads the gradients before all ranks have written theirs, and no rank writes
//! again before all have read.

use std::sync::{Arc, Mutex, PoisonError};

use wm_abi::{CUdeviceptr, CUstream};
use wm_driver::Api;
use wm_kernels::wholememory::{
    AdvancePowers, GatherRows, OptimizeAdagrad, OptimizeLazyAdam, OptimizeRmsprop, OptimizeSgd, SortBegin,
};

use crate::communicator::Communicator;
use crate::embedding::Embedding;
use crate::embedding::optimizer::Optimizer;
use crate::embedding::states::{self, RowState};
use crate::error::{Error, Result, require};
use crate::kernels::Kernels;
use crate::memory::{Memory, MemoryRequest};
use crate::operations::scratch::Workspace;
use crate::operations::sort::{RowRuns, Unsorted, runs};
use crate::operations::upload;
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::{ElementType, Location, MemoryType, OptimizerType};

/// Places for gradients of all ranks: the sort counts in 32 bits.
const MOST: u64 = 1 << 31;

/// Lanes of a warp.
const LANES: u64 = 32;

/// The optimizer of an embedding, what it keeps, and the memory through which gradients go.
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

/// What a rank hands in.
#[derive(Debug, Clone, Copy)]
struct Gradients {
    indices: CUdeviceptr,
    index_bytes: u64,
    rows: CUdeviceptr,
    stride: u64,
    kind: ElementType,
    columns: u64,
    count: u64,
}

impl Gradients {
    fn new(embedding: &Embedding, indices: &Tensor, gradients: &Tensor) -> Result<Self> {
        let (array, kind) = (indices.description().to_array(), indices.description().element_type()?);
        require(matches!(kind, ElementType::Int | ElementType::Int64), "numbers of rows have 32 or 64 bits")?;
        let count = array.map_or(-1, |array| array.size);
        require(count >= 0, "numbers of rows are an array without gaps")?;
        let (matrix, of) = (gradients.description().rows()?, gradients.description().element_type()?);
        require(matrix.sizes[0] == count, "not as many gradients as numbers of rows")?;
        require(
            matrix.sizes[1] == embedding.rows().description().sizes[1],
            "gradients of another length than the rows",
        )?;
        require(of.is_float() && of.bytes() <= 4, "gradients are 16 or 32-bit floating-point numbers")?;
        Ok(Self {
            indices: indices.address()?,
            index_bytes: kind.bytes() as u64,
            rows: gradients.address()?,
            stride: (matrix.stride * of.bytes() as i64).unsigned_abs(),
            kind: of,
            columns: matrix.sizes[1].unsigned_abs(),
            count: count.unsigned_abs(),
        })
    }

    fn row_bytes(&self) -> u64 {
        self.columns * self.kind.bytes() as u64
    }
}

impl Training {
    /// Makes what the optimizer keeps. A collective call.
    ///
    /// # Errors
    /// As [`Embedding::new`].
    pub fn new(embedding: &Embedding, optimizer: Arc<Optimizer>) -> Result<Self> {
        let states = states::make(embedding, optimizer.kind())?;
        Ok(Self { optimizer, states, staging: Mutex::default() })
    }

    /// What is kept for each row.
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
        let own = can_wait.and_then(|()| Gradients::new(embedding, indices, gradients));
        let alike =
            own.as_ref().map(|own| format!("{} {:?} {rate}", own.index_bytes, own.kind)).unwrap_or_default();
        let count = own.as_ref().map(|own| own.count).map_err(Clone::clone);
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
        own: &Gradients,
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
        let unsorted = Unsorted {
            indices: staging.indices.part(0).address,
            index_bytes: own.index_bytes as u32,
            count: staging.capacity * communicator.size() as u64,
            first_row: partition.start(rank),
            rows,
        };
        let named = runs(workspace, unsorted)?;
        // How many they are the GPU knows: a wait here would let it idle.
        let most = unsorted.count.min(rows);
        let gradients = (staging.gradients.part(0).address, own.kind, own.row_bytes());
        let kernels = communicator.kernels()?;
        let step = Step { kernels, named: &named, most, gradients, columns: own.columns, rate, stream };
        self.optimize(embedding, &step)?;
        if let Some(cache) = embedding.cache() {
            cache.renew(named.rows, named.count, most, stream)?;
        }
        Ok(communicator.driver().stream_synchronize(stream)?)
    }

    fn optimize(&self, embedding: &Embedding, step: &Step<'_>) -> Result {
        let memory = embedding.rows().memory()?;
        let (table, table_stride) = (memory.own_part().address, memory.request().granularity);
        let kind = embedding.rows().description().element_type()?;
        let rows_in_table = memory.partition().count(memory.communicator().rank());
        let &Step { kernels, named, most, gradients, columns, rate: learning_rate, stream } = step;
        let (gradients, gradient_kind, gradient_stride) = gradients;
        let (table_type, gradient_type) = (kind.code(), gradient_kind.code());
        let &RowRuns { rows, positions: order, starts, count, .. } = named;
        let value = |name| self.optimizer.get(name).unwrap_or_default();
        let (weight_decay, epsilon) = (value("weight_decay"), value("epsilon"));
        let state = |at: usize| -> Result<(u64, u64)> {
            let memory = self.states[at].rows.rows().memory()?;
            Ok((memory.own_part().address, memory.request().granularity))
        };
        let mut places = vec![(table, table_stride, kind), (gradients, gradient_stride, gradient_kind)];
        for at in 0..self.states.len() {
            let (address, stride) = state(at)?;
            places.push((address, stride, ElementType::Float));
        }
        let lane_columns = lane_columns(columns, &places);
        let work = most.saturating_mul(columns.div_ceil(lane_columns.into()));
        // What all optimizers are told, and what one of them alone.
        macro_rules! optimize {
            ($kernel:ident { $($field:ident),* }) => {
                $kernel {
                    table,
                    table_stride,
                    table_type,
                    rows_in_table,
                    rows,
                    count,
                    gradients,
                    gradient_type,
                    gradient_stride,
                    columns,
                    order,
                    starts,
                    lane_columns,
                    learning_rate,
                    weight_decay,
                    $($field),*
                }
            };
        }
        match self.optimizer.kind() {
            OptimizerType::Sgd => {
                let step = optimize!(OptimizeSgd {});
                kernels.launch(&step, work, 0, stream)
            }
            OptimizerType::LazyAdam => {
                let ((m, m_stride), (v, v_stride), (powers, powers_stride)) =
                    (state(0)?, state(1)?, state(2)?);
                let (beta1, beta2, adam_w) =
                    (value("beta1"), value("beta2"), u32::from(value("adam_w") > 0.5));
                let step = optimize!(OptimizeLazyAdam {
                    m,
                    m_stride,
                    v,
                    v_stride,
                    powers,
                    powers_stride,
                    epsilon,
                    beta1,
                    beta2,
                    adam_w
                });
                kernels.launch(&step, work, 0, stream)?;
                if columns <= u64::from(lane_columns) * LANES {
                    return Ok(());
                }
                // Several warps have pieces of a row: none of them knows when all have read the
                // powers.
                let advance =
                    AdvancePowers { rows, count, rows_in_table, powers, powers_stride, beta1, beta2 };
                kernels.launch(&advance, most, 0, stream)
            }
            OptimizerType::RmsProp => {
                let ((v, v_stride), alpha) = (state(0)?, value("alpha"));
                let step = optimize!(OptimizeRmsprop { v, v_stride, epsilon, alpha });
                kernels.launch(&step, work, 0, stream)
            }
            OptimizerType::AdaGrad => {
                let (sums, sums_stride) = state(0)?;
                let step = optimize!(OptimizeAdagrad { sums, sums_stride, epsilon });
                kernels.launch(&step, work, 0, stream)
            }
        }
    }
}

/// A step of this rank's, under way.
struct Step<'a> {
    kernels: &'a Kernels,
    named: &'a RowRuns,
    /// No more rows are named.
    most: u64,
    /// Address, type and stride of the rows of gradients.
    gradients: (CUdeviceptr, ElementType, u64),
    columns: u64,
    rate: f32,
    stream: CUstream,
}

/// How many columns a lane of an optimizer has: four, where these are one aligned word in each row
/// of all that it reads and writes. `places` have address, bytes between rows and type of each.
fn lane_columns(columns: u64, places: &[(CUdeviceptr, u64, ElementType)]) -> u32 {
    let is_aligned = |(address, stride, kind): &(CUdeviceptr, u64, ElementType)| {
        (address | stride).is_multiple_of(4 * kind.bytes() as u64)
    };
    if columns.is_multiple_of(4) && places.iter().all(is_aligned) { 4 } else { 1 }
}

impl Staging {
    /// Staging for as many as a rank has at most. A collective call, if there is not enough.
    fn of<'a>(
        place: &'a mut Option<Self>,
        communicator: &Arc<Communicator>,
        own: &Gradients,
        most: u64,
    ) -> Result<&'a Self> {
        let fits = |staging: &Self| {
            let rows = staging.gradients.request().granularity;
            staging.capacity >= most
                && rows == own.row_bytes()
                && staging.indices.request().granularity == own.index_bytes
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
                indices: memory(own.index_bytes)?,
                gradients: memory(own.row_bytes())?,
                capacity,
            });
        }
        place.as_ref().ok_or_else(|| Error::Memory("no memory for gradients".to_owned()))
    }

    /// Writes this rank's numbers and gradients, and numbers that name nothing behind them.
    fn hand_in(&self, own: &Gradients, workspace: &Workspace<'_>) -> Result {
        let &Workspace { communicator, stream, .. } = workspace;
        let _current = communicator.enter()?;
        let (indices, rows) = (self.indices.own_part().address, self.gradients.own_part().address);
        let (bytes, caller) =
            (own.count * own.index_bytes, CallerStream::with(communicator.kernels()?, stream));
        if own.count < self.capacity {
            let rest = (self.capacity - own.count) * own.index_bytes;
            upload::fill_bytes(communicator, indices + bytes, rest, 0xff, stream)?;
        }
        if own.count > 0 {
            caller.copy(indices, own.indices, bytes)?;
            if own.stride == own.row_bytes() {
                caller.copy(rows, own.rows, own.count * own.row_bytes())?;
            } else {
                pack(own, rows, workspace)?;
            }
        }
        Ok(communicator.driver().stream_synchronize(stream)?)
    }
}

/// Rows with gaps go side by side.
fn pack(own: &Gradients, output: CUdeviceptr, workspace: &Workspace<'_>) -> Result {
    let (_scratch, [numbers, positions]) = workspace.take([own.count * 4; 2])?;
    let (kernels, stream) = (workspace.communicator.kernels()?, workspace.stream);
    // Its positions are all numbers from 0 on.
    let count = SortBegin {
        indices: own.indices,
        index_bytes: own.index_bytes as u32,
        count: own.count,
        first_row: 0,
        rows: 0,
        numbers,
        number_bytes: 4,
        positions,
    };
    kernels.launch(&count, own.count, 0, stream)?;
    let rows = GatherRows {
        base: own.rows,
        bases: 0,
        starts: 0,
        chunks: 1,
        equal: 0,
        rows_in_table: own.count,
        stride: own.stride,
        offset: 0,
        row_bytes: own.row_bytes(),
        indices: positions,
        index_bytes: 4,
        count: own.count,
        output,
        output_stride: own.row_bytes(),
        width: own.kind.bytes() as u32,
    };
    kernels.launch(&rows, own.count * own.columns, 0, stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hazard: a kernel loads a word that is not aligned.
    #[test]
    fn words_of_columns_are_aligned_in_every_row() {
        let (float, half) = (ElementType::Float, ElementType::Half);
        assert_eq!(lane_columns(128, &[(0x1000, 512, float), (0x2000, 256, half)]), 4);
        assert_eq!(lane_columns(4, &[(0x1008, 8, half)]), 4);
        assert_eq!(lane_columns(4, &[(0x1000, 16, float), (0x1008, 16, float)]), 1);
        assert_eq!(lane_columns(4, &[(0x1000, 16, float), (0x1000, 24, float)]), 1);
        assert_eq!(lane_columns(4, &[(0x1004, 8, half)]), 1);
        assert_eq!(lane_columns(6, &[(0x1000, 32, float)]), 1);
    }
}
