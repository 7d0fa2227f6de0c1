/* A model of XLA's allocators. The first argument is "bfc" (regions that it makes itself: one of a
 * share of the memory that the driver tells, or, with the second argument "grows", regions that
 * double), or "cuda_async" (the default pool, a buffer each). The third one is the share in percent,
 * the fourth the number of buffers of 4 MiB that the program takes. A region is made as XLA makes
 * it: for network cards if the device allows it, by descriptor and fabric handles, by descriptor,
 * plain; all devices get access. Prints the number of buffers that it got and the library's
 * statistics; ends with 0 if each has its bytes. */

#include <string.h>

#include "report.h"

enum { BUFFER = 4 << 20, SMALLEST = 2 << 20, MOST = 64, FABRIC = 8, ASYNC = 4, OUT_OF_MEMORY = 2 };
enum { RDMA_SUPPORTED = 110, FABRIC_SUPPORTED = 128, NOT_PERMITTED = 800, NOT_SUPPORTED = 801, INVALID_VALUE = 1 };

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream);

struct region { CUdeviceptr base; size_t bytes, used; unsigned long long handle; };

static struct region regions[MOST];
static int count, devices;
static size_t limit, held, next = SMALLEST;
static CUmemoryPool pool;
static CUstream stream;
static unsigned char seen[BUFFER];

static CUresult make(struct region *region)
{
    int rdma = 0, fabric = 0;
    struct property wanted = { .type = 1, .location = { DEVICE, 0 }, .handle_types = DESCRIPTOR };
    cuDeviceGetAttribute(&rdma, RDMA_SUPPORTED, 0);
    cuDeviceGetAttribute(&fabric, FABRIC_SUPPORTED, 0);
    wanted.flags.rdma = rdma > 0;
    if (fabric > 0)
        wanted.handle_types |= FABRIC;
    for (;;) {
        CUresult made = make_piece(&region->handle, region->bytes, &wanted);
        int simpler = made == NOT_PERMITTED || made == NOT_SUPPORTED || made == INVALID_VALUE;
        if (!simpler || !wanted.handle_types)
            return made;
        wanted.handle_types = wanted.handle_types & FABRIC ? DESCRIPTOR : 0;
    }
}

static int extend(size_t bytes)
{
    struct region *region = &regions[count];
    region->bytes = bytes - bytes % SMALLEST;
    if (make(region))
        return 0;
    MUST(cuMemAddressReserve(&region->base, region->bytes, SMALLEST, 0, 0));
    MUST(cuMemMap(region->base, region->bytes, 0, region->handle, 0));
    for (int device = 0; device < devices; device++) {
        struct access access = { { DEVICE, device }, READWRITE };
        int can = device == 0;
        if (device)
            MUST(cuDeviceCanAccessPeer(&can, 0, device));
        if (can)
            MUST(cuMemSetAccess(region->base, region->bytes, &access, 1));
    }
    held += region->bytes;
    count++;
    return 1;
}

/* Regions double; one that is refused is asked for again with nine tenths. */
static int grow(void)
{
    while (next < BUFFER)
        next *= 2;
    size_t bytes = next < limit - held ? next : limit - held;
    next *= 2;
    for (; bytes >= BUFFER; bytes = bytes * 9 / 10)
        if (extend(bytes))
            return 1;
    return 0;
}

static CUdeviceptr take(int grows)
{
    CUdeviceptr buffer = 0;
    if (pool)
        return cuMemAllocFromPoolAsync(&buffer, BUFFER, pool, stream) ? 0 : buffer;
    struct region *last = count ? &regions[count - 1] : NULL;
    if (!last || last->used + BUFFER > last->bytes) {
        if (last && !grows)
            return 0;
        if (!(grows ? grow() : extend(limit)))
            return 0;
        last = &regions[count - 1];
    }
    buffer = last->base + last->used;
    last->used += BUFFER;
    return buffer;
}

int main(int arguments, char **argument)
{
    CUdeviceptr buffers[256];
    size_t free, total;
    unsigned long long threshold;
    int got = 0, wanted = atoi(argument[4]);
    (void)arguments;
    begin();
    MUST(cuDeviceGetCount(&devices));
    MUST(cuMemGetInfo_v2(&free, &total));
    MUST(cuStreamCreate(&stream, 1));
    limit = total * (size_t)atoi(argument[3]) / 100;
    if (!strcmp(argument[1], "cuda_async")) {
        MUST(cuDeviceGetDefaultMemPool(&pool, 0));
        threshold = limit;
        MUST(cuMemPoolSetAttribute(pool, ASYNC, &threshold));
    }
    for (; got < wanted; got++) {
        buffers[got] = take(!strcmp(argument[2], "grows"));
        if (!buffers[got])
            break;
        MUST(cuMemsetD8Async(buffers[got], (unsigned char)(got + 1), BUFFER, stream));
    }
    MUST(cuStreamSynchronize(stream));
    printf("got %d\n", got);
    report("full");
    for (int i = 0; i < got; i++) {
        MUST(cuMemcpyDtoH_v2(seen, buffers[i], BUFFER));
        for (int at = 0; at < BUFFER; at++)
            if (seen[at] != i + 1)
                return 70;
        if (pool)
            MUST(cuMemFreeAsync(buffers[i], stream));
    }
    MUST(cuCtxSynchronize());
    for (int i = 0; i < count; i++) {
        MUST(cuMemUnmap(regions[i].base, regions[i].bytes));
        MUST(cuMemRelease(regions[i].handle));
        MUST(cuMemAddressFree(regions[i].base, regions[i].bytes));
    }
    report("empty");
    return 0;
}
