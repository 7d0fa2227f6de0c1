/*
 * wholegraph_op.h: samples of a graph's edges, and the random numbers by which they are drawn.
 */
#ifndef WHOLEMEMORY_WHOLEGRAPH_OP_H
#define WHOLEMEMORY_WHOLEGRAPH_OP_H

#include <wholememory/env_func_ptrs.h>
#include <wholememory/wholememory.h>
#include <wholememory/wholememory_tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions: written by `cargo xtask wholememory` from shim/wholememory/src/capi. Do not edit. */

/* Samples at most `max_sample_count` neighbours of each of `centers`, each as likely as the others; all of them
 * for a count below 1. The graph is in compressed sparse rows: `row_ptr` is an array of `INT64`, one longer than
 * there are nodes, and `col` an array of `INT` or `INT64`; both may be over memory of all ranks, or of the
 * caller's. `centers` is an array of `INT` or `INT64`. */
wholememory_error_code_t wholegraph_csr_unweighted_sample_without_replacement(
    wholememory_tensor_t row_ptr, wholememory_tensor_t col, wholememory_tensor_t centers,
    int max_sample_count, wholememory_tensor_t offsets, void* destinations, void* center_numbers,
    void* edges, unsigned long long seed, wholememory_env_func_t* functions, void* stream);

/* Samples neighbours by the weights of their edges. `weights` is an array of `FLOAT` or `DOUBLE`, as long as
 * `col`. All else is as of `wholegraph_csr_unweighted_sample_without_replacement`. If their memory spans
 * islands, the weights of all neighbours of each center that has more than `max_sample_count` are copied to
 * temporary memory: 12 bytes a weight of `FLOAT` and 16 of `DOUBLE`, and more while they are gathered. */
wholememory_error_code_t wholegraph_csr_weighted_sample_without_replacement(
    wholememory_tensor_t row_ptr, wholememory_tensor_t col, wholememory_tensor_t weights,
    wholememory_tensor_t centers, int max_sample_count, wholememory_tensor_t offsets,
    void* destinations, void* center_numbers, void* edges, unsigned long long seed,
    wholememory_env_func_t* functions, void* stream);

/* Writes integers that are not negative into `output`, an array of `INT` or `INT64` in memory of the host. They
 * are the numbers that sampling draws on the GPU for this seed and subsequence. */
wholememory_error_code_t generate_random_positive_int_cpu(
    int64_t random_seed, int64_t subsequence, wholememory_tensor_t output);

/* Writes keys of weighted sampling for edges of weight 1 into `output`, an array of `FLOAT` in memory of the
 * host: logarithms to base 2 of uniform numbers. */
wholememory_error_code_t generate_exponential_distribution_negative_float_cpu(
    int64_t random_seed, int64_t subsequence, wholememory_tensor_t output);

/* End of the functions. */

#ifdef __cplusplus
}
#endif

#endif
