/* A program that an operator limits, trims or detaches while it runs. It obeys standard input, one
 * command a line, until `end`.
 *
 *   limited IMAGE
 *
 *   take MIB     a block that is filled with a word of its own       drop I   frees block I
 *   check        the bytes of all blocks are compared: "right"       busy MS  a kernel that takes this time
 *   limit BYTES  wmshim_limit, and its code                          trim     wmshim_trim, and its code
 *   detach       wmshim_detach, and its code                         attach   wmshim_attach, and its code
 *   work MS      a thread gives the GPU kernels that take this time, one before the other ends, until `check` or `join`
 *   hold         a stream waits for a word of the host               release  the word is written
 *   pin I        SYNC_MEMOPS on block I: it stays where it is
 *   threads SEED N   N threads fill, copy, free, take and check blocks until `join`, which answers "right"
 *   fork         a child makes the calls of this program, and its answer is the child's */

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fill.h"
#include "wmshim.h"

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t words, CUstream stream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, unsigned value, unsigned flags);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned flags);
CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address);

enum { MIB = 1 << 20, MOST = 256, BLOCKS = 4, MOST_THREADS = 8, NON_BLOCKING = 1, SYNC_MEMOPS = 6 };

/* A block in which all words are equal. */
struct block {
    CUdeviceptr address;
    size_t bytes;
    unsigned word;
};

static struct block blocks[MOST], mine[MOST_THREADS][BLOCKS];
static unsigned count, threads, seed;
static int ended;
static CUfunction spin;
static CUstream busy;
static pthread_t workers[MOST_THREADS];
static unsigned *flag;

static void fill_block(struct block *block, size_t bytes, unsigned word, CUstream stream)
{
    block->bytes = bytes, block->word = word;
    MUST(cuMemAlloc_v2(&block->address, bytes));
    MUST(cuMemsetD32Async(block->address, word, bytes / 4, stream));
}

static void expect(const struct block *block, CUstream stream)
{
    static __thread unsigned *words;
    if (!words)
        words = malloc(64 * MIB);
    for (size_t from = 0; from < block->bytes; from += 64 * MIB) {
        size_t bytes = block->bytes - from < 64 * MIB ? block->bytes - from : 64 * MIB;
        MUST(cuMemcpyDtoHAsync_v2(words, block->address + from, bytes, stream));
        MUST(cuStreamSynchronize(stream));
        for (size_t i = 0; i < bytes / 4; i++)
            if (words[i] != block->word) {
                fprintf(stderr, "word %zu of %zu is %u and not %u\n", i, bytes / 4, words[i], block->word);
                exit(81);
            }
    }
}

static unsigned draw(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static size_t size_of(unsigned index) { return index == 0 ? 300 << 10 : (size_t)(3 + 5 * index) * MIB; }

static void step(struct block *own, unsigned *state, CUstream stream)
{
    struct block *one = &own[draw(state) % BLOCKS], *other = &own[draw(state) % BLOCKS];
    switch (draw(state) % 5) {
    case 0:
        one->word = draw(state);
        MUST(fill_by_kernel(one->address, one->bytes, one->word, stream));
        break;
    case 1:
        one->word = draw(state);
        MUST(cuMemsetD32Async(one->address, one->word, one->bytes / 4, stream));
        break;
    case 2:
        if (one->bytes <= other->bytes && one != other) {
            MUST(cuMemcpyDtoDAsync_v2(one->address, other->address, one->bytes, stream));
            one->word = other->word;
        }
        break;
    case 3:
        MUST(cuStreamSynchronize(stream));
        MUST(cuMemFree_v2(one->address));
        fill_block(one, one->bytes, draw(state), stream);
        break;
    default:
        expect(one, stream);
    }
}

static void *work(void *argument)
{
    size_t index = (size_t)argument;
    unsigned state = seed * 31 + (unsigned)index;
    CUstream stream;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    for (unsigned i = 0; i < BLOCKS; i++)
        fill_block(&mine[index][i], size_of(i), i, stream);
    while (!__atomic_load_n(&ended, __ATOMIC_SEQ_CST)) {
        for (unsigned steps = draw(&state) % 6; steps > 0; steps--)
            step(mine[index], &state, stream);
        MUST(cuStreamSynchronize(stream));
        usleep(draw(&state) % 4000);
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        expect(&mine[index][i], stream);
    return NULL;
}

static void spin_for(unsigned ms)
{
    uint64_t nanoseconds = ms * 1000000ull;
    void *parameters[] = {&nanoseconds};
    MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, busy, parameters, NULL));
}

