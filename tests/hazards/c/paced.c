/* A program whose memory does not fit its device, and the time of its calls. Each mode prints numbers.
 *
 *   paced IMAGE hold HOLD CALL   a stream is held until the thread has made calls of a kind (launch, allocation, async): by a
 *                                kernel, a word or a host function; the slowest call of each round in us, and how many holds ran
 *                                out
 *   paced IMAGE background       requests beside kernels of 0.4 s: the number of requests, and the slowest ones in us
 *   paced IMAGE starve           the slowest call in us of a thread while another one's allocation moves memory, three times, and
 *                                the MiB that moved
 *   paced IMAGE inside           the number of launches that use blocks which do not all fit, and the slowest ones in us, while
 *                                another thread is inside calls of 0.3 s that use no GPU; and the MiB on the host
 *   paced IMAGE waits            the median of host waits for a small kernel in us, while another stream is held by a word
 *   paced IMAGE ticks            the longest gap between ticks of 10 ms in us while an allocation moves memory, three times, and
 *                                the MiB that moved
 *   paced IMAGE after            the thread's work for a launch in ns before a shortage and after it
 *   paced IMAGE latch            the MiB on the host before a capture begins and after it
 *   paced IMAGE many COUNT       the thread's work in ns for a recorded launch, and in us for an allocation that moves memory,
 *                                beside so many small blocks, and how many allocations moved some
 *   paced IMAGE oversize         the code and the time in us of an array that is larger than the device, beside a kernel of 1 s */

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "fill.h"
#include "wmshim.h"

typedef struct CUgraph_st *CUgraph;

CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t words);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, unsigned value, unsigned flags);
CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *argument);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuMemHostRegister_v2(void *bytes, size_t count, unsigned flags);
CUresult cuMemHostUnregister(void *bytes);
CUresult cuArrayCreate_v2(void **array, const void *description);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);

enum { MIB = 1 << 20, NON_BLOCKING = 1, ROUNDS = 8, TRIES = 3 };

static CUfunction spin, spin_until;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

