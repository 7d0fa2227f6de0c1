/* Makes old forms of calls, whose descriptions are shorter than the present ones, and calls with
 * counts that every driver refuses. Behind each description lies a page that may not be read.
 * Prints each call and its code; the driver and the library must answer alike. */

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "copies.h"

/* Device addresses and sizes had 32 bits. */
struct first_plane {
    unsigned sx, sy, skind; const void *shost; unsigned sdevice; CUarray sarray; unsigned spitch;
    unsigned dx, dy, dkind; void *dhost; unsigned ddevice; CUarray darray; unsigned dpitch, width, height;
};
struct first_volume {
    unsigned sx, sy, sz, slod, skind; const void *shost; unsigned sdevice; CUarray sarray; void *reserved0; unsigned spitch, sheight;
    unsigned dx, dy, dz, dlod, dkind; void *dhost; unsigned ddevice; CUarray darray; void *reserved1; unsigned dpitch, dheight;
    unsigned width, height, depth;
};
/* The older description of a node, without a kernel and a context. */
struct first_kernel_node { void *function; unsigned grid[3], block[3], shared; void **parameters, **extra; };

enum { PAGE = 4096 };

static char *pages;

/* Memory for this number of bytes, behind which nothing may be read. */
static void *last(size_t bytes)
{
    char *place = pages + PAGE - bytes;
    memset(place, 0, bytes);
    return place;
}

/* Called through a pointer, because today's headers give these names other types. */
typedef CUresult (*call)();

static call find(const char *name)
{
    call found = (call)dlsym(RTLD_DEFAULT, name);
    if (!found)
        exit(90);
    return found;
}

#define TELL(name, ...)                                      \
    do {                                                     \
        fflush(stdout);                                      \
        printf("%s: %d\n", name, find(name)(__VA_ARGS__));   \
    } while (0)

static void planes(CUdeviceptr block, CUstream stream)
{
    static const char *const names[] = { "cuMemcpy2D", "cuMemcpy2DUnaligned", "cuMemcpy2DAsync" };
    for (size_t i = 0; i < 3; i++) {
        struct first_plane *plane = last(sizeof *plane);
        plane->skind = 1, plane->shost = pages, plane->spitch = 64;
        plane->dkind = 2, plane->ddevice = (unsigned)block, plane->dpitch = 64, plane->width = 64, plane->height = 1;
        TELL(names[i], plane, stream);
    }
}

static void volumes(CUdeviceptr block, CUstream stream)
{
    static const char *const names[] = { "cuMemcpy3D", "cuMemcpy3DAsync" };
    for (size_t i = 0; i < 2; i++) {
        struct first_volume *volume = last(sizeof *volume);
        volume->skind = 1, volume->shost = pages, volume->dkind = 2, volume->ddevice = (unsigned)block;
        volume->width = 64, volume->height = volume->depth = 1;
        TELL(names[i], volume, stream);
    }
}

static void kernel_nodes(void)
{
    CUgraph graph;
    CUgraphNode node = NULL;
    MUST(cuGraphCreate(&graph, 0));
    TELL("cuGraphAddKernelNode", &node, graph, NULL, (size_t)0, last(sizeof(struct first_kernel_node)));
    TELL("cuGraphKernelNodeSetParams", node, last(sizeof(struct first_kernel_node)));
    TELL("cuGraphExecKernelNodeSetParams", NULL, node, last(sizeof(struct first_kernel_node)));
    MUST(cuGraphDestroy(graph));
}

/* One operation, or one copy, and a count of more; or arguments for which a driver reads no copy at
 * all. */
static void counts(CUdeviceptr block, CUstream stream)
{
    unsigned *operation = last(48);
    operation[0] = 6;
    TELL("cuStreamBatchMemOp", stream, 257u, operation, 0u);
    TELL("cuStreamBatchMemOp_v2", stream, 257u, operation, 0u);
    TELL("cuStreamBatchMemOp_v2", stream, ~0u, operation, 0u);
    CUdeviceptr *to = last(8), from = block + 64;
    size_t bytes = 64, first = 0, failed;
    struct how how = { 1, { 0, 0 }, { 0, 0 }, 0 };
    *to = block;
    TELL("cuMemcpyBatchAsync", to, &from, &bytes, (size_t)1, &how, &first, (size_t)1 << 40, &failed, stream);
    TELL("cuMemcpyBatchAsync", to, &from, &bytes, (size_t)1 << 40, &how, &first, (size_t)0, &failed, stream);
    TELL("cuMemcpyBatchAsync_v2", to, &from, &bytes, (size_t)1 << 40, NULL, NULL, (size_t)0, stream);
}

int main(void)
{
    CUdeviceptr block;
    CUstream stream;
    begin();
    MUST(cuMemAlloc_v2(&block, 1 << 20));
    MUST(cuStreamCreate(&stream, 1));
    pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + PAGE, PAGE, PROT_NONE))
        return 91;
    planes(block, stream);
    volumes(block, stream);
    kernel_nodes();
    counts(block, stream);
    MUST(cuCtxSynchronize());
    puts("it lives");
    return 0;
}
