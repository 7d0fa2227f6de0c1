/* A program that writes past the end of a block, and one that never does.
 *
 *   overrun IMAGE kernel LANE BYTES PAST END   a kernel fills BYTES + PAST bytes of a block of BYTES
 *   overrun IMAGE memset LANE BYTES PAST END   the same by a memset
 *   overrun IMAGE late LANE BYTES              a kernel writes to a block that was freed, after a wait
 *   overrun IMAGE about LANE BYTES             the driver's attributes of the block
 *   overrun IMAGE legal SEED THREADS STEPS     random blocks, each filled to its last word, read back and freed; prints the shim's figures
 *   overrun IMAGE many BLOCKS WAITS            blocks that live while the host waits again and again; prints microseconds a wait
 *
 * LANE is plain (cuMemAlloc), stream (cuMemAllocAsync), or thread (the calling thread's default
 * stream). END is the step after the write: free, wait (for the stream), context, event, or exit (a
 * free, and no wait that the shim could see). Each call whose answer counts is printed with its
 * code. */

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "fill.h"


CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventSynchronize(CUevent event);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address);

#define TELL(call) printf("%s %d\n", #call, (call))

/* The handle by which any stream-ordered function names the calling thread's default stream. */
static CUstream per_thread(void) { return (CUstream)2; }

enum lane { PLAIN, STREAM, THREAD };

static enum lane lane_of(const char *word)
{
    return !strcmp(word, "plain") ? PLAIN : !strcmp(word, "stream") ? STREAM : THREAD;
}

static CUresult allocate(enum lane lane, CUdeviceptr *address, size_t bytes, CUstream stream)
{
    switch (lane) {
    case PLAIN: return cuMemAlloc_v2(address, bytes);
    case STREAM: return cuMemAllocAsync(address, bytes, stream);
    default: return cuMemAllocAsync_ptsz(address, bytes, NULL);
    }
}

static CUresult give_back(enum lane lane, CUdeviceptr address, CUstream stream)
{
    switch (lane) {
    case PLAIN: return cuMemFree_v2(address);
    case STREAM: return cuMemFreeAsync(address, stream);
    default: return cuMemFreeAsync_ptsz(address, NULL);
    }
}

static int overrun(int by_kernel, enum lane lane, size_t bytes, size_t past, const char *end)
{
    CUdeviceptr block;
    CUstream stream;
    CUevent event;
    MUST(cuStreamCreate(&stream, 1));
    /* Before the overrun: nothing can be made in a context that has faulted. */
    MUST(cuEventCreate(&event, 2));
    if (lane == THREAD)
        stream = per_thread();
    MUST(allocate(lane, &block, bytes, stream));
    if (by_kernel)
        TELL(fill_by_kernel(block, bytes + past, 0x01020304, stream));
    else
        TELL(cuMemsetD8Async(block, 7, bytes + past, stream));
    if (!strcmp(end, "free") || !strcmp(end, "exit")) {
        TELL(give_back(lane, block, stream));
        if (!strcmp(end, "free"))
            TELL(cuCtxSynchronize());
        while (cuStreamQuery(stream) == 600)
            ;
        return 0;
    }
    if (!strcmp(end, "event")) {
        MUST(cuEventRecord(event, stream));
        /* A wait for the stream shows the pattern; the event shows later writes. */
        TELL(cuStreamSynchronize(stream));
        MUST(fill_by_kernel(block, bytes + past, 0x05060708, stream));
        MUST(cuEventRecord(event, stream));
        TELL(cuEventSynchronize(event));
    } else if (!strcmp(end, "wait")) {
        TELL(cuStreamSynchronize(stream));
    } else {
        TELL(cuCtxSynchronize());
    }
    TELL(give_back(lane, block, stream));
    TELL(cuCtxSynchronize());
    return 0;
}

static int late(enum lane lane, size_t bytes)
{
    CUdeviceptr block;
    CUstream stream;
    MUST(cuStreamCreate(&stream, 1));
    MUST(allocate(lane, &block, bytes, stream));
    MUST(fill_by_kernel(block, bytes, 1, stream));
    MUST(give_back(lane, block, stream));
    MUST(cuCtxSynchronize());
    TELL(fill_by_kernel(block, bytes, 2, stream));
    TELL(cuCtxSynchronize());
    return 0;
}

static int about(enum lane lane, size_t bytes)
{
    CUdeviceptr block, base = 0, start = 0;
    size_t size = 0, length = 0;
    CUstream stream;
    MUST(cuStreamCreate(&stream, 1));
    MUST(allocate(lane, &block, bytes, stream));
    MUST(cuMemGetAddressRange_v2(&base, &size, block + bytes - 1));
    MUST(cuPointerGetAttribute(&start, 11, block));
    MUST(cuPointerGetAttribute(&length, 12, block));
    printf("base %d size %zu start %d length %zu\n", base == block, size, start == block, length);
    printf("aligned %d, end to unmapped %llu\n", block % 256 == 0, (2u << 20) - (block + bytes) % (2u << 20));
    TELL(cuMemGetAddressRange_v2(&base, &size, (block + bytes + 255) / 256 * 256));
    TELL(cuMemsetD8_v2(block, 1, bytes));
    MUST(give_back(lane, block, stream));
    return 0;
}

