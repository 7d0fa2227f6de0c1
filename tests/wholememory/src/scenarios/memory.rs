//! Memory of all types, at all locations.
//!
//! Hazards: two rows in one place, a row that another rank does not see, sizes that do not add up,
//! memory that is leaked.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use wm_driver::Api;

use crate::api::{Handle, Reference};
use crate::rank::{
    CHUNKED, CONTINUOUS, DEVICE, DISTRIBUTED, HIERARCHY, HOST, INVALID_INPUT, KINDS, NOT_SUPPORTED,
    OUT_OF_MEMORY, Rank, SUCCESS, Verdict, bytes_at, must, want,
};

/// More than any device has on which this runs.
const TOO_MUCH: usize = 1 << 46;

/// Every rank writes its part and reads all parts that it can access.
fn exchange(rank: &Rank, memory: Handle, kind: (c_uint, c_uint), salt: usize) -> Verdict {
    let own = rank.own_part(memory)?;
    rank.write(own.address, &bytes_at(own.offset, own.bytes, salt))?;
    rank.barrier()?;
    let is_shown = |other: usize| other == rank.number || matches!(kind.0, CONTINUOUS | CHUNKED);
    let mut offset = 0;
    for other in 0..rank.size {
        if !is_shown(other) {
            let (mut pointer, mut bytes, mut start) = (null_mut(), 0, 0);
            let other = other as i32;
            want!(
                INVALID_INPUT,
                rank.wholememory_get_rank_memory(&mut pointer, &mut bytes, &mut start, other, memory)
            )?;
            continue;
        }
        let part = rank.part_of(other, memory)?;
        if matches!(kind.0, CONTINUOUS | CHUNKED) {
            must(part.offset == offset, || format!("rank {other} begins at {}, not {offset}", part.offset))?;
            offset += part.bytes;
        }
        let right = rank.read(part.address, part.bytes)? == bytes_at(part.offset, part.bytes, salt);
        must(right, || format!("kind {kind:?}: other bytes in the part of rank {other}"))?;
    }
    rank.barrier()
}

pub(super) fn parts(rank: &Rank) -> Verdict {
    for (salt, kind) in rank.kinds().iter().copied().enumerate() {
        for (rows, row) in [(10_000, 52), (rank.size, 4096), (3, 1 << 18)] {
            let memory = rank.malloc(rows, row, kind, None)?;
            // SAFETY: a handle.
            let total = unsafe { (rank.library.wholememory_get_total_size)(memory) };
            must(total == rows * row, || format!("{total} bytes, not {}", rows * row))?;
            let each = rows.div_ceil(rank.size);
            let start = (each * rank.number).min(rows);
            let count = (each * (rank.number + 1)).min(rows) - start;
            let own = rank.own_part(memory)?;
            must((own.offset, own.bytes) == (start * row, count * row), || {
                format!("{own:?} is not rows {start} and {count} more")
            })?;
            exchange(rank, memory, kind, salt)?;
            rank.free(memory)?;
        }
    }
    Ok(())
}

pub(super) fn custom_partition(rank: &Rank) -> Verdict {
    for (salt, kind) in rank.kinds().iter().copied().enumerate() {
        // As uneven as two ranks' can be, and each different from its neighbour.
        let each: Vec<usize> = (0..rank.size).map(|rank| 2_543 + rank * 401).collect();
        let rows = each.iter().sum();
        let memory = rank.malloc(rows, 100, kind, Some(&each))?;
        let own = rank.own_part(memory)?;
        let start: usize = each[..rank.number].iter().sum();
        must((own.offset, own.bytes) == (start * 100, each[rank.number] * 100), || format!("{own:?}"))?;
        exchange(rank, memory, kind, salt)?;
        rank.free(memory)?;
    }
    Ok(())
}

pub(super) fn few_rows(rank: &Rank) -> Verdict {
    for (salt, kind) in rank.kinds().iter().copied().enumerate() {
        for rows in [0, 1, rank.size.saturating_sub(1)] {
            let memory = rank.malloc(rows, 24, kind, None)?;
            exchange(rank, memory, kind, salt)?;
            rank.free(memory)?;
        }
    }
    Ok(())
}

