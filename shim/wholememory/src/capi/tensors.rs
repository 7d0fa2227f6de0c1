//! Functions of `wholememory_tensor.h`.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use super::call::{answer, give, is_place, read, value};
use super::communicators::communicator;
use super::descriptions::GlobalReference;
use super::exports::exports;
use super::memories::{partition, reference};
use super::names::{CommunicatorHandle, ErrorCode, LocationCode, MemoryHandle, MemoryTypeCode, TensorHandle};
use super::registry::{MEMORIES, TENSORS};
use crate::tensor::{Place, Tensor};
use crate::vocabulary::codes::{Location, MemoryType};
use crate::vocabulary::description::TensorDescription;

exports! {
    // wholememory_tensor.h: Tensors.
    // wholememory_tensor.h: Tensors.
    // wholememory_tensor.h: Tensors.
    /// Makes a tensor with memory of its own. The description has one dimension of stride 1, or two
    /// whose last stride is 1 and whose first is at least as long as a row; its `storage_offset` is
    /// 0. Rows are the entries of `entry_partition`, an array of as many numbers as ranks, or null
    /// for equal parts.
    ///
    /// * Collective: all arguments are the same on all ranks.
    /// * Errors: `INVALID_INPUT` for another shape; those of `wholememory_malloc`.
    fn wholememory_create_tensor(
        place: *mut TensorHandle, description: *mut TensorDescription, comm: CommunicatorHandle,
        memory_type: MemoryTypeCode, location: LocationCode, entry_partition: *mut usize = null,
    ) -> ErrorCode {
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

    /// Closes a tensor, and its memory if it was made with it. The memory lives on as long as parts
    /// of the tensor need it.
    ///
    /// * Errors: the common ones.
    fn wholememory_destroy_tensor(handle: TensorHandle) -> ErrorCode {
        answer("wholememory_destroy_tensor", || {
            let tensor = TENSORS.close(handle)?;
            if let (Place::Memory(memory), true) = (tensor.place(), tensor.owns()) {
                MEMORIES.forget(memory);
            }
            Ok(())
        })
    }

    /// Makes a tensor over memory of the caller's, which must live as long as the tensor. `pointer`
    /// may be null for a tensor without elements.
    ///
    /// * Errors: `INVALID_INPUT` for a shape that no tensor has, or elements at null.
    fn wholememory_make_tensor_from_pointer(
        place: *mut TensorHandle, pointer: *mut c_void, description: *mut TensorDescription,
    ) -> ErrorCode {
        answer("wholememory_make_tensor_from_pointer", || {
            is_place(place)?;
            // SAFETY: null is refused; the caller's word for the rest.
            let description = unsafe { read(description, "the description") }?;
            let tensor = Tensor::at(pointer as u64, description)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, TENSORS.add(Arc::new(tensor))) }
        })
    }

    /// Makes a tensor over memory that `wholememory_malloc` has made. A row of the tensor is a row
    /// of the memory. The caller closes both.
    ///
    /// * Errors: `INVALID_INPUT` for rows of another length, or more rows than the memory has.
    fn wholememory_make_tensor_from_handle(
        place: *mut TensorHandle, memory: MemoryHandle, description: *mut TensorDescription,
    ) -> ErrorCode {
        answer("wholememory_make_tensor_from_handle", || {
            is_place(place)?;
            // SAFETY: null is refused; the caller's word for the rest.
            let description = unsafe { read(description, "the description") }?;
            let tensor = Tensor::over(MEMORIES.get(memory)?, description)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, TENSORS.add(Arc::new(tensor))) }
        })
    }

    /// Returns whether a tensor is over memory of all ranks.
    ///
    /// * On failure: false.
    fn wholememory_tensor_has_handle(handle: TensorHandle) -> bool {
        value("wholememory_tensor_has_handle", false, || Ok(TENSORS.get(handle)?.memory().is_ok()))
    }

    /// Returns the memory of a tensor. It is closed with the tensor if it was made with it.
    ///
    /// * On failure: null, also for a tensor over memory of the caller's.
    fn wholememory_tensor_get_memory_handle(handle: TensorHandle) -> MemoryHandle {
        value("wholememory_tensor_get_memory_handle", null_mut(), || {
            Ok(TENSORS.get(handle)?.memory().map_or(null_mut(), |memory| MEMORIES.handle_of(memory)))
        })
    }

    /// Returns the tensor's description, at an address that is valid as long as the tensor. It must
    /// not be changed.
    ///
    /// * On failure: null.
    fn wholememory_tensor_get_tensor_description(handle: TensorHandle) -> *mut TensorDescription {
        value("wholememory_tensor_get_tensor_description", null_mut(), || {
            Ok(std::ptr::from_ref(TENSORS.get(handle)?.description()).cast_mut())
        })
    }

    /// Writes a value by which a kernel of the caller's finds a byte of the tensor's memory, as
    /// `wholememory_get_global_reference` does.
    ///
    /// * Errors: `INVALID_INPUT` for distributed and hierarchy memory.
    fn wholememory_tensor_get_global_reference(
        handle: TensorHandle, place: *mut GlobalReference,
    ) -> ErrorCode {
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

    /// Makes a tensor of this rank's rows, over their address in the memory. The caller closes it,
    /// before the memory.
    ///
    /// * Errors: `INVALID_INPUT` for a tensor over memory of the caller's, or a part that does not
    ///   begin with the first row.
    fn wholememory_tensor_map_local_tensor(
        handle: TensorHandle, place: *mut TensorHandle,
    ) -> ErrorCode {
        answer("wholememory_tensor_map_local_tensor", || {
            is_place(place)?;
            let part = TENSORS.get(handle)?.own_part()?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, TENSORS.add(Arc::new(part))) }
        })
    }

    /// Returns the address of a tensor's first element, if the memory has one address
    /// (`wholememory_get_global_pointer`).
    ///
    /// * On failure: null.
    fn wholememory_tensor_get_data_pointer(handle: TensorHandle) -> *mut c_void {
        value("wholememory_tensor_get_data_pointer", null_mut(), || {
            Ok(TENSORS.get(handle)?.address().map_or(null_mut(), |address| address as *mut c_void))
        })
    }

    /// Writes the number of the first row of each rank's part, and the number of all rows: an array
    /// of one number more than ranks.
    ///
    /// * Errors: `INVALID_INPUT` for a tensor over memory of the caller's.
    fn wholememory_tensor_get_entry_offsets(place: *mut usize, handle: TensorHandle) -> ErrorCode {
        answer("wholememory_tensor_get_entry_offsets", || {
            is_place(place)?;
            let tensor = TENSORS.get(handle)?;
            let starts = tensor.memory()?.partition().starts();
            // SAFETY: not null; the caller's word for the rest.
            starts.iter().enumerate().for_each(|(at, start)| unsafe { place.add(at).write(*start as usize) });
            Ok(())
        })
    }

    /// Writes the number of rows of each rank's part: an array of as many numbers as ranks.
    ///
    /// * Errors: `INVALID_INPUT` for a tensor over memory of the caller's.
    fn wholememory_tensor_get_entry_partition_sizes(
        place: *mut usize, handle: TensorHandle,
    ) -> ErrorCode {
        answer("wholememory_tensor_get_entry_partition_sizes", || {
            is_place(place)?;
            let tensor = TENSORS.get(handle)?;
            let partition = tensor.memory()?.partition();
            // SAFETY: not null; the caller's word for the rest.
            (0..partition.ranks()).for_each(|rank| unsafe { place.add(rank).write(partition.count(rank) as usize) });
            Ok(())
        })
    }

    /// Writes the number of rows of this rank's part.
    ///
    /// * Errors: `INVALID_INPUT` for a tensor over memory of the caller's.
    fn wholememory_tensor_get_local_entry_count(
        place: *mut usize, handle: TensorHandle,
    ) -> ErrorCode {
        answer("wholememory_tensor_get_local_entry_count", || {
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, TENSORS.get(handle)?.own_rows()?.1 as usize) }
        })
    }

    /// Writes the number of the first row of this rank's part.
    ///
    /// * Errors: `INVALID_INPUT` for a tensor over memory of the caller's.
    fn wholememory_tensor_get_local_entry_start(
        place: *mut usize, handle: TensorHandle,
    ) -> ErrorCode {
        answer("wholememory_tensor_get_local_entry_start", || {
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, TENSORS.get(handle)?.own_rows()?.0 as usize) }
        })
    }

    /// Makes a tensor of a part, from `starts` up to but without `ends`: arrays of a number for
    /// each dimension, where -1 is the beginning or the end. It is over the same memory; the caller
    /// closes it.
    ///
    /// * Errors: `INVALID_INPUT` for a part that is empty or not inside.
    fn wholememory_tensor_get_subtensor(
        handle: TensorHandle, starts: *mut i64, ends: *mut i64, place: *mut TensorHandle,
    ) -> ErrorCode {
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

    /// Returns the tensor of which a tensor is a part; the tensor itself if it is no part, or if
    /// its whole was closed.
    ///
    /// * On failure: null.
    fn wholememory_tensor_get_root(handle: TensorHandle) -> TensorHandle {
        value("wholememory_tensor_get_root", null_mut(), || {
            let tensor = TENSORS.get(handle)?;
            Ok(tensor.root().and_then(|root| TENSORS.find(root)).unwrap_or(handle))
        })
    }

    /// Returns how many tensors are open in this process.
    ///
    /// * On failure: it does not fail.
    fn get_wholememory_tensor_count() -> i64 {
        TENSORS.count() as i64
    }
}
