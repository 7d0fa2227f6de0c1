/* A program that gives the library advice about its memory.
 *
 *   advised IMAGE threads SEED THREADS ROUNDS   threads that fill, copy and read blocks in streams of their own while another one advises at random; prints the
 *                                               shim's figures
 *   advised IMAGE contexts SEED THREADS ROUNDS DEVICE   the same, where every second thread works in a context that the program has made on that device,
 *                                               and another thread makes and destroys contexts there
 *   advised IMAGE calls                         each call that is wrong or refused, and the codes of a block's way out and in
 *   advised IMAGE kept WHAT [CALL]              the answers of moves of two blocks out, of one of them out and in after the action WHAT, which concerns it,
 *                                               and of the other one in
 *   advised IMAGE room WHAT                     the answers of a pool of the program's own on a full device: idle, or busy with a stream that waits
 *   advised IMAGE turns moves|stays           the shim's figures while three blocks that do not fit together take turns on the device
 *   advised IMAGE layers COUNT PERIODS          a kernel uses one block after the other, again and again; the shim's figures after each period
 *   advised IMAGE fork                          children that are forked while memory moves, and the answers of their calls
 *   advised IMAGE hold                          the answers of a move while another thread is inside a copy that does not end, and after it */

#include <pthread.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fill.h"
#include "wmshim.h"

typedef struct CUgraph_st *CUgraph;

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t words, CUstream stream);
CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t words);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, unsigned value, unsigned flags);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address);

enum { MIB = 1 << 20, BLOCKS = 4, MOST_THREADS = 8, NON_BLOCKING = 1 };
enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_READY = 600, NOT_PERMITTED = 800 };

#define TELL(call) printf("%s %d\n", #call, (call))

/* Gives the advice again while the GPU has work: on a slow machine an event in an idle stream may
 * complete late. */
static int say(void *address, size_t bytes, int advice)
{
    int answer = NOT_READY;
    for (int tries = 0; tries < 500 && answer == NOT_READY; tries++) {
        MUST(cuCtxSynchronize());
        answer = wmshim_advise(address, bytes, advice);
    }
    return answer;
}

static unsigned draw(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A block in which all words are equal. */
struct block {
    CUdeviceptr address;
    size_t bytes;
    unsigned word;
};

static struct block blocks[MOST_THREADS][BLOCKS];
static unsigned seed, threads, rounds;
static int ended;

/* What every second thread works in. */
static CUcontext second;
static CUfunction second_fill;
static __thread CUfunction own_fill;

static CUresult fill_here(CUdeviceptr address, size_t bytes, unsigned word, CUstream stream)
{
    uint64_t words = bytes / 4;
    void *parameters[] = {&address, &words, &word};
    return cuLaunchKernel(own_fill, 4, 1, 1, 64, 1, 1, 0, stream, parameters, NULL);
}

static size_t size_of(unsigned index) { return index == 0 ? 300 << 10 : (size_t)(3 + 5 * index) * MIB; }

static void expect(const struct block *block, CUstream stream)
{
    static __thread unsigned *words;
    if (!words)
        words = malloc(64 * MIB);
    MUST(cuMemcpyDtoHAsync_v2(words, block->address, block->bytes, stream));
    MUST(cuStreamSynchronize(stream));
    for (size_t i = 0; i < block->bytes / 4; i++)
        if (words[i] != block->word) {
            fprintf(stderr, "word %zu of %zu is %u and not %u\n", i, block->bytes / 4, words[i], block->word);
            exit(81);
        }
}

static void step(struct block *mine, unsigned *state, CUstream stream)
{
    struct block *one = &mine[draw(state) % BLOCKS], *other = &mine[draw(state) % BLOCKS];
    size_t bytes = one->bytes < other->bytes ? one->bytes : other->bytes;
    switch (draw(state) % 6) {
    case 0:
        one->word = draw(state);
        MUST(fill_here(one->address, one->bytes, one->word, stream));
        break;
    case 1:
        one->word = draw(state);
        MUST(cuMemsetD32Async(one->address, one->word, one->bytes / 4, stream));
        break;
    case 2:
        MUST(cuStreamSynchronize(stream));
        one->word = draw(state);
        MUST(cuMemsetD32_v2(one->address, one->word, one->bytes / 4));
        MUST(cuStreamSynchronize(NULL));
        break;
    case 3:
        if (one->bytes == bytes && one != other) {
            MUST(cuMemcpyDtoDAsync_v2(one->address, other->address, bytes, stream));
            one->word = other->word;
        }
        break;
    case 4:
        MUST(cuStreamSynchronize(stream));
        MUST(cuMemFree_v2(one->address));
        MUST(wmshim_alloc((void **)&one->address, one->bytes, draw(state) % 2 * WMSHIM_HOST));
        one->word = draw(state);
        MUST(cuMemsetD32Async(one->address, one->word, one->bytes / 4, stream));
        break;
    default:
        expect(one, stream);
    }
}

/* Synchronous memsets are in the legacy default stream: a stream that shares a block with it would
 * wait for it. */
static void *work(void *argument)
{
    unsigned index = (unsigned)(size_t)argument, state = seed * 31 + index;
    CUstream stream;
    int is_second = second && index % 2;
    own_fill = is_second ? second_fill : fill;
    MUST(cuCtxSetCurrent(is_second ? second : context));
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned count = draw(&state) % 6; count > 0; count--)
            step(blocks[index], &state, stream);
        MUST(cuStreamSynchronize(stream));
        usleep(draw(&state) % 4000);
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        expect(&blocks[index][i], stream);
    return NULL;
}

