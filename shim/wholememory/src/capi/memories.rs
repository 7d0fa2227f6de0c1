//! Functions of `wholememory.h` on memory.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::call::{answer, give, is_place, value};
use super::communicators::communicator;
use super::descriptions::GlobalReference;
use super::exports::exports;
use super::names::{
    BackendCode, CommunicatorHandle, ErrorCode, LocationCode, MemoryHandle, MemoryTypeCode, NvshmemReference,
};
use super::registry::{COMMUNICATORS, MEMORIES};
use crate::error::{Error, Result};
use crate::memory::{Memory, MemoryRequest, RankMemory};
use crate::vocabulary::codes::{Backend, Location, MemoryType};

/// Rows of each rank, if the caller says so.
///
/// # Safety
/// Null, or as many numbers as there are ranks.
pub(super) unsafe fn partition(each: *const usize, ranks: usize) -> Option<Vec<u64>> {
    // SAFETY: the caller's word.
    (!each.is_null())
        .then(|| unsafe { std::slice::from_raw_parts(each, ranks) }.iter().map(|rows| *rows as u64).collect())
}

/// Writes a rank's part to three places.
///
/// # Safety
/// Each is null, or of its value.
unsafe fn give_part(
    part: RankMemory,
    pointer: *mut *mut c_void,
    bytes: *mut usize,
    offset: *mut usize,
) -> Result {
    is_place(pointer)?;
    is_place(bytes)?;
    is_place(offset)?;
    // SAFETY: none is null; the caller's word for the rest.
    unsafe {
        give(pointer, part.address as *mut c_void)?;
        give(bytes, part.bytes as usize)?;
        give(offset, part.offset as usize)
    }
}

/// Writes a number for each rank, and one more behind them.
///
/// # Safety
/// The place is null, or of so many numbers.
unsafe fn give_all(place: *mut usize, numbers: impl Iterator<Item = u64>) -> Result {
    is_place(place)?;
    // SAFETY: not null; the caller's word for the rest.
    numbers.enumerate().for_each(|(at, number)| unsafe { place.add(at).write(number as usize) });
    Ok(())
}

/// Closes memory, and the communicators that it has handed out.
pub(super) fn free(handle: MemoryHandle) -> Result {
    let memory = MEMORIES.close(handle)?;
    if let Ok(parts) = memory.parts() {
        parts.iter().for_each(|part| COMMUNICATORS.forget(part));
    }
    Ok(())
}

/// How a kernel of the caller's finds a byte.
pub(super) fn reference(memory: &Memory) -> Result<GlobalReference> {
    let world_size = memory.communicator().size() as c_int;
    let same_chunk = memory.stride() != 0;
    if let Ok(address) = memory.global_pointer() {
        let pointer = address as *mut c_void;
        let rank_memory_offsets = memory.tables()?.offsets as *mut usize;
        return Ok(GlobalReference { pointer, rank_memory_offsets, world_size, stride: 0, same_chunk });
    }
    crate::error::require(
        memory.request().memory_type == MemoryType::Chunked,
        "kernels do not reach this type of memory",
    )?;
    // Parts that are not alike are searched for; the distance is one of alike parts then.
    let stride = memory.request().bytes.div_ceil(memory.communicator().size() as u64).max(1);
    let stride = if same_chunk { memory.stride() } else { stride } as usize;
    let tables = memory.tables()?;
    let (pointer, rank_memory_offsets) = (tables.bases as *mut c_void, tables.offsets as *mut usize);
    Ok(GlobalReference { pointer, rank_memory_offsets, world_size, stride, same_chunk })
}

