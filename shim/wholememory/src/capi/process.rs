//! Functions of `wmshim_process.h`, which libwholegraph does not have: a thread that has several
//! GPUs makes memory of all of them with one call.
//!
//! A collective call returns when all ranks have made it, so a thread cannot make it for several
//! ranks one after the other. Each rank gets a thread of its own for the duration of such a call.
//!
//! Invariant: no rank's call begins before every rank has its thread.

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};
use std::thread::Builder;

use wm_driver::api::scope::Current;
use wm_driver::api::{Api, Named};

use super::call::{answer, give, is_place, read};
use super::exports::exports;
use super::memories::partition;
use super::names::{CommunicatorHandle, ErrorCode, LocationCode, MemoryHandle, MemoryTypeCode, TensorHandle};
use super::registry::{COMMUNICATORS, MEMORIES, Registry, TENSORS, driver};
use crate::communicator::{Communicator, unique_id};
use crate::error::{Error, Result, require};
use crate::memory::{Memory, MemoryRequest};
use crate::tensor::Tensor;
use crate::vocabulary::codes::{Location, MemoryType};
use crate::vocabulary::description::TensorDescription;

/// Most ranks of one process: each takes a thread for the duration of a call.
const MOST: usize = 1024;

/// Makes a call for so many ranks at once; the results by rank.
///
/// # Errors
/// That of the first rank that has a reason of its own; [`Error::System`] without threads.
fn by_rank<T: Send>(ranks: usize, call: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let (all_are_there, call) = (OnceLock::new(), &call);
    let wait = &all_are_there;
    let results: Vec<Result<T>> = std::thread::scope(|scope| {
        let begin = |rank| {
            let abandoned = || Err(Error::System("there are no threads for all ranks".to_owned()));
            let body = move || if *wait.wait() { call(rank) } else { abandoned() };
            Builder::new().spawn_scoped(scope, body)
        };
        let begun: Vec<_> = (0..ranks).map(begin).collect();
        let _first = all_are_there.set(begun.iter().all(|thread| thread.is_ok()));
        let end = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, Result<T>>>| {
            thread?.join().unwrap_or_else(|fault| std::panic::resume_unwind(fault))
        };
        begun.into_iter().map(end).collect()
    });
    let own = results.iter().filter_map(|result| result.as_ref().err());
    match own.min_by_key(|error| error.is_of_rank()).cloned() {
        Some(error) => Err(error),
        None => results.into_iter().collect(),
    }
}

/// As many values as an array of the caller's has.
///
/// # Safety
/// It is null, or has so many.
unsafe fn array<T: Copy>(values: *const T, count: c_int, what: &str) -> Result<Vec<T>> {
    let most = usize::try_from(count).ok().filter(|count| (1..=MOST).contains(count));
    let count = most.ok_or_else(|| Error::Input(format!("{count} {what}: there are 1 to {MOST}")))?;
    require(!values.is_null(), &format!("the array of {what} is null"))?;
    // SAFETY: not null; the caller's word for the rest.
    Ok(unsafe { std::slice::from_raw_parts(values, count) }.to_vec())
}

/// All ranks of a communicator, in order: fewer, or others, would wait for ranks that do not call.
///
/// # Safety
/// As of [`array`].
unsafe fn ranks(handles: *const CommunicatorHandle, count: c_int) -> Result<Vec<Arc<Communicator>>> {
    // SAFETY: the caller's word.
    let handles = unsafe { array(handles, count, "communicators") }?;
    let ranks = handles.into_iter().map(|handle| COMMUNICATORS.get(handle)).collect::<Result<Vec<_>>>()?;
    let is_all = |(number, rank): (usize, &Arc<Communicator>)| {
        rank.rank() == number && rank.size() == ranks.len() && rank.id() == ranks[0].id()
    };
    require(
        ranks.iter().enumerate().all(is_all),
        "the array is not all ranks of one communicator, in their order",
    )?;
    Ok(ranks)
}

