/* Takes and frees memory of a device, so that it is idle in the library, and then adds a memory
 * node of the same size to a graph. Arguments: the kind of memory that is freed, "pieces" or
 * "blocks"; the function that adds the node, 0 to 2; the device, whose context is not current when
 * the node is added. Prints the node's code, and the driver's free memory before. */

#include <string.h>

#include "pieces.h"

enum { PIECE = 20 << 20, COUNT = 24, MEM_ALLOC = 10 };

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;

struct allocation { CUmemPoolProps pool; const void *access; size_t count, bytes; CUdeviceptr address; };
struct node { unsigned kind; int reserved0[3]; union { long long all[29]; struct allocation allocation; } body; long long reserved; };

CUresult cuGraphCreate(CUgraph *graph, unsigned flags);
CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, struct allocation *allocation);
CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, struct node *what);
CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count, struct node *what);

static void leave_pieces(int device)
{
    struct property wanted = { .type = 1, .handle_types = DESCRIPTOR, .location = { DEVICE, device } };
    struct access access = { { DEVICE, device }, READWRITE };
    unsigned long long handles[COUNT];
    CUdeviceptr base;
    MUST(cuMemAddressReserve(&base, (size_t)COUNT * PIECE * 2, 0, 0, 0));
    for (int i = 0; i < COUNT; i++)
        MUST(make_piece(&handles[i], PIECE, &wanted));
    for (int i = 0; i < COUNT; i++)
        MUST(cuMemMap(base + (size_t)i * PIECE, PIECE, 0, handles[i], 0));
    MUST(cuMemSetAccess(base, (size_t)COUNT * PIECE, &access, 1));
    for (int i = 0; i < COUNT; i++) {
        MUST(cuMemUnmap(base + (size_t)i * PIECE, PIECE));
        MUST(cuMemRelease(handles[i]));
    }
}

static void leave_blocks(void)
{
    CUdeviceptr blocks[COUNT];
    for (int i = 0; i < COUNT; i++)
        MUST(cuMemAlloc_v2(&blocks[i], PIECE));
    for (int i = 0; i < COUNT; i++)
        MUST(cuMemFree_v2(blocks[i]));
}

int main(int arguments, char **argument)
{
    int way = arguments > 3 ? atoi(argument[2]) : 0, device = arguments > 3 ? atoi(argument[3]) : 0;
    CUcontext here = begin(), there;
    CUgraph graph;
    CUgraphNode added;
    CUresult code;
    size_t free, total;
    MUST(cuDevicePrimaryCtxRetain(&there, device));
    MUST(cuCtxSetCurrent(there));
    if (strcmp(argument[1], "blocks"))
        leave_pieces(device);
    else
        leave_blocks();
    MUST(cuMemGetInfo_v2(&free, &total));
    MUST(cuCtxSetCurrent(here));
    MUST(cuGraphCreate(&graph, 0));
    struct node node = { .kind = MEM_ALLOC };
    struct allocation *allocation = &node.body.allocation;
    *allocation = (struct allocation){ .pool = { .allocType = 1, .location = { DEVICE, device } }, .bytes = (size_t)COUNT * PIECE };
    if (way == 0)
        code = cuGraphAddMemAllocNode(&added, graph, NULL, 0, allocation);
    else if (way == 1)
        code = cuGraphAddNode(&added, graph, NULL, 0, &node);
    else
        code = cuGraphAddNode_v2(&added, graph, NULL, NULL, 0, &node);
    printf("%d %d %d\n", code, allocation->address != 0, free >= allocation->bytes);
    return 0;
}
