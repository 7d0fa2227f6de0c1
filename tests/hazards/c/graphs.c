/* Graphs beside memory that moves. Each mode prints numbers; the bytes are checked here.
 *
 *   graphs IMAGE kernels      a captured kernel's block leaves the device, and its graph is launched again: the code, and the
 *                             MiB on the host
 *   graphs IMAGE copies       codes of moves of the block that a copy's node names and of another one, while the executable graph
 *                             lives that was made of it, and after its end
 *   graphs IMAGE changed      the same codes for the block that an executable graph's copy named first, and the one that it was
 *                             changed to, until the end of the graph
 *   graphs IMAGE capturing    whether a move is refused during a capture, and the code of one beside the graph
 *   graphs IMAGE opaque       the code of a move while a graph lives that kernels may launch, and after its end
 *   graphs IMAGE captured     codes for the blocks of a captured copy, memset and kernel, and for another one, while the
 *                             executable graph lives; and for the first three after its end
 *   graphs IMAGE child        for the block of a child's memset, another block, and that which the memset is changed to, while
 *                             the graph lives; and for the first and the last after its end
 *   graphs IMAGE clone        for the block of a captured memset while a clone lives, and after its end
 *   graphs IMAGE updated      for the block of an executable graph's memset and that of the graph it is made like, and for
 *                             the latter after its end
 *   graphs IMAGE set          for the block of an executable graph's memset and that which it is changed to; for both after
 *                             the end of the executable graph; for the first after the end of the graph
 *   graphs IMAGE node         for the block of a graph's memset and that which it is changed to, and for both after its end
 *   graphs IMAGE late         for a block beside a graph, on its way out; for it in a captured memset, on its way back; and
 *                             for that after the graph's end */

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

typedef struct {
    CUdeviceptr dst;
    size_t pitch;
    unsigned value, elementSize;
    size_t width, height;
} Set;

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned word, size_t words, CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuGraphCreate(CUgraph *graph, unsigned flags);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, const Copy *copy,
                              CUcontext context);
CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUgraph child);
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph);
CUresult cuGraphClone(CUgraph *clone, CUgraph graph);
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const Set *set);
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node, const Set *set, CUcontext context);
CUresult cuGraphExecUpdate_v2(CUgraphExec executable, CUgraph graph, void *result);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags);
CUresult cuGraphExecDestroy(CUgraphExec executable);
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node, const Copy *copy, CUcontext context);
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream);

enum { MIB = 1 << 20, BYTES = 32 * MIB, BLOCKS = 5, LAUNCHES_BY_KERNELS = 4 };

static CUdeviceptr blocks[BLOCKS];
static CUstream stream;

static unsigned long long on_host(void)
{
    const char *at = strstr(wmshim_stats_json(), "\"host\":{");
    at = at ? strstr(at, "\"live_bytes\":") : NULL;
    return at ? strtoull(at + strlen("\"live_bytes\":"), NULL, 10) >> 20 : 0;
}

static int evict(int block) { return wmshim_advise((void *)blocks[block], BYTES, WMSHIM_COLD); }

static int bring(int block) { return wmshim_advise((void *)blocks[block], BYTES, WMSHIM_PREFETCH); }

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

