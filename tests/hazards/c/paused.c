/* A program that is paused and resumed.
 *
 *   paused IMAGE threads SEED THREADS PAUSES   threads fill, copy, free and read blocks and a piece of their own, launch graphs, and
 *                                              check every byte, while another thread pauses and resumes the process at random;
 *                                              prints the shim's figures
 *   paused IMAGE serve                         obeys standard input, one word a line, and answers each with a number or a line:
 *
 *   block MIB    allocates and fills a block         piece        makes memory of its own with cuMemCreate, and fills it
 *   pause resume the calls' answers                  stats        the shim's figures
 *   prepare      the call's answer                   trim         the call's answer
 *   empty        gives the pool's unused memory back
 *   touch        another thread fills all with the next word, and waits for the GPU
 *   touched      has it ended?                       join         waits until it has
 *   use I        fills block I again, by a kernel    at I         its address
 *   check        is every word the last one? 1
 *   hold         a stream waits for the host         release      until now
 *   graph        captures a kernel on the first block   replay    launches it, and waits
 *   named        a graph sets the last block         shared       the last block may be opened by another process
 *   own          pauses, and fills all in the same thread: the answer of the pause
 *   ask MIB      another thread allocates a block; "join" waits for it
 *   fork         answers of pause, resume and a copy in a forked child, as a line
 *   exit         ends, with a copy in an exit handler
 *   joined       an exit handler waits for the other thread instead */

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fill.h"
#include "pieces.h"
#include "wmshim.h"

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t words, CUstream stream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuDeviceGetDefaultMemPool(void **pool, int device);
CUresult cuMemPoolTrimTo(void *pool, size_t keep);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, unsigned value, unsigned flags);
CUresult cuMemCreate(unsigned long long *handle, size_t bytes, const struct property *property, unsigned long long flags);

enum { MIB = 1 << 20, BLOCKS = 5, MOST_THREADS = 8, NON_BLOCKING = 1, MOST = 32, PIECE = 8 * MIB };

static const struct property WANTED = { .type = 1, .handle_types = DESCRIPTOR, .location = { DEVICE, 0 } };
static const struct access FULL = { { DEVICE, 0 }, READWRITE };

/* To files in PAUSE_DIR, if that is set. */
static int pause_here(void)
{
    const char *folder = getenv("PAUSE_DIR");
    return folder ? wmshim_pause_to(folder, 0) : wmshim_pause(0);
}

/* Memory in which all words are equal. */
struct block {
    CUdeviceptr address;
    size_t bytes;
    unsigned word;
};

