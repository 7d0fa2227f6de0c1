//! Functions of `embedding.h`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use wm_abi::CUstream;

use super::communicators::communicator;
use super::memories::partition;
use super::registry::{EMBEDDINGS, Handle, MEMORIES, OPTIMIZERS, POLICIES, TENSORS};
use super::{answer, exports, give, is_place, read, value};
use crate::embedding::optimizer::Optimizer;
use crate::embedding::policy::CachePolicy;
use crate::embedding::{Embedding, EmbeddingRequest};
use crate::error::require;
use crate::vocabulary::codes::{AccessType, Location, MemoryType, OptimizerType};
use crate::vocabulary::description::TensorDescription;

exports! {
    /// An optimizer with its parameters at their defaults.
    fn wholememory_create_embedding_optimizer(place: *mut Handle, optimizer_type: c_uint) -> u32 {
        answer("wholememory_create_embedding_optimizer", || {
            is_place(place)?;
            let optimizer = Optimizer::new(OptimizerType::of(optimizer_type)?);
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, OPTIMIZERS.add(Arc::new(optimizer))) }
        })
    }

    /// Sets a parameter. Its value is a `float`.
    fn wholememory_optimizer_set_parameter(handle: Handle, name: *const c_char, number: *const c_void) -> u32 {
        answer("wholememory_optimizer_set_parameter", || {
            require(!name.is_null(), "the parameter's name is null")?;
            // SAFETY: not null; the caller's word that it ends with a zero.
            let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
            // SAFETY: null is refused; the caller's word for the rest.
            OPTIMIZERS.get(handle)?.set(&name, unsafe { read(number.cast::<f32>(), "the parameter's value") }?)
        })
    }

    /// Closes an optimizer. Embeddings keep what they need of it.
    fn wholememory_destroy_embedding_optimizer(handle: Handle) {
        value("wholememory_destroy_embedding_optimizer", (), || OPTIMIZERS.take(handle).map(drop));
    }

    /// A policy for caches.
    fn wholememory_create_embedding_cache_policy(
        place: *mut Handle, comm: Handle, memory_type: c_uint, location: c_uint, access: c_uint, ratio: f32,
    ) -> u32 {
        answer("wholememory_create_embedding_cache_policy", || {
            is_place(place)?;
            let (memory_type, location) = (MemoryType::of(memory_type)?, Location::of(location)?);
            let policy = CachePolicy::new(communicator(comm)?, memory_type, location, AccessType::of(access)?, ratio)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, POLICIES.add(Arc::new(policy))) }
        })
    }

    /// Closes a policy. Embeddings keep what they need of it.
    fn wholememory_destroy_embedding_cache_policy(handle: Handle) -> u32 {
        answer("wholememory_destroy_embedding_cache_policy", || POLICIES.take(handle).map(drop))
    }

    /// An embedding. A collective call.
    fn wholememory_create_embedding(
        place: *mut Handle, description: *const TensorDescription, comm: Handle, memory_type: c_uint, location: c_uint,
        policy: Handle, entry_partition: *const usize, multiprocessors: c_int, round_robin: c_int,
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
    fn wholememory_destroy_embedding(handle: Handle) -> u32 {
        answer("wholememory_destroy_embedding", || {
            let embedding = EMBEDDINGS.take(handle)?;
            TENSORS.forget(embedding.rows());
            TENSORS.forget(embedding.whole());
            MEMORIES.forget(embedding.whole().memory()?);
            Ok(())
        })
    }

    /// Its rows, which are the embedding's to close; null for no embedding.
    fn wholememory_embedding_get_embedding_tensor(handle: Handle) -> Handle {
        value("wholememory_embedding_get_embedding_tensor", null_mut(), || {
            Ok(TENSORS.handle_of(EMBEDDINGS.get(handle)?.rows()))
        })
    }

    /// Copies rows. No cache is there that could be adjusted.
    fn wholememory_embedding_gather(
        handle: Handle, indices: Handle, output: Handle, _adjust_cache: bool, _environment: *const c_void, stream: i64,
    ) -> u32 {
        answer("wholememory_embedding_gather", || {
            let (indices, output) = (TENSORS.get(indices)?, TENSORS.get(output)?);
            EMBEDDINGS.get(handle)?.gather(&indices, &output, CUstream(stream as usize))
        })
    }

    /// Nothing is kept that would have to be written.
    fn wholememory_embedding_writeback_cache(handle: Handle, _stream: i64) -> u32 {
        answer("wholememory_embedding_writeback_cache", || EMBEDDINGS.get(handle).map(drop))
    }

    /// Nothing is kept.
    fn wholememory_embedding_drop_all_cache(handle: Handle, _stream: i64) -> u32 {
        answer("wholememory_embedding_drop_all_cache", || EMBEDDINGS.get(handle).map(drop))
    }
}
