/* Graphs beside memory that moves. Each mode prints numbers; the bytes are checked here.
 *
 *   graphs IMAGE kernels      a captured kernel's block leaves the device, and its graph is launched again: the code, and the
 *                             MiB on the host
 *   graphs IMAGE copies       codes of moves of the block that a copy's node names and of another one, while the executable graph
 *                             lives that was made of it, and after its end
 *   graphs IMAGE changed      the same codes for the block that an executable graph's copy named first, and the one that it was
 *                             changed to, until the end of the graph
 *   graphs IMAGE capturing    whether a move is refused during a capture, and the code of one beside the graph
 *   graphs IMAGE opaque       the code of a move while a graph lives that kernels may launch, and after its end */

#include <string.h>

#include "fill.h"
#include "wmshim.h"

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;

typedef struct {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    unsigned srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    void *srcArray, *reserved0;
    size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD;
    unsigned dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    void *dstArray, *reserved1;
    size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} Copy;

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuGraphCreate(CUgraph *graph, unsigned flags);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, const Copy *copy,
                              CUcontext context);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags);
CUresult cuGraphExecDestroy(CUgraphExec executable);
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node, const Copy *copy, CUcontext context);
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream);

enum { MIB = 1 << 20, BYTES = 32 * MIB, BLOCKS = 4, LAUNCHES_BY_KERNELS = 4 };

static CUdeviceptr blocks[BLOCKS];
static CUstream stream;

static unsigned long long on_host(void)
{
    const char *at = strstr(wmshim_stats_json(), "\"host\":{");
    at = at ? strstr(at, "\"live_bytes\":") : NULL;
    return at ? strtoull(at + strlen("\"live_bytes\":"), NULL, 10) >> 20 : 0;
}

static int evict(int block) { return wmshim_advise((void *)blocks[block], BYTES, WMSHIM_COLD); }

static void must_have(int block, unsigned word)
{
    static unsigned words[BYTES / 4];
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemcpyDtoH_v2(words, blocks[block], BYTES));
    for (size_t at = 0; at < BYTES / 4; at++)
        if (words[at] != word)
            exit(81);
}

static CUgraph captured(int block, unsigned word)
{
    CUgraph graph;
    MUST(cuStreamBeginCapture_v2(stream, 2));
    MUST(fill_by_kernel(blocks[block], BYTES, word, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    return graph;
}

static void kernels(void)
{
    CUgraphExec executable;
    MUST(cuGraphInstantiateWithFlags(&executable, captured(0, 7), 0));
    MUST(cuGraphLaunch(executable, stream));
    must_have(0, 7);
    MUST(fill_by_kernel(blocks[0], BYTES, 8, stream));
    MUST(cuStreamSynchronize(stream));
    int code = evict(0);
    unsigned long long away = on_host();
    must_have(0, 8);
    MUST(cuGraphLaunch(executable, stream));
    must_have(0, 7);
    printf("%d %llu\n", code, away);
}

static Copy copy_of(int to, int from)
{
    Copy copy = {.srcMemoryType = 2, .srcDevice = blocks[from], .dstMemoryType = 2, .dstDevice = blocks[to]};
    copy.WidthInBytes = BYTES, copy.Height = copy.Depth = 1;
    return copy;
}

/* An executable graph that copies block 1 to block 0; the graph itself is gone. */
static CUgraphExec copying(CUgraphNode *node, CUgraph *graph)
{
    CUgraphExec executable;
    Copy copy = copy_of(0, 1);
    MUST(cuGraphCreate(graph, 0));
    MUST(cuGraphAddMemcpyNode(node, *graph, NULL, 0, &copy, context));
    MUST(cuGraphInstantiateWithFlags(&executable, *graph, 0));
    return executable;
}

static void copies(void)
{
    CUgraphNode node;
    CUgraph graph;
    CUgraphExec executable = copying(&node, &graph);
    MUST(cuGraphDestroy(graph));
    int named[] = {evict(0), evict(1)}, other = evict(2);
    MUST(cuGraphLaunch(executable, stream));
    must_have(0, 1);
    must_have(2, 2);
    MUST(cuGraphExecDestroy(executable));
    printf("%d %d %d %d %d\n", named[0], named[1], other, evict(0), evict(1));
    must_have(0, 1);
    must_have(1, 1);
}

static void changed(void)
{
    CUgraphNode node;
    CUgraph graph;
    CUgraphExec executable = copying(&node, &graph);
    Copy copy = copy_of(3, 1);
    MUST(cuGraphExecMemcpyNodeSetParams(executable, node, &copy, context));
    int first = evict(0), second = evict(3);
    MUST(cuGraphLaunch(executable, stream));
    must_have(3, 1);
    must_have(0, 0);
    MUST(cuGraphExecDestroy(executable));
    int of_graph = evict(0), of_executable = evict(3);
    MUST(cuGraphDestroy(graph));
    printf("%d %d %d %d %d\n", first, second, of_graph, of_executable, evict(0));
    must_have(0, 0);
    must_have(3, 1);
}

static void capturing(void)
{
    CUgraphExec executable;
    CUgraph graph;
    MUST(cuStreamBeginCapture_v2(stream, 2));
    MUST(fill_by_kernel(blocks[0], BYTES, 7, stream));
    int during = evict(2);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
    MUST(cuGraphLaunch(executable, stream));
    MUST(cuStreamSynchronize(stream));
    printf("%d %d\n", during != 0, evict(2));
    must_have(0, 7);
    must_have(2, 2);
}

static void opaque(void)
{
    CUgraphExec executable;
    MUST(cuGraphInstantiateWithFlags(&executable, captured(0, 7), LAUNCHES_BY_KERNELS));
    int during = evict(2);
    MUST(cuGraphExecDestroy(executable));
    printf("%d %d\n", during, evict(2));
    must_have(2, 2);
}

int main(int count, char **argument)
{
    if (count < 3)
        return 84;
    load(argument[1]);
    MUST(cuStreamCreate(&stream, 1));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc_v2(&blocks[i], BYTES));
        MUST(fill_by_kernel(blocks[i], BYTES, i, stream));
    }
    MUST(cuStreamSynchronize(stream));
    if (!strcmp(argument[2], "kernels"))
        kernels();
    else if (!strcmp(argument[2], "copies"))
        copies();
    else if (!strcmp(argument[2], "changed"))
        changed();
    else if (!strcmp(argument[2], "capturing"))
        capturing();
    else
        opaque();
    return 0;
}
