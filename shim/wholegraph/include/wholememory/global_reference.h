/*
 * global_reference.h: how a kernel of the caller's finds a byte of WholeMemory. device_reference.cuh does it.
 */
#ifndef WHOLEMEMORY_GLOBAL_REFERENCE_H
#define WHOLEMEMORY_GLOBAL_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

/* A default argument, which C++ has and C has not. */
#ifdef __cplusplus
#define WHOLEMEMORY_DEFAULT(value) = value
#else
#define WHOLEMEMORY_DEFAULT(value)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of all ranks, as kernels find it. Sizes and offsets are in bytes. */
typedef struct wholememory_gref_t {
  void* pointer;               /* The bytes if stride is 0; else an array, on the GPU, of the address of each rank's part. */
  size_t* rank_memory_offsets; /* An array, on the GPU, of the bytes before each rank's part, and of all. */
  int world_size;              /* How many ranks there are. */
  size_t stride;               /* 0 for one address; else the bytes of each part but the last. */
  bool same_chunk;             /* All parts but the last are as long: byte b is in part b / stride. */
} wholememory_gref_t;

/* The same of a build with NVSHMEM, which this library is not. */
typedef struct wholememory_nvshmem_ref_t {
  void* pointer;
  size_t* rank_memory_offsets;
  size_t stride;
  int world_rank;
  int world_size;
  bool same_chunk;
} wholememory_nvshmem_ref_t;

/* NVRTC compiles for GPUs alone. */
#ifndef __CUDACC_RTC__

/* Functions: written by `cargo xtask wholememory` from shim/wholememory/src/capi. Do not edit. */

/* Returns a reference to memory at one address, for kernels that take a `wholememory_gref_t`. */
wholememory_gref_t wholememory_create_continuous_global_reference(void* pointer);

/* End of the functions. */

#endif

#ifdef __cplusplus
}
#endif

#endif
