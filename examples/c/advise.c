// Allocates a block, sends it to the host, and asks for it back: wmshim_advise of wmshim.h.
//
//     gcc advise.c -I WMSHIM/include -o advise -l:libcuda.so.1
//     WMSHIM_MIGRATE=on wmshim-run ./advise
//
// The functions of wmshim.h are weak: without wmshim they are null, and the program still runs.
#include <stdio.h>
#include <stdlib.h>
#include <wmshim.h>

// As cuda.h declares them, so that the example needs no CUDA toolkit.
typedef unsigned long long CUdeviceptr;
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
int cuMemFree_v2(CUdeviceptr address);
int cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t count);
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);

static void check(int code, const char *call) {
    if (code == 0)
        return;
    fprintf(stderr, "%s: CUDA error %d\n", call, code);
    exit(1);
}

// Advice never waits: while the GPU has work, the answer is CUDA_ERROR_NOT_READY (600).
static void advise(CUdeviceptr block, size_t bytes, int advice, const char *name) {
    int code = 600;
    for (int attempt = 0; attempt < 100 && code == 600; attempt++) {
        check(cuCtxSynchronize(), "cuCtxSynchronize");
        code = wmshim_advise((void *)block, bytes, advice);
    }
    check(code, name);
}

int main(void) {
    const size_t bytes = 64 << 20;
    void *context;
    CUdeviceptr weights;
    unsigned word = 0;
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuMemAlloc_v2(&weights, bytes), "cuMemAlloc");
    check(cuMemsetD32_v2(weights, 7, bytes / 4), "cuMemsetD32");
    if (!wmshim_advise) {
        printf("without wmshim: no advice\n");
    } else {
        advise(weights, bytes, WMSHIM_COLD, "wmshim_advise(COLD)");
        printf("on the host, at the same address\n");
        advise(weights, bytes, WMSHIM_PREFETCH, "wmshim_advise(PREFETCH)");
        printf("on the device again\n");
    }
    check(cuMemcpyDtoH_v2(&word, weights + bytes - 4, 4), "cuMemcpyDtoH");
    check(cuMemFree_v2(weights), "cuMemFree");
    printf("the last word is %u\n", word);
    return word == 7 ? 0 : 1;
}
