//! Functions of `wholememory_tensor.h`.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use super::call::{answer, give, is_place, read, value};
use super::communicators::communicator;
use super::descriptions::GlobalReference;
use super::exports::exports;
use super::memories::{partition, reference};
use super::registry::{MEMORIES, ObjectHandle, TENSORS};
use crate::tensor::{Place, Tensor};
use crate::vocabulary::codes::{Location, MemoryType};
use crate::vocabulary::description::TensorDescription;

exports! {
    /// A tensor with memory of its own. A collective call.
    fn wholememory_create_tensor(
        place: *mut ObjectHandle, description: *const TensorDescription, comm: ObjectHandle, memory_type: c_uint, location: c_uint,
        entry_partition: *const usize,
    ) -> u32 {
        answer("wholememory_create_tensor", || {
            let communicator = communicator(comm)?;
            let arguments = is_place(place).and_then(|()| {
                // SAFETY: null is refused; the caller's word for the rest.
                let description = unsafe { read(description, "the description") }?;
                Ok((description, MemoryType::of(memory_type)?, Location::of(location)?))
            });
            let (description, memory_type, location) = match arguments {
                Ok(arguments) => arguments,
                // The others wait for this rank's word.
                Err(error) => return communicator.agree("malloc", Err(error), &[]),
            };
            // SAFETY: the caller's word.
            let partition = unsafe { partition(entry_partition, communicator.size()) };
            let tensor = Tensor::new(&communicator, description, memory_type, location, partition)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, TENSORS.add(Arc::new(tensor))) }
        })
    }

    /// Closes a tensor, and its memory if it made it. Its memory lives on as long as parts of it
    /// need it.
    fn wholememory_destroy_tensor(handle: ObjectHandle) -> u32 {
        answer("wholememory_destroy_tensor", || {
            let tensor = TENSORS.close(handle)?;
            if let (Place::Memory(memory), true) = (tensor.place(), tensor.owns()) {
                MEMORIES.forget(memory);
            }
            Ok(())
        })
    }

    /// A tensor over memory of the caller's.
    fn wholememory_make_tensor_from_pointer(place: *mut ObjectHandle, pointer: *mut c_void, description: *const TensorDescription) -> u32 {
        answer("wholememory_make_tensor_from_pointer", || {
            is_place(place)?;
            // SAFETY: null is refused; the caller's word for the rest.
            let description = unsafe { read(description, "the description") }?;
            let tensor = Tensor::at(pointer as u64, description)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, TENSORS.add(Arc::new(tensor))) }
        })
    }

    /// A tensor over memory that there is, which the caller closes.
    fn wholememory_make_tensor_from_handle(place: *mut ObjectHandle, memory: ObjectHandle, description: *const TensorDescription) -> u32 {
        answer("wholememory_make_tensor_from_handle", || {
            is_place(place)?;
            // SAFETY: null is refused; the caller's word for the rest.
            let description = unsafe { read(description, "the description") }?;
            let tensor = Tensor::over(MEMORIES.get(memory)?, description)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, TENSORS.add(Arc::new(tensor))) }
        })
    }

    /// Is it over memory of all ranks?
    fn wholememory_tensor_has_handle(handle: ObjectHandle) -> bool {
        value("wholememory_tensor_has_handle", false, || Ok(TENSORS.get(handle)?.memory().is_ok()))
    }

    /// The memory that it is over; null for memory of the caller's.
    fn wholememory_tensor_get_memory_handle(handle: ObjectHandle) -> ObjectHandle {
        value("wholememory_tensor_get_memory_handle", null_mut(), || {
            Ok(TENSORS.get(handle)?.memory().map_or(null_mut(), |memory| MEMORIES.handle_of(memory)))
        })
    }

    /// Its shape, for as long as it is open; null for no tensor.
    fn wholememory_tensor_get_tensor_description(handle: ObjectHandle) -> *const TensorDescription {
        value("wholememory_tensor_get_tensor_description", std::ptr::null(), || {
            Ok(std::ptr::from_ref(TENSORS.get(handle)?.description()))
        })
    }

    /// How a kernel of the caller's finds a byte of it.
    fn wholememory_tensor_get_global_reference(handle: ObjectHandle, place: *mut GlobalReference) -> u32 {
        answer("wholememory_tensor_get_global_reference", || {
            let tensor = TENSORS.get(handle)?;
            let found = match tensor.place() {
                Place::Memory(memory) => reference(memory)?,
                Place::Pointer(address) => {
                    // SAFETY: takes a value and gives one.
                    unsafe { super::descriptions::wholememory_create_continuous_global_reference(*address as *mut c_void) }
                }
            };
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, found) }
        })
    }

    /// This rank's rows as a tensor of their own.
    fn wholememory_tensor_map_local_tensor(handle: ObjectHandle, place: *mut ObjectHandle) -> u32 {
        answer("wholememory_tensor_map_local_tensor", || {
            is_place(place)?;
            let part = TENSORS.get(handle)?.own_part()?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, TENSORS.add(Arc::new(part))) }
        })
    }

    /// The address of its first element; null where it has no one address.
    fn wholememory_tensor_get_data_pointer(handle: ObjectHandle) -> *mut c_void {
        value("wholememory_tensor_get_data_pointer", null_mut(), || {
            Ok(TENSORS.get(handle)?.address().map_or(null_mut(), |address| address as *mut c_void))
        })
    }

    /// First row of each rank's part, and the number of all rows: one number more than ranks.
    fn wholememory_tensor_get_entry_offsets(place: *mut usize, handle: ObjectHandle) -> u32 {
        answer("wholememory_tensor_get_entry_offsets", || {
            is_place(place)?;
            let tensor = TENSORS.get(handle)?;
            let starts = tensor.memory()?.partition().starts();
            // SAFETY: not null; the caller's word for the rest.
            starts.iter().enumerate().for_each(|(at, start)| unsafe { place.add(at).write(*start as usize) });
            Ok(())
        })
    }

    /// Rows of each rank's part: as many numbers as ranks.
    fn wholememory_tensor_get_entry_partition_sizes(place: *mut usize, handle: ObjectHandle) -> u32 {
        answer("wholememory_tensor_get_entry_partition_sizes", || {
            is_place(place)?;
            let tensor = TENSORS.get(handle)?;
            let partition = tensor.memory()?.partition();
            // SAFETY: not null; the caller's word for the rest.
            (0..partition.ranks()).for_each(|rank| unsafe { place.add(rank).write(partition.count(rank) as usize) });
            Ok(())
        })
    }

    /// Rows of this rank's part.
    fn wholememory_tensor_get_local_entry_count(place: *mut usize, handle: ObjectHandle) -> u32 {
        answer("wholememory_tensor_get_local_entry_count", || {
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, TENSORS.get(handle)?.own_rows()?.1 as usize) }
        })
    }

    /// First row of this rank's part.
    fn wholememory_tensor_get_local_entry_start(place: *mut usize, handle: ObjectHandle) -> u32 {
        answer("wholememory_tensor_get_local_entry_start", || {
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, TENSORS.get(handle)?.own_rows()?.0 as usize) }
        })
    }

    /// A part of a tensor: a number for each dimension, -1 for the beginning or the end.
    fn wholememory_tensor_get_subtensor(handle: ObjectHandle, starts: *const i64, ends: *const i64, place: *mut ObjectHandle) -> u32 {
        answer("wholememory_tensor_get_subtensor", || {
            is_place(place)?;
            let tensor = TENSORS.get(handle)?;
            crate::error::require(!starts.is_null() && !ends.is_null(), "the part is null")?;
            let dimensions = tensor.description().dimensions().unwrap_or_default();
            // SAFETY: not null; the caller's word that there is a number for each dimension.
            let bounds = unsafe { [starts, ends].map(|bound| std::slice::from_raw_parts(bound, dimensions)) };
            let part = tensor.slice(bounds[0], bounds[1])?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, TENSORS.add(Arc::new(part))) }
        })
    }

    /// The tensor that it is a part of; itself for one that is no part, or whose whole was closed.
    fn wholememory_tensor_get_root(handle: ObjectHandle) -> ObjectHandle {
        value("wholememory_tensor_get_root", null_mut(), || {
            let tensor = TENSORS.get(handle)?;
            Ok(tensor.root().and_then(|root| TENSORS.find(root)).unwrap_or(handle))
        })
    }

    /// How many tensors are open in this process.
    fn get_wholememory_tensor_count() -> i64 {
        TENSORS.count() as i64
    }
}
