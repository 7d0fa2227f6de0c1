//! Functions of `embedding.h`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Arc, LazyLock};

use wm_abi::CUstream;

use super::call::{answer, give, is_place, read, value};
use super::communicators::communicator;
use super::exports::exports;
use super::memories::partition;
use super::names::{
    AccessCode, CachePolicyHandle, CommunicatorHandle, EmbeddingHandle, ErrorCode, LocationCode,
    MemoryTypeCode, OptimizerCode, OptimizerHandle, TensorHandle,
};
use super::operations::temporary;
use super::registry::{EMBEDDINGS, MEMORIES, OPTIMIZERS, POLICIES, TENSORS};
use crate::embedding::optimizer::Optimizer;
use crate::embedding::policy::CachePolicy;
use crate::embedding::states;
use crate::embedding::training::Training;
use crate::embedding::{Embedding, EmbeddingRequest};
use crate::environment::Functions;
use crate::error::{Error, require};
use crate::operations::rows::{RowDirection, refuse};
use crate::operations::scratch::Workspace;
use crate::vocabulary::codes::{AccessType, Location, MemoryType, OptimizerType};
use crate::vocabulary::description::TensorDescription;

/// Arrays of names that live as long as the process.
fn state_names(kind: OptimizerType) -> *const *const c_char {
    static NAMES: LazyLock<[Box<[usize]>; 4]> = LazyLock::new(|| {
        let kinds =
            [OptimizerType::Sgd, OptimizerType::LazyAdam, OptimizerType::RmsProp, OptimizerType::AdaGrad];
        kinds.map(|kind| states::names(kind).map(|name| name.as_ptr() as usize).chain([0]).collect())
    });
    NAMES[kind.code() as usize - 1].as_ptr().cast()
}