static CUgraph captured_set(int block, unsigned word)
{
    CUgraph graph;
    MUST(cuStreamBeginCapture_v2(stream, 2));
    MUST(cuMemsetD32Async(blocks[block], word, BYTES / 4, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    return graph;
}

static CUgraphExec ready(CUgraph graph)
{
    CUgraphExec executable;
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
    return executable;
}

static CUgraphNode only_node(CUgraph graph)
{
    CUgraphNode node;
    size_t count = 1;
    MUST(cuGraphGetNodes(graph, &node, &count));
    return node;
}

static Set set_of(int block, unsigned word)
{
    return (Set){.dst = blocks[block], .value = word, .elementSize = 4, .width = BYTES / 4, .height = 1};
}

/* Runs it, and ends it. */
static void run(CUgraphExec executable)
{
    MUST(cuGraphLaunch(executable, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuGraphExecDestroy(executable));
}

static void captured_nodes(void)
{
    CUgraph graph;
    MUST(cuStreamBeginCapture_v2(stream, 2));
    MUST(cuMemcpyDtoDAsync_v2(blocks[0], blocks[1], BYTES, stream));
    MUST(cuMemsetD32Async(blocks[2], 7, BYTES / 4, stream));
    MUST(fill_by_kernel(blocks[3], BYTES, 8, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    CUgraphExec executable = ready(graph);
    MUST(cuGraphDestroy(graph));
    int named[] = {evict(0), evict(1), evict(2)}, of_kernel = evict(3), other = evict(4);
    for (int i = 0; i < BLOCKS; i++)
        must_have(i, i);
    run(executable);
    int words[] = {1, 1, 7, 8, 4};
    for (int i = 0; i < BLOCKS; i++)
        must_have(i, words[i]);
    printf("%d %d %d %d %d %d %d %d\n", named[0], named[1], named[2], of_kernel, other, evict(0), evict(1), evict(2));
    for (int i = 0; i < BLOCKS; i++)
        must_have(i, words[i]);
}

static void child(void)
{
    CUgraph graph, given = captured_set(0, 7), own;
    CUgraphNode node;
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddChildGraphNode(&node, graph, NULL, 0, given));
    MUST(cuGraphDestroy(given));
    int first = evict(0), other = evict(1);
    Set set = set_of(2, 9);
    MUST(cuGraphChildGraphNodeGetGraph(node, &own));
    MUST(cuGraphMemsetNodeSetParams(only_node(own), &set));
    int second = evict(2);
    run(ready(graph));
    MUST(cuGraphDestroy(graph));
    printf("%d %d %d %d %d\n", first, other, second, evict(0), evict(2));
    must_have(0, 0);
    must_have(1, 1);
    must_have(2, 9);
}

static void cloned(void)
{
    CUgraph clone, graph = captured_set(0, 7);
    MUST(cuGraphClone(&clone, graph));
    MUST(cuGraphDestroy(graph));
    int during = evict(0);
    run(ready(clone));
    MUST(cuGraphDestroy(clone));
    printf("%d %d\n", during, evict(0));
    must_have(0, 7);
}

static void updated(void)
{
    CUgraph first = captured_set(0, 7), second = captured_set(1, 9);
    CUgraphExec executable = ready(first);
    MUST(cuGraphExecUpdate_v2(executable, second, NULL));
    MUST(cuGraphDestroy(first));
    MUST(cuGraphDestroy(second));
    int former = evict(0), latter = evict(1);
    run(executable);
    printf("%d %d %d\n", former, latter, evict(1));
    must_have(0, 0);
    must_have(1, 9);
}

static void set(void)
{
    CUgraph graph = captured_set(0, 7);
    CUgraphExec executable = ready(graph);
    Set other = set_of(1, 9);
    MUST(cuGraphExecMemsetNodeSetParams(executable, only_node(graph), &other, context));
    int former = evict(0), latter = evict(1);
    run(executable);
    int of_graph = evict(0), of_executable = evict(1);
    MUST(cuGraphDestroy(graph));
    printf("%d %d %d %d %d\n", former, latter, of_graph, of_executable, evict(0));
    must_have(0, 0);
    must_have(1, 9);
}

static void node(void)
{
    CUgraph graph = captured_set(0, 7);
    Set other = set_of(1, 9);
    MUST(cuGraphMemsetNodeSetParams(only_node(graph), &other));
    int former = evict(0), latter = evict(1);
    run(ready(graph));
    MUST(cuGraphDestroy(graph));
    printf("%d %d %d %d\n", former, latter, evict(0), evict(1));
    must_have(0, 0);
    must_have(1, 9);
}

static void late(void)
{
    CUgraphExec first = ready(captured_set(0, 7));
    int out = evict(1);
    CUgraph graph = captured_set(1, 9);
    CUgraphExec executable = ready(graph);
    MUST(cuGraphDestroy(graph));
    int back = bring(1);
    run(executable);
    must_have(1, 9);
    printf("%d %d %d\n", out, back, bring(1));
    must_have(1, 9);
    run(first);
    must_have(0, 7);
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    {"kernels", kernels},
    {"copies", copies},
    {"changed", changed},
    {"capturing", capturing},
    {"opaque", opaque},
    {"captured", captured_nodes},
    {"child", child},
    {"clone", cloned},
    {"updated", updated},
    {"set", set},
    {"node", node},
    {"late", late},
};

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
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(argument[2], modes[i].name)) {
            modes[i].run();
            return 0;
        }
    return 84;
}