/// Refuses memory that spans islands: its rows are gathered by collective calls, which one thread
/// cannot make.
fn are_of_one_island(ranks: &[Arc<Communicator>], location: Location) -> Result {
    match ranks[0].islands(location).count() {
        1 => Ok(()),
        _ => Err(Error::NotSupported(
            "the GPUs do not all reach each other's memory (no peer access): place it on the host, or give each rank \
             a thread of its own"
                .to_owned(),
        )),
    }
}

/// Registers objects, and writes their handles.
///
/// # Safety
/// The place has room for them.
unsafe fn give_each<T>(place: *mut *mut std::ffi::c_void, registry: &Registry<T>, made: Vec<T>) -> Result {
    made.into_iter().enumerate().try_for_each(|(rank, object)| {
        // SAFETY: the caller's word.
        unsafe { give(place.add(rank), registry.add(Arc::new(object))) }
    })
}

/// Makes a communicator of ranks with these devices.
fn communicators(devices: &[c_int]) -> Result<Vec<Communicator>> {
    let (driver, id) = (driver()?, unique_id()?);
    let named = Named(driver);
    named.init()?;
    // The contexts stay, as the CUDA runtime's do. All are there before a rank waits for another.
    let context = |device: &c_int| Ok(named.primary_ctx_retain(named.device_get(*device)?)?);
    let contexts = devices.iter().map(context).collect::<Result<Vec<_>>>()?;
    by_rank(devices.len(), |rank| {
        let current = Current::make(driver, contexts[rank]);
        let _current = current.map_err(|code| Error::Cuda(code.to_string()))?;
        Communicator::create(driver, &id, rank as i32, devices.len() as i32)
    })
}