exports! {
    // embedding.h: Optimizers and cache policies.
    // embedding.h: Optimizers and cache policies.
    // embedding.h: Optimizers and cache policies.
    /// Makes an optimizer with its parameters at their defaults. It may train several embeddings.
    ///
    /// * Errors: the common ones.
    fn wholememory_create_embedding_optimizer(
        place: *mut OptimizerHandle, optimizer_type: OptimizerCode,
    ) -> ErrorCode {
        answer("wholememory_create_embedding_optimizer", || {
            is_place(place)?;
            let optimizer = Optimizer::new(OptimizerType::of(optimizer_type)?);
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, OPTIMIZERS.add(Arc::new(optimizer))) }
        })
    }

    /// Sets a parameter to the `float` at `number`. SGD has `weight_decay` (0). Lazy Adam has
    /// `weight_decay` (0), `epsilon` (1e-8), `beta1` (0.9), `beta2` (0.999) and `adam_w` (0; above
    /// 0.5, the decay is AdamW's). RMSProp has `weight_decay` (0), `epsilon` (1e-8) and `alpha`
    /// (0.99). Adagrad has `weight_decay` (0) and `epsilon` (1e-8).
    ///
    /// * Errors: `INVALID_INPUT` for a name that the optimizer does not have.
    fn wholememory_optimizer_set_parameter(
        handle: OptimizerHandle, name: *const c_char, number: *mut c_void,
    ) -> ErrorCode {
        answer("wholememory_optimizer_set_parameter", || {
            require(!name.is_null(), "the parameter's name is null")?;
            // SAFETY: not null; the caller's word that it ends with a zero.
            let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
            // SAFETY: null is refused; the caller's word for the rest.
            OPTIMIZERS.get(handle)?.set(&name, unsafe { read(number.cast::<f32>(), "the parameter's value") }?)
        })
    }

    /// Closes an optimizer. It lives on as long as an embedding uses it.
    ///
    /// * On failure: a line in the log.
    fn wholememory_destroy_embedding_optimizer(handle: OptimizerHandle) {
        value("wholememory_destroy_embedding_optimizer", (), || OPTIMIZERS.close(handle).map(drop));
    }

    /// Makes a policy for caches: `ratio` is the share of rows that may have copies, from 1/512 to
    /// 1. `comm` are the ranks that share a cache, `memory_type` and `location` are those of the
    /// copies.
    ///
    /// * Errors: `INVALID_VALUE` for another ratio.
    fn wholememory_create_embedding_cache_policy(
        place: *mut CachePolicyHandle, comm: CommunicatorHandle, memory_type: MemoryTypeCode,
        location: LocationCode, access: AccessCode, ratio: f32,
    ) -> ErrorCode {
        answer("wholememory_create_embedding_cache_policy", || {
            is_place(place)?;
            let (memory_type, location) = (MemoryType::of(memory_type)?, Location::of(location)?);
            let policy = CachePolicy::new(communicator(comm)?, memory_type, location, AccessType::of(access)?, ratio)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, POLICIES.add(Arc::new(policy))) }
        })
    }

    /// Closes a policy. It lives on as long as an embedding uses it.
    ///
    /// * Errors: the common ones.
    fn wholememory_destroy_embedding_cache_policy(handle: CachePolicyHandle) -> ErrorCode {
        answer("wholememory_destroy_embedding_cache_policy", || POLICIES.close(handle).map(drop))
    }

    // embedding.h: Embeddings.
    // embedding.h: Embeddings.
    // embedding.h: Embeddings.
    /// Makes an embedding: a matrix whose rows are padded to 16 bytes. `policy` may be null.
    /// `entry_partition` is as of `wholememory_create_tensor`; without it, `round_robin` n above 0
    /// deals n rows after the other to the ranks. `multiprocessors` bounds those that an operation
    /// uses; all are used below 1.
    ///
    /// * Collective: all arguments are the same on all ranks; the policy's other ranks make
    ///   embeddings of their own.
    /// * Errors: `INVALID_INPUT` for a description that is no matrix, or a policy that does not fit
    ///   the memory; `NOT_SUPPORTED` for a policy whose ranks do not reach each other's GPUs; those
    ///   of `wholememory_malloc`.
    fn wholememory_create_embedding(
        place: *mut EmbeddingHandle, description: *mut TensorDescription, comm: CommunicatorHandle,
        memory_type: MemoryTypeCode, location: LocationCode, policy: CachePolicyHandle,
        entry_partition: *mut usize = null, multiprocessors: c_int = -1, round_robin: c_int = 0,
    ) -> ErrorCode {
        answer("wholememory_create_embedding", || {
            let communicator = communicator(comm)?;
            let request = is_place(place).and_then(|()| {
                // SAFETY: null is refused; the caller's word for the rest.
                let description = unsafe { read(description, "the description") }?;
                let (memory_type, location) = (MemoryType::of(memory_type)?, Location::of(location)?);
                let policy = if policy.is_null() { None } else { Some(POLICIES.get(policy)?) };
                // SAFETY: the caller's word.
                let partition = unsafe { partition(entry_partition, communicator.size()) };
                Ok(EmbeddingRequest { description, memory_type, location, policy, partition, multiprocessors, round_robin })
            });
            let request = match request {
                Ok(request) => request,
                // The others wait for this rank's word.
                Err(error) => return communicator.agree("malloc", Err(error), &[]),
            };
            let embedding = Embedding::new(&communicator, request)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, EMBEDDINGS.add(Arc::new(embedding))) }
        })
    }

    /// Closes an embedding, its tensor and the optimizer's states.
    ///
    /// * Errors: the common ones.
    fn wholememory_destroy_embedding(handle: EmbeddingHandle) -> ErrorCode {
        answer("wholememory_destroy_embedding", || {
            let embedding = EMBEDDINGS.close(handle)?;
            let states = embedding.training().map_or(&[][..], Training::states);
            for rows in states.iter().map(|state| &*state.rows).chain([&*embedding]) {
                TENSORS.forget(rows.rows());
                MEMORIES.forget(rows.whole().memory()?);
            }
            Ok(())
        })
    }

    /// Returns the rows, without their padding. They are closed with the embedding. With
    /// `round_robin`, they are in the order of their places.
    ///
    /// * On failure: null.
    fn wholememory_embedding_get_embedding_tensor(handle: EmbeddingHandle) -> TensorHandle {
        value("wholememory_embedding_get_embedding_tensor", null_mut(), || {
            Ok(TENSORS.handle_of(EMBEDDINGS.get(handle)?.rows()))
        })
    }

    /// Copies rows as `wholememory_gather` does, from copies in the cache where they are. With
    /// `adjust_cache`, the rows that are gathered most get copies, behind the gather and in the
    /// same stream. Types that differ are converted from the table, past the cache.
    ///
    /// Collective where `wholememory_gather` is, also if a rank has copies of all its rows. If the
    /// cache is of another communicator than the embedding's, then, with `adjust_cache`, the call
    /// returns when the copies are made.
    ///
    /// * Stream: `stream`, a `cudaStream_t` as a number. The call does not wait, unless it is
    ///   collective.
    /// * Errors: as of `wholememory_gather`.
    fn wholememory_embedding_gather(
        handle: EmbeddingHandle, indices: TensorHandle, output: TensorHandle, adjust_cache: bool,
        functions: *mut Functions, stream: i64,
    ) -> ErrorCode {
        answer("wholememory_embedding_gather", || {
            let embedding = EMBEDDINGS.get(handle)?;
            let others = TENSORS.get(indices).and_then(|indices| Ok((indices, TENSORS.get(output)?)));
            // SAFETY: the caller's word.
            let environment = unsafe { temporary(functions) };
            let (communicator, stream) = (embedding.rows().memory()?.communicator(), CUstream(stream as usize));
            let workspace = Workspace { communicator, stream, environment: environment.as_ref() };
            match others {
                Ok((indices, output)) => embedding.gather(&indices, &output, adjust_cache, &workspace),
                Err(error) => refuse(RowDirection::Gather, embedding.rows(), error, &workspace),
            }
        })
    }

    /// Chooses the optimizer that trains the embedding, and makes its states.
    ///
    /// * Collective: all ranks choose the same type.
    /// * Errors: `LOGIC_ERROR` if the embedding has an optimizer; `INVALID_INPUT` if its elements
    ///   are not 16 or 32-bit floating-point numbers, or its cache is for reading alone;
    ///   `OUT_OF_MEMORY`.
    fn wholememory_embedding_set_optimizer(
        handle: EmbeddingHandle, optimizer: OptimizerHandle,
    ) -> ErrorCode {
        answer("wholememory_embedding_set_optimizer", || {
            let embedding = EMBEDDINGS.get(handle)?;
            match OPTIMIZERS.get(optimizer) {
                Ok(optimizer) => embedding.set_optimizer(optimizer),
                // The others wait for this rank's word.
                Err(error) => embedding.rows().memory()?.communicator().agree("set_optimizer", Err(error), &[]),
            }
        })
    }

    /// Makes a step of the optimizer with the gradients of all ranks. `indices` is an array of
    /// `INT` or `INT64`; `gradients` is a matrix of as many rows as numbers and as many columns as
    /// the embedding, of `FLOAT`, `HALF` or `BF16`. A rank without gradients calls with arrays of 0
    /// rows. The gradients of a row are summed over all ranks and repetitions, in 32 bits and in a
    /// fixed order, and its owner makes one step with rate `learning_rate`. A number out of range
    /// is skipped. Rows without gradients do not change.
    ///
    /// * Collective: returns when all ranks' rows are changed. Only the shapes of columns and the
    ///   types are the same on all ranks.
    /// * Stream: `stream`, a `cudaStream_t` as a number. The call waits for it twice.
    /// * Errors: `LOGIC_ERROR` without an optimizer; `INVALID_INPUT` for shapes or types that do
    ///   not fit; `NOT_SUPPORTED` in a stream that is captured; `OUT_OF_MEMORY`.
    fn wholememory_embedding_gather_gradient_apply(
        handle: EmbeddingHandle, indices: TensorHandle, gradients: TensorHandle,
        _adjust_cache: bool, learning_rate: f32, functions: *mut Functions, stream: i64,
    ) -> ErrorCode {
        answer("wholememory_embedding_gather_gradient_apply", || {
            let embedding = EMBEDDINGS.get(handle)?;
            // SAFETY: the caller's word.
            let environment = unsafe { temporary(functions) };
            let (communicator, stream) = (embedding.rows().memory()?.communicator(), CUstream(stream as usize));
            let workspace = Workspace { communicator, stream, environment: environment.as_ref() };
            match TENSORS.get(indices).and_then(|indices| Ok((indices, TENSORS.get(gradients)?))) {
                Ok((indices, gradients)) => embedding.train(&indices, &gradients, learning_rate, &workspace),
                // The others wait for this rank's word.
                Err(error) => communicator.agree("gradients", Err(error), &[]),
            }
        })
    }

    /// Returns the names of the optimizer's states, ended by null: none for SGD, `m`, `v` and
    /// `beta12t` for lazy Adam, `v` for RMSProp, `state_sum` for Adagrad. The texts live as long as
    /// the process.
    ///
    /// * On failure: null, also without an optimizer.
    fn wholememory_embedding_get_optimizer_state_names(
        handle: EmbeddingHandle,
    ) -> *const *const c_char {
        value("wholememory_embedding_get_optimizer_state_names", null(), || {
            let embedding = EMBEDDINGS.get(handle)?;
            Ok(embedding.training().map_or(null(), |training| state_names(training.kind())))
        })
    }

    /// Returns a state by its name: a tensor of as many rows as the embedding, of `FLOAT`. It is
    /// closed with the embedding.
    ///
    /// * On failure: null, also for a name that the optimizer does not have.
    fn wholememory_embedding_get_optimizer_state(
        handle: EmbeddingHandle, name: *const c_char,
    ) -> TensorHandle {
        value("wholememory_embedding_get_optimizer_state", null_mut(), || {
            require(!name.is_null(), "the state's name is null")?;
            // SAFETY: not null; the caller's word that it ends with a zero.
            let name = unsafe { CStr::from_ptr(name) };
            let embedding = EMBEDDINGS.get(handle)?;
            let found = embedding.training().and_then(|training| training.states().iter().find(|state| state.name == name));
            found.map_or_else(|| Err(Error::Input(format!("no state {name:?}"))), |state| Ok(TENSORS.handle_of(state.rows.rows())))
        })
    }

    /// Does nothing: rows are written before their copies.
    ///
    /// * Errors: the common ones.
    fn wholememory_embedding_writeback_cache(handle: EmbeddingHandle, _stream: i64) -> ErrorCode {
        answer("wholememory_embedding_writeback_cache", || EMBEDDINGS.get(handle).map(drop))
    }

    /// Drops this rank's copies. The whole cache is empty when all ranks have made the call and
    /// have met. It is needed after rows were written by `wholememory_scatter` or through an
    /// address.
    ///
    /// * Stream: `stream`, a `cudaStream_t` as a number. The call does not wait.
    /// * Errors: `CUDA_ERROR`.
    fn wholememory_embedding_drop_all_cache(handle: EmbeddingHandle, stream: i64) -> ErrorCode {
        answer("wholememory_embedding_drop_all_cache", || {
            EMBEDDINGS.get(handle)?.cache().map_or(Ok(()), |cache| cache.drop_lines(CUstream(stream as usize)))
        })
    }
}