/* One of the two streams always has a kernel. */
static void *keep_busy(void *ms)
{
    uint64_t nanoseconds = (size_t)ms * 1000000ull;
    void *parameters[] = {&nanoseconds};
    CUstream streams[2];
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < 2; i++)
        MUST(cuStreamCreate(&streams[i], NON_BLOCKING));
    for (unsigned i = 0; !__atomic_load_n(&ended, __ATOMIC_SEQ_CST); i++) {
        MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, streams[i % 2], parameters, NULL));
        MUST(cuStreamSynchronize(streams[(i + 1) % 2]));
    }
    return NULL;
}

static void hold(void)
{
    CUdeviceptr address;
    MUST(cuMemAllocHost_v2((void **)&flag, 4096));
    *flag = 0;
    MUST(cuMemHostGetDevicePointer_v2(&address, flag, 0));
    MUST(cuStreamWaitValue32_v2(busy, address, 1, 0));
}

static void check(void)
{
    for (unsigned i = 0; i < count; i++)
        if (blocks[i].address)
            expect(&blocks[i], busy);
}

/* The child uses no GPU. What it asks for is refused or done at once. */
static void in_child(void)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(wmshim_limit(0) == CUDA_ERROR_NOT_INITIALIZED && wmshim_trim() == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    waitpid(child, &status, 0);
    printf("child %d\n", status);
}

/* Says whether it answered by itself. */
static int obey(const char *word, unsigned long long number, unsigned long long second)
{
    if (!strcmp(word, "take")) {
        fill_block(&blocks[count], number * MIB, count + 1, busy);
        count++;
    } else if (!strcmp(word, "drop")) {
        MUST(cuMemFree_v2(blocks[number].address));
        blocks[number].address = 0;
    } else if (!strcmp(word, "busy")) {
        spin_for((unsigned)number);
    } else if (!strcmp(word, "work")) {
        pthread_create(&workers[threads++], NULL, keep_busy, (void *)(size_t)number);
    } else if (!strcmp(word, "hold")) {
        hold();
    } else if (!strcmp(word, "release")) {
        *(volatile unsigned *)flag = 1;
    } else if (!strcmp(word, "pin")) {
        unsigned on = 1;
        MUST(cuPointerSetAttribute(&on, SYNC_MEMOPS, blocks[number].address));
    } else if (!strcmp(word, "threads")) {
        seed = (unsigned)number, threads = (unsigned)second;
        for (size_t i = 0; i < threads; i++)
            pthread_create(&workers[i], NULL, work, (void *)i);
    } else if (!strcmp(word, "check") || !strcmp(word, "join")) {
        __atomic_store_n(&ended, 1, __ATOMIC_SEQ_CST);
        for (size_t i = 0; i < threads; i++)
            pthread_join(workers[i], NULL);
        threads = 0, ended = 0;
        check();
        puts("right");
        return 1;
    } else if (!strcmp(word, "limit")) {
        printf("%d\n", wmshim_limit(number));
        return 1;
    } else if (!strcmp(word, "trim")) {
        printf("%d\n", wmshim_trim());
        return 1;
    } else if (!strcmp(word, "detach")) {
        printf("%d\n", wmshim_detach());
        return 1;
    } else if (!strcmp(word, "attach")) {
        printf("%d\n", wmshim_attach());
        return 1;
    } else if (!strcmp(word, "fork")) {
        in_child();
        return 1;
    }
    return 0;
}

int main(int arguments, char **argument)
{
    char line[64], word[64];
    (void)arguments;
    load(argument[1]);
    MUST(cuModuleGetFunction(&spin, load_image(argument[1]), "wm_spin"));
    MUST(cuStreamCreate(&busy, NON_BLOCKING));
    puts("done");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long number = 0, second = 0;
        if (sscanf(line, "%63s %llu %llu", word, &number, &second) < 1 || !strcmp(word, "end"))
            break;
        if (!obey(word, number, second))
            puts("done");
        fflush(stdout);
    }
    check();
    return 0;
}
