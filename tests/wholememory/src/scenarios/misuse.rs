//! Calls that must be refused, with the API's code for them, and after which all calls work.
//!
//! Hazards: a rank that refuses alone while the others wait for it; a handle that is dereferenced
//! after its memory is gone.

use std::ffi::c_uint;
use std::ptr::{null, null_mut};

use crate::api::{Description, Handle};
use crate::rank::{CONTINUOUS, DEVICE, INVALID_INPUT, NOT_SUPPORTED, Rank, SUCCESS, Verdict, want};

fn malloc(
    rank: &Rank,
    code: c_uint,
    bytes: usize,
    kind: (c_uint, c_uint),
    row: usize,
    each: Option<&[usize]>,
) -> Verdict {
    let mut memory = null_mut();
    let each = each.map_or(null(), <[usize]>::as_ptr);
    want!(code, rank.wholememory_malloc(&mut memory, bytes, rank.comm, kind.0, kind.1, row, each))
}

fn still_works(rank: &Rank) -> Verdict {
    let memory = rank.malloc(100, 64, (CONTINUOUS, DEVICE), None)?;
    rank.barrier()?;
    rank.free(memory)
}

pub(super) fn arguments(rank: &Rank) -> Verdict {
    let good = (CONTINUOUS, DEVICE);
    malloc(rank, INVALID_INPUT, 4096, (0, DEVICE), 64, None)?;
    malloc(rank, INVALID_INPUT, 4096, (5, DEVICE), 64, None)?;
    malloc(rank, INVALID_INPUT, 4096, (CONTINUOUS, 3), 64, None)?;
    malloc(rank, INVALID_INPUT, 4096, good, 0, None)?;
    malloc(rank, INVALID_INPUT, 4097, good, 64, None)?;
    malloc(rank, INVALID_INPUT, 64 * rank.size, good, 64, Some(&vec![0; rank.size]))?;
    malloc(rank, INVALID_INPUT, 64 * rank.size, good, 64, Some(&vec![2; rank.size]))?;
    want!(
        INVALID_INPUT,
        rank.wholememory_malloc(null_mut(), 4096, rank.comm, CONTINUOUS, DEVICE, 64, null())
    )?;
    let mut tensor = null_mut();
    let bad = Description::matrix(-1, 4, 4, 1);
    want!(
        INVALID_INPUT,
        rank.wholememory_create_tensor(&mut tensor, &bad, rank.comm, CONTINUOUS, DEVICE, null())
    )?;
    let bad = Description::matrix(10, 8, 4, 1);
    want!(
        INVALID_INPUT,
        rank.wholememory_create_tensor(&mut tensor, &bad, rank.comm, CONTINUOUS, DEVICE, null())
    )?;
    let bad = Description::matrix(10, 4, 4, 77);
    want!(
        INVALID_INPUT,
        rank.wholememory_create_tensor(&mut tensor, &bad, rank.comm, CONTINUOUS, DEVICE, null())
    )?;
    want!(
        INVALID_INPUT,
        rank.wholememory_create_tensor(&mut tensor, null(), rank.comm, CONTINUOUS, DEVICE, null())
    )?;
    want!(NOT_SUPPORTED, rank.wholememory_communicator_set_distributed_backend(rank.comm, 2))?;
    want!(INVALID_INPUT, rank.wholememory_communicator_set_distributed_backend(rank.comm, 9))?;
    want!(INVALID_INPUT, rank.wholememory_communicator_get_rank(null_mut(), rank.comm))?;
    still_works(rank)
}

pub(super) fn arguments_of_one_rank(rank: &Rank) -> Verdict {
    for who in 0..rank.size {
        let other = rank.number == who;
        malloc(rank, INVALID_INPUT, if other { 8192 } else { 4096 }, (CONTINUOUS, DEVICE), 64, None)?;
        malloc(rank, INVALID_INPUT, 4096, if other { (2, DEVICE) } else { (CONTINUOUS, DEVICE) }, 64, None)?;
        malloc(rank, INVALID_INPUT, 4096, (CONTINUOUS, DEVICE), if other { 0 } else { 64 }, None)?;
        malloc(rank, INVALID_INPUT, 4096, (if other { 99 } else { CONTINUOUS }, DEVICE), 64, None)?;
        let mut memory = null_mut();
        let place = if other { null_mut() } else { &raw mut memory };
        want!(
            INVALID_INPUT,
            rank.wholememory_malloc(place, 4096, rank.comm, CONTINUOUS, DEVICE, 64, null())
        )?;
        let mut tensor = null_mut();
        let shape = Description::matrix(10, 4, 4, if other { 0 } else { 1 });
        want!(
            INVALID_INPUT,
            rank.wholememory_create_tensor(&mut tensor, &shape, rank.comm, CONTINUOUS, DEVICE, null())
        )?;
        still_works(rank)?;
    }
    Ok(())
}

pub(super) fn handles(rank: &Rank) -> Verdict {
    let memory = rank.malloc(100, 64, (CONTINUOUS, DEVICE), None)?;
    rank.barrier()?;
    rank.free(memory)?;
    // A closed handle, null, a handle of another kind, and numbers that were never handles.
    for handle in [memory, null_mut(), rank.comm, 8 as Handle, usize::MAX as Handle] {
        let (mut pointer, mut bytes, mut offset) = (null_mut(), 0, 0);
        want!(INVALID_INPUT, rank.wholememory_free(handle))?;
        want!(
            INVALID_INPUT,
            rank.wholememory_get_local_memory(&mut pointer, &mut bytes, &mut offset, handle)
        )?;
        want!(INVALID_INPUT, rank.wholememory_get_global_pointer(&mut pointer, handle))?;
        want!(0, rank.wholememory_get_total_size(handle))?;
        want!(INVALID_INPUT, rank.wholememory_destroy_tensor(handle))?;
        want!(null(), rank.wholememory_tensor_get_tensor_description(handle))?;
        if handle != rank.comm {
            want!(INVALID_INPUT, rank.wholememory_communicator_barrier(handle))?;
            want!(INVALID_INPUT, rank.wholememory_destroy_communicator(handle))?;
        }
    }
    let memory = rank.malloc(100, 64, (CONTINUOUS, DEVICE), None)?;
    for number in [-1, rank.size as i32, i32::MAX] {
        let (mut pointer, mut bytes, mut offset) = (null_mut(), 0, 0);
        want!(
            INVALID_INPUT,
            rank.wholememory_get_rank_memory(&mut pointer, &mut bytes, &mut offset, number, memory)
        )?;
    }
    rank.barrier()?;
    want!(SUCCESS, rank.wholememory_free(memory))
}