exports! {
    // wholememory.h: Memory.
    // wholememory.h: Memory.
    // wholememory.h: Memory.
    /// Makes memory of all ranks: `total_size` bytes in all, in rows of `granularity` bytes. A
    /// rank's part has whole rows, in equal parts (the last ones may have fewer rows, or none).
    /// With `rank_entry_partition`, an array of as many numbers as ranks, a rank's part has the
    /// number of rows that it says. Memory in the host is pinned. The bytes are undefined.
    ///
    /// * Collective: all arguments are the same on all ranks.
    /// * Errors: `INVALID_INPUT` if `total_size` is no multiple of `granularity`, or a partition's
    ///   numbers are not positive or not all rows; `OUT_OF_MEMORY`; `NOT_SUPPORTED` as of
    ///   `wholememory_communicator_support_type_location`. The error is that of all ranks, and no
    ///   memory is left.
    fn wholememory_malloc(
        place: *mut MemoryHandle, total_size: usize, comm: CommunicatorHandle,
        memory_type: MemoryTypeCode, location: LocationCode, granularity: usize,
        rank_entry_partition: *mut usize = null,
    ) -> ErrorCode {
        answer("wholememory_malloc", || {
            let communicator = communicator(comm)?;
            let request = is_place(place).and_then(|()| {
                let (memory_type, location) = (MemoryType::of(memory_type)?, Location::of(location)?);
                // SAFETY: the caller's word.
                let partition = unsafe { partition(rank_entry_partition, communicator.size()) };
                Ok(MemoryRequest { bytes: total_size as u64, memory_type, location, granularity: granularity as u64, partition })
            });
            let request = match request {
                Ok(request) => request,
                // The others wait for this rank's word.
                Err(error) => return communicator.agree("malloc", Err(error), &[]),
            };
            let memory = Memory::new(&communicator, request)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, MEMORIES.add(Arc::new(memory))) }
        })
    }

    /// Closes memory. Each rank closes its own handle. A rank's part lives until the last rank that
    /// maps it has closed it, or ended, and as long as a tensor uses it.
    ///
    /// * Errors: the common ones.
    fn wholememory_free(handle: MemoryHandle) -> ErrorCode {
        answer("wholememory_free", || free(handle))
    }

    /// Writes the communicator that the memory was made with.
    ///
    /// * Errors: the common ones.
    fn wholememory_get_communicator(
        place: *mut CommunicatorHandle, handle: MemoryHandle,
    ) -> ErrorCode {
        answer("wholememory_get_communicator", || {
            let memory = MEMORIES.get(handle)?;
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, COMMUNICATORS.handle_of(memory.communicator())) }
        })
    }

    /// Writes, for hierarchy memory, the communicator of the ranks on this machine. It is closed
    /// with the memory.
    ///
    /// * Errors: `NOT_SUPPORTED` for other types of memory.
    fn wholememory_get_local_communicator(
        place: *mut CommunicatorHandle, handle: MemoryHandle,
    ) -> ErrorCode {
        answer("wholememory_get_local_communicator", || {
            let memory = MEMORIES.get(handle)?;
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, COMMUNICATORS.handle_of(&memory.parts()?[0])) }
        })
    }

    /// Writes, for hierarchy memory, the communicator of the ranks with this rank's number on every
    /// machine. It is closed with the memory.
    ///
    /// * Errors: `NOT_SUPPORTED` for other types of memory.
    fn wholememory_get_cross_communicator(
        place: *mut CommunicatorHandle, handle: MemoryHandle,
    ) -> ErrorCode {
        answer("wholememory_get_cross_communicator", || {
            let memory = MEMORIES.get(handle)?;
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, COMMUNICATORS.handle_of(&memory.parts()?[1])) }
        })
    }

    /// Returns the memory's type.
    ///
    /// * On failure: `WHOLEMEMORY_MT_NONE`.
    fn wholememory_get_memory_type(handle: MemoryHandle) -> MemoryTypeCode {
        value("wholememory_get_memory_type", 0, || MEMORIES.get(handle).map(|memory| memory.request().memory_type.code()))
    }

    /// Returns the memory's location.
    ///
    /// * On failure: `WHOLEMEMORY_ML_NONE`.
    fn wholememory_get_memory_location(handle: MemoryHandle) -> LocationCode {
        value("wholememory_get_memory_location", 0, || MEMORIES.get(handle).map(|memory| memory.request().location.code()))
    }

    /// Returns the transport of operations on the memory between machines.
    ///
    /// * On failure: `WHOLEMEMORY_DB_NONE`.
    fn wholememory_get_distributed_backend(handle: MemoryHandle) -> BackendCode {
        value("wholememory_get_distributed_backend", 0, || {
            MEMORIES.get(handle)?.communicator().backend().map(Backend::code)
        })
    }

    /// Returns the bytes of all ranks' parts together.
    ///
    /// * On failure: 0.
    fn wholememory_get_total_size(handle: MemoryHandle) -> usize {
        value("wholememory_get_total_size", 0, || MEMORIES.get(handle).map(|memory| memory.request().bytes as usize))
    }

    /// Returns the bytes of a row.
    ///
    /// * On failure: 0.
    fn wholememory_get_data_granularity(handle: MemoryHandle) -> usize {
        value("wholememory_get_data_granularity", 0, || {
            MEMORIES.get(handle).map(|memory| memory.request().granularity as usize)
        })
    }

    /// Writes the address of this rank's part, its bytes, and the bytes of the parts before it. The
    /// rank's GPU may use the address, and the host if the memory is in the host.
    ///
    /// * Errors: the common ones.
    fn wholememory_get_local_memory(
        pointer: *mut *mut c_void, bytes: *mut usize, offset: *mut usize, handle: MemoryHandle,
    ) -> ErrorCode {
        answer("wholememory_get_local_memory", || {
            // SAFETY: null is refused; the caller's word for the rest.
            unsafe { give_part(MEMORIES.get(handle)?.own_part(), pointer, bytes, offset) }
        })
    }

    /// Writes the bytes of this rank's part.
    ///
    /// * Errors: the common ones.
    fn wholememory_get_local_size(bytes: *mut usize, handle: MemoryHandle) -> ErrorCode {
        // SAFETY: `give` refuses null; the caller's word for the rest.
        answer("wholememory_get_local_size", || unsafe { give(bytes, MEMORIES.get(handle)?.own_part().bytes as usize) })
    }

    /// Writes the bytes of the parts before this rank's.
    ///
    /// * Errors: the common ones.
    fn wholememory_get_local_offset(offset: *mut usize, handle: MemoryHandle) -> ErrorCode {
        // SAFETY: `give` refuses null; the caller's word for the rest.
        answer("wholememory_get_local_offset", || unsafe {
            give(offset, MEMORIES.get(handle)?.own_part().offset as usize)
        })
    }

    /// Writes, for a rank's part, the address at which this rank sees it, its bytes, and the bytes
    /// of the parts before it.
    ///
    /// * Errors: `INVALID_INPUT` for a number that is no rank, and for another rank's part of
    ///   distributed or hierarchy memory.
    fn wholememory_get_rank_memory(
        pointer: *mut *mut c_void, bytes: *mut usize, offset: *mut usize, rank: c_int,
        handle: MemoryHandle,
    ) -> ErrorCode {
        answer("wholememory_get_rank_memory", || {
            // SAFETY: null is refused; the caller's word for the rest.
            unsafe { give_part(MEMORIES.get(handle)?.rank_memory(rank)?, pointer, bytes, offset) }
        })
    }

    /// Writes the address of all of the memory: of continuous memory, and of chunked memory in the
    /// host.
    ///
    /// * Errors: `INVALID_INPUT` for memory without one address.
    fn wholememory_get_global_pointer(place: *mut *mut c_void, handle: MemoryHandle) -> ErrorCode {
        answer("wholememory_get_global_pointer", || {
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, MEMORIES.get(handle)?.global_pointer()? as *mut c_void) }
        })
    }

    /// Writes a value by which a kernel of the caller's finds a byte (`wholememory_gref_t`;
    /// `device_reference.cuh` reads it). It is valid as long as the memory.
    ///
    /// * Errors: `INVALID_INPUT` for distributed and hierarchy memory.
    fn wholememory_get_global_reference(
        place: *mut GlobalReference, handle: MemoryHandle,
    ) -> ErrorCode {
        answer("wholememory_get_global_reference", || {
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, reference(&*MEMORIES.get(handle)?)?) }
        })
    }

    /// Writes the bytes of each rank's part: an array of as many numbers as ranks.
    ///
    /// * Errors: the common ones.
    fn wholememory_get_rank_partition_sizes(place: *mut usize, handle: MemoryHandle) -> ErrorCode {
        answer("wholememory_get_rank_partition_sizes", || {
            let memory = MEMORIES.get(handle)?;
            let parts = (0..memory.communicator().size()).map(|rank| memory.part(rank).bytes);
            // SAFETY: null is refused; the caller's word for the rest.
            unsafe { give_all(place, parts) }
        })
    }

    /// Writes the bytes before each rank's part, and the bytes of all parts: an array of one number
    /// more than ranks.
    ///
    /// * Errors: the common ones.
    fn wholememory_get_rank_partition_offsets(
        place: *mut usize, handle: MemoryHandle,
    ) -> ErrorCode {
        answer("wholememory_get_rank_partition_offsets", || {
            let memory = MEMORIES.get(handle)?;
            let parts = (0..memory.communicator().size()).map(|rank| memory.part(rank).offset);
            // SAFETY: null is refused; the caller's word for the rest.
            unsafe { give_all(place, parts.chain([memory.request().bytes])) }
        })
    }

    /// Is always refused: NVSHMEM is not built in.
    ///
    /// * Errors: `NOT_SUPPORTED`.
    fn wholememory_get_nvshmem_reference(
        _place: *mut NvshmemReference, _handle: MemoryHandle,
    ) -> ErrorCode {
        answer("wholememory_get_nvshmem_reference", || Err(Error::NotSupported("NVSHMEM is not built in".to_owned())))
    }
}
