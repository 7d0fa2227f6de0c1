//! Ranks join, split, and end.
//!
//! Hazards: a rank that mistakes itself for another one; calls of one part that another part
//! answers; a rank that waits for ever.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use wm_driver::Api;

use crate::api::Handle;
use crate::rank::{
    COMMUNICATION_ERROR, CONTINUOUS, DEVICE, INVALID_INPUT, LOGIC_ERROR, Rank, SUCCESS, Verdict, must, want,
};

/// `WHOLEMEMORY_SPILT_NO_COLOR`
const NO_COLOR: c_int = -1;
/// The end of a rank is noticed sooner than this.
const AT_ONCE: Duration = Duration::from_secs(10);

fn place_in(rank: &Rank, comm: Handle) -> Verdict<(c_int, c_int)> {
    let (mut number, mut size) = (-1, -1);
    want!(SUCCESS, rank.wholememory_communicator_get_rank(&mut number, comm))?;
    want!(SUCCESS, rank.wholememory_communicator_get_size(&mut size, comm))?;
    Ok((number, size))
}

pub(super) fn ranks_and_parts(rank: &Rank) -> Verdict {
    let (number, size) = (rank.number as c_int, rank.size as c_int);
    must(place_in(rank, rank.comm)? == (number, size), || "another rank's place".to_owned())?;
    for color in [0, number % 2, number, NO_COLOR.max(number % 3 - 1)] {
        // Numbered from the last to the first.
        let mut part = null_mut();
        want!(SUCCESS, rank.wholememory_split_communicator(&mut part, rank.comm, color, -number))?;
        if color == NO_COLOR {
            must(part.is_null(), || "a rank without a color is in a part".to_owned())?;
            continue;
        }
        let (place, ranks) = place_in(rank, part)?;
        must(0 <= place && place < ranks, || format!("rank {place} of {ranks}"))?;
        if color == 0 && number == size - 1 {
            must(place == 0, || format!("the last rank has the least key, and is rank {place}"))?;
        }
        for _ in 0..3 {
            want!(SUCCESS, rank.wholememory_communicator_barrier(part))?;
        }
        let memory = {
            let mut memory = null_mut();
            want!(
                SUCCESS,
                rank.wholememory_malloc(&mut memory, 4096, part, CONTINUOUS, DEVICE, 64, std::ptr::null())
            )?;
            memory
        };
        rank.free(memory)?;
        want!(SUCCESS, rank.wholememory_destroy_communicator(part))?;
    }
    rank.barrier()
}

pub(super) fn different_calls(rank: &Rank) -> Verdict {
    for who in 0..rank.size {
        if rank.number == who {
            want!(LOGIC_ERROR, rank.wholememory_communicator_barrier(rank.comm))?;
        } else {
            let mut memory = null_mut();
            let place = &mut memory;
            want!(
                LOGIC_ERROR,
                rank.wholememory_malloc(place, 4096, rank.comm, CONTINUOUS, DEVICE, 64, std::ptr::null())
            )?;
        }
        rank.barrier()?;
    }
    Ok(())
}

pub(super) fn a_rank_ends(rank: &Rank) -> Verdict {
    let kept = rank.malloc(1000, 64, (CONTINUOUS, DEVICE), None)?;
    if rank.number == rank.size / 2 {
        return Ok(());
    }
    let begin = Instant::now();
    let mut memory = null_mut();
    let place = &mut memory;
    want!(
        COMMUNICATION_ERROR,
        rank.wholememory_malloc(place, 4096, rank.comm, CONTINUOUS, DEVICE, 64, std::ptr::null())
    )?;
    want!(COMMUNICATION_ERROR, rank.wholememory_communicator_barrier(rank.comm))?;
    must(begin.elapsed() < AT_ONCE, || format!("noticed after {:?}", begin.elapsed()))?;
    // Its backing exists while others use it.
    let part = rank.part_of(rank.size / 2, kept)?;
    rank.read(part.address, part.bytes)?;
    rank.free(kept)
}

pub(super) fn begins(rank: &Rank) -> Verdict {
    want!(SUCCESS, rank.wholememory_init(0, 3))?;
    want!(LOGIC_ERROR, rank.wholememory_init(0, 3))?;
    let devices = rank.driver.device_count().map_err(|error| error.to_string())?;
    want!(devices, rank.fork_get_device_count())
}

/// All communicators are closed, including those that a rank left open.
pub(super) fn finalized(rank: &Rank) -> Verdict {
    let memory = rank.malloc(1000, 64, (CONTINUOUS, DEVICE), None)?;
    let mut offsets = vec![0; rank.size + 1];
    want!(SUCCESS, rank.wholememory_get_rank_partition_offsets(offsets.as_mut_ptr(), memory))?;
    must(offsets[rank.size] == 64_000, || format!("{offsets:?}"))?;
    rank.barrier()?;
    want!(SUCCESS, rank.wholememory_finalize())?;
    want!(INVALID_INPUT, rank.wholememory_free(memory))?;
    want!(INVALID_INPUT, rank.wholememory_communicator_barrier(rank.comm))
}
