//! A step of training: the gradients that all ranks have for rows are summed up at the row's owner,
//! which changes it.
//!
//! Ranks hand in their row numbers and gradients through [memory](super::staging) that all ranks of an
//! island map, in which each rank of every island has a slot. Each owner sorts the numbers of all
//! ranks, leaves out the rows of others, sums the gradients of each row in the order
//! of ranks and positions, and makes one step of the optimizer on it. So a step gives the same bits
//! with any timing, and on any islands.
//!
//! Invariant: no rank reads the gradients before all ranks have written theirs, and no rank writes
//! again before all have read.

use std::sync::{Arc, Mutex, PoisonError};

use wm_abi::CUstream;
use wm_driver::Api;
use wm_kernels::wholememory::{
    AdaGrad, AdvancePowers, Gradients, LazyAdam, OptimizeAdagrad, OptimizeLazyAdam, OptimizeRmsprop,
    OptimizeSgd, Powers, RmsProp, RowNames, Sgd, Step, Strided,
};

use crate::communicator::Communicator;
use crate::embedding::Embedding;
use crate::embedding::optimizer::Optimizer;
use crate::embedding::staging::{HandedIn, Lost, Staging};
use crate::embedding::states::{self, RowState};
use crate::error::{Result, require};
use crate::kernels::WARP;
use crate::memory::Memory;
use crate::operations::scratch::Workspace;
use crate::operations::sort::{RowRuns, Unsorted, runs};
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::{ElementType, Location, OptimizerType};

/// Places for gradients of all ranks: the sort counts in 32 bits.
const MOST: u64 = 1 << 31;

/// The optimizer of an embedding, its states, and the memory through which gradients go.
#[derive(Debug)]
pub struct Training {
    optimizer: Arc<Optimizer>,
    states: Vec<RowState>,
    staging: Mutex<Option<Staging>>,
    /// Of rows that span islands: the ranks of this rank's island.
    island: Option<Arc<Communicator>>,
}

impl Training {
    /// Makes the optimizer's states. A collective call.
    ///
    /// # Errors
    /// As [`Embedding::new`].
    pub fn new(embedding: &Embedding, optimizer: Arc<Optimizer>) -> Result<Self> {
        let memory = embedding.rows().memory()?;
        let communicator = memory.communicator();
        // Gradients are handed in through memory of GPUs.
        let island = memory.span().map(|_| communicator.of_island(Location::Device)).transpose()?;
        let states = states::make(embedding, optimizer.kind())?;
        Ok(Self { optimizer, states, staging: Mutex::default(), island })
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
        let columns = embedding.rows().description().sizes[1];
        // A wait would end a capture.
        let can_wait = communicator
            .kernels()
            .and_then(|kernels| CallerStream::with(kernels, workspace.stream).can_wait());
        let own = can_wait.and_then(|()| HandedIn::new(columns, indices, gradients));
        let alike = own
            .as_ref()
            .map(|own| format!("{} {:?} {rate}", own.numbers.bytes, own.kind))
            .unwrap_or_default();
        let count = own.as_ref().map(|own| own.numbers.count).map_err(Clone::clone);
        let counts = communicator.agree_on("gradients", count, alike.as_bytes())?;
        let (own, most) = (own?, counts.iter().copied().max().unwrap_or_default());
        if most == 0 || own.columns == 0 {
            return Ok(());
        }
        // All ranks find the same.
        let all =
            most.checked_next_power_of_two().and_then(|most| most.checked_mul(communicator.size() as u64));
        require(all.is_some_and(|all| all < MOST), "more gradients than 31 bits can count")?;
        let mut place = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let staging = Staging::of(&mut place, (communicator, self.island.as_ref()), &own, most)?;
        let handed_in = staging.hand_in(&own, &counts, workspace);
        communicator.agree("gradients are there", handed_in, &[])?;
        if self.island.is_some() {
            let passed = staging.pass(communicator, &counts, workspace.stream);
            if let Err(Lost { error, is_over }) = passed {
                if !is_over {
                    // The network may still write there.
                    std::mem::forget(place.take());
                }
                return Err(error);
            }
        }
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
        let (numbers, gradients) = staging.of_all(communicator.size());
        let count = numbers.count;
        let named = runs(workspace, Unsorted { numbers, first_row: partition.start(rank), rows })?;
        // The GPU alone has their number: a wait for it would leave the GPU without work.
        let most = count.min(rows);
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