/* Any advice, also about memory that another thread has just freed. */
static void *advise(void *argument)
{
    unsigned state = seed * 77 + 5, answers[3] = {0};
    (void)argument;
    while (!__atomic_load_n(&ended, __ATOMIC_SEQ_CST)) {
        const struct block *block = &blocks[draw(&state) % threads][draw(&state) % BLOCKS];
        CUdeviceptr address = __atomic_load_n(&block->address, __ATOMIC_SEQ_CST);
        size_t from = draw(&state) % 2 ? 0 : draw(&state) % block->bytes;
        size_t bytes = draw(&state) % 2 ? block->bytes - from : 1 + draw(&state) % (block->bytes - from);
        int advice = draw(&state) % 2 ? WMSHIM_COLD : draw(&state) % 32 ? WMSHIM_PREFETCH : WMSHIM_PIN_DEVICE;
        int answer = wmshim_advise((void *)(size_t)(address + from), bytes, advice);
        if (answer != CUDA_SUCCESS && answer != INVALID_VALUE && answer != OUT_OF_MEMORY && answer != NOT_READY &&
            answer != NOT_PERMITTED) {
            fprintf(stderr, "advice %d is answered with %d\n", advice, answer);
            exit(82);
        }
        answers[answer == CUDA_SUCCESS ? 0 : answer == NOT_READY ? 1 : 2]++;
        usleep(draw(&state) % 300);
    }
    fprintf(stderr, "advice: %u taken, %u too early, %u refused\n", answers[0], answers[1], answers[2]);
    return NULL;
}

/* Contexts come and go. Each has work at its end. */
static void *churn_contexts(void *argument)
{
    while (!__atomic_load_n(&ended, __ATOMIC_SEQ_CST)) {
        CUcontext mine;
        CUdeviceptr block;
        MUST(cuCtxCreate_v2(&mine, 0, *(CUdevice *)argument));
        MUST(cuMemAlloc_v2(&block, 6 * MIB));
        MUST(cuMemsetD32_v2(block, 1, 6 * MIB / 4));
        usleep(2000);
        MUST(cuCtxDestroy_v2(mine));
    }
    return NULL;
}

static void make_second(const char *image, CUdevice device)
{
    MUST(cuCtxCreate_v2(&second, 0, device));
    MUST(cuModuleGetFunction(&second_fill, load_image(image), "wm_fill_u32"));
    if (device != 0)
        MUST(cuCtxEnablePeerAccess(context, 0));
    MUST(cuCtxSetCurrent(context));
}

