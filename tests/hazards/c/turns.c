/* A program that takes turns at a GPU with others.
 *
 *   turns IMAGE     obeys standard input, one word a line, and answers each with a number or a line:
 *
 *   block MIB   allocates and fills a block
 *   once        fills all with the next word and reads them: milliseconds, or -1 if a word is wrong
 *   work        another thread does that all the time       count     how often it has done it
 *   halt        until now: 1 if all words were right        check     is every word the last one? 1
 *   hold        a stream waits for the host                 release   until now
 *   fork        a child copies from the first block: its status
 *   stats       the shim's figures                          exit      ends */

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fill.h"
#include "wmshim.h"

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, unsigned value, unsigned flags);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);

enum { MIB = 1 << 20, MOST = 32, NON_BLOCKING = 1, LONGEST = 128 * MIB };

static struct block {
    CUdeviceptr address;
    size_t bytes;
} blocks[MOST];
static unsigned count, word = 1, *words;
static int is_working, rounds, is_right = 1;
static pthread_t worker;
static CUstream held_stream;
static unsigned *held_word;

static int check(CUstream stream)
{
    for (unsigned i = 0; i < count; i++) {
        MUST(cuMemcpyDtoHAsync_v2(words, blocks[i].address, blocks[i].bytes, stream));
        MUST(cuStreamSynchronize(stream));
        for (size_t j = 0; j < blocks[i].bytes / 4; j++)
            if (words[j] != word) {
                fprintf(stderr, "word %zu of block %u is %u and not %u\n", j, i, words[j], word);
                return 0;
            }
    }
    return 1;
}

static void fill_all(CUstream stream)
{
    word++;
    for (unsigned i = 0; i < count; i++)
        MUST(fill_by_kernel(blocks[i].address, blocks[i].bytes, word, stream));
    MUST(cuStreamSynchronize(stream));
}

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int once(void)
{
    long begin = milliseconds();
    fill_all(NULL);
    return check(NULL) ? (int)(milliseconds() - begin) : -1;
}

static void *work(void *argument)
{
    CUstream stream;
    (void)argument;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    while (__atomic_load_n(&is_working, __ATOMIC_SEQ_CST)) {
        fill_all(stream);
        is_right &= check(stream);
        __atomic_fetch_add(&rounds, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static int block(size_t bytes)
{
    CUdeviceptr address;
    MUST(cuMemAlloc_v2(&address, bytes));
    MUST(fill_by_kernel(address, bytes, word, NULL));
    MUST(cuCtxSynchronize());
    blocks[count++] = (struct block){ address, bytes };
    return (int)count;
}

static int hold(void)
{
    MUST(cuMemAllocHost_v2((void **)&held_word, 64));
    MUST(cuStreamCreate(&held_stream, NON_BLOCKING));
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

static int fork_child(void)
{
    int status = 0;
    fflush(stdout);
    if (fork() == 0) {
        char bytes[4];
        /* A child has no context: an error of the driver, and no wait. */
        _exit(cuMemcpyDtoH_v2(bytes, blocks[0].address, 4) != 0);
    }
    wait(&status);
    return WEXITSTATUS(status);
}

static int obey(const char *command, unsigned number)
{
    if (!strcmp(command, "block"))
        return block((size_t)number * MIB);
    if (!strcmp(command, "once"))
        return once();
    if (!strcmp(command, "work"))
        return is_working = 1, pthread_create(&worker, NULL, work, NULL);
    if (!strcmp(command, "count"))
        return __atomic_load_n(&rounds, __ATOMIC_SEQ_CST);
    if (!strcmp(command, "halt")) {
        __atomic_store_n(&is_working, 0, __ATOMIC_SEQ_CST);
        pthread_join(worker, NULL);
        return is_right;
    }
    if (!strcmp(command, "check"))
        return check(NULL);
    if (!strcmp(command, "hold"))
        return hold();
    if (!strcmp(command, "release"))
        return let_go();
    if (!strcmp(command, "fork"))
        return fork_child();
    if (!strcmp(command, "exit"))
        exit(0);
    return -2;
}

int main(int arguments, char **argument)
{
    char command[64];
    unsigned number;
    if (arguments < 2)
        return 2;
    load(argument[1]);
    words = malloc(LONGEST);
    for (char line[64]; fgets(line, sizeof line, stdin); fflush(stdout)) {
        number = 0;
        if (sscanf(line, "%63s %u", command, &number) < 1)
            continue;
        if (!strcmp(command, "stats"))
            puts(wmshim_stats_json());
        else
            printf("%d\n", obey(command, number));
    }
    return 0;
}
