//! Embeddings, with and without a policy for caches.
//!
//! Hazards: padding that is visible, tensors that stay when an embedding ends, a policy or an
//! optimizer that is used after it was closed.

use std::ptr::{null, null_mut};

use crate::api::{Description, Handle};
use crate::rank::{
    CHUNKED, CONTINUOUS, DEVICE, DISTRIBUTED, HOST, INVALID_INPUT, INVALID_VALUE, Local, Rank, SUCCESS,
    Verdict, byte_at, bytes_at, must, want,
};

/// `WHOLEMEMORY_DT_*`
const HALF: u32 = 2;
const INT64: u32 = 6;
/// `WHOLEMEMORY_AT_READWRITE`
const READ_WRITE: u32 = 2;
/// `WHOLEMEMORY_OPT_LAZY_ADAM`
const LAZY_ADAM: u32 = 2;

fn create(rank: &Rank, code: u32, shape: &Description, kind: (u32, u32), policy: Handle) -> Verdict<Handle> {
    let mut embedding = null_mut();
    let place = &mut embedding;
    want!(
        code,
        rank.wholememory_create_embedding(place, shape, rank.comm, kind.0, kind.1, policy, null(), -1, 0)
    )?;
    Ok(embedding)
}

pub(super) fn gathered(rank: &Rank) -> Verdict {
    // 26 bytes, which are padded to 32.
    let shape = Description::matrix(301, 13, 13, HALF);
    let of_one_island = [(CONTINUOUS, DEVICE), (CHUNKED, DEVICE), (DISTRIBUTED, DEVICE), (CHUNKED, HOST)];
    let spans = rank.islands.min(rank.size) > 1;
    for kind in if spans { rank.kinds() } else { &of_one_island }.iter().copied() {
        let mut policy = null_mut();
        if kind == (CHUNKED, HOST) {
            want!(
                SUCCESS,
                rank.wholememory_create_embedding_cache_policy(
                    &mut policy,
                    rank.comm,
                    CHUNKED,
                    DEVICE,
                    READ_WRITE,
                    0.25
                )
            )?;
        }
        let embedding = create(rank, SUCCESS, &shape, kind, policy)?;
        if !policy.is_null() {
            want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(policy))?;
            want!(INVALID_INPUT, rank.wholememory_destroy_embedding_cache_policy(policy))?;
        }
        // SAFETY: a handle.
        let tensor = unsafe { (rank.library.wholememory_embedding_get_embedding_tensor)(embedding) };
        // SAFETY: a handle, and the library's description as long as it is open.
        let described = unsafe { *(rank.library.wholememory_tensor_get_tensor_description)(tensor) };
        must(described.sizes[..2] == [301, 13] && described.strides[0] == 16, || format!("{described:?}"))?;
        // SAFETY: a handle.
        let memory = unsafe { (rank.library.wholememory_tensor_get_memory_handle)(tensor) };
        let own = rank.own_part(memory)?;
        rank.write(own.address, &bytes_at(own.offset, own.bytes, 4))?;
        rank.barrier()?;
        let chosen: Vec<u8> = (0..100_i64).flat_map(|at| ((at * 97) % 301).to_le_bytes()).collect();
        let indices = Local::new(rank, &chosen, &Description::array(100, INT64))?;
        let output = Local::new(rank, &[0; 100 * 26], &Description::matrix(100, 13, 13, HALF))?;
        want!(
            SUCCESS,
            rank.wholememory_embedding_gather(embedding, indices.tensor, output.tensor, true, null(), 0)
        )?;
        for (at, row) in output.read()?.chunks(26).enumerate() {
            let right = row
                .iter()
                .enumerate()
                .all(|(column, byte)| *byte == byte_at((at * 97) % 301 * 32 + column, 4));
            must(right, || format!("kind {kind:?}: row {at} is {row:x?}"))?;
        }
        want!(SUCCESS, rank.wholememory_embedding_writeback_cache(embedding, 0))?;
        want!(SUCCESS, rank.wholememory_embedding_drop_all_cache(embedding, 0))?;
        rank.barrier()?;
        want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))?;
        want!(INVALID_INPUT, rank.wholememory_destroy_tensor(tensor))?;
        want!(INVALID_INPUT, rank.wholememory_free(memory))?;
    }
    Ok(())
}

pub(super) fn misused(rank: &Rank) -> Verdict {
    let good = (CHUNKED, DEVICE);
    create(rank, INVALID_INPUT, &Description::array(10, HALF), good, null_mut())?;
    create(rank, INVALID_INPUT, &Description::matrix(10, 4, 4, 0), good, null_mut())?;
    create(rank, INVALID_INPUT, &Description::matrix(10, 4, 4, HALF), (9, DEVICE), null_mut())?;
    create(rank, INVALID_INPUT, &Description::matrix(10, 4, 4, HALF), good, 8 as Handle)?;
    for ratio in [0.0, 1.5, -1.0, f32::NAN] {
        let mut policy = null_mut();
        let place = &mut policy;
        want!(
            INVALID_VALUE,
            rank.wholememory_create_embedding_cache_policy(
                place, rank.comm, CHUNKED, DEVICE, READ_WRITE, ratio
            )
        )?;
    }
    let (mut adam, mut none, number) = (null_mut(), null_mut(), 0.5);
    want!(INVALID_INPUT, rank.wholememory_create_embedding_optimizer(&mut none, 77))?;
    want!(SUCCESS, rank.wholememory_create_embedding_optimizer(&mut adam, LAZY_ADAM))?;
    want!(SUCCESS, rank.wholememory_optimizer_set_parameter(adam, c"beta1".as_ptr(), &number))?;
    want!(INVALID_INPUT, rank.wholememory_optimizer_set_parameter(adam, c"alpha".as_ptr(), &number))?;
    want!(INVALID_INPUT, rank.wholememory_optimizer_set_parameter(adam, null(), &number))?;
    want!(INVALID_INPUT, rank.wholememory_optimizer_set_parameter(adam, c"beta1".as_ptr(), null()))?;
    // SAFETY: a handle.
    unsafe { (rank.library.wholememory_destroy_embedding_optimizer)(adam) };
    want!(INVALID_INPUT, rank.wholememory_optimizer_set_parameter(adam, c"beta1".as_ptr(), &number))?;
    want!(INVALID_INPUT, rank.wholememory_destroy_embedding(null_mut()))?;
    want!(null_mut(), rank.wholememory_embedding_get_embedding_tensor(rank.comm))?;
    rank.barrier()
}
