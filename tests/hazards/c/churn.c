/* Does one thing again and again, each time with streams, threads, pools, graphs or contexts that
 * end, and says how much it takes.
 *
 *   churn WAY ROUNDS BYTES [FLAGS]    FLAGS are those of the streams that it creates
 *
 * Unless said otherwise, a round creates a stream, allocates and frees a block there with work
 * between, and destroys the stream.
 *
 *   streams     without a wait
 *   query       cuStreamQuery says that the stream is empty, before the destroy
 *   copy        a synchronous copy of the block, before the free
 *   freecopy    the same of another block, after the free
 *   idle        the stream is empty by itself when it is destroyed
 *   sync        cuStreamSynchronize before the destroy
 *   event       cuEventQuery says that an event behind the free is complete
 *   eventsync   cuEventSynchronize for such an event
 *   join        another stream waits for such an event; the host waits for that stream in each tenth round
 *   context     cuCtxSynchronize in each hundredth round
 *   elsewhere   the block is freed in the legacy default stream
 *   lasting     32 streams in turn that are not destroyed: cuStreamQuery says that one is empty
 *   one         one stream that is never destroyed: cuStreamSynchronize
 *   held        as streams, beside 8 streams in which a block was freed behind a wait that does not end
 *   threads     no stream: a thread, which works in its own default stream and ends
 *   pools       no stream: a pool, which is destroyed
 *   graphs      no stream: a graph that allocates and frees, launched once
 *   contexts    no stream: a context, which is destroyed
 *   resets      no stream: the primary context is reset
 *   releases    no stream: the primary context is released, and retained again
 *
 * After 1, 2, 5, 9 and 10 tenths of the rounds it prints a line of JSON. */

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult cuEventQuery(CUevent event);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, unsigned value, unsigned flags);

enum { LASTING = 32, HELD = 8, NOT_READY = 600 };

static CUstream const legacy = (CUstream)1, own = (CUstream)2;
static size_t bytes;
static unsigned flags;
static CUstream other, lasting[LASTING];
static CUevent event;
static CUdeviceptr block;

static void work(CUdeviceptr address, CUstream stream)
{
    MUST(cuMemsetD8Async(address, 1, 64, stream));
}

static CUdeviceptr used_in(CUstream stream)
{
    CUdeviceptr address;
    MUST(cuMemAllocAsync(&address, bytes, stream));
    work(address, stream);
    return address;
}

static void pair_in(CUstream stream)
{
    MUST(cuMemFreeAsync(used_in(stream), stream));
}

static void until_empty(CUstream stream)
{
    CUresult result;
    while ((result = cuStreamQuery(stream)) == NOT_READY)
        sched_yield();
    MUST(result);
}

static void until_past(void)
{
    CUresult result;
    while ((result = cuEventQuery(event)) == NOT_READY)
        sched_yield();
    MUST(result);
}

static CUstream stream_of_round(void)
{
    CUstream stream;
    MUST(cuStreamCreate(&stream, flags));
    return stream;
}

static void streams(long round)
{
    CUstream stream = stream_of_round();
    (void)round;
    pair_in(stream);
    MUST(cuStreamDestroy_v2(stream));
}

static void query(long round)
{
    CUstream stream = stream_of_round();
    (void)round;
    pair_in(stream);
    until_empty(stream);
    MUST(cuStreamDestroy_v2(stream));
}

static void copy(long round)
{
    char byte;
    CUstream stream = stream_of_round();
    CUdeviceptr address = used_in(stream);
    (void)round;
    MUST(cuMemcpyDtoH_v2(&byte, address, 1));
    MUST(cuMemFreeAsync(address, stream));
    MUST(cuStreamDestroy_v2(stream));
}

static void freecopy(long round)
{
    char byte;
    CUstream stream = stream_of_round();
    (void)round;
    pair_in(stream);
    MUST(cuMemcpyDtoH_v2(&byte, block, 1));
    MUST(cuStreamDestroy_v2(stream));
}

static void idle(long round)
{
    CUstream stream = stream_of_round();
    (void)round;
    pair_in(stream);
    MUST(cuEventRecord(event, stream));
    until_past();
    MUST(cuStreamDestroy_v2(stream));
}

static void waited(long round)
{
    CUstream stream = stream_of_round();
    (void)round;
    pair_in(stream);
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamDestroy_v2(stream));
}

static void eventsync(long round)
{
    CUstream stream = stream_of_round();
    (void)round;
    pair_in(stream);
    MUST(cuEventRecord(event, stream));
    MUST(cuEventSynchronize(event));
    MUST(cuStreamDestroy_v2(stream));
}

static void join(long round)
{
    CUstream stream = stream_of_round();
    pair_in(stream);
    MUST(cuEventRecord(event, stream));
    MUST(cuStreamWaitEvent(other, event, 0));
    MUST(cuStreamDestroy_v2(stream));
    if (round % 10 == 0)
        MUST(cuStreamSynchronize(other));
}

static void context(long round)
{
    streams(round);
    if (round % 100 == 0)
        MUST(cuCtxSynchronize());
}

static void elsewhere(long round)
{
    CUstream stream = stream_of_round();
    CUdeviceptr address = used_in(stream);
    (void)round;
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemFreeAsync(address, legacy));
    MUST(cuStreamDestroy_v2(stream));
}

static void last(long round)
{
    pair_in(lasting[round % LASTING]);
    until_empty(lasting[round % LASTING]);
}

static void one(long round)
{
    (void)round;
    pair_in(other);
    MUST(cuStreamSynchronize(other));
}

static CUcontext shared;