pub(super) fn what_each_type_shows(rank: &Rank) -> Verdict {
    for kind in rank.kinds().iter().copied() {
        let memory = rank.malloc(5000, 64, kind, None)?;
        let own = rank.own_part(memory)?;
        let (mut pointer, mut reference): (*mut c_void, _) = (null_mut(), Reference::default());
        let (mut local, mut cross, mut all) = (null_mut(), null_mut(), null_mut());
        want!(SUCCESS, rank.wholememory_get_communicator(&mut all, memory))?;
        must(all == rank.comm, || "another communicator".to_owned())?;
        let has_one = kind.0 == CONTINUOUS || kind == (CHUNKED, HOST);
        let code = if has_one { SUCCESS } else { INVALID_INPUT };
        want!(code, rank.wholememory_get_global_pointer(&mut pointer, memory))?;
        let code = if kind.0 == DISTRIBUTED || kind.0 == HIERARCHY { INVALID_INPUT } else { SUCCESS };
        want!(code, rank.wholememory_get_global_reference(&mut reference, memory))?;
        if has_one {
            must(pointer as u64 + own.offset as u64 == own.address, || {
                "the part is not where the whole is".to_owned()
            })?;
            must(reference.pointer == pointer && reference.stride == 0, || format!("{reference:?}"))?;
        } else if kind == (CHUNKED, DEVICE) {
            let words = rank.read(reference.pointer as u64, 8 * rank.size)?;
            let bases: Vec<u64> = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            must(bases[rank.number] == own.address, || format!("{bases:x?} has not {:x}", own.address))?;
            let words = rank.read(reference.offsets as u64, 8 * (rank.size + 1))?;
            let offsets: Vec<u64> =
                words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            must(offsets[rank.number] as usize == own.offset && offsets[rank.size] == 5000 * 64, || {
                format!("{offsets:?}")
            })?;
            must(reference.is_same && reference.stride == 5000_usize.div_ceil(rank.size) * 64, || {
                format!("{reference:?}")
            })?;
        }
        let code = if kind.0 == HIERARCHY { SUCCESS } else { NOT_SUPPORTED };
        want!(code, rank.wholememory_get_local_communicator(&mut local, memory))?;
        want!(code, rank.wholememory_get_cross_communicator(&mut cross, memory))?;
        rank.barrier()?;
        rank.free(memory)?;
    }
    Ok(())
}

pub(super) fn does_not_fit(rank: &Rank) -> Verdict {
    for kind in rank.kinds().iter().copied() {
        let before = rank.driver.mem_info().map_err(|error| error.to_string())?;
        let mut memory = null_mut();
        let (place, none) = (&mut memory, std::ptr::null());
        want!(OUT_OF_MEMORY, rank.wholememory_malloc(place, TOO_MUCH, rank.comm, kind.0, kind.1, 64, none))?;
        rank.barrier()?;
        let after = rank.driver.mem_info().map_err(|error| error.to_string())?;
        must(before == after || rank.size > 1, || {
            format!("kind {kind:?}: {before:?} before, {after:?} after")
        })?;
        let memory = rank.malloc(1000, 64, kind, None)?;
        exchange(rank, memory, kind, 7)?;
        rank.free(memory)?;
    }
    Ok(())
}

pub(super) fn freed_by_one_rank_first(rank: &Rank) -> Verdict {
    for kind in rank.kinds().iter().copied() {
        let memory = rank.malloc(9000, 64, kind, None)?;
        let own = rank.own_part(memory)?;
        rank.write(own.address, &bytes_at(own.offset, own.bytes, 3))?;
        rank.barrier()?;
        if rank.number == 0 {
            rank.free(memory)?;
            rank.barrier()?;
            continue;
        }
        rank.barrier()?;
        if matches!(kind.0, CONTINUOUS | CHUNKED) {
            let part = rank.part_of(0, memory)?;
            let right = rank.read(part.address, part.bytes)? == bytes_at(part.offset, part.bytes, 3);
            must(right, || format!("kind {kind:?}: rank 0's part went with its handle"))?;
        }
        rank.free(memory)?;
    }
    rank.barrier()
}

/// One driver call fails on one rank, which the environment chooses.
pub(super) fn a_call_fails(rank: &Rank) -> Verdict {
    let (info, mut failures) = (|| rank.driver.mem_info().map_err(|error| error.to_string()), 0);
    for kind in KINDS {
        rank.barrier()?;
        let before = info()?;
        rank.barrier()?;
        let mut memory = null_mut();
        let place = &mut memory;
        // SAFETY: a live local, and a handle.
        let code = unsafe {
            (rank.library.wholememory_malloc)(place, 64_000, rank.comm, kind.0, kind.1, 64, std::ptr::null())
        };
        failures += usize::from(code != SUCCESS);
        // If one rank fails, all ranks fail.
        let (mut part, mut size) = (null_mut(), 0);
        want!(
            SUCCESS,
            rank.wholememory_split_communicator(&mut part, rank.comm, i32::from(code != SUCCESS), 0)
        )?;
        want!(SUCCESS, rank.wholememory_communicator_get_size(&mut size, part))?;
        must(size as usize == rank.size, || {
            format!("kind {kind:?}: code {code} on {size} of {} ranks", rank.size)
        })?;
        want!(SUCCESS, rank.wholememory_destroy_communicator(part))?;
        if code == SUCCESS {
            exchange(rank, memory, kind, 5)?;
            rank.free(memory)?;
        }
        rank.barrier()?;
        let after = info()?;
        must(before == after, || format!("kind {kind:?}: {before:?} before, {after:?} after"))?;
    }
    must(failures == 1, || format!("{failures} calls failed, not one"))
}
