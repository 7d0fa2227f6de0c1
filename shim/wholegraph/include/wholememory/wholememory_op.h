/*
 * wholememory_op.h: rows of a tensor by their numbers.
 */
#ifndef WHOLEMEMORY_WHOLEMEMORY_OP_H
#define WHOLEMEMORY_WHOLEMEMORY_OP_H

#include <wholememory/env_func_ptrs.h>
#include <wholememory/wholememory.h>
#include <wholememory/wholememory_tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions: written by `cargo xtask wholememory` from shim/wholememory/src/capi. Do not edit. */

/* Copies rows `indices[i]` of `table` to rows `i` of `output`. `indices` is an array of `INT` or `INT64`,
 * `output` a matrix of as many rows as numbers and as many columns as the table has; both are in memory that the
 * GPU reaches. A number that is negative or beyond the table is skipped: its row of `output` stays. Types may
 * differ within a family: floating-point numbers, or integers. */
wholememory_error_code_t wholememory_gather(
    wholememory_tensor_t table, wholememory_tensor_t indices, wholememory_tensor_t output,
    wholememory_env_func_t* functions, void* stream, int gather_sms WHOLEMEMORY_DEFAULT(-1));

/* Copies rows `i` of `input` to rows `indices[i]` of `table`. Shapes, types and memory are as of
 * `wholememory_gather`. If a number is repeated, one of its rows is written. */
wholememory_error_code_t wholememory_scatter(
    wholememory_tensor_t input, wholememory_tensor_t indices, wholememory_tensor_t table,
    wholememory_env_func_t* functions, void* stream, int scatter_sms WHOLEMEMORY_DEFAULT(-1));

/* Tests the caller's functions and stream: row i of each output is `input`, an array, plus i. `output_fixed` is
 * a matrix of `output_rows` rows; the outputs of the three contexts have the same shape, on the GPU, pinned and
 * in the host. An output whose context is null is left out. */
wholememory_error_code_t wholememory_env_test_op(
    wholememory_tensor_t input, wholememory_tensor_t output_fixed, void* output_device,
    void* output_pinned, void* output_host, int64_t output_rows, wholememory_env_func_t* functions,
    void* stream);

/* End of the functions. */

#ifdef __cplusplus
}
#endif

#endif
