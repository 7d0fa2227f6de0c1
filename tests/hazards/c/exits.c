/* A program that ends while its copies are in flight: exits WAY SEED [BLOCKS [MIB]]. It ends with
 * 7, or by SIGTERM where that is the way.
 *
 * One thread alone makes calls. It copies pinned and pageable memory in and out for a random time,
 * gives pinned memory back right behind an asynchronous copy, allocates as many blocks of 16 MiB,
 * and ends: by return, exit, _exit, quick_exit; with the main thread gone (gone); by SIGTERM
 * (term), or by its handler, which calls exit (handler). */

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);

enum { BLOCK = 16 << 20, CODE = 7 };

static unsigned long long state;
static int blocks;
static size_t bytes = 4 << 20;

static unsigned drawn(unsigned below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % below;
}

static void leave(int number)
{
    (void)number;
    exit(CODE);
}

static void pass_time(void)
{
    usleep(drawn(4) ? drawn(2000) : drawn(40000));
}

/* Its last calls are a copy whose pinned memory is freed at once, and allocations. */
static void copies(void)
{
    CUdeviceptr device;
    CUstream stream;
    void *pageable = malloc(bytes);
    memset(pageable, 1, bytes);
    MUST(cuStreamCreate(&stream, drawn(2)));
    MUST(cuMemAlloc_v2(&device, bytes));
    for (unsigned left = 1 + drawn(4); left > 0; left--) {
        void *pinned;
        MUST(cuMemHostAlloc(&pinned, bytes, 0));
        if (drawn(2))
            MUST(cuMemcpyHtoDAsync_v2(device, pageable, bytes, stream));
        if (drawn(2))
            MUST(cuMemcpyDtoHAsync_v2(pinned, device, bytes, stream));
        MUST(cuMemcpyHtoDAsync_v2(device, pinned, bytes, stream));
        if (left > 1)
            pass_time();
        MUST(cuMemFreeHost(pinned));
    }
    for (int i = 0; i < blocks; i++)
        MUST(cuMemAlloc_v2(&device, BLOCK));
}

static void *ender(void *unused)
{
    (void)unused;
    begin();
    copies();
    pass_time();
    exit(CODE);
    return NULL;
}

int main(int count, char **words)
{
    const char *way = count > 2 ? words[1] : "";
    pthread_t thread;
    state = strtoull(count > 2 ? words[2] : "1", NULL, 10);
    blocks = count > 3 ? atoi(words[3]) : 0;
    if (count > 4)
        bytes = (size_t)atoi(words[4]) << 20;
    drawn(2);
    if (!strcmp(way, "handler"))
        signal(SIGTERM, leave);
    if (!strcmp(way, "gone")) {
        pthread_create(&thread, NULL, ender, NULL);
        pthread_exit(NULL);
    }
    begin();
    copies();
    if (drawn(2))
        pass_time();
    if (!strcmp(way, "exit"))
        exit(CODE);
    if (!strcmp(way, "_exit"))
        _exit(CODE);
    if (!strcmp(way, "quick_exit"))
        quick_exit(CODE);
    if (!strcmp(way, "term") || !strcmp(way, "handler"))
        kill(getpid(), SIGTERM);
    return CODE;
}
