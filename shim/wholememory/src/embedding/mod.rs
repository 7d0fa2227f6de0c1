//! Embeddings: tables of rows that are read by number, with their caches and optimizers.
//!
//! A row is padded to whole words of 16 bytes, so that threads move it in wide words; the program
//! sees the part without padding. A cache changes where bytes are read and no result.

pub mod cache;
pub mod optimizer;
pub mod policy;
pub mod round_robin;
mod staging;
pub mod states;
pub mod training;

use std::sync::{Arc, OnceLock};

use crate::communicator::Communicator;
use crate::embedding::cache::Cache;
use crate::embedding::optimizer::Optimizer;
use crate::embedding::policy::CachePolicy;
use crate::embedding::round_robin::RoundRobin;
use crate::embedding::training::Training;
use crate::error::{Error, Result, require};
use crate::operations::rows::{RowDirection, copy, gather_cached, refuse};
use crate::operations::scratch::Workspace;
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::{Location, MemoryType};
use crate::vocabulary::description::TensorDescription;

/// A row begins at a multiple of so many bytes.
const ROW_ALIGNMENT: i64 = 16;

/// The request for an embedding, alike on all ranks.
#[derive(Debug, Clone)]
pub struct EmbeddingRequest {
    /// Rows and columns.
    pub description: TensorDescription,
    /// How ranks reach each other's part.
    pub memory_type: MemoryType,
    /// Its location.
    pub location: Location,
    /// The policy of its cache, if it has one.
    pub policy: Option<Arc<CachePolicy>>,
    /// Rows of each rank; equal parts without it.
    pub partition: Option<Vec<u64>>,
    /// Multiprocessors that an operation may use; all for a number below 1.
    pub multiprocessors: i32,
    /// Rows that go to one rank before the next one's turn; 0 for parts in one piece, as with a
    /// partition.
    pub round_robin: i32,
}

/// A table of rows.
#[derive(Debug)]
pub struct Embedding {
    /// With padding.
    whole: Arc<Tensor>,
    /// Without.
    rows: Arc<Tensor>,
    policy: Option<Arc<CachePolicy>>,
    /// How rows are dealt to the ranks, unless each rank's follow each other.
    round_robin: Option<RoundRobin>,
    cache: Option<Arc<Cache>>,
    training: OnceLock<Training>,
    multiprocessors: i32,
}

impl Embedding {
    /// Makes one. A collective call.
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub fn new(communicator: &Arc<Communicator>, request: EmbeddingRequest) -> Result<Self> {
        let dealt = dealt(communicator, &request);
        let own = dealt.as_ref().map(drop).map_err(Clone::clone);
        communicator.agree("malloc", own, &request.round_robin.to_le_bytes())?;
        let (round_robin, description) = dealt?;
        let EmbeddingRequest { memory_type, location, policy, partition, multiprocessors, .. } = request;
        let padded = padded(&description)?;
        let whole = Arc::new(Tensor::new(communicator, padded, memory_type, location, partition)?);
        let rows = if description.sizes[0] == 0 {
            Arc::clone(&whole)
        } else {
            Arc::new(whole.slice(&[0, 0], &[description.sizes[0], description.sizes[1]])?)
        };
        let cache = cache::make(&whole, policy.as_deref())?;
        Ok(Self { whole, rows, policy, round_robin, cache, training: OnceLock::new(), multiprocessors })
    }

    /// Its rows, without padding, in the order of their places.
    pub fn rows(&self) -> &Arc<Tensor> {
        &self.rows
    }

    /// Its rows, with padding.
    pub fn whole(&self) -> &Arc<Tensor> {
        &self.whole
    }

    /// The policy of its cache, if it has one.
    pub fn policy(&self) -> Option<&Arc<CachePolicy>> {
        self.policy.as_ref()
    }

    /// Its cache.
    pub fn cache(&self) -> Option<&Cache> {
        self.cache.as_deref()
    }

    /// Copies rows to packed memory; `adjusts` says whether the cache, if there is one, is adjusted
    /// to these lookups.
    ///
    /// # Errors
    /// As [`copy`].
    pub fn gather(
        &self,
        indices: &Tensor,
        output: &Tensor,
        adjusts: bool,
        workspace: &Workspace<'_>,
    ) -> Result {
        let Some(round_robin) = &self.round_robin else {
            return self.gather_places(indices, output, adjusts, workspace);
        };
        let (places, _scratch) = match round_robin.places_of(indices, workspace) {
            Ok(places) => places,
            Err(error) => return refuse(RowDirection::Gather, &self.rows, error, workspace),
        };
        self.gather_places(&places, output, adjusts, workspace)
    }

