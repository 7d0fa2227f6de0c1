/*
 * wholememory_tensor.h: tensors, which are shapes over memory of all ranks or of the caller's.
 */
#ifndef WHOLEMEMORY_WHOLEMEMORY_TENSOR_H
#define WHOLEMEMORY_WHOLEMEMORY_TENSOR_H

#include <wholememory/tensor_description.h>
#include <wholememory/wholememory.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A shape over memory. */
typedef struct wholememory_tensor_* wholememory_tensor_t;

/* get_wholememory_tensor_count is there. */
#define WM_TENSOR_COUNT_DEBUG

/* Functions: written by `cargo xtask wholememory` from shim/wholememory/src/capi. Do not edit. */

/* Makes a tensor with memory of its own. The description has one dimension of stride 1, or two whose last stride
 * is 1 and whose first is at least as long as a row; its `storage_offset` is 0. Rows are the entries of
 * `entry_partition`, an array of as many numbers as ranks, or null for equal parts. Collective. */
wholememory_error_code_t wholememory_create_tensor(
    wholememory_tensor_t* place, wholememory_tensor_description_t* description,
    wholememory_comm_t comm, wholememory_memory_type_t memory_type,
    wholememory_memory_location_t location, size_t* entry_partition WHOLEMEMORY_DEFAULT(NULL));

/* Closes a tensor, and its memory if it was made with it. The memory lives on as long as parts of the tensor
 * need it. */
wholememory_error_code_t wholememory_destroy_tensor(wholememory_tensor_t handle);

/* Makes a tensor over memory of the caller's, which must live as long as the tensor. `pointer` may be null for a
 * tensor without elements. */
wholememory_error_code_t wholememory_make_tensor_from_pointer(
    wholememory_tensor_t* place, void* pointer, wholememory_tensor_description_t* description);

/* Makes a tensor over memory that `wholememory_malloc` has made. A row of the tensor is a row of the memory. The
 * caller closes both. */
wholememory_error_code_t wholememory_make_tensor_from_handle(
    wholememory_tensor_t* place, wholememory_handle_t memory,
    wholememory_tensor_description_t* description);

/* Returns whether a tensor is over memory of all ranks. */
bool wholememory_tensor_has_handle(wholememory_tensor_t handle);

/* Returns the memory of a tensor. It is closed with the tensor if it was made with it. */
wholememory_handle_t wholememory_tensor_get_memory_handle(wholememory_tensor_t handle);

/* Returns the tensor's description, at an address that is valid as long as the tensor. It must not be changed. */
wholememory_tensor_description_t* wholememory_tensor_get_tensor_description(
    wholememory_tensor_t handle);

/* Writes a value by which a kernel of the caller's finds a byte of the tensor's memory, as
 * `wholememory_get_global_reference` does. */
wholememory_error_code_t wholememory_tensor_get_global_reference(
    wholememory_tensor_t handle, wholememory_gref_t* place);

/* Makes a tensor of this rank's rows, over their address in the memory. The caller closes it, before the memory. */
wholememory_error_code_t wholememory_tensor_map_local_tensor(
    wholememory_tensor_t handle, wholememory_tensor_t* place);

/* Returns the address of a tensor's first element, if the memory has one address
 * (`wholememory_get_global_pointer`). */
void* wholememory_tensor_get_data_pointer(wholememory_tensor_t handle);

/* Writes the number of the first row of each rank's part, and the number of all rows: an array of one number
 * more than ranks. */
wholememory_error_code_t wholememory_tensor_get_entry_offsets(
    size_t* place, wholememory_tensor_t handle);

/* Writes the number of rows of each rank's part: an array of as many numbers as ranks. */
wholememory_error_code_t wholememory_tensor_get_entry_partition_sizes(
    size_t* place, wholememory_tensor_t handle);

/* Writes the number of rows of this rank's part. */
wholememory_error_code_t wholememory_tensor_get_local_entry_count(
    size_t* place, wholememory_tensor_t handle);

/* Writes the number of the first row of this rank's part. */
wholememory_error_code_t wholememory_tensor_get_local_entry_start(
    size_t* place, wholememory_tensor_t handle);

/* Makes a tensor of a part, from `starts` up to but without `ends`: arrays of a number for each dimension, where
 * -1 is the beginning or the end. It is over the same memory; the caller closes it. */
wholememory_error_code_t wholememory_tensor_get_subtensor(
    wholememory_tensor_t handle, int64_t* starts, int64_t* ends, wholememory_tensor_t* place);

/* Returns the tensor of which a tensor is a part; the tensor itself if it is no part, or if its whole was
 * closed. */
wholememory_tensor_t wholememory_tensor_get_root(wholememory_tensor_t handle);

/* Returns how many tensors are open in this process. */
int64_t get_wholememory_tensor_count(void);

/* End of the functions. */

#ifdef __cplusplus
}
#endif

#endif