/* The calling thread's own work: other threads and processes do not count. */
static double worked(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static double slowest;

/* Makes a call, and keeps the time of the slowest one. */
#define TIMED(call)                                  \
    do {                                             \
        double timed_begin = now();                  \
        MUST(call);                                  \
        double timed_took = now() - timed_begin;     \
        slowest = timed_took > slowest ? timed_took : slowest; \
    } while (0)

static int ascending(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

/* A figure of the first device in MiB, from the shim's statistics: the number behind NAME in the part behind PART. */
static unsigned long long figure(const char *part, const char *name)
{
    const char *at = strstr(wmshim_stats_json(), part);
    at = at ? strstr(at, name) : NULL;
    return at ? strtoull(at + strlen(name), NULL, 10) >> 20 : 0;
}

static unsigned long long on_host(void) { return figure("\"host\":{", "\"live_bytes\":"); }
static unsigned long long moved(void) { return figure("\"moves\":{", "\"out_bytes\":") + figure("\"moves\":{", "\"in_bytes\":"); }

static CUdeviceptr filled_block(size_t bytes, CUstream stream)
{
    CUdeviceptr block;
    MUST(cuMemAlloc_v2(&block, bytes));
    MUST(fill_by_kernel(block, bytes, 1, stream));
    MUST(cuStreamSynchronize(stream));
    return block;
}

static CUresult launch_spin(CUstream stream, uint64_t nanoseconds)
{
    void *parameters[] = {&nanoseconds};
    return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static unsigned *flag, *expired;

/* The kernel, the word or the function ends when the flag is 1, or after a second. */
static void wait_for_flag(void *unused)
{
    (void)unused;
    for (double begin = now(); !__atomic_load_n(flag, __ATOMIC_SEQ_CST);)
        if (now() - begin > 1e6) {
            ++*expired;
            return;
        }
}

static void hold_stream(const char *how, CUstream stream)
{
    uint64_t limit = 1000000000;
    unsigned value = 1;
    void *parameters[] = {&flag, &value, &limit, &expired};
    __atomic_store_n(flag, 0, __ATOMIC_SEQ_CST);
    if (!strcmp(how, "kernel"))
        MUST(cuLaunchKernel(spin_until, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    else if (!strcmp(how, "word"))
        MUST(cuStreamWaitValue32_v2(stream, (CUdeviceptr)(size_t)flag, 1, 1));
    else
        MUST(cuLaunchHostFunc(stream, wait_for_flag, NULL));
}

/* Twice as much as the device has, by blocks of 32 MiB. Kernels take a millisecond: they write a part of their block. */
static void hold(const char *how, const char *call)
{
    enum { BLOCKS = 12, BYTES = 32 * MIB, WRITTEN = 2 * MIB };
    CUdeviceptr blocks[BLOCKS], more;
    CUstream stream, held;
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    MUST(cuStreamCreate(&held, NON_BLOCKING));
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = filled_block(BYTES, stream);
    for (int round = 0; round < ROUNDS; round++) {
        MUST(cuCtxSynchronize());
        hold_stream(how, held);
        slowest = 0;
        if (!strcmp(call, "launch"))
            for (int i = 0; i < 200; i++)
                TIMED(fill_by_kernel(blocks[(4 * round + i % 3) % BLOCKS], WRITTEN, i, stream));
        else if (!strcmp(call, "allocation"))
            TIMED(cuMemAlloc_v2(&more, 8 * MIB));
        else
            TIMED(cuMemAllocAsync(&more, 8 * MIB, stream));
        __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
        MUST(cuCtxSynchronize());
        if (strcmp(call, "launch"))
            MUST(cuMemFree_v2(more));
        printf("%.0f ", slowest);
    }
    printf("%u\n", *expired);
}

static void background(void)
{
    enum { BLOCKS = 8, BYTES = 48 * MIB, SECONDS = 3 };
    CUdeviceptr blocks[BLOCKS], more;
    CUstream stream, low;
    static double took[100000];
    size_t count = 0;
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    MUST(cuStreamCreate(&low, NON_BLOCKING));
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = filled_block(BYTES, stream);
    double begin = now(), next = begin;
    while (now() - begin < SECONDS * 1e6 && count < 100000) {
        if (now() >= next) {
            MUST(launch_spin(low, 400000000));
            next += 400000;
        }
        double request = now();
        MUST(cuMemAllocAsync(&more, 4 * MIB, stream));
        MUST(fill_by_kernel(blocks[count % BLOCKS], MIB, 1, stream));
        MUST(fill_by_kernel(more, MIB, 2, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuMemFreeAsync(more, stream));
        took[count++] = now() - request;
    }
    qsort(took, count, sizeof *took, ascending);
    printf("%zu %.0f %.0f %.0f\n", count, took[count / 2], took[count - 1 - count / 100], took[count - 1]);
}

static volatile int ended;
static double slowest_beside;

static void *submit_small_work(void *argument)
{
    CUdeviceptr block = *(CUdeviceptr *)argument;
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; !ended; i++) {
        double begin = now();
        MUST(cuMemsetD32_v2(block, i, 16));
        double took = now() - begin;
        slowest_beside = took > slowest_beside ? took : slowest_beside;
    }
    return NULL;
}

/* Blocks of 32 MiB fill nearly all of the device. */
static void starve(void)
{
    enum { BLOCKS = 15, BYTES = 32 * MIB };
    CUdeviceptr small = filled_block(4096, NULL), blocks[BLOCKS], large;
    pthread_t beside;
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = filled_block(BYTES, NULL);
    for (int try = 0; try < TRIES; try++) {
        MUST(cuCtxSynchronize());
        ended = 0;
        slowest_beside = 0;
        pthread_create(&beside, NULL, submit_small_work, &small);
        struct timespec start = {0, 20000000};
        nanosleep(&start, NULL);
        /* Repeated: advice does not wait for the other thread's work. */
        for (int i = 0; i < BLOCKS; i++)
            for (int tries = 0; tries < 20; tries++)
                if (wmshim_advise((void *)(size_t)blocks[i], BYTES, try % 2 ? WMSHIM_PREFETCH : WMSHIM_COLD) == CUDA_SUCCESS)
                    break;
        MUST(cuMemAlloc_v2(&large, 8 * BYTES));
        ended = 1;
        pthread_join(beside, NULL);
        printf("%.0f ", slowest_beside);
        MUST(cuMemFree_v2(large));
    }
    printf("%llu\n", moved());
}

static void *register_memory(void *bytes)
{
    MUST(cuCtxSetCurrent(context));
    while (!ended) {
        MUST(cuMemHostRegister_v2(bytes, 64 * MIB, 0));
        MUST(cuMemHostUnregister(bytes));
    }
    return NULL;
}

/* Half of the blocks lie on the host, and each is used in turn: it is to come to the device. */
static void inside(void)
{
    enum { BLOCKS = 12, BYTES = 32 * MIB, SECONDS = 1, MOST = 100000 };
    static double took[MOST];
    CUdeviceptr blocks[BLOCKS];
    size_t count = 0;
    CUstream stream;
    pthread_t beside;
    void *bytes = calloc(64, MIB);
    memset(bytes, 1, 64 * MIB);
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = filled_block(BYTES, stream);
    pthread_create(&beside, NULL, register_memory, bytes);
    for (double begin = now(); now() - begin < SECONDS * 1e6 && count < MOST; count++) {
        double call = now();
        MUST(fill_by_kernel(blocks[count / 4 % BLOCKS], 4096, 1, stream));
        took[count] = now() - call;
        MUST(cuStreamSynchronize(stream));
    }
    ended = 1;
    pthread_join(beside, NULL);
    qsort(took, count, sizeof *took, ascending);
    printf("%zu %.0f %.0f %llu\n", count, took[count - 1 - count / 100], took[count - 1], on_host());
}

static void host_waits(void)
{
    enum { BLOCKS = 8, BYTES = 48 * MIB, WAITS = 1000 };
    CUdeviceptr blocks[BLOCKS];
    CUstream stream, held;
    static double took[WAITS];
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    MUST(cuStreamCreate(&held, NON_BLOCKING));
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = filled_block(BYTES, stream);
    hold_stream("word", held);
    /* There is room, and what lies on the host is used: at each wait it is to come back. */
    for (int i = BLOCKS / 2; i < BLOCKS; i++)
        MUST(cuMemFreeAsync(blocks[i], stream));
    for (unsigned i = 0, state = 1; i < WAITS; i++) {
        state = state * 1664525u + 1013904223u;
        MUST(fill_by_kernel(blocks[(state >> 16) % (BLOCKS / 2)], 4096, i, stream));
        double begin = now();
        MUST(cuStreamSynchronize(stream));
        took[i] = now() - begin;
    }
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
    MUST(cuCtxSynchronize());
    qsort(took, WAITS, sizeof *took, ascending);
    printf("%.0f\n", took[WAITS / 2]);
}

static volatile double last_tick, longest_gap;

static void tick(int signal)
{
    double time = now();
    (void)signal;
    if (last_tick > 0 && time - last_tick > longest_gap)
        longest_gap = time - last_tick;
    last_tick = time;
}

static void ticks(void)
{
    enum { BLOCKS = 15, BYTES = 32 * MIB };
    struct itimerval every = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    CUdeviceptr blocks[BLOCKS], large[2];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = filled_block(BYTES, NULL);
    sigaction(SIGALRM, &action, NULL);
    for (int try = 0; try < TRIES; try++) {
        MUST(cuCtxSynchronize());
        last_tick = longest_gap = 0;
        setitimer(ITIMER_REAL, &every, NULL);
        while (last_tick == 0)
            ;
        for (int i = 0; i < 2; i++)
            MUST(cuMemAlloc_v2(&large[i], 7 * BYTES));
        setitimer(ITIMER_REAL, &never, NULL);
        printf("%.0f ", longest_gap);
        for (int i = 0; i < 2; i++)
            MUST(cuMemFree_v2(large[i]));
        /* All comes back for the next try. */
        for (int i = 0; i < BLOCKS; i++)
            for (int tries = 0; tries < 100 && wmshim_advise((void *)(size_t)blocks[i], BYTES, WMSHIM_PREFETCH); tries++)
                MUST(cuCtxSynchronize());
    }
    printf("%llu\n", moved());
}

/* The fastest of some batches: the machine may be busy with others during the rest. */
static double launch_time(CUdeviceptr block, CUstream stream)
{
    enum { BATCHES = 20, LAUNCHES = 500 };
    double least = 1e9;
    for (int batch = 0; batch < BATCHES; batch++) {
        double begin = worked();
        for (int i = 0; i < LAUNCHES; i++)
            MUST(fill_by_kernel(block, 64, i, stream));
        double took = (worked() - begin) / LAUNCHES;
        least = took < least ? took : least;
        MUST(cuStreamSynchronize(stream));
    }
    return 1e3 * least;
}

static void after(void)
{
    enum { BYTES = 96 * MIB };
    CUstream stream;
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    CUdeviceptr first = filled_block(BYTES, stream), second = filled_block(BYTES, stream), third;
    launch_time(first, stream);
    double before = launch_time(first, stream);
    /* Repeated: on a busy machine an event in an idle stream may be passed too late. */
    for (double begin = now(); moved() == 0 && now() - begin < 60e6;) {
        third = filled_block(BYTES, stream);
        MUST(cuMemFree_v2(third));
    }
    /* What left is used, and comes back at a wait of the host. */
    for (double begin = now(); on_host() > 0 && now() - begin < 60e6;) {
        MUST(fill_by_kernel(first, BYTES, 1, stream));
        MUST(fill_by_kernel(second, BYTES, 1, stream));
        MUST(cuCtxSynchronize());
    }
    unsigned long long away = on_host(), has_moved = moved();
    launch_time(first, stream);
    printf("%.0f %.0f %llu %llu\n", before, launch_time(first, stream), away, has_moved);
}

static void latch(void)
{
    enum { BLOCKS = 6, BYTES = 32 * MIB };
    static char weights[BYTES];
    CUdeviceptr blocks[BLOCKS], buffer;
    CUstream stream;
    CUgraph graph;
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc_v2(&blocks[i], BYTES));
        memset(weights, i, BYTES);
        MUST(cuMemcpyHtoD_v2(blocks[i], weights, BYTES));
    }
    MUST(cuMemAlloc_v2(&buffer, 3 * BYTES));
    MUST(cuMemFree_v2(buffer));
    printf("%llu ", on_host());
    MUST(cuStreamBeginCapture_v2(stream, 2));
    MUST(cuStreamEndCapture(stream, &graph));
    printf("%llu\n", on_host());
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemcpyDtoH_v2(weights, blocks[i], BYTES));
        for (size_t at = 0; at < BYTES; at++)
            if (weights[at] != (char)i)
                exit(81);
    }
}

static void many(size_t count)
{
    enum { BYTES = 32 * MIB, WRITTEN = 2 * MIB, MOVES = 20 };
    CUdeviceptr first, second, third;
    CUstream stream;
    double moves[MOVES];
    int made = 0;
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    for (size_t i = 0; i < count; i++)
        MUST(cuMemAlloc_v2(&third, 512));
    first = filled_block(BYTES, stream), second = filled_block(BYTES, stream);
    for (double start = now(); made < MOVES && now() - start < 60e6;) {
        MUST(fill_by_kernel(first, WRITTEN, 1, stream));
        MUST(fill_by_kernel(second, WRITTEN, 1, stream));
        MUST(cuCtxSynchronize());
        unsigned long long before = moved();
        double begin = worked();
        MUST(cuMemAlloc_v2(&third, BYTES));
        moves[made] = worked() - begin;
        made += moved() > before;
        MUST(cuMemFree_v2(third));
        /* What left comes back. */
        while (on_host() > 0 && now() - start < 60e6) {
            MUST(fill_by_kernel(first, WRITTEN, 1, stream));
            MUST(fill_by_kernel(second, WRITTEN, 1, stream));
            MUST(cuCtxSynchronize());
        }
    }
    qsort(moves, made, sizeof *moves, ascending);
    MUST(wmshim_alloc((void **)&third, 8 * MIB, WMSHIM_HOST));
    printf("%.0f %.0f %d\n", launch_time(first, stream), moves[made / 4], made);
}

/* An array that is larger than the device, beside a kernel. */
static void oversize(void)
{
    struct { size_t width, height; unsigned format, channels; } array = {1 << 20, 1 << 20, 0x20, 4};
    CUstream stream;
    void *made;
    CUdeviceptr block;
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    block = filled_block(64 * MIB, stream);
    MUST(launch_spin(stream, 1000000000));
    double begin = now();
    CUresult code = cuArrayCreate_v2(&made, &array);
    printf("%d %.0f\n", code, now() - begin);
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemFree_v2(block));
}

int main(int count, char **argument)
{
    if (count < 3)
        return 90;
    load(argument[1]);
    CUmodule module = load_image(argument[1]);
    MUST(cuModuleGetFunction(&spin, module, "wm_spin"));
    MUST(cuModuleGetFunction(&spin_until, module, "wm_spin_until"));
    MUST(cuMemAllocHost_v2((void **)&flag, 64));
    expired = flag + 8;
    *flag = *expired = 0;
    if (!strcmp(argument[2], "hold"))
        hold(argument[3], argument[4]);
    else if (!strcmp(argument[2], "background"))
        background();
    else if (!strcmp(argument[2], "starve"))
        starve();
    else if (!strcmp(argument[2], "inside"))
        inside();
    else if (!strcmp(argument[2], "waits"))
        host_waits();
    else if (!strcmp(argument[2], "ticks"))
        ticks();
    else if (!strcmp(argument[2], "after"))
        after();
    else if (!strcmp(argument[2], "oversize"))
        oversize();
    else if (!strcmp(argument[2], "many"))
        many(atoi(argument[3]));
    else
        latch();
    return 0;
}