    fn gather_places(
        &self,
        places: &Tensor,
        output: &Tensor,
        adjusts: bool,
        workspace: &Workspace<'_>,
    ) -> Result {
        let Some(cache) = &self.cache else {
            return copy(RowDirection::Gather, &self.rows, places, output, workspace, self.multiprocessors);
        };
        gather_cached(cache.rows(adjusts), &self.rows, places, output, workspace, self.multiprocessors)
    }

    /// Multiprocessors that an operation may use.
    pub fn multiprocessors(&self) -> i32 {
        self.multiprocessors
    }

    /// How it is trained, if it is.
    pub fn training(&self) -> Option<&Training> {
        self.training.get()
    }

    /// Chooses the optimizer that trains it, once. A collective call.
    ///
    /// # Errors
    /// [`Error::Logic`] for a second one; [`Error::Input`] for rows that cannot be trained; those
    /// of [`Training::new`].
    pub fn set_optimizer(&self, optimizer: Arc<Optimizer>) -> Result {
        let kind = self.rows.description().element_type()?;
        let can = match self.training() {
            Some(_) => Err(Error::Logic("the embedding has an optimizer".to_owned())),
            None => require(
                kind.is_float() && kind.bytes() <= 4,
                "only rows of 16 or 32-bit floating-point numbers are trained",
            ),
        };
        let memory = self.rows.memory()?;
        let can = can.and_then(|()| self.policy().map_or(Ok(()), |policy| policy.trains(memory)));
        let alike = [optimizer.kind().code() as u8];
        self.rows.memory()?.communicator().agree("set_optimizer", can, &alike)?;
        // No other call sets an optimizer meanwhile: all ranks make this call.
        let _first = self.training.set(Training::new(self, optimizer)?);
        Ok(())
    }

    /// Makes a step of training. A collective call.
    ///
    /// # Errors
    /// [`Error::Logic`] without an optimizer; those of [`Training::step`].
    pub fn train(
        &self,
        indices: &Tensor,
        gradients: &Tensor,
        rate: f32,
        workspace: &Workspace<'_>,
    ) -> Result {
        let missing = || Error::Logic("the embedding has no optimizer".to_owned());
        let training = self.training().ok_or_else(missing)?;
        let Some(round_robin) = &self.round_robin else {
            return training.step(self, indices, gradients, rate, workspace);
        };
        // Before memory is taken, which a refused step would leave in a capture.
        let kernels = workspace.communicator.kernels();
        let can_wait = kernels.and_then(|kernels| CallerStream::with(kernels, workspace.stream).can_wait());
        match can_wait.and_then(|()| round_robin.places_of(indices, workspace)) {
            Ok((places, _scratch)) => training.step(self, &places, gradients, rate, workspace),
            // The others wait for this rank's word.
            Err(error) => workspace.communicator.agree("gradients", Err(error), &[]),
        }
    }
}

/// How rows are dealt, and the shape of all places for them. Rows go round robin only where the
/// caller does not divide them.
fn dealt(
    communicator: &Communicator,
    request: &EmbeddingRequest,
) -> Result<(Option<RoundRobin>, TensorDescription)> {
    let mut description = request.description;
    padded(&description)?;
    if request.round_robin == 0 || request.partition.is_some() {
        return Ok((None, description));
    }
    let dealt = RoundRobin::new(description.sizes[0], request.round_robin, communicator.size())?;
    description.sizes[0] = dealt.places()?;
    Ok((Some(dealt), description))
}

/// A shape whose rows begin at multiples of [`ROW_ALIGNMENT`].
fn padded(description: &TensorDescription) -> Result<TensorDescription> {
    let matrix = description.rows()?;
    require(description.dim == 2, "an embedding is a matrix")?;
    require(matrix.storage_offset == 0, "an embedding begins with its first element")?;
    let element = description.element_type()?.bytes() as i64;
    let bytes =
        matrix.sizes[1].checked_mul(element).ok_or_else(|| Error::Input("rows of 2^63 bytes".to_owned()))?;
    let stride = (bytes + ROW_ALIGNMENT - 1) / ROW_ALIGNMENT * ROW_ALIGNMENT / element;
    let mut padded = *description;
    padded.sizes[1] = stride;
    padded.strides[0] = stride;
    padded.strides[1] = 1;
    Ok(padded)
}
