/*
 * env_func_ptrs.h: the caller's functions for memory that an operation needs or returns.
 */
#ifndef WHOLEMEMORY_ENV_FUNC_PTRS_H
#define WHOLEMEMORY_ENV_FUNC_PTRS_H

/* Programs count on CUDA's runtime here. It is not needed. */
#ifdef __has_include
#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#endif
#endif

#include <wholememory/tensor_description.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A device's properties, as CUDA 13's runtime has them. */
struct cudaDeviceProp;

/* Where a function allocates. */
typedef enum wholememory_memory_allocation_type_t {
  WHOLEMEMORY_MA_NONE = 0,
  WHOLEMEMORY_MA_DEVICE = 1, /* on the GPU */
  WHOLEMEMORY_MA_HOST = 2,   /* in the host */
  WHOLEMEMORY_MA_PINNED = 3  /* in the host, pinned */
} wholememory_memory_allocation_type_t;

/* Writes a new context, for one allocation. `global_context` is that of the functions, in all of them. */
typedef void (*wholememory_create_memory_context_func_t)(void** memory_context, void* global_context);

/* Ends a context. */
typedef void (*wholememory_destroy_memory_context_func_t)(void* memory_context, void* global_context);

/* Allocates the elements of a shape for a context; returns their address, or null. */
typedef void* (*wholememory_malloc_func_t)(wholememory_tensor_description_t* desc,
                                           wholememory_memory_allocation_type_t memory_allocation_type,
                                           void* memory_context,
                                           void* global_context);

/* Frees the context's allocation, behind the work in the caller's stream that uses it. */
typedef void (*wholememory_free_func_t)(void* memory_context, void* global_context);

/* Functions for memory that an operation needs until it ends. */
typedef struct wholememory_temp_memory_func_t {
  wholememory_create_memory_context_func_t create_memory_context_fn;
  wholememory_destroy_memory_context_func_t destroy_memory_context_fn;
  wholememory_malloc_func_t malloc_fn;
  wholememory_free_func_t free_fn;
  void* global_context;
} wholememory_temp_memory_func_t;

/* Functions for memory that an operation returns. The contexts are the caller's, an argument of the operation. */
typedef struct wholememory_output_memory_func_t {
  wholememory_malloc_func_t malloc_fn;
  wholememory_free_func_t free_fn;
  void* global_context;
} wholememory_output_memory_func_t;

/* Both. */
typedef struct wholememory_env_func_t {
  wholememory_temp_memory_func_t temporary_fns;
  wholememory_output_memory_func_t output_fns;
} wholememory_env_func_t;

/* Functions: written by `cargo xtask wholememory` from shim/wholememory/src/capi. Do not edit. */

/* Returns the properties of a device, as CUDA 13's runtime describes them (`cudaDeviceProp`); -1 is the current
 * one. They live as long as the process. */
struct cudaDeviceProp* get_device_prop(int ordinal);

/* End of the functions. */

#ifdef __cplusplus
}
#endif

#endif