/* ---- a program without a fault */

enum { LIVE = 24 };

struct program { unsigned seed; int steps; };

struct block { CUdeviceptr address; size_t bytes; unsigned word; enum lane lane; };

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void check(const struct block *block, CUstream stream)
{
    unsigned words[2];
    MUST(cuMemcpyDtoHAsync_v2(&words[0], block->address, 4, stream));
    MUST(cuMemcpyDtoHAsync_v2(&words[1], block->address + block->bytes - 4, 4, stream));
    MUST(cuStreamSynchronize(stream));
    if (words[0] != block->word || words[1] != block->word) {
        fprintf(stderr, "a block of %zu bytes holds %x and %x, not %x\n", block->bytes, words[0], words[1], block->word);
        exit(84);
    }
}

static void *legal(void *argument)
{
    struct program *program = argument;
    struct block blocks[LIVE] = {0};
    static const size_t sizes[] = {4, 512, 1000, 4096, 300000, 1 << 20, (1 << 20) + 4, 3000000, 8 << 20};
    CUstream stream;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, 1));
    for (int step = 0; step < program->steps; step++) {
        unsigned what = next(&program->seed);
        struct block *block = &blocks[what % LIVE];
        if (block->address) {
            check(block, stream);
            MUST(give_back(block->lane, block->address, block->lane == THREAD ? per_thread() : stream));
            block->address = 0;
        } else {
            block->bytes = sizes[next(&program->seed) % (sizeof sizes / sizeof *sizes)];
            block->lane = next(&program->seed) % 3;
            block->word = what;
            MUST(allocate(block->lane, &block->address, block->bytes, stream));
            if (block->lane == THREAD)
                MUST(cuStreamSynchronize(per_thread()));
            MUST(fill_by_kernel(block->address, block->bytes, block->word, stream));
            if (what % 7 == 0)
                MUST(cuCtxSynchronize());
        }
    }
    for (int i = 0; i < LIVE; i++)
        if (blocks[i].address)
            check(&blocks[i], stream);
    return NULL;
}

static int legal_threads(unsigned seed, int threads, int steps)
{
    pthread_t thread[16];
    struct program programs[16];
    for (int i = 0; i < threads; i++) {
        programs[i] = (struct program){seed + 7919u * i, steps};
        pthread_create(&thread[i], NULL, legal, &programs[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    MUST(cuCtxSynchronize());
    char *(*figures)(void) = (char *(*)(void))dlsym(RTLD_DEFAULT, "wmshim_stats_json");
    printf("%s\n", figures ? figures() : "{}");
    return 0;
}

/* ---- a thread that waits again and again, beside one that needs its freed memory */

static volatile int finished;

static void *waiting(void *argument)
{
    MUST(cuCtxSetCurrent(context));
    while (!finished)
        MUST(cuStreamSynchronize(argument));
    return NULL;
}

/* Counts refused allocations of this size, each made after the last one has been freed. */
static int contended(enum lane lane, size_t bytes, int rounds)
{
    pthread_t thread;
    CUstream stream, other;
    int refused = 0;
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuStreamCreate(&other, 1));
    pthread_create(&thread, NULL, waiting, other);
    for (int i = 0; i < rounds; i++) {
        CUdeviceptr address;
        if (allocate(lane, &address, bytes, stream) != CUDA_SUCCESS) {
            refused++;
            continue;
        }
        MUST(cuStreamSynchronize(stream));
        MUST(give_back(lane, address, stream));
    }
    finished = 1;
    pthread_join(thread, NULL);
    printf("refused %d\n", refused);
    return 0;
}

/* ---- the cost of a wait */

static double microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int many(int blocks, int waits)
{
    CUdeviceptr address;
    CUstream stream;
    MUST(cuStreamCreate(&stream, 1));
    for (int i = 0; i < blocks; i++)
        MUST(cuMemAllocAsync(&address, 4096, stream));
    MUST(cuStreamSynchronize(stream));
    double start = microseconds();
    for (int i = 0; i < waits; i++)
        MUST(cuStreamSynchronize(stream));
    printf("%.1f\n", (microseconds() - start) / waits);
    return 0;
}

int main(int count, char **words)
{
    if (count < 5)
        return 85;
    load(words[1]);
    if (!strcmp(words[2], "legal"))
        return legal_threads(atoi(words[3]), atoi(words[4]), atoi(words[5]));
    if (!strcmp(words[2], "many"))
        return many(atoi(words[3]), atoi(words[4]));
    enum lane lane = lane_of(words[3]);
    if (!strcmp(words[2], "late"))
        return late(lane, atol(words[4]));
    if (!strcmp(words[2], "contended"))
        return contended(lane, atol(words[4]), atoi(words[5]));
    if (!strcmp(words[2], "about"))
        return about(lane, atol(words[4]));
    return overrun(!strcmp(words[2], "kernel"), lane, atol(words[4]), atol(words[5]), words[6]);
}