static void *in_thread(void *argument)
{
    MUST(cuCtxSetCurrent(shared));
    pair_in(own);
    MUST(cuStreamSynchronize(own));
    return argument;
}

static void *unwaited(void *argument)
{
    MUST(cuCtxSetCurrent(shared));
    pair_in(own);
    return argument;
}

static void thread(void *(*function)(void *))
{
    pthread_t thread;
    pthread_create(&thread, NULL, function, NULL);
    pthread_join(thread, NULL);
}

static void threads(long round)
{
    (void)round;
    thread(unwaited);
}

static void waiting(long round)
{
    (void)round;
    thread(in_thread);
}

static void pools(long round)
{
    CUmemPoolProps properties = {.allocType = 1, .location = {1, 0}};
    CUmemoryPool pool;
    CUdeviceptr address;
    (void)round;
    MUST(cuMemPoolCreate(&pool, &properties));
    MUST(cuMemAllocFromPoolAsync(&address, bytes, pool, other));
    work(address, other);
    MUST(cuMemFreeAsync(address, other));
    MUST(cuMemPoolDestroy(pool));
    pair_in(other);
}

static void graphs(long round)
{
    CUgraph graph;
    CUgraphExec exec;
    (void)round;
    MUST(cuStreamBeginCapture_v2(other, 2));
    pair_in(other);
    MUST(cuStreamEndCapture(other, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, other));
    pair_in(other);
    MUST(cuStreamSynchronize(other));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

static void plain_pair(void)
{
    CUdeviceptr address;
    MUST(cuMemAlloc_v2(&address, bytes));
    MUST(cuMemsetD8_v2(address, 1, 64));
    MUST(cuMemFree_v2(address));
}

static void contexts(long round)
{
    CUcontext context;
    CUdeviceptr address;
    (void)round;
    MUST(cuCtxCreate_v2(&context, 0, 0));
    MUST(cuMemAlloc_v2(&address, bytes));
    pair_in(legacy);
    MUST(cuCtxDestroy_v2(context));
    MUST(cuCtxSetCurrent(shared));
}

static void resets(long round)
{
    (void)round;
    plain_pair();
    pair_in(legacy);
    MUST(cuDevicePrimaryCtxReset_v2(0));
    MUST(cuDevicePrimaryCtxRetain(&shared, 0));
    MUST(cuCtxSetCurrent(shared));
}

static void releases(long round)
{
    (void)round;
    plain_pair();
    pair_in(legacy);
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    MUST(cuDevicePrimaryCtxRetain(&shared, 0));
    MUST(cuCtxSetCurrent(shared));
}

static const struct {
    const char *name;
    void (*round)(long);
} ways[] = {
    {"streams", streams},     {"query", query},     {"copy", copy},           {"freecopy", freecopy}, {"idle", idle},
    {"sync", waited},          {"event", idle},      {"eventsync", eventsync}, {"join", join},         {"context", context},
    {"elsewhere", elsewhere}, {"lasting", last},    {"one", one},             {"held", streams},      {"threads", threads},
    {"waiting", waiting},     {"pools", pools},     {"graphs", graphs},       {"contexts", contexts}, {"resets", resets},
    {"releases", releases},
};

/* The process's own memory. Memory of the simulated device is a file's, and no part of it. */
static long resident(void)
{
    long kib = -1;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && kib < 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %ld kB", &kib) != 1)
            kib = -1;
    if (kib < 0)
        exit(84);
    fclose(file);
    return kib * 1024;
}

static void tell(void)
{
    char *(*say)(void) = (char *(*)(void))dlsym(RTLD_DEFAULT, "wmshim_stats_json");
    char *said = say ? say() : NULL;
    struct timespec now;
    size_t left, total;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    MUST(cuMemGetInfo_v2(&left, &total));
    printf("{\"resident\": %ld, \"cpu_ns\": %lld, \"used\": %zu, \"stats\": %s}\n", resident(),
           now.tv_sec * 1000000000LL + now.tv_nsec, total - left, said ? said : "null");
    free(said);
}

static void hold(void)
{
    CUdeviceptr flag;
    MUST(cuMemAlloc_v2(&flag, 4096));
    MUST(cuMemsetD8_v2(flag, 0, 4096));
    for (int i = 0; i < HELD; i++) {
        MUST(cuStreamWaitValue32_v2(lasting[i], flag, 1, 1));
        pair_in(lasting[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 83;
    long rounds = atol(argv[2]);
    size_t way = 0;
    while (way < sizeof ways / sizeof *ways && strcmp(ways[way].name, argv[1]))
        way++;
    if (way == sizeof ways / sizeof *ways)
        return 83;
    bytes = strtoull(argv[3], NULL, 0);
    flags = argc > 4 ? atoi(argv[4]) : 0;
    shared = begin();
    if (ways[way].round != resets && ways[way].round != releases && ways[way].round != contexts) {
        MUST(cuEventCreate(&event, 2));
        MUST(cuStreamCreate(&other, 1));
        MUST(cuMemAlloc_v2(&block, 4096));
        for (int i = 0; i < LASTING; i++)
            MUST(cuStreamCreate(&lasting[i], 1));
    }
    if (!strcmp(argv[1], "held"))
        hold();
    for (long round = 1; round <= rounds; round++) {
        ways[way].round(round);
        long tenth = rounds / 10;
        if (round == tenth || round == 2 * tenth || round == 5 * tenth || round == 9 * tenth || round == 10 * tenth)
            tell();
    }
    fflush(stdout);
    /* Held memory would keep the driver from ending in order. */
    _exit(0);
}
