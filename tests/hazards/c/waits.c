/* Waits for the device in one of these situations, then prints the statistics of the library under
 * test.
 *
 *   stranger   nothing was allocated
 *   thread     in the thread's default stream, where a block of the pool was freed
 *   device     for the context, behind a plain free, before a plain allocation
 *   freed      in a plain free of 1 GiB in blocks of 64 MiB, after which no block is held
 *   period     the same four times over
 *   unfreed    for the thread's default stream, in which four blocks were allocated that are not freed
 *   actions    for a blocking stream in which a hundred blocks were allocated and freed, four at a time, and which is destroyed then
 *   green      for the context that a green context was a part of, in whose stream a block of the pool was freed before it ended */

#include <dlfcn.h>
#include <string.h>

#include "driver.h"

typedef struct {
    _Alignas(16) char bytes[4096];
} Resource;

CUresult cuDeviceGetDevResource(CUdevice device, Resource *resource, int type);
CUresult cuDevResourceGenerateDesc(void **description, Resource *resource, unsigned count);
CUresult cuGreenCtxCreate(void **green, void *description, CUdevice device, unsigned flags);
CUresult cuGreenCtxStreamCreate(CUstream *stream, void *green, unsigned flags, int priority);
CUresult cuGreenCtxDestroy(void *green);

static CUstream const own = (CUstream)2;

static void stranger(void)
{
    CUevent event;
    MUST(cuEventCreate(&event, 0));
    MUST(cuEventSynchronize(event));
    MUST(cuStreamSynchronize(NULL));
    MUST(cuStreamSynchronize(own));
    MUST(cuCtxSynchronize());
}

static void thread(void)
{
    CUdeviceptr address;
    MUST(cuMemAllocAsync(&address, 8 << 20, own));
    MUST(cuMemFreeAsync(address, own));
    MUST(cuStreamSynchronize(own));
}

static void device(void)
{
    CUdeviceptr address;
    for (int i = 0; i < 10; i++) {
        MUST(cuMemAlloc_v2(&address, 8 << 20));
        MUST(cuMemFree_v2(address));
        MUST(cuCtxSynchronize());
    }
}

static void freed(int periods)
{
    CUdeviceptr blocks[16];
    for (int period = 0; period < periods; period++) {
        for (int i = 0; i < 16; i++)
            MUST(cuMemAlloc_v2(&blocks[i], 64 << 20));
        for (int i = 0; i < 16; i++)
            MUST(cuMemFree_v2(blocks[i]));
    }
}

static void unfreed(void)
{
    CUdeviceptr addresses[4];
    for (int i = 0; i < 4; i++)
        MUST(cuMemAllocAsync(&addresses[i], 1 << 20, own));
    MUST(cuStreamSynchronize(own));
}

static void actions(void)
{
    CUdeviceptr address, several[4];
    CUstream stream;
    MUST(cuStreamCreate(&stream, 0));
    for (int i = 0; i < 25; i++) {
        for (int j = 0; j < 4; j++)
            MUST(cuMemAllocAsync(&several[j], 1 << 20, stream));
        for (int j = 0; j < 4; j++)
            MUST(cuMemFreeAsync(several[j], stream));
    }
    /* One that is freed elsewhere: the stream ends while it holds a block that was to be freed in
     * its place. */
    MUST(cuMemAllocAsync(&address, 1 << 20, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamDestroy_v2(stream));
    MUST(cuMemFree_v2(address));
}

static void green(void)
{
    static Resource multiprocessors;
    void *description, *context;
    CUdeviceptr address;
    CUstream stream;
    MUST(cuDeviceGetDevResource(0, &multiprocessors, 1));
    MUST(cuDevResourceGenerateDesc(&description, &multiprocessors, 1));
    MUST(cuGreenCtxCreate(&context, description, 0, 1));
    MUST(cuGreenCtxStreamCreate(&stream, context, 1, 0));
    MUST(cuMemAllocAsync(&address, 8 << 20, stream));
    MUST(cuMemFreeAsync(address, stream));
    MUST(cuGreenCtxDestroy(context));
    MUST(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
    char *(*tell)(void) = (char *(*)(void))dlsym(RTLD_DEFAULT, "wmshim_stats_json");
    begin();
    if (argc == 2 && !strcmp(argv[1], "stranger"))
        stranger();
    else if (argc == 2 && !strcmp(argv[1], "actions"))
        actions();
    else if (argc == 2 && !strcmp(argv[1], "unfreed"))
        unfreed();
    else if (argc == 2 && !strcmp(argv[1], "thread"))
        thread();
    else if (argc == 2 && !strcmp(argv[1], "green"))
        green();
    else if (argc == 2 && !strcmp(argv[1], "freed"))
        freed(1);
    else if (argc == 2 && !strcmp(argv[1], "period"))
        freed(4);
    else
        device();
    puts(tell());
    return 0;
}
