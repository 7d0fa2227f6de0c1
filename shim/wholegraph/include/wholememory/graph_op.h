/*
 * graph_op.h: operations on graphs of one GPU.
 */
#ifndef WHOLEMEMORY_GRAPH_OP_H
#define WHOLEMEMORY_GRAPH_OP_H

#include <wholememory/env_func_ptrs.h>
#include <wholememory/wholememory.h>
#include <wholememory/wholememory_tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions: written by `cargo xtask wholememory` from shim/wholememory/src/capi. Do not edit. */

/* Lists each node once: first `targets`, which are distinct, then the `neighbors` that are no target. Both are
 * arrays of one type, `INT` or `INT64`. The context `list` gets the nodes. `mapping`, an array of `INT` as long
 * as `neighbors`, gets the place of each neighbour in the list; it may be null. */
wholememory_error_code_t graph_append_unique(
    wholememory_tensor_t targets, wholememory_tensor_t neighbors, void* list,
    wholememory_tensor_t mapping, wholememory_env_func_t* functions, void* stream);

/* Writes a graph with an edge from each node to itself before its other edges. All arrays are of `INT`.
 * `output_row_ptr` is as long as `row_ptr`, and `output_col` is one longer than `col` for each node. */
wholememory_error_code_t csr_add_self_loop(
    wholememory_tensor_t row_ptr, wholememory_tensor_t col, wholememory_tensor_t output_row_ptr,
    wholememory_tensor_t output_col, void* stream);

/* End of the functions. */

#ifdef __cplusplus
}
#endif

#endif
