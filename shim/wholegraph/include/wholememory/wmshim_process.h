/*
 * wmshim_process.h: memory of several GPUs for one thread. libwholegraph does not have these functions.
 *
 *     wholememory_comm_t ranks[2];
 *     wholememory_handle_t memory[2];
 *     wmshim_wholememory_create_communicators(ranks, NULL, 2);                 // devices 0 and 1
 *     wmshim_wholememory_malloc(memory, bytes, ranks, 2, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_DEVICE, 512, NULL);
 *     ...                                                                      // memory[i]: as device i sees it
 *     wmshim_wholememory_free(memory, 2);
 */
#ifndef WHOLEMEMORY_WMSHIM_PROCESS_H
#define WHOLEMEMORY_WMSHIM_PROCESS_H

#include <wholememory/wholememory.h>
#include <wholememory/wholememory_tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions: written by `cargo xtask wholememory` from shim/wholememory/src/capi. Do not edit. */

/* Makes a communicator whose ranks are all in this process: rank i has device `devices[i]`, and `place` is an
 * array for `count` handles. A device may be that of several ranks. Without `devices`, rank i has device i. Each
 * handle is used and closed as any other, and operations that are not collective may be called for any rank by
 * any thread, such as `wholememory_gather`. The thread's current context stays. */
wholememory_error_code_t wmshim_wholememory_create_communicators(
    wholememory_comm_t* place, const int* devices, int count);

/* Makes memory of all ranks, as `wholememory_malloc` does. `comms` are all ranks of a communicator in order, and
 * `place` is an array for `count` handles: rank i sees the memory by handle i. */
wholememory_error_code_t wmshim_wholememory_malloc(
    wholememory_handle_t* place, size_t total_size, const wholememory_comm_t* comms, int count,
    wholememory_memory_type_t memory_type, wholememory_memory_location_t location,
    size_t granularity, const size_t* rank_entry_partition WHOLEMEMORY_DEFAULT(NULL));

/* Closes memory at all ranks: the handles that `wmshim_wholememory_malloc` has written. All of them are closed,
 * also after an error. */
wholememory_error_code_t wmshim_wholememory_free(const wholememory_handle_t* handles, int count);

/* Makes a tensor with memory of its own, as `wholememory_create_tensor` does. `comms` are all ranks of a
 * communicator in order, and `place` is an array for `count` handles, each of which `wholememory_destroy_tensor`
 * closes. */
wholememory_error_code_t wmshim_wholememory_create_tensors(
    wholememory_tensor_t* place, const wholememory_tensor_description_t* description,
    const wholememory_comm_t* comms, int count, wholememory_memory_type_t memory_type,
    wholememory_memory_location_t location,
    const size_t* entry_partition WHOLEMEMORY_DEFAULT(NULL));

/* Waits for all work in the contexts of these ranks' GPUs, so that each GPU sees the rows that the others have
 * written. */
wholememory_error_code_t wmshim_wholememory_synchronize(const wholememory_comm_t* comms, int count);

/* End of the functions. */

#ifdef __cplusplus
}
#endif

#endif
