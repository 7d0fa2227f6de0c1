//! Tensors over memory of all ranks and of the caller's.
//!
//! Hazards: a part that begins at another element, a shape that changes while it is in use, a
//! tensor that is counted for ever.

use std::ptr::{null, null_mut};

use crate::api::{Description, Handle};
use crate::rank::{CONTINUOUS, DEVICE, INVALID_INPUT, Rank, SUCCESS, Verdict, must, want};

/// `WHOLEMEMORY_DT_FLOAT`
const FLOAT: u32 = 1;

fn tensor(rank: &Rank, shape: &Description) -> Verdict<Handle> {
    let mut tensor = null_mut();
    want!(
        SUCCESS,
        rank.wholememory_create_tensor(&mut tensor, shape, rank.comm, CONTINUOUS, DEVICE, null())
    )?;
    Ok(tensor)
}

fn shape_of(rank: &Rank, tensor: Handle) -> Verdict<Description> {
    // SAFETY: a handle.
    let shape = unsafe { (rank.library.wholememory_tensor_get_tensor_description)(tensor) };
    must(!shape.is_null(), || "no shape".to_owned())?;
    // SAFETY: the library's, as long as the tensor is open.
    Ok(unsafe { *shape })
}

pub(super) fn shapes(rank: &Rank) -> Verdict {
    let rows = 1001;
    for (columns, stride) in [(5, 8), (16, 16), (1, 1)] {
        let shape = Description::matrix(rows, columns, stride, FLOAT);
        let tensor = tensor(rank, &shape)?;
        must(shape_of(rank, tensor)? == shape, || "another shape".to_owned())?;
        let (mut start, mut count) = (0, 0);
        want!(SUCCESS, rank.wholememory_tensor_get_local_entry_start(&mut start, tensor))?;
        want!(SUCCESS, rank.wholememory_tensor_get_local_entry_count(&mut count, tensor))?;
        let each = (rows as usize).div_ceil(rank.size);
        must(start == (each * rank.number).min(rows as usize), || format!("starts at {start}"))?;
        // SAFETY: a handle.
        let memory = unsafe { (rank.library.wholememory_tensor_get_memory_handle)(tensor) };
        let own = rank.own_part(memory)?;
        must(own.bytes == count * stride as usize * 4, || format!("{own:?} of {count} rows"))?;
        let mut local = null_mut();
        want!(SUCCESS, rank.wholememory_tensor_map_local_tensor(tensor, &mut local))?;
        must(shape_of(rank, local)?.sizes[0] == count as i64, || "another number of local rows".to_owned())?;
        // SAFETY: a handle.
        let address = unsafe { (rank.library.wholememory_tensor_get_data_pointer)(local) } as u64;
        must(count == 0 || address == own.address, || format!("{address:x}, not {own:x?}"))?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(local))?;
        rank.barrier()?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(tensor))?;
        want!(INVALID_INPUT, rank.wholememory_free(memory))?;
    }
    Ok(())
}

pub(super) fn parts(rank: &Rank) -> Verdict {
    let whole = tensor(rank, &Description::matrix(100, 12, 16, FLOAT))?;
    // SAFETY: a handle.
    let address = |tensor| unsafe { (rank.library.wholememory_tensor_get_data_pointer)(tensor) } as u64;
    let mut part = null_mut();
    want!(
        SUCCESS,
        rank.wholememory_tensor_get_subtensor(whole, [10, 2].as_ptr(), [50, 9].as_ptr(), &mut part)
    )?;
    let shape = shape_of(rank, part)?;
    must((shape.sizes[0], shape.sizes[1], shape.storage_offset) == (40, 7, 162), || format!("{shape:?}"))?;
    must(address(part) == address(whole) + 162 * 4, || "another address".to_owned())?;
    let mut inner = null_mut();
    want!(
        SUCCESS,
        rank.wholememory_tensor_get_subtensor(part, [1, -1].as_ptr(), [-1, 3].as_ptr(), &mut inner)
    )?;
    must(address(inner) == address(part) + 16 * 4, || "another address of the inner part".to_owned())?;
    must(shape_of(rank, inner)?.sizes[..2] == [39, 3], || "another shape of the inner part".to_owned())?;
    // SAFETY: a handle.
    must(unsafe { (rank.library.wholememory_tensor_get_root)(inner) } == whole, || {
        "another root".to_owned()
    })?;
    let mut none = null_mut();
    for (starts, ends) in [([10, 0], [10, 5]), ([0, 0], [101, 5]), ([-2, 0], [5, 5]), ([60, 0], [50, 5])] {
        want!(
            INVALID_INPUT,
            rank.wholememory_tensor_get_subtensor(whole, starts.as_ptr(), ends.as_ptr(), &mut none)
        )?;
    }
    want!(INVALID_INPUT, rank.wholememory_tensor_get_subtensor(whole, null(), null(), &mut none))?;
    rank.barrier()?;
    want!(SUCCESS, rank.wholememory_destroy_tensor(whole))?;
    // A part keeps its memory alive.
    rank.read(address(inner), 12)?;
    want!(SUCCESS, rank.wholememory_destroy_tensor(part))?;
    want!(SUCCESS, rank.wholememory_destroy_tensor(inner))
}

pub(super) fn are_counted(rank: &Rank) -> Verdict {
    // SAFETY: a function without arguments.
    let count = || unsafe { (rank.library.get_wholememory_tensor_count)() };
    rank.barrier()?;
    must(count() == 0, || format!("{} before", count()))?;
    rank.barrier()?;
    let (mut at, mut over) = (null_mut(), null_mut());
    let nothing = Description { dim: 0, ..Description::matrix(0, 0, 1, FLOAT) };
    want!(SUCCESS, rank.wholememory_make_tensor_from_pointer(&mut at, null_mut(), &nothing))?;
    let elements = Description::matrix(3, 3, 3, FLOAT);
    want!(INVALID_INPUT, rank.wholememory_make_tensor_from_pointer(&mut over, null_mut(), &elements))?;
    let memory = rank.malloc(64, 64, (CONTINUOUS, DEVICE), None)?;
    want!(
        SUCCESS,
        rank.wholememory_make_tensor_from_handle(&mut over, memory, &Description::matrix(64, 16, 16, FLOAT))
    )?;
    let mut wrong = null_mut();
    let too_many = Description::matrix(65, 16, 16, FLOAT);
    want!(INVALID_INPUT, rank.wholememory_make_tensor_from_handle(&mut wrong, memory, &too_many))?;
    rank.barrier()?;
    must(count() >= 2, || format!("{} of two at least", count()))?;
    rank.barrier()?;
    want!(SUCCESS, rank.wholememory_destroy_tensor(at))?;
    want!(SUCCESS, rank.wholememory_destroy_tensor(over))?;
    rank.barrier()?;
    must(count() == 0, || format!("{} after", count()))?;
    rank.barrier()?;
    want!(SUCCESS, rank.wholememory_free(memory))
}
