/* Memory of two GPUs for one thread: one call makes it and one frees it, and each GPU reads and
 * writes all of it.
 *
 *     gcc one_thread.c -I INCLUDE -L FOLDER -L $(wmctl paths --dropin) -o one_thread \
 *         -l:libwholegraph.so -l:libcuda.so.1
 *     LD_LIBRARY_PATH=FOLDER ./one_thread
 *     LD_LIBRARY_PATH=FOLDER WMSHIM_DRIVER=sim SIMCUDA_DEVICES=2 wmshim-run -q ./one_thread
 *
 * FOLDER has libwholegraph.so: dist/wholegraph, or the folder of
 * `wmshim.wholememory.library_path()`.
 */
#include <stdlib.h>
#include <wholememory/wmshim_process.h>

enum { GPUS = 2 };

// As cuda.h declares them, so that the example needs no CUDA toolkit.
typedef unsigned long long CUdeviceptr;
int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);

static void check(int code, const char *call) {
    if (code == 0)
        return;
    fprintf(stderr, "%s: code %d: %s\n", call, code, wholememory_get_last_error_message());
    exit(1);
}

// Makes a GPU current, as cudaSetDevice does.
static void use(int device) {
    void *context;
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

int main(void) {
    const size_t bytes = 64 << 20;
    wholememory_comm_t ranks[GPUS];
    wholememory_handle_t memory[GPUS];
    check(wmshim_wholememory_create_communicators(ranks, NULL, GPUS), "communicators");
    check(wmshim_wholememory_malloc(memory, bytes, ranks, GPUS, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_DEVICE, 512,
                                    NULL),
          "malloc");
    for (int gpu = 0; gpu < GPUS; gpu++) {
        // One range of addresses, whose first half is on GPU 0 and whose second half on GPU 1.
        void *all, *own;
        size_t size, offset;
        int written = 40 + gpu, read = 0;
        check(wholememory_get_global_pointer(&all, memory[gpu]), "global pointer");
        check(wholememory_get_local_memory(&own, &size, &offset, memory[gpu]), "own part");
        use(gpu);
        // Into the other GPU's part, and back.
        CUdeviceptr place = (CUdeviceptr)all + (offset + size) % bytes;
        check(cuMemcpyHtoD_v2(place, &written, sizeof written), "cuMemcpyHtoD");
        check(wmshim_wholememory_synchronize(ranks, GPUS), "synchronize");
        check(cuMemcpyDtoH_v2(&read, place, sizeof read), "cuMemcpyDtoH");
        printf("GPU %d has %zu MiB from byte %zu on, and reads %d\n", gpu, size >> 20, offset, read);
    }
    check(wmshim_wholememory_free(memory, GPUS), "free");
    for (int gpu = 0; gpu < GPUS; gpu++)
        check(wholememory_destroy_communicator(ranks[gpu]), "close");
    return 0;
}
