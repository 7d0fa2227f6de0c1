//! Embeddings: tables of rows that are read by number, and what belongs to them.
//!
//! A row is padded to whole words of 16 bytes, so that threads move it in wide words; the program sees the part without padding.
//! A cache changes where bytes are read and no result.

pub mod cache;
pub mod optimizer;
pub mod policy;
pub mod states;
pub mod training;

use std::sync::{Arc, OnceLock};

use wm_abi::CUstream;

use crate::communicator::Communicator;
use crate::embedding::cache::Cache;
use crate::embedding::optimizer::Optimizer;
use crate::embedding::policy::CachePolicy;
use crate::embedding::training::Training;
use crate::error::{Error, Result, require};
use crate::operations::rows::{RowDirection, copy, gather_cached};
use crate::tensor::Tensor;
use crate::vocabulary::codes::{Location, MemoryType};
use crate::vocabulary::description::TensorDescription;

/// A row begins at a multiple of so many bytes.
const ROW_ALIGNMENT: i64 = 16;

/// What is asked for. Alike on all ranks.
#[derive(Debug, Clone)]
pub struct EmbeddingRequest {
    /// Rows and columns.
    pub description: TensorDescription,
    /// How ranks reach each other's part.
    pub memory_type: MemoryType,
    /// Where it lies.
    pub location: Location,
    /// What may be kept nearer.
    pub policy: Option<Arc<CachePolicy>>,
    /// Rows of each rank; equal parts without it.
    pub partition: Option<Vec<u64>>,
    /// Multiprocessors that an operation may use; all for a number below 1.
    pub multiprocessors: i32,
    /// Rows that go to one rank before the next one's turn; 0 for parts in one piece.
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
    cache: Option<Arc<Cache>>,
    training: OnceLock<Training>,
    multiprocessors: i32,
}

impl Embedding {
    /// Makes one. A collective call.
    ///
    /// # Errors
    /// As [`Tensor::new`]; [`Error::NotImplemented`] for rows that go round robin.
    pub fn new(communicator: &Arc<Communicator>, request: EmbeddingRequest) -> Result<Self> {
        let padded = if request.round_robin == 0 {
            padded(&request.description)
        } else {
            Err(Error::NotImplemented("embeddings whose rows go round robin"))
        };
        let padded = match padded {
            Ok(padded) => padded,
            // The others wait for this rank's word.
            Err(error) => {
                communicator.agree("malloc", Err(error.clone()), &[])?;
                return Err(error);
            }
        };
        let EmbeddingRequest {
            description, memory_type, location, policy, partition, multiprocessors, ..
        } = request;
        let whole = Arc::new(Tensor::new(communicator, padded, memory_type, location, partition)?);
        let rows = if description.sizes[0] == 0 {
            Arc::clone(&whole)
        } else {
            Arc::new(whole.part(&[0, 0], &[description.sizes[0], description.sizes[1]])?)
        };
        let cache = cache::make(&whole, policy.as_deref())?;
        Ok(Self { whole, rows, policy, cache, training: OnceLock::new(), multiprocessors })
    }

    /// Its rows, without padding.
    pub fn rows(&self) -> &Arc<Tensor> {
        &self.rows
    }

    /// Its rows, with padding.
    pub fn whole(&self) -> &Arc<Tensor> {
        &self.whole
    }

    /// What may be kept nearer.
    pub fn policy(&self) -> Option<&Arc<CachePolicy>> {
        self.policy.as_ref()
    }

    /// Copies of rows that are nearer.
    pub fn cache(&self) -> Option<&Cache> {
        self.cache.as_deref()
    }

    /// Copies rows to packed memory; `adjusts` the cache to what is asked for, if there is one.
    ///
    /// # Errors
    /// As [`copy`].
    pub fn gather(&self, indices: &Tensor, output: &Tensor, adjusts: bool, stream: CUstream) -> Result {
        let Some(cache) = &self.cache else {
            return copy(RowDirection::Gather, &self.rows, indices, output, stream, self.multiprocessors);
        };
        gather_cached(cache.tables(), &self.rows, indices, output, stream, self.multiprocessors)?;
        if adjusts { cache.adjust(indices, stream) } else { Ok(()) }
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
    /// [`Error::Logic`] for a second one; [`Error::Input`] for rows that cannot be trained; those of [`Training::new`].
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
        // Nobody else sets one meanwhile: all ranks make the same call.
        let _first = self.training.set(Training::new(self, optimizer)?);
        Ok(())
    }

    /// Makes a step of training. A collective call.
    ///
    /// # Errors
    /// [`Error::Logic`] without an optimizer; those of [`Training::step`].
    pub fn train(&self, indices: &Tensor, gradients: &Tensor, rate: f32, stream: CUstream) -> Result {
        let missing = || Error::Logic("the embedding has no optimizer".to_owned());
        self.training().ok_or_else(missing)?.step(self, indices, gradients, rate, stream)
    }
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
