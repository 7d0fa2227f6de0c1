//! Ranks that are dealt to islands, as if they were on different machines.
//!
//! Hazards: a rank that counts another machine's ranks as its own; memory that a rank cannot map is
//! promised.

use std::ffi::c_int;
use std::ptr::{null, null_mut};

use crate::api::Handle;
use crate::rank::{CHUNKED, CONTINUOUS, DEVICE, HOST, NOT_SUPPORTED, Rank, SUCCESS, Verdict, must, want};

/// Types that every rank maps, where they are on one island.
const MAPPED: [(u32, u32); 4] =
    [(CONTINUOUS, DEVICE), (CONTINUOUS, HOST), (CHUNKED, DEVICE), (CHUNKED, HOST)];

fn local_size(rank: &Rank, comm: Handle) -> Verdict<c_int> {
    let mut local = -1;
    want!(SUCCESS, rank.wholememory_communicator_get_local_size(&mut local, comm))?;
    Ok(local)
}

/// A communicator of this rank's island.
fn island(rank: &Rank) -> Verdict<Handle> {
    let (mut part, color) = (null_mut(), (rank.number % rank.islands) as c_int);
    want!(SUCCESS, rank.wholememory_split_communicator(&mut part, rank.comm, color, 0))?;
    Ok(part)
}

/// How many ranks are on this rank's island.
fn members(rank: &Rank) -> usize {
    (rank.size - rank.number % rank.islands).div_ceil(rank.islands)
}

pub(super) fn ranks(rank: &Rank) -> Verdict {
    let is_one = rank.islands.min(rank.size) == 1;
    want!(is_one, rank.wholememory_is_intranode_communicator(rank.comm))?;
    let wanted = members(rank) as c_int;
    must(local_size(rank, rank.comm)? == wanted, || "ranks of another machine are local".to_owned())?;
    let own = island(rank)?;
    want!(true, rank.wholememory_is_intranode_communicator(own))?;
    must(local_size(rank, own)? == wanted, || "the island has other ranks".to_owned())?;
    let (mut rail, number) = (null_mut(), (rank.number / rank.islands) as c_int);
    want!(SUCCESS, rank.wholememory_split_communicator(&mut rail, rank.comm, number, 0))?;
    must(local_size(rank, rail)? == 1, || "a rail has two ranks of one machine".to_owned())?;
    for comm in [rail, own] {
        want!(SUCCESS, rank.wholememory_communicator_barrier(comm))?;
        want!(SUCCESS, rank.wholememory_destroy_communicator(comm))?;
    }
    rank.barrier()
}

/// Memory that all ranks map is refused over several islands, and made inside each of them.
pub(super) fn memory(rank: &Rank) -> Verdict {
    let own = island(rank)?;
    let over_all = if rank.islands.min(rank.size) == 1 { SUCCESS } else { NOT_SUPPORTED };
    for (kind, location) in MAPPED {
        for (wanted, comm) in [(over_all, rank.comm), (SUCCESS, own)] {
            want!(wanted, rank.wholememory_communicator_support_type_location(comm, kind, location))?;
            let mut memory = null_mut();
            want!(wanted, rank.wholememory_malloc(&mut memory, 4096, comm, kind, location, 64, null()))?;
            if wanted == SUCCESS {
                want!(SUCCESS, rank.wholememory_communicator_barrier(comm))?;
                rank.free(memory)?;
            }
        }
    }
    want!(SUCCESS, rank.wholememory_destroy_communicator(own))?;
    rank.barrier()
}