/* `device`: -1, or of the second context. */
static void all_threads(char **argument, CUdevice device)
{
    pthread_t workers[MOST_THREADS], adviser, churner;
    seed = atoi(argument[3]), threads = atoi(argument[4]), rounds = atoi(argument[5]);
    for (unsigned i = 0; i < threads * BLOCKS; i++) {
        struct block *block = &blocks[i / BLOCKS][i % BLOCKS];
        block->bytes = size_of(i % BLOCKS), block->word = i;
        MUST(cuMemAlloc_v2(&block->address, block->bytes));
        MUST(cuMemsetD32_v2(block->address, block->word, block->bytes / 4));
    }
    MUST(cuCtxSynchronize());
    if (device >= 0) {
        make_second(argument[1], device);
        pthread_create(&churner, NULL, churn_contexts, &device);
    }
    pthread_create(&adviser, NULL, advise, NULL);
    for (size_t i = 0; i < threads; i++)
        pthread_create(&workers[i], NULL, work, (void *)i);
    for (size_t i = 0; i < threads; i++)
        pthread_join(workers[i], NULL);
    __atomic_store_n(&ended, 1, __ATOMIC_SEQ_CST);
    pthread_join(adviser, NULL);
    if (device >= 0)
        pthread_join(churner, NULL);
    puts(wmshim_stats_json());
}

static void calls(void)
{
    void *block, *other;
    char local[64];
    TELL(wmshim_alloc(&block, 8 * MIB, 0));
    TELL(wmshim_alloc(&other, 8 * MIB, 3));
    TELL(wmshim_alloc(NULL, 8 * MIB, WMSHIM_HOST));
    TELL(wmshim_alloc(&other, 0, WMSHIM_HOST));
    TELL(wmshim_alloc(&other, 64 * (size_t)MIB, WMSHIM_DEVICE_ONLY));
    TELL(wmshim_alloc(&other, 5 * MIB, WMSHIM_HOST));
    TELL(say(block, 0, WMSHIM_COLD));
    TELL(say(block, 8 * MIB + 1, WMSHIM_COLD));
    TELL(say(block, (size_t)-1, WMSHIM_COLD));
    TELL(say(block, 8 * MIB, 0));
    TELL(say(block, 8 * MIB, 6));
    TELL(say(local, sizeof local, WMSHIM_COLD));
    TELL(say(block, 8 * MIB, WMSHIM_READ_MOSTLY));
    TELL(say(block, 8 * MIB, WMSHIM_COLD));
    TELL(say(other, 5 * MIB, WMSHIM_DISCARD));
    TELL(say(block, 8 * MIB, WMSHIM_PIN_DEVICE));
    TELL(say(block, 8 * MIB, WMSHIM_COLD));
    TELL(say(other, 5 * MIB, WMSHIM_COLD));
    TELL(wmshim_free(other));
    TELL(wmshim_free(block));
    TELL(say(block, 8 * MIB, WMSHIM_COLD));
    puts(wmshim_stats_json());
}

static void kept(const char *what, const char *call)
{
    CUdeviceptr block, other;
    CUstream stream;
    CUgraph graph;
    CUipcMemHandle handle;
    unsigned on = 1;
    MUST(cuMemAlloc_v2(&block, 8 * MIB));
    MUST(cuMemAlloc_v2(&other, 8 * MIB));
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    printf("%d ", say((void *)(size_t)block, 8 * MIB, WMSHIM_COLD));
    printf("%d ", say((void *)(size_t)other, 8 * MIB, WMSHIM_COLD));
    if (!strcmp(what, "capture")) {
        MUST(cuStreamBeginCapture_v2(stream, 2));
        MUST(cuStreamEndCapture(stream, &graph));
    } else if (!strcmp(what, "context")) {
        MUST(cuCtxCreate_v2(&second, 0, 0));
        MUST(cuCtxSetCurrent(context));
    } else if (!strcmp(what, "syncmemops")) {
        MUST(cuPointerSetAttribute(&on, 6, block));
    } else if (!strcmp(what, "ipc")) {
        cuIpcGetMemHandle(&handle, block);
    } else if (!strcmp(what, "device")) {
        MUST(cuDevicePrimaryCtxRetain(&second, 1));
    } else if (!strcmp(what, "peers")) {
        MUST(cuCtxCreate_v2(&second, 0, 1));
        MUST(cuCtxEnablePeerAccess(context, 0));
        MUST(cuCtxSetCurrent(context));
    } else if (!strncmp(what, "lib", 3)) {
        void *library = dlopen(what, 2), *found = library && call ? dlsym(library, call) : NULL;
        if (!library || (call && !found))
            exit(84);
        if (call && !strcmp(call, "look_up"))
            MUST(((int (*)(void))found)());
        else if (call)
            MUST(((int (*)(CUdeviceptr *, size_t, int))found)(&block, 8 * MIB, 0));
    }
    printf("%d ", say((void *)(size_t)block, 8 * MIB, WMSHIM_COLD));
    printf("%d ", say((void *)(size_t)block, 8 * MIB, WMSHIM_PREFETCH));
    printf("%d\n", say((void *)(size_t)other, 8 * MIB, WMSHIM_PREFETCH));
}

