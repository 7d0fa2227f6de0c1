//! Functions of `embedding.h`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Arc, LazyLock};

use wm_abi::CUstream;

use super::call::{answer, give, is_place, read, value};
use super::communicators::communicator;
use super::exports::exports;
use super::memories::partition;
use super::operations::temporary;
use super::registry::{EMBEDDINGS, MEMORIES, OPTIMIZERS, ObjectHandle, POLICIES, TENSORS};
use crate::embedding::optimizer::Optimizer;
use crate::embedding::policy::CachePolicy;
use crate::embedding::states;
use crate::embedding::training::Training;
use crate::embedding::{Embedding, EmbeddingRequest};
use crate::environment::Functions;
use crate::error::{Error, require};
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
    /// An optimizer with its parameters at their defaults.
    fn wholememory_create_embedding_optimizer(place: *mut ObjectHandle, optimizer_type: c_uint) -> u32 {
        answer("wholememory_create_embedding_optimizer", || {
            is_place(place)?;
            let optimizer = Optimizer::new(OptimizerType::of(optimizer_type)?);
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, OPTIMIZERS.add(Arc::new(optimizer))) }
        })
    }

    /// Sets a parameter. Its value is a `float`.
    fn wholememory_optimizer_set_parameter(handle: ObjectHandle, name: *const c_char, number: *const c_void) -> u32 {
        answer("wholememory_optimizer_set_parameter", || {
            require(!name.is_null(), "the parameter's name is null")?;
            // SAFETY: not null; the caller's word that it ends with a zero.
            let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
            // SAFETY: null is refused; the caller's word for the rest.
            OPTIMIZERS.get(handle)?.set(&name, unsafe { read(number.cast::<f32>(), "the parameter's value") }?)
        })
    }

    /// Closes an optimizer. It lives on as long as an embedding uses it.
    fn wholememory_destroy_embedding_optimizer(handle: ObjectHandle) {
        value("wholememory_destroy_embedding_optimizer", (), || OPTIMIZERS.close(handle).map(drop));
    }

    /// A policy for caches.
    fn wholememory_create_embedding_cache_policy(
        place: *mut ObjectHandle, comm: ObjectHandle, memory_type: c_uint, location: c_uint, access: c_uint, ratio: f32,
    ) -> u32 {
        answer("wholememory_create_embedding_cache_policy", || {
            is_place(place)?;
            let (memory_type, location) = (MemoryType::of(memory_type)?, Location::of(location)?);
            let policy = CachePolicy::new(communicator(comm)?, memory_type, location, AccessType::of(access)?, ratio)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, POLICIES.add(Arc::new(policy))) }
        })
    }

    /// Closes a policy. It lives on as long as an embedding uses it.
    fn wholememory_destroy_embedding_cache_policy(handle: ObjectHandle) -> u32 {
        answer("wholememory_destroy_embedding_cache_policy", || POLICIES.close(handle).map(drop))
    }

    /// An embedding. A collective call.
    fn wholememory_create_embedding(
        place: *mut ObjectHandle, description: *const TensorDescription, comm: ObjectHandle, memory_type: c_uint, location: c_uint,
        policy: ObjectHandle, entry_partition: *const usize, multiprocessors: c_int, round_robin: c_int,
    ) -> u32 {
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

    /// Closes an embedding and its tensors.
    fn wholememory_destroy_embedding(handle: ObjectHandle) -> u32 {
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

    /// Its rows, which are the embedding's to close; null for no embedding.
    fn wholememory_embedding_get_embedding_tensor(handle: ObjectHandle) -> ObjectHandle {
        value("wholememory_embedding_get_embedding_tensor", null_mut(), || {
            Ok(TENSORS.handle_of(EMBEDDINGS.get(handle)?.rows()))
        })
    }

    /// Copies rows, and adjusts the cache to these lookups.
    fn wholememory_embedding_gather(
        handle: ObjectHandle, indices: ObjectHandle, output: ObjectHandle, adjust_cache: bool, functions: *const Functions, stream: i64,
    ) -> u32 {
        answer("wholememory_embedding_gather", || {
            let (indices, output) = (TENSORS.get(indices)?, TENSORS.get(output)?);
            let embedding = EMBEDDINGS.get(handle)?;
            // SAFETY: the caller's word.
            let environment = unsafe { temporary(functions) };
            let (communicator, stream) = (embedding.rows().memory()?.communicator(), CUstream(stream as usize));
            let workspace = Workspace { communicator, stream, environment: environment.as_ref() };
            embedding.gather(&indices, &output, adjust_cache, &workspace)
        })
    }

    /// Chooses the optimizer that trains it. A collective call.
    fn wholememory_embedding_set_optimizer(handle: ObjectHandle, optimizer: ObjectHandle) -> u32 {
        answer("wholememory_embedding_set_optimizer", || {
            let embedding = EMBEDDINGS.get(handle)?;
            match OPTIMIZERS.get(optimizer) {
                Ok(optimizer) => embedding.set_optimizer(optimizer),
                // The others wait for this rank's word.
                Err(error) => embedding.rows().memory()?.communicator().agree("set_optimizer", Err(error), &[]),
            }
        })
    }

    /// Makes a step of training with the gradients of all ranks. A collective call.
    fn wholememory_embedding_gather_gradient_apply(
        handle: ObjectHandle, indices: ObjectHandle, gradients: ObjectHandle, _adjust_cache: bool, learning_rate: f32, functions: *const Functions,
        stream: i64,
    ) -> u32 {
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

    /// Names of the optimizer's states, ended by null; null without an optimizer.
    fn wholememory_embedding_get_optimizer_state_names(handle: ObjectHandle) -> *const *const c_char {
        value("wholememory_embedding_get_optimizer_state_names", null(), || {
            let embedding = EMBEDDINGS.get(handle)?;
            Ok(embedding.training().map_or(null(), |training| state_names(training.kind())))
        })
    }

    /// A state of the optimizer, by name; it is the embedding's to close. Null for a name that it
    /// does not have.
    fn wholememory_embedding_get_optimizer_state(handle: ObjectHandle, name: *const c_char) -> ObjectHandle {
        value("wholememory_embedding_get_optimizer_state", null_mut(), || {
            require(!name.is_null(), "the state's name is null")?;
            // SAFETY: not null; the caller's word that it ends with a zero.
            let name = unsafe { CStr::from_ptr(name) };
            let embedding = EMBEDDINGS.get(handle)?;
            let found = embedding.training().and_then(|training| training.states().iter().find(|state| state.name == name));
            found.map_or_else(|| Err(Error::Input(format!("no state {name:?}"))), |state| Ok(TENSORS.handle_of(state.rows.rows())))
        })
    }

    /// Rows are written before their copies: nothing is left to do.
    fn wholememory_embedding_writeback_cache(handle: ObjectHandle, _stream: i64) -> u32 {
        answer("wholememory_embedding_writeback_cache", || EMBEDDINGS.get(handle).map(drop))
    }

    /// Empties this rank's part of the cache, in a stream. The whole cache is empty when all ranks
    /// have made the call.
    fn wholememory_embedding_drop_all_cache(handle: ObjectHandle, stream: i64) -> u32 {
        answer("wholememory_embedding_drop_all_cache", || {
            EMBEDDINGS.get(handle)?.cache().map_or(Ok(()), |cache| cache.drop_lines(CUstream(stream as usize)))
        })
    }
}
