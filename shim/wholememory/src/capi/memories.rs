//! Functions of `wholememory.h` on memory.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::call::{answer, give, is_place, value};
use super::communicators::communicator;
use super::descriptions::GlobalReference;
use super::exports::exports;
use super::registry::{COMMUNICATORS, MEMORIES, ObjectHandle};
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

/// How a kernel of the caller's finds a byte.
pub(super) fn reference(memory: &Memory) -> Result<GlobalReference> {
    let tables = memory.tables();
    let world_size = memory.communicator().size() as c_int;
    let same_chunk = memory.stride() != 0;
    if let Ok(address) = memory.global_pointer() {
        let pointer = address as *mut c_void;
        let rank_memory_offsets = tables.offsets as *mut usize;
        return Ok(GlobalReference { pointer, rank_memory_offsets, world_size, stride: 0, same_chunk });
    }
    crate::error::require(
        memory.request().memory_type == MemoryType::Chunked,
        "kernels do not reach this type of memory",
    )?;
    // Parts that are not alike are searched for; the distance is one of alike parts then.
    let stride = memory.request().bytes.div_ceil(memory.communicator().size() as u64).max(1);
    let stride = if same_chunk { memory.stride() } else { stride } as usize;
    let (pointer, rank_memory_offsets) = (tables.bases as *mut c_void, tables.offsets as *mut usize);
    Ok(GlobalReference { pointer, rank_memory_offsets, world_size, stride, same_chunk })
}

