/*
 * wholememory.h: the library, communicators, memory and files of WholeMemory.
 *
 * Programs in C and C++ link libwholegraph.so. docs/wholememory-c-api.md says all that a function does; the headers say
 * its first sentences. Names, types and values are those of libwholegraph, so that its programs compile and run with
 * either library.
 */
#ifndef WHOLEMEMORY_WHOLEMEMORY_H
#define WHOLEMEMORY_WHOLEMEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <wholememory/global_reference.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a call ended. */
typedef enum wholememory_error_code_t {
  WHOLEMEMORY_SUCCESS = 0,             /* The call did what it says. */
  WHOLEMEMORY_UNKNOW_ERROR = 1,        /* The library has a fault. */
  WHOLEMEMORY_NOT_IMPLEMENTED = 2,     /* The library does not have it. */
  WHOLEMEMORY_LOGIC_ERROR = 3,         /* The call came at a wrong time, or ranks make different calls. */
  WHOLEMEMORY_CUDA_ERROR = 4,          /* The driver refused a call, or work on the GPU failed. */
  WHOLEMEMORY_COMMUNICATION_ERROR = 5, /* A rank has ended, failed, or did not call in time. */
  WHOLEMEMORY_INVALID_INPUT = 6,       /* An argument does not fit, or a handle is not open. */
  WHOLEMEMORY_INVALID_VALUE = 7,       /* A number is out of its range. */
  WHOLEMEMORY_OUT_OF_MEMORY = 8,       /* There is no memory, on this rank or another. */
  WHOLEMEMORY_NOT_SUPPORTED = 9,       /* This machine, or this kind of memory, cannot do it. */
  WHOLEMEMORY_SYSTEM_ERROR = 10        /* The operating system refused a call. */
} wholememory_error_code_t;