static CUdeviceptr held;

static void *copy_that_waits(void *argument)
{
    char word[4];
    (void)argument;
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemcpyDtoH_v2(word, held, sizeof word));
    return NULL;
}

/* The copy waits in the driver for the default stream, which waits for a word of the program's. */
static void hold(void)
{
    pthread_t thread;
    unsigned *word;
    MUST(cuMemAlloc_v2(&held, 8 * MIB));
    MUST(cuMemAllocHost_v2((void **)&word, 64));
    *(volatile unsigned *)word = 0;
    MUST(cuStreamWaitValue32_v2(NULL, (CUdeviceptr)(size_t)word, 1, 1));
    pthread_create(&thread, NULL, copy_that_waits, NULL);
    usleep(20000);
    printf("%d ", wmshim_advise((void *)(size_t)held, 8 * MIB, WMSHIM_COLD));
    MUST(cuMemsetD8_v2(held, 1, 16));
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    MUST(cuCtxSynchronize());
    printf("%d\n", say((void *)(size_t)held, 8 * MIB, WMSHIM_COLD));
}

/* Out and in again, all the time. */
static void *keep_moving(void *argument)
{
    struct block *block = argument;
    for (int turn = 0; !__atomic_load_n(&ended, __ATOMIC_SEQ_CST); turn++)
        wmshim_advise((void *)(size_t)block->address, block->bytes, turn % 2 ? WMSHIM_PREFETCH : WMSHIM_COLD);
    return NULL;
}

static void forked(void)
{
    struct block block = {.bytes = 32 * MIB, .word = 7};
    pthread_t mover;
    int answered = 0;
    MUST(cuMemAlloc_v2(&block.address, block.bytes));
    MUST(cuMemsetD32_v2(block.address, block.word, block.bytes / 4));
    MUST(cuCtxSynchronize());
    pthread_create(&mover, NULL, keep_moving, &block);
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(cuMemsetD32_v2(block.address, 1, 1) != CUDA_SUCCESS ? 7 : 0);
        int status;
        waitpid(child, &status, 0);
        answered += WIFEXITED(status) && WEXITSTATUS(status) == 7;
        usleep(500);
    }
    __atomic_store_n(&ended, 1, __ATOMIC_SEQ_CST);
    pthread_join(mover, NULL);
    expect(&block, NULL);
    printf("%d\n", answered);
    puts(wmshim_stats_json());
}

static void room(const char *what)
{
    CUmemPoolProps properties = {.allocType = 1, .location = {.type = 1, .id = 0}};
    struct block block = {.bytes = 56 * MIB, .word = 7};
    CUmemoryPool pool;
    CUdeviceptr other;
    CUstream stream, waiting;
    unsigned *word;
    MUST(cuMemAllocHost_v2((void **)&word, 64));
    *(volatile unsigned *)word = 0;
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    MUST(cuStreamCreate(&waiting, NON_BLOCKING));
    MUST(cuMemAlloc_v2(&block.address, block.bytes));
    MUST(cuMemsetD32_v2(block.address, block.word, block.bytes / 4));
    MUST(cuCtxSynchronize());
    MUST(cuMemPoolCreate(&pool, &properties));
    if (!strcmp(what, "busy"))
        MUST(cuStreamWaitValue32_v2(waiting, (CUdeviceptr)(size_t)word, 1, 1));
    int answer = OUT_OF_MEMORY;
    /* Repeated, as in `say`: the call does not wait. */
    for (int tries = 0; tries < 100 && answer == OUT_OF_MEMORY; tries++)
        answer = cuMemAllocFromPoolAsync(&other, 32 * MIB, pool, stream);
    printf("%d\n", answer);
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    MUST(cuCtxSynchronize());
    expect(&block, stream);
}

