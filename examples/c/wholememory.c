/* A table of which two ranks, threads of this process, have half of the rows each. Every rank
 * reads any row by its number.
 *
 *     gcc wholememory.c -I INCLUDE -L FOLDER -L $(wmctl paths --dropin) -o table \
 *         -l:libwholegraph.so -l:libcuda.so.1 -lpthread
 *     LD_LIBRARY_PATH=FOLDER ./table
 *     LD_LIBRARY_PATH=FOLDER WMSHIM_DRIVER=sim wmshim-run -q ./table     # without a GPU
 *
 * FOLDER has libwholegraph.so: dist/wholegraph, or the folder of
 * `wmshim.wholememory.library_path()`.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <wholememory/wholememory_op.h>

enum { RANKS = 2, ROWS = 1000, COLUMNS = 16, GATHERED = 3 };

// As cuda.h declares them, so that the example needs no CUDA toolkit.
typedef unsigned long long CUdeviceptr;
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
int cuMemFree_v2(CUdeviceptr address);
int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
int cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t count);

static wholememory_unique_id_t unique_id;

static void check(int code, const char *call) {
    if (code == 0)
        return;
    fprintf(stderr, "%s: code %d: %s\n", call, code, wholememory_get_last_error_message());
    exit(1);
}

// The shape of so many packed rows of floats.
static wholememory_tensor_description_t shape_of(int rows) {
    wholememory_tensor_description_t shape;
    wholememory_initialize_tensor_desc(&shape);
    shape.dim = 2;
    shape.sizes[0] = rows;
    shape.sizes[1] = shape.strides[0] = COLUMNS;
    shape.dtype = WHOLEMEMORY_DT_FLOAT;
    return shape;
}

// Each rank fills the rows that are its own with its number.
static void fill(wholememory_tensor_t table, int rank) {
    void *own;
    size_t bytes, offset;
    float number = (float)rank;
    unsigned word;
    memcpy(&word, &number, sizeof word);
    check(wholememory_get_local_memory(&own, &bytes, &offset, wholememory_tensor_get_memory_handle(table)), "own rows");
    check(cuMemsetD32_v2((CUdeviceptr)own, word, bytes / sizeof word), "cuMemsetD32");
}

// Copies rows by number, whichever rank has them, to the host.
static void gather(wholememory_tensor_t table, float rows[GATHERED][COLUMNS]) {
    const int64_t numbers[GATHERED] = {0, ROWS - 1, ROWS / 2 - 1};
    wholememory_tensor_description_t list, shape = shape_of(GATHERED);
    wholememory_tensor_t indices, output;
    CUdeviceptr listed, gathered;
    wholememory_initialize_tensor_desc(&list);
    list.dim = 1;
    list.sizes[0] = GATHERED;
    list.dtype = WHOLEMEMORY_DT_INT64;
    check(cuMemAlloc_v2(&listed, sizeof numbers), "cuMemAlloc");
    check(cuMemAlloc_v2(&gathered, sizeof(float) * GATHERED * COLUMNS), "cuMemAlloc");
    check(cuMemcpyHtoD_v2(listed, numbers, sizeof numbers), "cuMemcpyHtoD");
    check(wholememory_make_tensor_from_pointer(&indices, (void *)listed, &list), "indices");
    check(wholememory_make_tensor_from_pointer(&output, (void *)gathered, &shape), "output");
    check(wholememory_gather(table, indices, output, NULL, NULL, -1), "gather");
    check(cuMemcpyDtoH_v2(rows, gathered, sizeof(float) * GATHERED * COLUMNS), "cuMemcpyDtoH");
    check(wholememory_destroy_tensor(indices), "close");
    check(wholememory_destroy_tensor(output), "close");
    check(cuMemFree_v2(listed), "cuMemFree");
    check(cuMemFree_v2(gathered), "cuMemFree");
}

static void *rank(void *number) {
    const int own = (int)(intptr_t)number;
    wholememory_tensor_description_t shape = shape_of(ROWS);
    float rows[GATHERED][COLUMNS];
    wholememory_comm_t comm;
    wholememory_tensor_t table;
    void *context;
    check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain"); // the rank's GPU
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(wholememory_create_communicator(&comm, unique_id, own, RANKS), "communicator"); // returns when all are there
    int code = wholememory_create_tensor(&table, &shape, comm, WHOLEMEMORY_MT_CHUNKED, WHOLEMEMORY_ML_DEVICE, NULL);
    check(code, "table");
    fill(table, own);
    check(wholememory_communicator_barrier(comm), "barrier"); // waits for the GPU and for all ranks
    gather(table, rows);
    if (own == 0)
        printf("rows 0, %d and %d are of ranks %g, %g and %g\n", ROWS - 1, ROWS / 2 - 1, rows[0][0], rows[1][0],
               rows[2][0]);
    check(wholememory_communicator_barrier(comm), "barrier"); // no rank takes its rows away before all have read
    check(wholememory_destroy_tensor(table), "close");
    check(wholememory_destroy_communicator(comm), "close");
    return NULL;
}

int main(void) {
    pthread_t ranks[RANKS];
    check(cuInit(0), "cuInit");
    check(wholememory_init(0, LEVEL_ERROR), "init");
    check(wholememory_create_unique_id(&unique_id), "unique id"); // processes tell it each other
    for (int i = 0; i < RANKS; i++)
        check(pthread_create(&ranks[i], NULL, rank, (void *)(intptr_t)i), "pthread_create");
    for (int i = 0; i < RANKS; i++)
        check(pthread_join(ranks[i], NULL), "pthread_join");
    return wholememory_finalize();
}