exports! {
    /// Makes memory of all ranks. A collective call.
    fn wholememory_malloc(
        place: *mut ObjectHandle, total_size: usize, comm: ObjectHandle, memory_type: c_uint, location: c_uint, granularity: usize,
        rank_entry_partition: *const usize,
    ) -> u32 {
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

    /// Closes a handle. Memory that other handles still use lives until these are closed.
    fn wholememory_free(handle: ObjectHandle) -> u32 {
        answer("wholememory_free", || {
            let memory = MEMORIES.close(handle)?;
            if let Ok(parts) = memory.parts() {
                parts.iter().for_each(|part| COMMUNICATORS.forget(part));
            }
            Ok(())
        })
    }

    /// The communicator that has it.
    fn wholememory_get_communicator(place: *mut ObjectHandle, handle: ObjectHandle) -> u32 {
        answer("wholememory_get_communicator", || {
            let memory = MEMORIES.get(handle)?;
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, COMMUNICATORS.handle_of(memory.communicator())) }
        })
    }

    /// Of hierarchical memory, the ranks of this machine.
    fn wholememory_get_local_communicator(place: *mut ObjectHandle, handle: ObjectHandle) -> u32 {
        answer("wholememory_get_local_communicator", || {
            let memory = MEMORIES.get(handle)?;
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, COMMUNICATORS.handle_of(&memory.parts()?[0])) }
        })
    }

    /// Of hierarchical memory, the ranks with this one's number on every machine.
    fn wholememory_get_cross_communicator(place: *mut ObjectHandle, handle: ObjectHandle) -> u32 {
        answer("wholememory_get_cross_communicator", || {
            let memory = MEMORIES.get(handle)?;
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, COMMUNICATORS.handle_of(&memory.parts()?[1])) }
        })
    }

    /// Its type; 0 for no handle.
    fn wholememory_get_memory_type(handle: ObjectHandle) -> c_uint {
        value("wholememory_get_memory_type", 0, || MEMORIES.get(handle).map(|memory| memory.request().memory_type.code()))
    }

    /// Its location; 0 for no handle.
    fn wholememory_get_memory_location(handle: ObjectHandle) -> c_uint {
        value("wholememory_get_memory_location", 0, || MEMORIES.get(handle).map(|memory| memory.request().location.code()))
    }

    /// The transport of operations on it between machines; 0 for no handle.
    fn wholememory_get_distributed_backend(handle: ObjectHandle) -> c_uint {
        value("wholememory_get_distributed_backend", 0, || {
            MEMORIES.get(handle)?.communicator().backend().map(Backend::code)
        })
    }

    /// Bytes of all ranks; 0 for no handle.
    fn wholememory_get_total_size(handle: ObjectHandle) -> usize {
        value("wholememory_get_total_size", 0, || MEMORIES.get(handle).map(|memory| memory.request().bytes as usize))
    }

    /// Bytes of a row; 0 for no handle.
    fn wholememory_get_data_granularity(handle: ObjectHandle) -> usize {
        value("wholememory_get_data_granularity", 0, || {
            MEMORIES.get(handle).map(|memory| memory.request().granularity as usize)
        })
    }

    /// This rank's part.
    fn wholememory_get_local_memory(pointer: *mut *mut c_void, bytes: *mut usize, offset: *mut usize, handle: ObjectHandle) -> u32 {
        answer("wholememory_get_local_memory", || {
            // SAFETY: null is refused; the caller's word for the rest.
            unsafe { give_part(MEMORIES.get(handle)?.own_part(), pointer, bytes, offset) }
        })
    }

    /// Bytes of this rank's part.
    fn wholememory_get_local_size(bytes: *mut usize, handle: ObjectHandle) -> u32 {
        // SAFETY: `give` refuses null; the caller's word for the rest.
        answer("wholememory_get_local_size", || unsafe { give(bytes, MEMORIES.get(handle)?.own_part().bytes as usize) })
    }

    /// Bytes of the parts before this rank's.
    fn wholememory_get_local_offset(offset: *mut usize, handle: ObjectHandle) -> u32 {
        // SAFETY: `give` refuses null; the caller's word for the rest.
        answer("wholememory_get_local_offset", || unsafe {
            give(offset, MEMORIES.get(handle)?.own_part().offset as usize)
        })
    }

    /// A rank's part, where the type shows it.
    fn wholememory_get_rank_memory(
        pointer: *mut *mut c_void, bytes: *mut usize, offset: *mut usize, rank: c_int, handle: ObjectHandle,
    ) -> u32 {
        answer("wholememory_get_rank_memory", || {
            // SAFETY: null is refused; the caller's word for the rest.
            unsafe { give_part(MEMORIES.get(handle)?.rank_memory(rank)?, pointer, bytes, offset) }
        })
    }

    /// The one address, where there is one.
    fn wholememory_get_global_pointer(place: *mut *mut c_void, handle: ObjectHandle) -> u32 {
        answer("wholememory_get_global_pointer", || {
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, MEMORIES.get(handle)?.global_pointer()? as *mut c_void) }
        })
    }

    /// How a kernel of the caller's finds a byte.
    fn wholememory_get_global_reference(place: *mut GlobalReference, handle: ObjectHandle) -> u32 {
        answer("wholememory_get_global_reference", || {
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, reference(&*MEMORIES.get(handle)?)?) }
        })
    }

    /// Bytes of each rank's part: as many numbers as ranks.
    fn wholememory_get_rank_partition_sizes(place: *mut usize, handle: ObjectHandle) -> u32 {
        answer("wholememory_get_rank_partition_sizes", || {
            let memory = MEMORIES.get(handle)?;
            let parts = (0..memory.communicator().size()).map(|rank| memory.part(rank).bytes);
            // SAFETY: null is refused; the caller's word for the rest.
            unsafe { give_all(place, parts) }
        })
    }

    /// Bytes before each rank's part, and all of them: one number more than ranks.
    fn wholememory_get_rank_partition_offsets(place: *mut usize, handle: ObjectHandle) -> u32 {
        answer("wholememory_get_rank_partition_offsets", || {
            let memory = MEMORIES.get(handle)?;
            let parts = (0..memory.communicator().size()).map(|rank| memory.part(rank).offset);
            // SAFETY: null is refused; the caller's word for the rest.
            unsafe { give_all(place, parts.chain([memory.request().bytes])) }
        })
    }

    /// Of a build with NVSHMEM.
    fn wholememory_get_nvshmem_reference(_place: *mut c_void, _handle: ObjectHandle) -> u32 {
        answer("wholememory_get_nvshmem_reference", || Err(Error::NotSupported("NVSHMEM is not built in".to_owned())))
    }
}
