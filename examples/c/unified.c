// One pointer for the CPU and the GPU, in turn: wmshim_alloc and wmshim_access of wmshim.h.
//
//     gcc unified.c -I WMSHIM/include -o unified -l:libcuda.so.1
//     wmshim-run ./unified
//
// The functions of wmshim.h are weak: without wmshim they are null.
#include <stdio.h>
#include <stdlib.h>
#include <wmshim.h>

// As cuda.h declares them, so that the example needs no CUDA toolkit.
typedef unsigned long long CUdeviceptr;
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t count);

static void check(int code, const char *call) {
    if (code == 0)
        return;
    fprintf(stderr, "%s: CUDA error %d\n", call, code);
    exit(1);
}

// CUDA_ERROR_NOT_READY (600) after two seconds: the GPU still has work, and nothing has changed.
static void give(void *table, size_t bytes, unsigned processor, const char *name) {
    int code = 600;
    while (code == 600)
        code = wmshim_access(table, bytes, processor);
    check(code, name);
}

int main(void) {
    const size_t bytes = 64 << 20;
    void *context;
    unsigned *table;
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    if (!wmshim_access) {
        printf("without wmshim: no such memory\n");
        return 0;
    }
    check(wmshim_alloc((void **)&table, bytes, WMSHIM_UNIFIED), "wmshim_alloc");
    check(cuMemsetD32_v2((CUdeviceptr)table, 7, bytes / 4), "cuMemsetD32"); // the GPU writes
    give(table, bytes, WMSHIM_CPU, "wmshim_access(CPU)");
    printf("the CPU reads %u\n", table[bytes / 4 - 1]);
    table[0] += 1; // the CPU writes
    give(table, bytes, WMSHIM_GPU, "wmshim_access(GPU)");
    check(cuMemsetD32_v2((CUdeviceptr)(table + 1), 9, bytes / 4 - 1), "cuMemsetD32");
    give(table, bytes, WMSHIM_CPU, "wmshim_access(CPU)");
    printf("the first word is %u, the others are %u\n", table[0], table[1]);
    check(wmshim_free(table), "wmshim_free");
    return 0;
}
