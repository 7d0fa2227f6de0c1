/* One thread captures graphs in the global mode, two others allocate and free in streams of their
 * own; the first call that is refused ends the process with exit(3), while the other threads are
 * inside the driver. Bare, such a process may crash: the driver is taken down beside its calls.
 *
 *   gcc -O1 -D_GNU_SOURCE -pthread -o exit_at_refusal tests/workloads/exit_at_refusal.c -L/usr/local/nvidia/lib64 -l:libcuda.so.1
 *   for i in $(seq 40); do ./exit_at_refusal $i PLAIN $((i % 7 * 3)); echo $?; done | sort | uniq -c
 *
 * Arguments: seed; PLAIN 1: half of the allocations by cuMemAlloc, 0: all in stream order;
 * milliseconds before the first capture. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef unsigned long long CUdeviceptr;
typedef void *CUstream, *CUcontext, *CUgraph, *CUgraphExec;

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(CUcontext *, int);
int cuCtxSetCurrent(CUcontext);
int cuStreamCreate(CUstream *, unsigned);
int cuStreamSynchronize(CUstream);
int cuStreamBeginCapture_v2(CUstream, int);
int cuStreamEndCapture(CUstream, CUgraph *);
int cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
int cuGraphLaunch(CUgraphExec, CUstream);
int cuGraphExecDestroy(CUgraphExec);
int cuGraphDestroy(CUgraph);
int cuMemAlloc_v2(CUdeviceptr *, size_t);
int cuMemFree_v2(CUdeviceptr);
int cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
int cuMemFreeAsync(CUdeviceptr, CUstream);
int cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream);

static CUcontext context;
static int plain;

static void must(int code, const char *call)
{
    if (code) {
        fprintf(stderr, "%s = %d\n", call, code);
        exit(3);
    }
}

static void *allocate(void *argument)
{
    unsigned seed = (unsigned)(size_t)argument;
    CUstream stream;
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    must(cuStreamCreate(&stream, 1), "cuStreamCreate");
    for (;;) {
        CUdeviceptr block = 0;
        size_t bytes = (size_t)(1 + rand_r(&seed) % 64) << 20;
        if (plain && rand_r(&seed) % 2) {
            must(cuMemAlloc_v2(&block, bytes), "cuMemAlloc");
            must(cuMemsetD8Async(block, 1, bytes, stream), "cuMemsetD8Async");
            must(cuMemFree_v2(block), "cuMemFree");
        } else {
            must(cuMemAllocAsync(&block, bytes, stream), "cuMemAllocAsync");
            must(cuMemsetD8Async(block, 1, bytes, stream), "cuMemsetD8Async");
            must(cuMemFreeAsync(block, stream), "cuMemFreeAsync");
            if (rand_r(&seed) % 8 == 0)
                must(cuStreamSynchronize(stream), "cuStreamSynchronize");
        }
    }
    return NULL;
}

static void capture(CUstream stream, CUdeviceptr block, size_t bytes)
{
    CUgraph graph = NULL;
    CUgraphExec ready = NULL;
    must(cuStreamBeginCapture_v2(stream, 0), "cuStreamBeginCapture");
    for (int i = 0; i < 5; i++)
        must(cuMemsetD8Async(block, i, bytes, stream), "a captured cuMemsetD8Async");
    must(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    must(cuGraphInstantiateWithFlags(&ready, graph, 0), "cuGraphInstantiateWithFlags");
    must(cuGraphLaunch(ready, stream), "cuGraphLaunch");
    must(cuStreamSynchronize(stream), "cuStreamSynchronize");
    must(cuGraphExecDestroy(ready), "cuGraphExecDestroy");
    must(cuGraphDestroy(graph), "cuGraphDestroy");
}

int main(int count, char **arguments)
{
    if (count < 4)
        return 2;
    size_t seed = strtoul(arguments[1], NULL, 10), bytes = 1 << 20;
    plain = atoi(arguments[2]);
    CUstream stream;
    CUdeviceptr block;
    must(cuInit(0), "cuInit");
    must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    must(cuStreamCreate(&stream, 1), "cuStreamCreate");
    must(cuMemAlloc_v2(&block, bytes), "cuMemAlloc");
    pthread_t thread;
    for (size_t i = 1; i <= 2; i++)
        pthread_create(&thread, NULL, allocate, (void *)(seed * 2 + i));
    usleep(atoi(arguments[3]) * 1000);
    for (int i = 0; i < 200; i++)
        capture(stream, block, bytes);
    return 0;
}
