/* A program with blocks that the CPU and the GPU use in turn.
 *
 *   unified IMAGE calls                 each call that is wrong, and the codes of a block's way to the CPU and back
 *   unified IMAGE rounds SEED THREADS ROUNDS
 *                                       threads whose kernels, copies and CPU code write and read blocks in turn, while another thread keeps the GPU and
 *                                       the allocator busy and gives advice; prints the shim's figures
 *   unified IMAGE fails ROUNDS          rounds on a driver that fails: prints the calls that failed, and those that succeeded
 *   unified IMAGE quarrel               threads that want one block for different processors
 *   unified IMAGE kept WHAT             the answers of a way to the CPU after the action WHAT, and of the way back of a block that the CPU had before
 *   unified IMAGE held                  the answer, and the seconds, of a call while a stream waits for the host, and after it
 *   unified IMAGE full                  a block comes back to a device without room; prints the shim's figures
 *   unified IMAGE two                   blocks of two devices
 *   unified IMAGE fork                  a child's calls, and its parent's block
 *   unified IMAGE ends                  blocks of the CPU that are freed, and that end with their context; prints the shim's figures
 *   unified IMAGE exit                  the process exits with blocks of the CPU, while a thread hands over another one */

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fill.h"
#include "wmshim.h"

typedef struct CUgraph_st *CUgraph;

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t words, CUstream stream);
CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t words);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, unsigned value, unsigned flags);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);

enum { MIB = 1 << 20, MOST_THREADS = 8, NON_BLOCKING = 1, HOST_NUMA = 3 };
enum { OUT_OF_MEMORY = 2, NOT_READY = 600 };

#define TELL(call) printf("%s %d\n", #call, (call))

static unsigned seed, rounds, failed, succeeded;
static int ended;

