//! Training that is kept in files.
//!
//! Hazard: a state that comes back at another row.

use std::ffi::CStr;
use std::ptr::null_mut;

use super::folder::Folder;
use super::training::{OPTIMIZERS, create, fill, spans, train};
use crate::api::Handle;
use crate::rank::{CHUNKED, DEVICE, DISTRIBUTED, HOST, Rank, SUCCESS, Verdict, must, want};

/// An embedding with lazy Adam: the memory of its rows and states, and the bytes of each one's row.
fn with_adam(rank: &Rank, kind: (u32, u32)) -> Verdict<(Handle, Vec<(Handle, usize)>)> {
    let (embedding, mut adam) = (create(rank, kind, null_mut())?, null_mut());
    want!(SUCCESS, rank.wholememory_create_embedding_optimizer(&mut adam, 2))?;
    want!(SUCCESS, rank.wholememory_embedding_set_optimizer(embedding, adam))?;
    // SAFETY: handles, and names.
    let memories = unsafe {
        (rank.library.wholememory_destroy_embedding_optimizer)(adam);
        let state =
            |name: &&CStr| (rank.library.wholememory_embedding_get_optimizer_state)(embedding, name.as_ptr());
        let tensors = OPTIMIZERS[1].1.iter().map(state);
        let rows = (rank.library.wholememory_embedding_get_embedding_tensor)(embedding);
        let memory = |tensor| {
            let description = (rank.library.wholememory_tensor_get_tensor_description)(tensor);
            let row = (*description).strides[0] as usize * 4;
            ((rank.library.wholememory_tensor_get_memory_handle)(tensor), row)
        };
        [rows].into_iter().chain(tensors).map(memory).collect()
    };
    Ok((embedding, memories))
}

/// Rows and states go to files and come back: training goes on as if it had not stopped.
pub(super) fn kept_in_files(rank: &Rank) -> Verdict {
    let folder = Folder::new(rank)?;
    for kind in if spans(rank) { rank.kinds() } else { &[(CHUNKED, DEVICE), (DISTRIBUTED, HOST)] } {
        let ((before, stored), (after, loaded)) = (with_adam(rank, *kind)?, with_adam(rank, *kind)?);
        // SAFETY: a handle.
        fill(rank, unsafe { (rank.library.wholememory_embedding_get_embedding_tensor)(before) })?;
        (0..2).try_for_each(|step| train(rank, before, step))?;
        for (number, ((from, row), (to, _))) in stored.iter().zip(&loaded).enumerate() {
            let names: Vec<_> =
                (0..rank.size).map(|rank| folder.name(&format!("{number} of rank {rank}"))).collect();
            let (row, own) = (*row, names[rank.number].as_ptr());
            want!(SUCCESS, rank.wholememory_store_to_file(*from, 0, row, row, own))?;
            rank.barrier()?;
            let all: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
            let (all, count) = (all.as_ptr(), rank.size as i32);
            want!(SUCCESS, rank.wholememory_load_from_file(*to, 0, row, row, all, count, 0))?;
        }
        [before, after].into_iter().try_for_each(|embedding| train(rank, embedding, 2))?;
        for (number, ((one, _), (other, _))) in stored.iter().zip(&loaded).enumerate() {
            let bytes = |memory: Handle| {
                let own = rank.own_part(memory)?;
                rank.read(own.address, own.bytes)
            };
            must(bytes(*one)? == bytes(*other)?, || format!("{kind:?}: memory {number} differs"))?;
        }
        rank.barrier()?;
        for embedding in [before, after] {
            want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))?;
        }
    }
    folder.end(rank)
}
