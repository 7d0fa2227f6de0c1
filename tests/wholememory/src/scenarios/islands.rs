//! Ranks that are dealt to islands, as if they were on different machines.
//!
//! Hazards: a rank that counts another machine's ranks as its own; memory that a rank cannot map is
//! promised; a rank that waits for a machine which is lost.

use std::ffi::c_int;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use crate::api::Handle;
use crate::rank::{
    CHUNKED, COMMUNICATION_ERROR, CONTINUOUS, DEVICE, HOST, NOT_SUPPORTED, Rank, SUCCESS, Verdict, must, want,
};

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

/// The end of a rank or of a machine is an error of the others sooner than this.
const SOON: Duration = Duration::from_secs(5);

/// Splits in all ways, with rounds in every part.
pub(super) fn calls(rank: &Rank) -> Verdict {
    let number = rank.number as c_int;
    for (round, colors) in [1, 2, 3, rank.size as c_int].into_iter().enumerate() {
        let mut part = null_mut();
        let key = if round % 2 == 0 { -number } else { number };
        want!(SUCCESS, rank.wholememory_split_communicator(&mut part, rank.comm, number % colors, key))?;
        for _ in 0..20 {
            want!(SUCCESS, rank.wholememory_communicator_barrier(part))?;
        }
        let mut inner = null_mut();
        want!(SUCCESS, rank.wholememory_split_communicator(&mut inner, part, number % 2, 0))?;
        want!(SUCCESS, rank.wholememory_communicator_barrier(inner))?;
        want!(SUCCESS, rank.wholememory_destroy_communicator(part))?;
        want!(SUCCESS, rank.wholememory_communicator_barrier(inner))?;
        want!(SUCCESS, rank.wholememory_destroy_communicator(inner))?;
        rank.barrier()?;
    }
    Ok(())
}

fn fails_soon(rank: &Rank) -> Verdict {
    let begin = Instant::now();
    want!(COMMUNICATION_ERROR, rank.wholememory_communicator_barrier(rank.comm))?;
    noticed_after(begin.elapsed())
}

fn noticed_after(time: Duration) -> Verdict {
    must(time < SOON, || format!("noticed after {time:?}"))
}

/// Each rank ends in its turn of the test: the others are told, wherever they are.
pub(super) fn a_rank_ends(rank: &Rank) -> Verdict {
    rank.barrier()?;
    let seed = std::env::var("WHOLEMEMORY_SUITE_SEED").ok().and_then(|seed| seed.parse().ok());
    if rank.number == seed.unwrap_or(0) % rank.size {
        return Ok(());
    }
    fails_soon(rank)
}

/// Written when the interface goes down, and once more when it is. The machines of a test have this
/// folder in common, and no other test sees it.
const LINK_DOWN: &str = "/run/wholememory-suite-link-down";

fn mark_link_down() -> Verdict {
    std::fs::write(LINK_DOWN, "down").map_err(|error| format!("{LINK_DOWN}: {error}"))
}

/// How long the link is down. A program that takes the interface down needs a second to start on a
/// loaded machine: so this is the time since it has ended, if it has.
pub(super) fn link_down_for() -> Verdict<Duration> {
    let marked = std::fs::metadata(LINK_DOWN).and_then(|mark| mark.modified());
    Ok(marked.map_err(|error| format!("{LINK_DOWN}: {error}"))?.elapsed().unwrap_or_default())
}

/// Takes an interface of this machine down.
pub(super) fn take_down(interface: &str) -> Verdict {
    mark_link_down()?;
    let down = Command::new("ip").args(["link", "set", interface, "down"]).status();
    must(down.is_ok_and(|status| status.success()), || "the interface stays up".to_owned())?;
    mark_link_down()
}

/// The last island's machine loses its network, whose interface the test names. Without a name
/// nothing is lost.
pub(super) fn a_machine_is_lost(rank: &Rank) -> Verdict {
    let Ok(interface) = std::env::var("WHOLEMEMORY_SUITE_LINK") else { return rank.barrier() };
    let own = island(rank)?;
    rank.barrier()?;
    if rank.number % rank.islands == rank.islands - 1 {
        let first = rank.number < rank.islands;
        if first {
            take_down(&interface)?;
        }
        want!(SUCCESS, rank.wholememory_communicator_barrier(own))?;
    }
    want!(COMMUNICATION_ERROR, rank.wholememory_communicator_barrier(rank.comm))?;
    noticed_after(link_down_for()?)?;
    // A machine that has lost the others still has its own ranks.
    want!(SUCCESS, rank.wholememory_communicator_barrier(own))
}
