/*
 * embedding.h: embeddings, which are tables that an optimizer trains, and their caches.
 */
#ifndef WHOLEMEMORY_EMBEDDING_H
#define WHOLEMEMORY_EMBEDDING_H

#include <wholememory/env_func_ptrs.h>
#include <wholememory/wholememory_tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which rows have copies on GPUs, and how many. */
typedef struct wholememory_embedding_cache_policy_* wholememory_embedding_cache_policy_t;

/* A rule by which gradients change rows. */
typedef struct wholememory_embedding_optimizer_* wholememory_embedding_optimizer_t;

/* A table with its cache and its optimizer's states. */
typedef struct wholememory_embedding_* wholememory_embedding_t;

/* The accesses that a cache is for. */
typedef enum wholememory_access_type_t {
  WHOLEMEMORY_AT_NONE = 0,
  WHOLEMEMORY_AT_READONLY = 1,
  WHOLEMEMORY_AT_READWRITE = 2
} wholememory_access_type_t;

/* Optimizers, which change the rows that have gradients. */
typedef enum wholememory_optimizer_type_t {
  WHOLEMEMORY_OPT_NONE = 0,
  WHOLEMEMORY_OPT_SGD = 1,
  WHOLEMEMORY_OPT_LAZY_ADAM = 2,
  WHOLEMEMORY_OPT_RMSPROP = 3,
  WHOLEMEMORY_OPT_ADAGRAD = 4
} wholememory_optimizer_type_t;

/* Functions: written by `cargo xtask wholememory` from shim/wholememory/src/capi. Do not edit. */

/* Makes an optimizer with its parameters at their defaults. It may train several embeddings. */
wholememory_error_code_t wholememory_create_embedding_optimizer(
    wholememory_embedding_optimizer_t* place, wholememory_optimizer_type_t optimizer_type);

/* Sets a parameter to the `float` at `number`. SGD has `weight_decay` (0). Lazy Adam has `weight_decay` (0),
 * `epsilon` (1e-8), `beta1` (0.9), `beta2` (0.999) and `adam_w` (0; above 0.5, the decay is AdamW's). RMSProp
 * has `weight_decay` (0), `epsilon` (1e-8) and `alpha` (0.99). Adagrad has `weight_decay` (0) and `epsilon`
 * (1e-8). */
wholememory_error_code_t wholememory_optimizer_set_parameter(
    wholememory_embedding_optimizer_t handle, const char* name, void* number);

/* Closes an optimizer. It lives on as long as an embedding uses it. */
void wholememory_destroy_embedding_optimizer(wholememory_embedding_optimizer_t handle);

/* Makes a policy for caches: `ratio` is the share of rows that may have copies, from 1/512 to 1. `comm` are the
 * ranks that share a cache, `memory_type` and `location` are those of the copies. */
wholememory_error_code_t wholememory_create_embedding_cache_policy(
    wholememory_embedding_cache_policy_t* place, wholememory_comm_t comm,
    wholememory_memory_type_t memory_type, wholememory_memory_location_t location,
    wholememory_access_type_t access, float ratio);

/* Closes a policy. It lives on as long as an embedding uses it. */
wholememory_error_code_t wholememory_destroy_embedding_cache_policy(
    wholememory_embedding_cache_policy_t handle);

/* Makes an embedding: a matrix whose rows are padded to 16 bytes. `policy` may be null. `entry_partition` is as
 * of `wholememory_create_tensor`; without it, `round_robin` n above 0 deals n rows after the other to the ranks.
 * `multiprocessors` bounds those that an operation uses; all are used below 1. Collective. */
wholememory_error_code_t wholememory_create_embedding(
    wholememory_embedding_t* place, wholememory_tensor_description_t* description,
    wholememory_comm_t comm, wholememory_memory_type_t memory_type,
    wholememory_memory_location_t location, wholememory_embedding_cache_policy_t policy,
    size_t* entry_partition WHOLEMEMORY_DEFAULT(NULL), int multiprocessors WHOLEMEMORY_DEFAULT(-1),
    int round_robin WHOLEMEMORY_DEFAULT(0));

/* Closes an embedding, its tensor and the optimizer's states. */
wholememory_error_code_t wholememory_destroy_embedding(wholememory_embedding_t handle);

/* Returns the rows, without their padding. They are closed with the embedding. With `round_robin`, they are in
 * the order of their places. */
wholememory_tensor_t wholememory_embedding_get_embedding_tensor(wholememory_embedding_t handle);

/* Copies rows as `wholememory_gather` does, from copies in the cache where they are. With `adjust_cache`, the
 * rows that are gathered most get copies, behind the gather and in the same stream. Types that differ are
 * converted from the table, past the cache. */
wholememory_error_code_t wholememory_embedding_gather(
    wholememory_embedding_t handle, wholememory_tensor_t indices, wholememory_tensor_t output,
    bool adjust_cache, wholememory_env_func_t* functions, int64_t stream);

/* Chooses the optimizer that trains the embedding, and makes its states. Collective. */
wholememory_error_code_t wholememory_embedding_set_optimizer(
    wholememory_embedding_t handle, wholememory_embedding_optimizer_t optimizer);

/* Makes a step of the optimizer with the gradients of all ranks. `indices` is an array of `INT` or `INT64`;
 * `gradients` is a matrix of as many rows as numbers and as many columns as the embedding, of `FLOAT`, `HALF` or
 * `BF16`. A rank without gradients calls with arrays of 0 rows. The gradients of a row are summed over all ranks
 * and repetitions, in 32 bits and in a fixed order, and its owner makes one step with rate `learning_rate`. A
 * number out of range is skipped. Rows without gradients do not change. Collective. */
wholememory_error_code_t wholememory_embedding_gather_gradient_apply(
    wholememory_embedding_t handle, wholememory_tensor_t indices, wholememory_tensor_t gradients,
    bool adjust_cache, float learning_rate, wholememory_env_func_t* functions, int64_t stream);

/* Returns the names of the optimizer's states, ended by null: none for SGD, `m`, `v` and `beta12t` for lazy
 * Adam, `v` for RMSProp, `state_sum` for Adagrad. The texts live as long as the process. */
const char* const* wholememory_embedding_get_optimizer_state_names(wholememory_embedding_t handle);

/* Returns a state by its name: a tensor of as many rows as the embedding, of `FLOAT`. It is closed with the
 * embedding. */
wholememory_tensor_t wholememory_embedding_get_optimizer_state(
    wholememory_embedding_t handle, const char* name);

/* Does nothing: rows are written before their copies. */
wholememory_error_code_t wholememory_embedding_writeback_cache(
    wholememory_embedding_t handle, int64_t stream);

/* Drops this rank's copies. The whole cache is empty when all ranks have made the call and have met. It is
 * needed after rows were written by `wholememory_scatter` or through an address. */
wholememory_error_code_t wholememory_embedding_drop_all_cache(
    wholememory_embedding_t handle, int64_t stream);

/* End of the functions. */

#ifdef __cplusplus
}
#endif

#endif