/* Has anything left the device? */
static int has_moved_out(void)
{
    const char *figure = strstr(wmshim_stats_json(), "\"out_bytes\":");
    return figure && strncmp(figure, "\"out_bytes\":0", 14);
}

/* A block that a kernel has filled, and that is idle. */
static void make_idle(struct block *block, CUstream stream)
{
    MUST(cuMemAllocAsync(&block->address, block->bytes, stream));
    MUST(fill_by_kernel(block->address, block->bytes, block->word, stream));
    /* An allocation waits for the kernel no longer than its bytes would cross the link. */
    MUST(cuStreamSynchronize(stream));
}

/* The first block is used by a kernel and then idle; the third one finds no room. When it is
 * freed, there is room for the first one, which is used in place. `WAIT`: blocks may move. */
static void turns(const char *wait)
{
    struct block old = {.bytes = 36 * MIB, .word = 5}, recent = {.bytes = 8 * MIB, .word = 6}, new = {.bytes = 32 * MIB, .word = 7};
    CUstream stream;
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    make_idle(&old, stream);
    make_idle(&recent, stream);
    make_idle(&new, stream);
    /* Repeated, as in `say`: the allocation looks for half a millisecond whether the device is
     * idle, and on a loaded machine that is not yet seen. */
    for (int tries = 0; tries < 500 && !strcmp(wait, "moves") && !has_moved_out(); tries++) {
        MUST(cuMemFreeAsync(new.address, stream));
        MUST(cuStreamSynchronize(stream));
        make_idle(&new, stream);
    }
    struct block *blocks[] = {&old, &recent, &new};
    for (int i = 0; i < 3; i++)
        expect(blocks[i], stream);
    puts(wmshim_stats_json());
    MUST(cuMemFreeAsync(new.address, stream));
    MUST(cuStreamSynchronize(stream));
    puts(wmshim_stats_json());
    MUST(fill_by_kernel(old.address, old.bytes, old.word = 9, stream));
    /* Repeated, as in `say`: while a wait finds work, no block comes back. */
    for (int tries = 0; tries < 200; tries++)
        MUST(cuCtxSynchronize());
    expect(&old, stream);
    expect(&recent, stream);
    puts(wmshim_stats_json());
}

/* A kernel's writes in one period are there in the next one. One more block is used by all kernels,
 * as activations are. */
static void layers(unsigned count, unsigned periods)
{
    struct block *layers = calloc(count, sizeof *layers), common = {.bytes = 4 * MIB};
    CUstream stream;
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    MUST(cuMemAlloc_v2(&common.address, common.bytes));
    for (unsigned i = 0; i < count; i++) {
        layers[i].bytes = 8 * MIB;
        MUST(cuMemAlloc_v2(&layers[i].address, layers[i].bytes));
        MUST(fill_by_kernel(layers[i].address, layers[i].bytes, layers[i].word = i, stream));
        /* An allocation waits for the kernel no longer than its bytes would cross the link. */
        MUST(cuStreamSynchronize(stream));
    }
    for (unsigned period = 1; period <= periods; period++) {
        for (unsigned i = 0; i < count; i++) {
            MUST(fill_by_kernel(layers[i].address, layers[i].bytes, layers[i].word = period * count + i, stream));
            MUST(fill_by_kernel(common.address, common.bytes, common.word = i, stream));
        }
        expect(&common, stream);
        puts(wmshim_stats_json());
        for (unsigned i = period % 3; i < count; i += 3)
            expect(&layers[i], stream);
    }
}

int main(int count, char **argument)
{
    if (count < 3)
        return 90;
    load(argument[1]);
    if (!strcmp(argument[2], "threads"))
        all_threads(argument, -1);
    else if (!strcmp(argument[2], "contexts"))
        all_threads(argument, atoi(argument[6]));
    else if (!strcmp(argument[2], "calls"))
        calls();
    else if (!strcmp(argument[2], "kept"))
        kept(argument[3], count > 4 ? argument[4] : NULL);
    else if (!strcmp(argument[2], "room"))
        room(argument[3]);
    else if (!strcmp(argument[2], "turns"))
        turns(argument[3]);
    else if (!strcmp(argument[2], "layers"))
        layers(atoi(argument[3]), atoi(argument[4]));
    else if (!strcmp(argument[2], "fork"))
        forked();
    else
        hold();
    return 0;
}
