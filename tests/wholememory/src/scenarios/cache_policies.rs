//! The cache policies that embeddings accept, and embeddings whose creation fails.
//!
//! Hazards: a policy that one rank has and another has not; a cache that is made on one rank alone,
//! or leaked.

use std::ptr::{null, null_mut};

use wm_driver::Api;

use crate::api::{Description, Handle};
use crate::rank::{
    CHUNKED, CONTINUOUS, DEVICE, DISTRIBUTED, HOST, INVALID_INPUT, Rank, SUCCESS, Verdict, must, want,
};

/// `WHOLEMEMORY_DT_FLOAT`
const FLOAT: u32 = 1;
/// `WHOLEMEMORY_AT_*`
pub(super) const READ_ONLY: u32 = 1;
pub(super) const READ_WRITE: u32 = 2;

pub(super) fn policy(
    rank: &Rank,
    comm: Handle,
    kind: (u32, u32),
    access: u32,
    ratio: f32,
) -> Verdict<Handle> {
    let mut policy = null_mut();
    let place = &mut policy;
    want!(
        SUCCESS,
        rank.wholememory_create_embedding_cache_policy(place, comm, kind.0, kind.1, access, ratio)
    )?;
    Ok(policy)
}

pub(super) fn create(
    rank: &Rank,
    code: u32,
    shape: &Description,
    kind: (u32, u32),
    policy: Handle,
    each: Option<&[usize]>,
) -> Verdict<Handle> {
    let mut embedding = null_mut();
    let (place, each) = (&mut embedding, each.map_or(null(), <[usize]>::as_ptr));
    want!(
        code,
        rank.wholememory_create_embedding(place, shape, rank.comm, kind.0, kind.1, policy, each, -1, 0)
    )?;
    Ok(embedding)
}

pub(super) fn misused(rank: &Rank) -> Verdict {
    let (shape, mut part) = (Description::matrix(100, 4, 4, FLOAT), null_mut());
    want!(SUCCESS, rank.wholememory_split_communicator(&mut part, rank.comm, 0, 0))?;
    let wrong = [
        // A cache of the rows' ranks on the host, which exposes more than the rows do.
        (rank.comm, (CHUNKED, HOST), READ_WRITE, (CHUNKED, HOST)),
        (rank.comm, (CONTINUOUS, DEVICE), READ_WRITE, (CHUNKED, HOST)),
        // A cache of other ranks that is written, and one that is not accessible.
        (part, (CHUNKED, DEVICE), READ_WRITE, (CHUNKED, DEVICE)),
        (part, (DISTRIBUTED, DEVICE), READ_ONLY, (CHUNKED, DEVICE)),
    ];
    for (comm, cache, access, kind) in wrong {
        let policy = policy(rank, comm, cache, access, 0.5)?;
        create(rank, INVALID_INPUT, &shape, kind, policy, None)?;
        want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(policy))?;
    }
    // Rows that are only read cannot be trained.
    let mut sgd = null_mut();
    want!(SUCCESS, rank.wholememory_create_embedding_optimizer(&mut sgd, 1))?;
    for comm in [rank.comm, part] {
        let policy = policy(rank, comm, (CHUNKED, DEVICE), READ_ONLY, 0.5)?;
        let embedding = create(rank, SUCCESS, &shape, (CHUNKED, HOST), policy, None)?;
        want!(INVALID_INPUT, rank.wholememory_embedding_set_optimizer(embedding, sgd))?;
        rank.barrier()?;
        want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))?;
        want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(policy))?;
    }
    // SAFETY: a handle.
    unsafe { (rank.library.wholememory_destroy_embedding_optimizer)(sgd) };
    // A cache on the host would be no nearer: none is made, and rows are right.
    let policy = policy(rank, part, (CHUNKED, HOST), READ_ONLY, 0.5)?;
    let embedding = create(rank, SUCCESS, &shape, (CHUNKED, DEVICE), policy, None)?;
    want!(SUCCESS, rank.wholememory_embedding_drop_all_cache(embedding, 0))?;
    rank.barrier()?;
    want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))?;
    // One rank's policy alone.
    for who in 0..if rank.size > 1 { rank.size } else { 0 } {
        let own = if rank.number == who { policy } else { null_mut() };
        let other = policy_of_owners(rank)?;
        create(
            rank,
            INVALID_INPUT,
            &shape,
            (CHUNKED, HOST),
            if rank.number == who { other } else { own },
            None,
        )?;
        want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(other))?;
    }
    want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(policy))?;
    want!(SUCCESS, rank.wholememory_destroy_communicator(part))
}

fn policy_of_owners(rank: &Rank) -> Verdict<Handle> {
    policy(rank, rank.comm, (CHUNKED, DEVICE), READ_WRITE, 0.5)
}

/// A call fails on one rank during the creation of a cache.
pub(super) fn a_call_fails(rank: &Rank) -> Verdict {
    let (shape, mut part, mut failures) = (Description::matrix(1000, 4, 4, FLOAT), null_mut(), 0);
    let free = || rank.driver.mem_info().map_err(|error| error.to_string());
    want!(SUCCESS, rank.wholememory_split_communicator(&mut part, rank.comm, rank.number as i32, 0))?;
    for (comm, access) in [(rank.comm, READ_WRITE), (part, READ_ONLY)] {
        for _ in 0..2 {
            let policy = policy(rank, comm, (CHUNKED, DEVICE), access, 0.5)?;
            rank.barrier()?;
            let before = free()?;
            rank.barrier()?;
            let (mut embedding, kind) = (null_mut(), (CHUNKED, HOST));
            let (place, none) = (&mut embedding, null());
            // SAFETY: a live local, and handles.
            let code = unsafe {
                (rank.library.wholememory_create_embedding)(
                    place, &shape, rank.comm, kind.0, kind.1, policy, none, -1, 0,
                )
            };
            failures += usize::from(code != SUCCESS);
            // If one rank fails, all ranks fail.
            let (mut same, mut size) = (null_mut(), 0);
            let color = i32::from(code != SUCCESS);
            want!(SUCCESS, rank.wholememory_split_communicator(&mut same, rank.comm, color, 0))?;
            want!(SUCCESS, rank.wholememory_communicator_get_size(&mut size, same))?;
            must(size as usize == rank.size, || format!("code {code} on {size} of {} ranks", rank.size))?;
            want!(SUCCESS, rank.wholememory_destroy_communicator(same))?;
            if code == SUCCESS {
                want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))?;
            }
            want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(policy))?;
            rank.barrier()?;
            let after = free()?;
            must(before == after, || format!("{before:?} before, {after:?} after"))?;
        }
    }
    want!(SUCCESS, rank.wholememory_destroy_communicator(part))?;
    must(failures == 1, || format!("{failures} calls failed, not one"))
}
