//! States of an optimizer, for each row of an embedding: embeddings of their own, divided among the
//! ranks like the rows.

use std::ffi::CStr;
use std::sync::Arc;

use wm_abi::CUstream;
use wm_driver::Api;

use crate::communicator::Communicator;
use crate::embedding::{Embedding, EmbeddingRequest};
use crate::error::Result;
use crate::operations::upload;
use crate::vocabulary::codes::{ElementType, OptimizerType};
use crate::vocabulary::description::MatrixDescription;

/// A state: how many numbers a row has, and their initial value.
struct StateShape {
    name: &'static CStr,
    /// 0: as many as the embedding has columns.
    columns: i64,
    first: f32,
}

const fn like_rows(name: &'static CStr) -> StateShape {
    StateShape { name, columns: 0, first: 0.0 }
}

fn shapes(kind: OptimizerType) -> &'static [StateShape] {
    const ADAM: &[StateShape] =
        &[like_rows(c"m"), like_rows(c"v"), StateShape { name: c"beta12t", columns: 2, first: 1.0 }];
    const RMSPROP: &[StateShape] = &[like_rows(c"v")];
    const ADAGRAD: &[StateShape] = &[like_rows(c"state_sum")];
    match kind {
        OptimizerType::Sgd => &[],
        OptimizerType::LazyAdam => ADAM,
        OptimizerType::RmsProp => RMSPROP,
        OptimizerType::AdaGrad => ADAGRAD,
    }
}

/// Names of the states of an optimizer, in the API's words.
pub fn names(kind: OptimizerType) -> impl Iterator<Item = &'static CStr> {
    shapes(kind).iter().map(|shape| shape.name)
}

/// One state of all rows.
#[derive(Debug)]
pub struct RowState {
    /// Its name in the API.
    pub name: &'static CStr,
    /// Its rows.
    pub rows: Arc<Embedding>,
}

/// Makes the states for an embedding's rows. A collective call.
///
/// # Errors
/// As [`Embedding::new`].
pub fn make(embedding: &Embedding, kind: OptimizerType) -> Result<Vec<RowState>> {
    shapes(kind).iter().map(|shape| one(embedding, shape)).collect()
}

fn one(embedding: &Embedding, shape: &StateShape) -> Result<RowState> {
    let (tensor, memory) = (embedding.rows(), embedding.rows().memory()?);
    let (communicator, request) = (memory.communicator(), memory.request());
    let columns = if shape.columns == 0 { tensor.description().sizes[1] } else { shape.columns };
    let sizes = [tensor.description().sizes[0], columns];
    let matrix =
        MatrixDescription { sizes, stride: columns, storage_offset: 0, dtype: ElementType::Float.code() };
    let state = EmbeddingRequest {
        description: matrix.into(),
        memory_type: request.memory_type,
        location: request.location,
        policy: None,
        partition: request.partition.clone(),
        multiprocessors: embedding.multiprocessors(),
        round_robin: 0,
    };
    let rows = Arc::new(Embedding::new(communicator, state)?);
    let filled = fill(communicator, &rows, shape.first);
    communicator.agree("optimizer state", filled, &[])?;
    Ok(RowState { name: shape.name, rows })
}

/// Each rank fills its part.
fn fill(communicator: &Communicator, rows: &Embedding, first: f32) -> Result {
    let part = rows.whole().memory()?.own_part();
    if part.bytes == 0 {
        return Ok(());
    }
    let _current = communicator.enter()?;
    upload::fill_words(communicator, part.address, part.bytes / 4, first.to_bits(), CUstream::NULL)?;
    Ok(communicator.driver().ctx_synchronize_named(communicator.context())?)
}
