/* One thread captures graphs while others make calls in streams of their own: captures MODE CALLS
 * COUNT.
 *
 * MODE is that of the captures: global, local or relaxed. The others' CALLS: async (allocate, set
 * and free in stream order), plain (cuMemAlloc, cuMemFree), or safe: calls that no capture forbids,
 * as sets of memory, events that are recorded and waited for by streams, and physical memory that
 * is made, mapped and released. Prints how many captures were invalidated, and how many of the
 * others' calls were refused. The program uses only handles that a successful call returned. */

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef unsigned long long CUmemGenericAllocationHandle;

typedef struct {
    int type, handles;
    CUmemLocation location;
    void *metadata;
    unsigned char flags[8];
} CUmemAllocationProp;

typedef struct {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes);
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes);
CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count);

enum { OTHERS = 2, NODES = 8, HELD = 6, PIECE = 2 << 20, NON_BLOCKING = 1 };

static CUcontext context;
static const char *calls;
static atomic_int over;
static atomic_long made, refused;

static int is_right(CUresult code)
{
    atomic_fetch_add(&made, 1);
    if (code != CUDA_SUCCESS)
        atomic_fetch_add(&refused, 1);
    return code == CUDA_SUCCESS;
}

/* Blocks of many sizes, some held for a while: not all are reused at once. */
static void allocate_and_free(int is_plain, CUstream stream, unsigned round)
{
    static _Thread_local CUdeviceptr held[HELD];
    CUdeviceptr *block = &held[round % HELD];
    size_t bytes = (size_t)(1 + round * 7919u % 13) << (16 + round % 6);
    if (*block)
        is_right(is_plain ? cuMemFree_v2(*block) : cuMemFreeAsync(*block, stream));
    *block = 0;
    if (!is_right(is_plain ? cuMemAlloc_v2(block, bytes) : cuMemAllocAsync(block, bytes, stream)))
        *block = 0;
    else
        is_right(cuMemsetD8Async(*block, 1, bytes, stream));
}

static void map_and_unmap(void)
{
    CUmemAllocationProp prop = {.type = 1, .location = {1, 0}};
    CUmemAccessDesc access = {{1, 0}, 3};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    if (!is_right(cuMemCreate(&handle, PIECE, &prop, 0)))
        return;
    if (is_right(cuMemAddressReserve(&address, PIECE, 0, 0, 0))) {
        if (is_right(cuMemMap(address, PIECE, 0, handle, 0))) {
            is_right(cuMemSetAccess(address, PIECE, &access, 1));
            is_right(cuMemUnmap(address, PIECE));
        }
        is_right(cuMemAddressFree(address, PIECE));
    }
    is_right(cuMemRelease(handle));
}

static void *other(void *number)
{
    CUstream stream;
    CUevent event;
    CUdeviceptr own;
    size_t available, total;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    MUST(cuEventCreate(&event, 2));
    MUST(cuMemAlloc_v2(&own, PIECE));
    atomic_fetch_sub(&over, 1);
    for (unsigned round = (unsigned)(size_t)number; atomic_load(&over) <= 0; round++) {
        if (strcmp(calls, "safe")) {
            allocate_and_free(!strcmp(calls, "plain"), stream, round);
            continue;
        }
        is_right(cuMemsetD8Async(own, 2, PIECE, stream));
        is_right(cuEventRecord(event, stream));
        is_right(cuStreamWaitEvent(stream, event, 0));
        is_right(cuMemGetInfo_v2(&available, &total));
        map_and_unmap();
    }
    return NULL;
}

/* Waits until the others have made some more calls, so that each capture overlaps some. */
static void await_calls(void)
{
    long before = atomic_load(&made);
    while (atomic_load(&made) < before + 2 * OTHERS)
        usleep(20);
}

/* Is the capture valid, and does its graph run? */
static int capture(int mode, CUstream stream, CUdeviceptr block)
{
    CUgraph graph = NULL;
    CUgraphExec exec;
    int whole = 1;
    MUST(cuStreamBeginCapture_v2(stream, mode));
    await_calls();
    for (int node = 0; node < NODES; node++)
        whole &= cuMemsetD8Async(block, (unsigned char)node, PIECE, stream) == CUDA_SUCCESS;
    await_calls();
    whole &= cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && graph;
    if (!whole) {
        if (graph)
            cuGraphDestroy(graph);
        return 0;
    }
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    return 1;
}

int main(int count, char **words)
{
    pthread_t threads[OTHERS];
    CUdeviceptr block;
    CUstream stream;
    int wanted = count > 3 ? atoi(words[3]) : 1, broken = 0;
    int mode = !strcmp(words[1], "global") ? 0 : !strcmp(words[1], "local") ? 1 : 2;
    calls = words[2];
    context = begin();
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    MUST(cuMemAlloc_v2(&block, PIECE));
    for (size_t i = 0; i < OTHERS; i++)
        pthread_create(&threads[i], NULL, other, (void *)i);
    while (atomic_load(&over) > -OTHERS)
        usleep(100);
    for (int i = 0; i < wanted; i++)
        broken += !capture(mode, stream, block);
    atomic_store(&over, 1);
    for (int i = 0; i < OTHERS; i++)
        pthread_join(threads[i], NULL);
    printf("captures %d broken %d calls %ld refused %ld\n", wanted, broken, atomic_load(&made), atomic_load(&refused));
    return 0;
}