/* Makes a call; prints its failure, and returns its code from the calling function. */
#define WHOLEMEMORY_RETURN_ON_FAIL(call)                                                     \
  do {                                                                                       \
    const wholememory_error_code_t wholememory_code = (call);                                \
    if (wholememory_code != WHOLEMEMORY_SUCCESS) {                                           \
      fprintf(stderr, "%s:%d: %s: code %d\n", __FILE__, __LINE__, #call, wholememory_code); \
      return wholememory_code;                                                               \
    }                                                                                        \
  } while (0)

/* How ranks reach each other's part of memory. */
typedef enum wholememory_memory_type_t {
  WHOLEMEMORY_MT_NONE = 0,
  WHOLEMEMORY_MT_CONTINUOUS = 1,  /* Each rank sees one range of addresses with all rows. */
  WHOLEMEMORY_MT_CHUNKED = 2,     /* Each rank sees a range of addresses for each rank's part. */
  WHOLEMEMORY_MT_DISTRIBUTED = 3, /* Each rank sees its own part; operations reach the others. */
  WHOLEMEMORY_MT_HIERARCHY = 4    /* The same, in two steps. */
} wholememory_memory_type_t;

/* Where memory is. */
typedef enum wholememory_memory_location_t {
  WHOLEMEMORY_ML_NONE = 0,
  WHOLEMEMORY_ML_DEVICE = 1, /* On the ranks' GPUs. */
  WHOLEMEMORY_ML_HOST = 2    /* In pinned memory of the host. */
} wholememory_memory_location_t;

/* The transport of operations between machines. */
typedef enum wholememory_distributed_backend_t {
  WHOLEMEMORY_DB_NONE = 0,
  WHOLEMEMORY_DB_NCCL = 1,
  WHOLEMEMORY_DB_NVSHMEM = 2 /* Not built in. */
} wholememory_distributed_backend_t;

/* Which messages go to standard error. */
typedef enum LogLevel {
  LEVEL_FATAL = 0,
  LEVEL_ERROR = 1,
  LEVEL_WARN = 2,
  LEVEL_INFO = 3,
  LEVEL_DEBUG = 4,
  LEVEL_TRACE = 5
} LogLevel;

/* The color of a rank that is in no part of a split. */
#define WHOLEMEMORY_SPILT_NO_COLOR -1

/* Bytes of a unique id. */
#define WHOLEMEMORY_UNIQUE_ID_BYTES (128)

/* The ranks that make memory together. */
typedef struct wholememory_comm_* wholememory_comm_t;

/* Memory of all ranks. */
typedef struct wholememory_handle_* wholememory_handle_t;

/* Ranks whose GPUs are one NVLink domain over several machines; numbers are of ranks and of cliques. */
typedef struct clique_info_t {
  int is_in_clique;
  int clique_first_rank;
  int clique_rank;
  int clique_rank_num;
  int clique_id;
  int clique_num;
} clique_info_t;

/* What the ranks of a communicator have in common before they meet. */
typedef struct wholememory_unique_id_t {
  char internal[WHOLEMEMORY_UNIQUE_ID_BYTES];
} wholememory_unique_id_t;

/* Functions: written by `cargo xtask wholememory` from shim/wholememory/src/capi. Do not edit. */

/* Begins the use of the library. Reasons for errors go to standard error, a line each, from `LEVEL_WARN` on. */
wholememory_error_code_t wholememory_init(
    unsigned int flags, LogLevel level WHOLEMEMORY_DEFAULT(LEVEL_INFO));

/* Closes all handles of this process. Memory ends as `wholememory_free` says. */
wholememory_error_code_t wholememory_finalize(void);

/* Keeps a choice that has no effect: memory is the driver's, or the preloaded library's. */
wholememory_error_code_t wholememory_set_rmm_enabled(bool enabled);

/* Returns that choice. */
bool wholememory_is_rmm_enabled(void);

/* Writes a new unique id. One rank makes it and gives its bytes to the other ranks, before they create a
 * communicator. */
wholememory_error_code_t wholememory_create_unique_id(wholememory_unique_id_t* unique_id_place);

/* Meets the other ranks that have the same unique id, and makes a communicator. `rank` is from 0 to `size` - 1.
 * Ranks are processes or threads; the GPU of the calling thread's current context becomes the rank's, and
 * without a context that of device 0. Collective. */
wholememory_error_code_t wholememory_create_communicator(
    wholememory_comm_t* place, wholememory_unique_id_t id, int rank, int size);

/* Divides the ranks by color, and writes this rank's part. In a part, ranks are numbered by `key`, and by their
 * old number where keys are equal. `color` is not negative, or `WHOLEMEMORY_SPILT_NO_COLOR`: the result is null
 * then. Each rank keeps its GPU. Collective. */
wholememory_error_code_t wholememory_split_communicator(
    wholememory_comm_t* place, wholememory_comm_t handle, int color, int key);

/* Closes a communicator. It lives on as long as memory needs it. */
wholememory_error_code_t wholememory_destroy_communicator(wholememory_comm_t handle);

/* Says whether memory of a kind can be made: success, or the reason why not. Memory on GPUs, of any type, needs
 * peer access between the ranks' GPUs. */
wholememory_error_code_t wholememory_communicator_support_type_location(
    wholememory_comm_t handle, wholememory_memory_type_t memory_type,
    wholememory_memory_location_t location);

/* Writes the number of this rank, from 0 on. */
wholememory_error_code_t wholememory_communicator_get_rank(int* place, wholememory_comm_t handle);

/* Writes the number of ranks. */
wholememory_error_code_t wholememory_communicator_get_size(int* place, wholememory_comm_t handle);

/* Writes the number of ranks on this rank's machine. */
wholememory_error_code_t wholememory_communicator_get_local_size(
    int* place, wholememory_comm_t handle);

/* Writes zeros: ranks of one machine are in no clique of GPUs that spans machines. */
wholememory_error_code_t wholememory_communicator_get_clique_info(
    clique_info_t* place, wholememory_comm_t handle);

/* Returns false: NVSHMEM is not built in. */
bool wholememory_communicator_is_bind_to_nvshmem(wholememory_comm_t handle);

/* Chooses the transport of operations between machines. On one machine the choice has no effect. */
wholememory_error_code_t wholememory_communicator_set_distributed_backend(
    wholememory_comm_t handle, wholememory_distributed_backend_t backend);

/* Returns that choice. */
wholememory_distributed_backend_t wholememory_communicator_get_distributed_backend(
    wholememory_comm_t handle);

/* Waits for all work in the context of this rank's GPU, and for all ranks. Collective. */
wholememory_error_code_t wholememory_communicator_barrier(wholememory_comm_t handle);

/* Returns whether all ranks are on one machine. */
bool wholememory_is_intranode_communicator(wholememory_comm_t handle);

/* Returns false: ranks of one machine are in no clique. */
bool wholememory_is_intra_mnnvl_communicator(wholememory_comm_t handle);

/* Returns false. */
bool wholememory_is_build_with_nvshmem(void);

/* Returns how many devices this process sees. If the process has not begun with CUDA, a child process looks, so
 * this one may still fork. */
int fork_get_device_count(void);

/* Writes the number of rows of each rank but the last ones, if `rows` rows are divided in equal parts: `rows` /
 * `ranks`, rounded up. */
wholememory_error_code_t wholememory_equal_entry_partition_plan(
    size_t* place, size_t rows, int ranks);

/* Returns why this thread's last call that failed did so, and an empty text before the first one. The text stays
 * until the thread's next call that fails. libwholegraph does not have this function. */
const char* wholememory_get_last_error_message(void);

/* Makes memory of all ranks: `total_size` bytes in all, in rows of `granularity` bytes. A rank's part has whole
 * rows, in equal parts (the last ones may have fewer rows, or none). With `rank_entry_partition`, an array of as
 * many numbers as ranks, a rank's part has the number of rows that it says. Memory in the host is pinned. The
 * bytes are undefined. Collective. */
wholememory_error_code_t wholememory_malloc(
    wholememory_handle_t* place, size_t total_size, wholememory_comm_t comm,
    wholememory_memory_type_t memory_type, wholememory_memory_location_t location,
    size_t granularity, size_t* rank_entry_partition WHOLEMEMORY_DEFAULT(NULL));

/* Closes memory. Each rank closes its own handle. A rank's part lives until the last rank that maps it has
 * closed it, or ended, and as long as a tensor uses it. */
wholememory_error_code_t wholememory_free(wholememory_handle_t handle);

/* Writes the communicator that the memory was made with. */
wholememory_error_code_t wholememory_get_communicator(
    wholememory_comm_t* place, wholememory_handle_t handle);

/* Writes, for hierarchy memory, the communicator of the ranks on this machine. It is closed with the memory. */
wholememory_error_code_t wholememory_get_local_communicator(
    wholememory_comm_t* place, wholememory_handle_t handle);

/* Writes, for hierarchy memory, the communicator of the ranks with this rank's number on every machine. It is
 * closed with the memory. */
wholememory_error_code_t wholememory_get_cross_communicator(
    wholememory_comm_t* place, wholememory_handle_t handle);

/* Returns the memory's type. */
wholememory_memory_type_t wholememory_get_memory_type(wholememory_handle_t handle);

/* Returns the memory's location. */
wholememory_memory_location_t wholememory_get_memory_location(wholememory_handle_t handle);

/* Returns the transport of operations on the memory between machines. */
wholememory_distributed_backend_t wholememory_get_distributed_backend(wholememory_handle_t handle);

/* Returns the bytes of all ranks' parts together. */
size_t wholememory_get_total_size(wholememory_handle_t handle);

/* Returns the bytes of a row. */
size_t wholememory_get_data_granularity(wholememory_handle_t handle);

/* Writes the address of this rank's part, its bytes, and the bytes of the parts before it. The rank's GPU may
 * use the address, and the host if the memory is in the host. */
wholememory_error_code_t wholememory_get_local_memory(
    void** pointer, size_t* bytes, size_t* offset, wholememory_handle_t handle);

/* Writes the bytes of this rank's part. */
wholememory_error_code_t wholememory_get_local_size(size_t* bytes, wholememory_handle_t handle);

/* Writes the bytes of the parts before this rank's. */
wholememory_error_code_t wholememory_get_local_offset(size_t* offset, wholememory_handle_t handle);

/* Writes, for a rank's part, the address at which this rank sees it, its bytes, and the bytes of the parts
 * before it. */
wholememory_error_code_t wholememory_get_rank_memory(
    void** pointer, size_t* bytes, size_t* offset, int rank, wholememory_handle_t handle);

/* Writes the address of all of the memory: of continuous memory, and of chunked memory in the host. */
wholememory_error_code_t wholememory_get_global_pointer(void** place, wholememory_handle_t handle);

/* Writes a value by which a kernel of the caller's finds a byte (`wholememory_gref_t`; `device_reference.cuh`
 * reads it). It is valid as long as the memory. */
wholememory_error_code_t wholememory_get_global_reference(
    wholememory_gref_t* place, wholememory_handle_t handle);

/* Writes the bytes of each rank's part: an array of as many numbers as ranks. */
wholememory_error_code_t wholememory_get_rank_partition_sizes(
    size_t* place, wholememory_handle_t handle);

/* Writes the bytes before each rank's part, and the bytes of all parts: an array of one number more than ranks. */
wholememory_error_code_t wholememory_get_rank_partition_offsets(
    size_t* place, wholememory_handle_t handle);

/* Is always refused: NVSHMEM is not built in. */
wholememory_error_code_t wholememory_get_nvshmem_reference(
    wholememory_nvshmem_ref_t* place, wholememory_handle_t handle);

/* Reads a list of files, one behind the other, into the memory. A file has packed entries of `file_entry_size`
 * bytes; each goes to the next `memory_entry_size` bytes of the memory, from byte `memory_offset` of them on.
 * With `round_robin_size` n above 0, chunk c of n entries goes to rank c modulo the number of ranks. Fewer
 * entries than the memory has are allowed; the rest keeps its bytes. Each rank reads the entries of its own
 * part. Collective. */
wholememory_error_code_t wholememory_load_from_file(
    wholememory_handle_t handle, size_t memory_offset, size_t memory_entry_size,
    size_t file_entry_size, const char** file_names, int file_count, int round_robin_size);

/* Writes this rank's part to a file, as packed entries of `file_entry_size` bytes: those from byte
 * `memory_offset` of each `memory_entry_stride` bytes. The file gets its name when all ranks have written theirs
 * to the disk, so a store that fails leaves the old files. Collective. */
wholememory_error_code_t wholememory_store_to_file(
    wholememory_handle_t handle, size_t memory_offset, size_t memory_entry_stride,
    size_t file_entry_size, const char* local_file_name);

/* Is always refused: files of HDFS are not read. */
wholememory_error_code_t wholememory_load_hdfs_support(void);

/* Is always refused: files of HDFS are not read. */
wholememory_error_code_t wholememory_load_from_hdfs_file(void);

/* End of the functions. */

#ifdef __cplusplus
}
#endif

#endif