static unsigned draw(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static CUdeviceptr make_mapped(void)
{
    CUdeviceptr at;
    unsigned long long handle;
    MUST(cuMemCreate(&handle, PIECE, &WANTED, 0));
    MUST(cuMemAddressReserve(&at, PIECE, 0, 0, 0));
    MUST(cuMemMap(at, PIECE, 0, handle, 0));
    MUST(cuMemSetAccess(at, PIECE, &FULL, 1));
    return at;
}

static CUgraphExec capture_fill(const struct block *block, unsigned word)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec executable;
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    MUST(cuStreamBeginCapture_v2(stream, 1));
    MUST(fill_by_kernel(block->address, block->bytes, word, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
    return executable;
}

static int is_right(const struct block *block, unsigned *words, CUstream stream)
{
    MUST(cuMemcpyDtoHAsync_v2(words, block->address, block->bytes, stream));
    MUST(cuStreamSynchronize(stream));
    for (size_t i = 0; i < block->bytes / 4; i++)
        if (words[i] != block->word) {
            fprintf(stderr, "word %zu of %zu is %u and not %u\n", i, block->bytes / 4, words[i], block->word);
            return 0;
        }
    return 1;
}

/* --- threads --- */

static unsigned seed, threads, pauses;
static int ended;

static void expect(const struct block *block, CUstream stream)
{
    static __thread unsigned *words;
    if (!words)
        words = malloc(64 * MIB);
    if (!is_right(block, words, stream))
        exit(81);
}

static void step(struct block *mine, unsigned *state, CUgraphExec graph, CUstream stream)
{
    struct block *one = &mine[draw(state) % BLOCKS], *other = &mine[draw(state) % BLOCKS];
    switch (draw(state) % 7) {
    case 0:
        one->word = draw(state);
        MUST(fill_by_kernel(one->address, one->bytes, one->word, stream));
        break;
    case 1:
        one->word = draw(state);
        MUST(cuMemsetD32Async(one->address, one->word, one->bytes / 4, stream));
        break;
    case 2:
        if (one->bytes == other->bytes && one != other) {
            MUST(cuMemcpyDtoDAsync_v2(one->address, other->address, one->bytes, stream));
            one->word = other->word;
        }
        break;
    case 3:
        /* The first block is the graph's, and the last one a piece. */
        if (one == mine || one == mine + BLOCKS - 1)
            break;
        MUST(cuStreamSynchronize(stream));
        MUST(cuMemFree_v2(one->address));
        MUST(cuMemAlloc_v2(&one->address, one->bytes));
        one->word = draw(state);
        MUST(cuMemsetD32Async(one->address, one->word, one->bytes / 4, stream));
        break;
    case 4:
        mine->word = 77;
        MUST(cuGraphLaunch(graph, stream));
        break;
    default:
        expect(one, stream);
    }
}

static void *work(void *argument)
{
    unsigned index = (unsigned)(size_t)argument, state = seed * 31 + index;
    static const size_t SIZES[BLOCKS] = { 4 * MIB, 300 << 10, 8 * MIB, 4 * MIB, PIECE };
    struct block mine[BLOCKS];
    CUgraphExec graph;
    CUstream stream;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    for (unsigned i = 0; i < BLOCKS; i++) {
        mine[i].bytes = SIZES[i], mine[i].word = index * BLOCKS + i;
        if (i + 1 < BLOCKS)
            MUST(cuMemAlloc_v2(&mine[i].address, mine[i].bytes));
        else
            mine[i].address = make_mapped();
        MUST(cuMemsetD32Async(mine[i].address, mine[i].word, mine[i].bytes / 4, stream));
    }
    graph = capture_fill(&mine[0], 77);
    while (!__atomic_load_n(&ended, __ATOMIC_SEQ_CST)) {
        for (unsigned count = draw(&state) % 6; count > 0; count--)
            step(mine, &state, graph, stream);
        if (draw(&state) % 2)
            MUST(cuStreamSynchronize(stream));
        usleep(draw(&state) % 2000);
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        expect(&mine[i], stream);
    return NULL;
}

static void all_threads(char **argument)
{
    pthread_t workers[MOST_THREADS];
    unsigned state, done = 0, tries = 0;
    seed = atoi(argument[3]), threads = atoi(argument[4]), pauses = atoi(argument[5]);
    state = seed * 77 + 5;
    for (size_t i = 0; i < threads; i++)
        pthread_create(&workers[i], NULL, work, (void *)i);
    for (; done < pauses && tries < 20 * pauses; tries++) {
        int answer = pause_here();
        /* While a thread captures, the process cannot be paused. */
        if (answer != CUDA_SUCCESS && answer != 900) {
            fprintf(stderr, "the pause is answered with %d\n", answer);
            exit(82);
        }
        done += answer == CUDA_SUCCESS;
        usleep(draw(&state) % 3000);
        MUST(wmshim_resume());
        usleep(draw(&state) % 6000);
    }
    __atomic_store_n(&ended, 1, __ATOMIC_SEQ_CST);
    for (size_t i = 0; i < threads; i++)
        pthread_join(workers[i], NULL);
    puts(wmshim_stats_json());
}

/* --- serve --- */

static struct block blocks[MOST];
static unsigned count, last = 1;
static size_t asked;
static int is_touched;
static pthread_t toucher;
static CUstream held_stream;
static unsigned *held_word;
static CUgraphExec replayed;

static void fill_all(void)
{
    CUstream stream;
    last++;
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    for (unsigned i = 0; i < count; i++) {
        blocks[i].word = last;
        MUST(fill_by_kernel(blocks[i].address, blocks[i].bytes, last, stream));
    }
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamDestroy_v2(stream));
}

static void *touch(void *argument)
{
    (void)argument;
    MUST(cuCtxSetCurrent(context));
    fill_all();
    __atomic_store_n(&is_touched, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int add(CUdeviceptr address, size_t bytes)
{
    blocks[count++] = (struct block){ address, bytes, last };
    MUST(fill_by_kernel(address, bytes, last, NULL));
    MUST(cuCtxSynchronize());
    return (int)count;
}

static int block(size_t bytes)
{
    CUdeviceptr address;
    MUST(cuMemAlloc_v2(&address, bytes));
    return add(address, bytes);
}

static int use(unsigned index)
{
    MUST(fill_by_kernel(blocks[index].address, blocks[index].bytes, blocks[index].word, NULL));
    MUST(cuCtxSynchronize());
    return 0;
}

static void *ask(void *argument)
{
    (void)argument;
    MUST(cuCtxSetCurrent(context));
    block(asked);
    __atomic_store_n(&is_touched, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int start(void *(*body)(void *))
{
    is_touched = 0;
    return pthread_create(&toucher, NULL, body, NULL);
}

static int check(void)
{
    static unsigned words[128 * MIB / 4];
    for (unsigned i = 0; i < count; i++)
        if (!is_right(&blocks[i], words, NULL))
            return 0;
    return 1;
}

static int hold(void)
{
    if (!held_word) {
        MUST(cuMemAllocHost_v2((void **)&held_word, 64));
        MUST(cuStreamCreate(&held_stream, NON_BLOCKING));
    }
    __atomic_store_n(held_word, 0, __ATOMIC_SEQ_CST);
    MUST(cuStreamWaitValue32_v2(held_stream, (CUdeviceptr)(size_t)held_word, 1, 1));
    return 0;
}

static int let_go(void)
{
    __atomic_store_n(held_word, 1, __ATOMIC_SEQ_CST);
    MUST(cuStreamSynchronize(held_stream));
    return 0;
}

static int replay(void)
{
    blocks[0].word = 99;
    MUST(cuGraphLaunch(replayed, NULL));
    MUST(cuCtxSynchronize());
    return 0;
}

static int name_in_graph(void)
{
    static CUgraphExec executable;
    CUstream stream;
    CUgraph graph;
    struct block *one = &blocks[count - 1];
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    MUST(cuStreamBeginCapture_v2(stream, 1));
    MUST(cuMemsetD32Async(one->address, one->word, one->bytes / 4, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
    return 0;
}

static int empty_pool(void)
{
    void *pool;
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    MUST(cuMemPoolTrimTo(pool, 0));
    return 0;
}

static int own(void)
{
    int answer = wmshim_pause(0);
    fill_all();
    return answer;
}

static void fork_child(void)
{
    fflush(stdout);
    if (fork() == 0) {
        char word[4];
        int answers[] = { wmshim_pause(0), wmshim_resume(), cuMemcpyDtoH_v2(word, blocks[0].address, 4) != 0 };
        printf("%d %d %d\n", answers[0], answers[1], answers[2]);
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
}

static int exit_joins;

/* Whatever the answer: the process is not held up. What is copied is right. */
static void copy_at_exit(void)
{
    unsigned word = 0;
    if (exit_joins)
        pthread_join(toucher, NULL);
    else if (count && cuMemcpyDtoH_v2(&word, blocks[0].address, sizeof word) == CUDA_SUCCESS && !toucher
             && word != blocks[0].word)
        _exit(84);
}

/* A child that stays until it is killed. */
static int fork_lasting_child(void)
{
    int child = fork();
    while (child == 0)
        sleep(600);
    return child;
}

static int obey(const char *word, unsigned number)
{
    CUipcMemHandle handle;
    if (!strcmp(word, "block"))
        return block((size_t)number * MIB);
    if (!strcmp(word, "piece"))
        return add(make_mapped(), PIECE);
    if (!strcmp(word, "pause"))
        return pause_here();
    if (!strcmp(word, "prepare"))
        return wmshim_pause_prepare();
    if (!strcmp(word, "trim"))
        return wmshim_trim();
    if (!strcmp(word, "empty"))
        return empty_pool();
    if (!strcmp(word, "resume"))
        return wmshim_resume();
    if (!strcmp(word, "touch"))
        return start(touch);
    if (!strcmp(word, "ask"))
        return asked = (size_t)number * MIB, start(ask);
    if (!strcmp(word, "use"))
        return use(number);
    if (!strcmp(word, "touched"))
        return __atomic_load_n(&is_touched, __ATOMIC_SEQ_CST);
    if (!strcmp(word, "join"))
        return pthread_join(toucher, NULL);
    if (!strcmp(word, "check"))
        return check();
    if (!strcmp(word, "hold"))
        return hold();
    if (!strcmp(word, "release"))
        return let_go();
    if (!strcmp(word, "graph"))
        return replayed = capture_fill(&blocks[0], 99), 0;
    if (!strcmp(word, "replay"))
        return replay();
    if (!strcmp(word, "named"))
        return name_in_graph();
    if (!strcmp(word, "shared"))
        return cuIpcGetMemHandle(&handle, blocks[count - 1].address);
    if (!strcmp(word, "own"))
        return own();
    if (!strcmp(word, "child"))
        return fork_lasting_child();
    if (!strcmp(word, "joined"))
        return exit_joins = 1;
    if (!strcmp(word, "exit"))
        exit(0);
    return -1;
}

static void serve(void)
{
    char word[64];
    unsigned number;
    atexit(copy_at_exit);
    for (char line[64]; fgets(line, sizeof line, stdin); fflush(stdout)) {
        number = 0;
        if (sscanf(line, "%63s %u", word, &number) < 1)
            continue;
        if (!strcmp(word, "at"))
            printf("%llu\n", (unsigned long long)blocks[number].address);
        else if (!strcmp(word, "stats"))
            puts(wmshim_stats_json());
        else if (!strcmp(word, "fork"))
            fork_child();
        else
            printf("%d\n", obey(word, number));
    }
}

int main(int arguments, char **argument)
{
    if (arguments < 3)
        return 2;
    load(argument[1]);
    if (!strcmp(argument[2], "threads"))
        all_threads(argument);
    else
        serve();
    return 0;
}