exports! {
    // wmshim_process.h: Several GPUs of one thread.
    /// Makes a communicator whose ranks are all in this process: rank i has device `devices[i]`,
    /// and `place` is an array for `count` handles. A device may be that of several ranks. Without
    /// `devices`, rank i has device i. Each handle is used and closed as any other, and operations
    /// that are not collective may be called for any rank by any thread, such as
    /// `wholememory_gather`. The thread's current context stays.
    ///
    /// * One thread: it makes the collective calls of such ranks by the functions of this header.
    ///   Other collective functions need a thread for each rank.
    /// * Errors: `INVALID_INPUT` for less than 1 or more than 1024 ranks; `CUDA_ERROR` for a device
    ///   that there is not; those of `wholememory_create_communicator`.
    fn wmshim_wholememory_create_communicators(
        place: *mut CommunicatorHandle, devices: *const c_int, count: c_int,
    ) -> ErrorCode {
        answer("wmshim_wholememory_create_communicators", || {
            is_place(place)?;
            let numbers: Vec<c_int> = (0..count.clamp(0, MOST as c_int + 1)).collect();
            let devices = if devices.is_null() { numbers.as_ptr() } else { devices };
            // SAFETY: our own array, or the caller's word.
            let made = communicators(&unsafe { array(devices, count, "devices") }?)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give_each(place, &COMMUNICATORS, made) }
        })
    }

    /// Makes memory of all ranks, as `wholememory_malloc` does. `comms` are all ranks of a
    /// communicator in order, and `place` is an array for `count` handles: rank i sees the memory
    /// by handle i.
    ///
    /// * Errors: those of `wholememory_malloc`; `INVALID_INPUT` for other communicators.
    fn wmshim_wholememory_malloc(
        place: *mut MemoryHandle, total_size: usize, comms: *const CommunicatorHandle, count: c_int,
        memory_type: MemoryTypeCode, location: LocationCode, granularity: usize,
        rank_entry_partition: *const usize = null,
    ) -> ErrorCode {
        answer("wmshim_wholememory_malloc", || {
            is_place(place)?;
            // SAFETY: the caller's word.
            let (ranks, partition) = unsafe {
                let ranks = ranks(comms, count)?;
                let partition = partition(rank_entry_partition, ranks.len());
                (ranks, partition)
            };
            let (memory_type, location) = (MemoryType::of(memory_type)?, Location::of(location)?);
            are_of_one_island(&ranks, location)?;
            let (bytes, granularity) = (total_size as u64, granularity as u64);
            let request = MemoryRequest { bytes, memory_type, location, granularity, partition };
            let made = by_rank(ranks.len(), |rank| Memory::new(&ranks[rank], request.clone()))?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give_each(place, &MEMORIES, made) }
        })
    }

    /// Closes memory at all ranks: the handles that `wmshim_wholememory_malloc` has written. All
    /// of them are closed, also after an error.
    ///
    /// * Errors: the common ones.
    fn wmshim_wholememory_free(handles: *const MemoryHandle, count: c_int) -> ErrorCode {
        answer("wmshim_wholememory_free", || {
            // SAFETY: the caller's word.
            let handles = unsafe { array(handles, count, "memory handles") }?;
            let closed: Vec<_> = handles.into_iter().map(super::memories::free).collect();
            closed.into_iter().collect()
        })
    }

    /// Makes a tensor with memory of its own, as `wholememory_create_tensor` does. `comms` are all
    /// ranks of a communicator in order, and `place` is an array for `count` handles, each of which
    /// `wholememory_destroy_tensor` closes.
    ///
    /// * Errors: those of `wholememory_create_tensor`; `INVALID_INPUT` for other communicators.
    fn wmshim_wholememory_create_tensors(
        place: *mut TensorHandle, description: *const TensorDescription,
        comms: *const CommunicatorHandle, count: c_int, memory_type: MemoryTypeCode,
        location: LocationCode, entry_partition: *const usize = null,
    ) -> ErrorCode {
        answer("wmshim_wholememory_create_tensors", || {
            is_place(place)?;
            // SAFETY: null is refused; the caller's word for the rest.
            let (ranks, description, partition) = unsafe {
                let ranks = ranks(comms, count)?;
                let partition = partition(entry_partition, ranks.len());
                (ranks, read(description, "the description")?, partition)
            };
            let (memory_type, location) = (MemoryType::of(memory_type)?, Location::of(location)?);
            are_of_one_island(&ranks, location)?;
            let made = by_rank(ranks.len(), |rank| {
                Tensor::new(&ranks[rank], description, memory_type, location, partition.clone())
            })?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give_each(place, &TENSORS, made) }
        })
    }

    /// Waits for all work in the contexts of these ranks' GPUs, so that each GPU sees the rows that
    /// the others have written.
    ///
    /// * Stream: waits for all streams of the contexts.
    /// * Errors: `CUDA_ERROR` if work on a GPU has failed.
    fn wmshim_wholememory_synchronize(comms: *const CommunicatorHandle, count: c_int) -> ErrorCode {
        answer("wmshim_wholememory_synchronize", || {
            // SAFETY: the caller's word.
            let ranks = unsafe { ranks(comms, count) }?;
            ranks.iter().try_for_each(|rank| Ok(rank.driver().ctx_synchronize_named(rank.context())?))
        })
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): a rank waits for another one whose call has not begun, or the reason of
    //! the rank that failed is lost.
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn all_ranks_are_in_the_call_at_once() {
        let meeting = Barrier::new(5);
        let met = by_rank(5, |rank| {
            meeting.wait();
            Ok(rank * rank)
        });
        assert_eq!(met.expect("no rank failed"), [0, 1, 4, 9, 16]);
    }

    #[test]
    fn the_reason_is_that_of_the_rank_that_failed() {
        let failed = by_rank(3, |rank| match rank {
            1 => Err::<(), _>(Error::Memory("full".to_owned())),
            _ => Err(Error::of_rank(1, 8)),
        });
        assert_eq!(failed.expect_err("a rank failed").reason(), "full");
    }
}