static unsigned draw(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static CUdeviceptr number(const void *block) { return (CUdeviceptr)(size_t)block; }

static unsigned *unified(size_t bytes)
{
    void *block = NULL;
    MUST(wmshim_alloc(&block, bytes, WMSHIM_UNIFIED));
    return block;
}

/* The GPU may have work for longer than the call waits, on a slow machine. */
static int hand(void *block, size_t bytes, unsigned processor)
{
    int answer = NOT_READY;
    for (int tries = 0; tries < 20 && answer == NOT_READY; tries++)
        answer = wmshim_access(block, bytes, processor);
    return answer;
}

/* Does the driver give the CPU access? A simulated kernel runs on the CPU, so that an access of this
 * program's would not fault. */
static int is_the_cpus(const void *block, size_t bytes)
{
    CUmemLocation host = {HOST_NUMA, 0};
    unsigned long long first = 9, last = 9;
    MUST(cuMemGetAccess(&first, &host, number(block)));
    MUST(cuMemGetAccess(&last, &host, number(block) + bytes - 1));
    if (first != last)
        exit(80);
    return first == 3;
}

static void expect(const unsigned *words, size_t bytes, unsigned word, const char *what)
{
    for (size_t i = 0; i < bytes / 4; i++)
        if (words[i] != word) {
            fprintf(stderr, "%s: word %zu of %zu is %u and not %u\n", what, i, bytes / 4, words[i], word);
            exit(81);
        }
}

static void expect_on_device(CUdeviceptr block, size_t bytes, unsigned word, CUstream stream, const char *what)
{
    unsigned *words = malloc(bytes);
    MUST(cuMemcpyDtoHAsync_v2(words, block, bytes, stream));
    MUST(cuStreamSynchronize(stream));
    expect(words, bytes, word, what);
    free(words);
}

static void write_by_cpu(unsigned *words, size_t bytes, unsigned word)
{
    for (size_t i = 0; i < bytes / 4; i++)
        words[i] = word;
}

/* To the CPU without a wait of the program's, to the GPU, and there a copy to plain memory. */
static void turn(unsigned *block, size_t bytes, CUdeviceptr plain, unsigned *state, CUstream stream)
{
    unsigned word = draw(state);
    if (draw(state) % 2)
        MUST(fill_by_kernel(number(block), bytes, word, stream));
    else
        MUST(cuMemsetD32Async(number(block), word, bytes / 4, stream));
    MUST(hand(block, bytes, WMSHIM_CPU));
    if (!is_the_cpus(block, bytes))
        exit(82);
    expect(block, bytes, word, "the CPU reads what the GPU wrote");
    write_by_cpu(block, bytes, word = draw(state));
    MUST(hand(block, bytes, WMSHIM_GPU));
    if (is_the_cpus(block, bytes))
        exit(83);
    MUST(cuMemcpyDtoDAsync_v2(plain, number(block), bytes, stream));
    expect_on_device(plain, bytes, word, stream, "the GPU reads what the CPU wrote");
}

static void *work(void *argument)
{
    unsigned state = seed * 31 + (unsigned)(size_t)argument;
    size_t bytes = (size_t)(1 + draw(&state) % 24) * MIB;
    CUdeviceptr plain;
    CUstream stream;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    MUST(cuMemAlloc_v2(&plain, bytes));
    unsigned *block = unified(bytes);
    for (unsigned round = 0; round < rounds; round++) {
        turn(block, bytes, plain, &state, stream);
        if (draw(&state) % 4 == 0) {
            if (draw(&state) % 2)
                MUST(hand(block, bytes, WMSHIM_CPU));
            MUST(wmshim_free(block));
            block = unified(bytes);
        }
    }
    MUST(wmshim_free(block));
    MUST(cuMemFree_v2(plain));
    return NULL;
}

/* Blocks that come and go, work of its own, and advice about it. */
static void *disturb(void *argument)
{
    unsigned state = seed * 77 + 5;
    CUstream stream;
    (void)argument;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    while (!__atomic_load_n(&ended, __ATOMIC_SEQ_CST)) {
        size_t bytes = (size_t)(1 + draw(&state) % 16) * MIB;
        CUdeviceptr block;
        unsigned word = draw(&state);
        MUST(cuMemAllocAsync(&block, bytes, stream));
        MUST(fill_by_kernel(block, bytes, word, stream));
        wmshim_advise((void *)(size_t)block, bytes, draw(&state) % 2 ? WMSHIM_COLD : WMSHIM_PREFETCH);
        expect_on_device(block, bytes, word, stream, "plain memory");
        MUST(cuMemFreeAsync(block, stream));
    }
    return NULL;
}

static void all_threads(char **argument)
{
    pthread_t workers[MOST_THREADS], other;
    unsigned threads = atoi(argument[4]);
    seed = atoi(argument[3]), rounds = atoi(argument[5]);
    pthread_create(&other, NULL, disturb, NULL);
    for (size_t i = 0; i < threads; i++)
        pthread_create(&workers[i], NULL, work, (void *)i);
    for (size_t i = 0; i < threads; i++)
        pthread_join(workers[i], NULL);
    __atomic_store_n(&ended, 1, __ATOMIC_SEQ_CST);
    pthread_join(other, NULL);
    puts(wmshim_stats_json());
}

static void calls(void)
{
    char local[64];
    void *plain, *other;
    unsigned *block = unified(5 * MIB);
    MUST(wmshim_alloc(&plain, 4 * MIB, 0));
    TELL(wmshim_alloc(&other, 4 * MIB, WMSHIM_UNIFIED | WMSHIM_HOST));
    TELL(wmshim_alloc(&other, 0, WMSHIM_UNIFIED));
    TELL(wmshim_alloc(NULL, 4 * MIB, WMSHIM_UNIFIED));
    TELL(wmshim_access(NULL, 4, WMSHIM_CPU));
    TELL(wmshim_access(local, sizeof local, WMSHIM_CPU));
    TELL(wmshim_access(plain, 4 * MIB, WMSHIM_CPU));
    TELL(wmshim_access(block, 0, WMSHIM_CPU));
    TELL(wmshim_access(block, 5 * MIB + 1, WMSHIM_CPU));
    TELL(wmshim_access(block, (size_t)-1, WMSHIM_CPU));
    TELL(wmshim_access(block, 5 * MIB, 0));
    TELL(wmshim_access(block, 5 * MIB, WMSHIM_CPU | WMSHIM_GPU));
    TELL(wmshim_access(block, 5 * MIB, 4));
    TELL(hand(block, 5 * MIB, WMSHIM_GPU));
    TELL(is_the_cpus(block, 5 * MIB));
    TELL(hand(block + 7, 4, WMSHIM_CPU));
    TELL(is_the_cpus(block, 5 * MIB));
    write_by_cpu(block, 5 * MIB, 11);
    TELL(wmshim_advise(block, 5 * MIB, WMSHIM_PREFETCH) != 0);
    TELL(hand(block, 5 * MIB, WMSHIM_CPU));
    TELL(hand(block, 5 * MIB, WMSHIM_GPU));
    TELL(is_the_cpus(block, 5 * MIB));
    expect_on_device(number(block), 5 * MIB, 11, NULL, "after a call for a part of it");
    TELL(wmshim_free(block));
    TELL(wmshim_access(block, 4, WMSHIM_CPU));
}

/* Each call either succeeds, or leaves the block whose it was. */
static void fails(void)
{
    const size_t bytes = 11 * MIB;
    unsigned *block = NULL, word = 1;
    for (int tries = 0; tries < 9 && !block; tries++)
        wmshim_alloc((void **)&block, bytes, WMSHIM_UNIFIED);
    while (cuMemsetD32_v2(number(block), word, bytes / 4) != CUDA_SUCCESS)
        ;
    MUST(cuCtxSynchronize());
    for (unsigned round = 0; round < rounds; round++) {
        int there = hand(block, bytes, WMSHIM_CPU);
        *(there ? &failed : &succeeded) += 1;
        if (there == CUDA_SUCCESS) {
            expect(block, bytes, word, "the CPU, beside failures");
            write_by_cpu(block, bytes, ++word);
            for (int back = 1, tries = 0; back; tries++) {
                back = hand(block, bytes, WMSHIM_GPU);
                *(back ? &failed : &succeeded) += 1;
                if (tries == 100)
                    exit(84);
            }
        }
        expect_on_device(number(block), bytes, word, NULL, "the GPU, beside failures");
    }
    printf("%d %u %u\n", wmshim_free(block), failed, succeeded);
}

static unsigned *wanted;

static void *want(void *argument)
{
    unsigned state = (unsigned)(size_t)argument;
    for (int i = 0; i < 40; i++)
        MUST(hand(wanted, 6 * MIB, draw(&state) % 2 ? WMSHIM_CPU : WMSHIM_GPU));
    return NULL;
}

static void quarrel(void)
{
    pthread_t threads[4];
    wanted = unified(6 * MIB);
    MUST(cuMemsetD32_v2(number(wanted), 77, 6 * MIB / 4));
    for (size_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, want, (void *)(i * 1000 + 1));
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    MUST(hand(wanted, 6 * MIB, WMSHIM_CPU));
    expect(wanted, 6 * MIB, 77, "after the quarrel");
    MUST(wmshim_free(wanted));
}

static void kept(const char *what)
{
    const size_t bytes = 4 * MIB;
    unsigned *block = unified(bytes), *before = unified(bytes);
    CUdeviceptr opened;
    CUcontext second;
    CUstream stream;
    CUgraph graph;
    CUipcMemHandle handle;
    MUST(cuMemsetD32_v2(number(before), 5, bytes / 4));
    MUST(hand(before, bytes, WMSHIM_CPU));
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    if (!strcmp(what, "capture")) {
        MUST(cuStreamBeginCapture_v2(stream, 2));
        TELL(wmshim_access(block, bytes, WMSHIM_CPU));
        TELL(wmshim_access(before, bytes, WMSHIM_GPU));
        MUST(cuMemsetD32Async(number(block), 5, bytes / 4, stream));
        MUST(cuStreamEndCapture(stream, &graph));
    } else if (!strcmp(what, "peer")) {
        MUST(cuDevicePrimaryCtxRetain(&second, 1));
        MUST(cuCtxSetCurrent(second));
        MUST(cuCtxEnablePeerAccess(context, 0));
        MUST(cuCtxSetCurrent(context));
    } else if (!strcmp(what, "context")) {
        MUST(cuCtxCreate_v2(&second, 0, 0));
        MUST(cuMemAlloc_v2(&opened, MIB));
        MUST(cuCtxSetCurrent(context));
    } else if (!strcmp(what, "pinned")) {
        wmshim_advise(block, bytes, WMSHIM_PIN_DEVICE);
    } else if (!strcmp(what, "cpus")) {
        /* A handle of a block that is the CPU's opens nothing. */
        if (cuIpcGetMemHandle(&handle, number(before)) == CUDA_SUCCESS && cuIpcOpenMemHandle_v2(&opened, handle, 1) == CUDA_SUCCESS)
            exit(85);
    }
    TELL(hand(block, bytes, WMSHIM_CPU));
    TELL(hand(before, bytes, WMSHIM_GPU));
    TELL(is_the_cpus(before, bytes));
    expect_on_device(number(before), bytes, 5, NULL, "what was the CPU's before");
    TELL(wmshim_free(before));
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void held(void)
{
    unsigned *block = unified(4 * MIB), *word;
    CUstream stream;
    MUST(cuMemAllocHost_v2((void **)&word, 64));
    *(volatile unsigned *)word = 0;
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    MUST(cuStreamWaitValue32_v2(stream, number(word), 1, 1));
    MUST(fill_by_kernel(number(block), 4 * MIB, 3, stream));
    double begun = now();
    int answer = wmshim_access(block, 4 * MIB, WMSHIM_CPU);
    printf("%d %.1f ", answer, now() - begun);
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    MUST(hand(block, 4 * MIB, WMSHIM_CPU));
    expect(block, 4 * MIB, 3, "what was held");
    puts("0");
}

static void full(void)
{
    unsigned *block = unified(24 * MIB);
    CUdeviceptr other;
    MUST(cuMemsetD32_v2(number(block), 1, 24 * MIB / 4));
    MUST(hand(block, 24 * MIB, WMSHIM_CPU));
    puts(wmshim_stats_json());
    MUST(wmshim_alloc((void **)&other, 44 * MIB, WMSHIM_DEVICE_ONLY));
    write_by_cpu(block, 24 * MIB, 9);
    MUST(hand(block, 24 * MIB, WMSHIM_GPU));
    if (is_the_cpus(block, 24 * MIB))
        exit(86);
    puts(wmshim_stats_json());
    expect_on_device(number(block), 24 * MIB, 9, NULL, "without room");
    MUST(wmshim_free((void *)(size_t)other));
    MUST(hand(block, 24 * MIB, WMSHIM_CPU));
    MUST(hand(block, 24 * MIB, WMSHIM_GPU));
    puts(wmshim_stats_json());
}

static void two(void)
{
    unsigned *blocks[2];
    CUcontext contexts[2] = {context};
    MUST(cuDevicePrimaryCtxRetain(&contexts[1], 1));
    for (int i = 0; i < 2; i++) {
        MUST(cuCtxSetCurrent(contexts[i]));
        blocks[i] = unified(6 * MIB);
        MUST(cuMemsetD32_v2(number(blocks[i]), i + 1, 6 * MIB / 4));
    }
    /* Each while the other device's context is current, and with none. */
    for (int i = 0; i < 2; i++) {
        MUST(cuCtxSetCurrent(i ? NULL : contexts[1]));
        MUST(hand(blocks[i], 6 * MIB, WMSHIM_CPU));
        expect(blocks[i], 6 * MIB, i + 1, "of two devices");
        write_by_cpu(blocks[i], 6 * MIB, i + 5);
        MUST(hand(blocks[i], 6 * MIB, WMSHIM_GPU));
        MUST(cuCtxSetCurrent(contexts[i]));
        expect_on_device(number(blocks[i]), 6 * MIB, i + 5, NULL, "back on its device");
    }
}

static void forked(void)
{
    unsigned *block = unified(4 * MIB), *other = unified(4 * MIB);
    MUST(cuMemsetD32_v2(number(block), 4, MIB));
    MUST(hand(block, 4 * MIB, WMSHIM_CPU));
    pid_t child = fork();
    if (child == 0)
        _exit(10 * wmshim_access(block, 4, WMSHIM_GPU) + wmshim_access(other, 4, WMSHIM_CPU));
    int status;
    waitpid(child, &status, 0);
    expect(block, 4 * MIB, 4, "after a fork");
    MUST(hand(block, 4 * MIB, WMSHIM_GPU));
    expect_on_device(number(block), 4 * MIB, 4, NULL, "after a fork");
    printf("%d\n", WEXITSTATUS(status));
}

static void ends(void)
{
    CUcontext second;
    unsigned *block = unified(6 * MIB);
    MUST(hand(block, 6 * MIB, WMSHIM_CPU));
    MUST(wmshim_free(block));
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    MUST(cuCtxCreate_v2(&second, 0, 0));
    block = unified(6 * MIB);
    MUST(hand(block, 6 * MIB, WMSHIM_CPU));
    MUST(cuCtxDestroy_v2(second));
    TELL(wmshim_access(block, 4, WMSHIM_GPU));
    context = begin();
    block = unified(6 * MIB);
    MUST(cuMemsetD32_v2(number(block), 8, 6 * MIB / 4));
    MUST(hand(block, 6 * MIB, WMSHIM_CPU));
    expect(block, 6 * MIB, 8, "in a new context");
    TELL(wmshim_free(block));
    puts(wmshim_stats_json());
}

static void *hand_on(void *argument)
{
    while (1)
        if (wmshim_access(argument, 4, WMSHIM_CPU) || wmshim_access(argument, 4, WMSHIM_GPU))
            return NULL;
}

static void leave(void)
{
    pthread_t thread;
    unsigned *block = unified(6 * MIB);
    MUST(hand(block, 6 * MIB, WMSHIM_CPU));
    pthread_create(&thread, NULL, hand_on, unified(16 * MIB));
    usleep(20000);
    puts("left");
    exit(0);
}

int main(int count, char **argument)
{
    if (count < 3)
        return 90;
    load(argument[1]);
    const char *what = argument[2];
    if (!strcmp(what, "calls"))
        calls();
    else if (!strcmp(what, "rounds"))
        all_threads(argument);
    else if (!strcmp(what, "fails"))
        rounds = atoi(argument[3]), fails();
    else if (!strcmp(what, "quarrel"))
        quarrel();
    else if (!strcmp(what, "kept"))
        kept(argument[3]);
    else if (!strcmp(what, "held"))
        held();
    else if (!strcmp(what, "full"))
        full();
    else if (!strcmp(what, "two"))
        two();
    else if (!strcmp(what, "fork"))
        forked();
    else if (!strcmp(what, "ends"))
        ends();
    else
        leave();
    return 0;
}
