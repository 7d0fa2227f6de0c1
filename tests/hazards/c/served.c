/* Does one thing after which the library must still serve memory, takes 8 MiB, and prints the
 * statistics of the library under test.
 *
 *   nothing    first
 *   capture    a context ends while its stream is captured
 *   pool       the current pool is destroyed
 *   reset      the primary context is reset and used again
 *   refused    the 8 MiB are taken first, then the driver refuses to destroy the primary context */

#include <dlfcn.h>
#include <string.h>

#include "driver.h"

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);

static CUdeviceptr address;

static void plain(void)
{
    MUST(cuMemAlloc_v2(&address, 8 << 20));
}

static void capture(CUcontext primary)
{
    CUcontext context;
    CUstream stream;
    MUST(cuCtxCreate_v2(&context, 0, 0));
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuStreamBeginCapture_v2(stream, 0));
    MUST(cuMemAllocAsync(&address, 8 << 20, stream));
    MUST(cuCtxDestroy_v2(context));
    MUST(cuCtxSetCurrent(primary));
    plain();
}

static void pool(void)
{
    CUmemPoolProps properties;
    CUmemoryPool own;
    memset(&properties, 0, sizeof properties);
    properties.allocType = 1;
    properties.location.type = 1;
    MUST(cuMemPoolCreate(&own, &properties));
    MUST(cuDeviceSetMemPool(0, own));
    MUST(cuMemPoolDestroy(own));
    MUST(cuMemAllocAsync(&address, 8 << 20, NULL));
}

static void reset(void)
{
    plain();
    MUST(cuDevicePrimaryCtxReset_v2(0));
    begin();
    plain();
}

static void refused(CUcontext primary)
{
    plain();
    if (cuCtxDestroy_v2(primary) == CUDA_SUCCESS)
        exit(70);
}

int main(int argc, char **argv)
{
    char *(*tell)(void) = (char *(*)(void))dlsym(RTLD_DEFAULT, "wmshim_stats_json");
    CUcontext primary = begin();
    const char *first = argc == 2 ? argv[1] : "";
    if (!strcmp(first, "capture"))
        capture(primary);
    else if (!strcmp(first, "pool"))
        pool();
    else if (!strcmp(first, "reset"))
        reset();
    else if (!strcmp(first, "refused"))
        refused(primary);
    else
        plain();
    puts(tell());
    return 0;
}
