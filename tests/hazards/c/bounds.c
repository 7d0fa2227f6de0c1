/* Copies and memsets in every form, each of which first fills a block to its last byte and then
 * runs past its end.
 *
 *   bounds KIND BYTES PAST [held]
 *
 * KIND is plain (cuMemAlloc), pool (cuMemAllocAsync), or cut (cuMemAlloc, from memory of a larger
 * block that was freed). Prints each form, the end that is passed, and both calls' codes: the
 * answers of a driver are the same with and without the library. A refused call must write nothing,
 * to the block or to any other one. With "held" the stream waits for the host during all calls, and
 * each call must return its code at once. Under the library the block must have a neighbour; if it
 * has none, the test shows nothing and the program ends with 3. */

#include <stdint.h>
#include <string.h>

#include "copies.h"

/* A function of the library, or null without it. */
__attribute__((weak)) char *wmshim_stats_json(void);

enum { BLOCKS = 8, PITCH = 512, WIDTH = 256, KEEP = 0x5a, DEVICE = 2, UNIFIED = 4, HOST = 1 };

static CUcontext here;
static CUstream stream;
static CUgraph graph;
static size_t block_bytes;
static CUdeviceptr blocks[BLOCKS], first, roomy;
/* A place that is larger than any copy here: memory of the host, whose other end is a block. */
static unsigned char *host, *is, *kept;
static unsigned *flag;

/* One copy: consecutive bytes; rows and layers where a form has them. */
struct want {
    CUdeviceptr to, from;
    size_t bytes;
    /* Rows of WIDTH bytes, PITCH apart; `bytes` is their extent. */
    size_t rows;
};

static struct plane plane_of(struct want w, unsigned kind)
{
    struct plane p;
    memset(&p, 0, sizeof p);
    p.dkind = kind, p.ddevice = w.to, p.dpitch = PITCH, p.dx = WIDTH;
    p.skind = kind, p.sdevice = w.from, p.spitch = PITCH, p.sx = WIDTH;
    p.width = WIDTH, p.height = w.rows;
    return p;
}

/* Two layers, or one if the number of rows is odd. */
static struct volume volume_of(struct want w)
{
    struct volume v;
    memset(&v, 0, sizeof v);
    size_t layers = w.rows % 2 ? 1 : 2;
    v.dkind = DEVICE, v.ddevice = w.to, v.dpitch = PITCH, v.dx = WIDTH, v.dheight = w.rows / layers;
    v.skind = UNIFIED, v.sdevice = w.from, v.spitch = PITCH, v.sx = WIDTH, v.sheight = w.rows / layers;
    v.width = WIDTH, v.height = w.rows / layers, v.depth = layers;
    return v;
}

static struct volume straight(struct want w)
{
    struct volume v;
    memset(&v, 0, sizeof v);
    v.dkind = v.skind = DEVICE, v.ddevice = w.to, v.sdevice = w.from;
    v.width = w.bytes, v.height = v.depth = 1;
    return v;
}

static struct operation brick(struct want w)
{
    struct operation o;
    memset(&o, 0, sizeof o);
    o.from = (struct operand){ 1, w.from + WIDTH, PITCH, w.rows, { 0, 0 } };
    o.to = (struct operand){ 1, w.to + WIDTH, PITCH, w.rows, { 0, 0 } };
    o.width = WIDTH, o.height = w.rows, o.depth = 1, o.order = 1;
    return o;
}

static struct volume with_contexts(struct volume v)
{
    v.dcontext = v.scontext = here;
    return v;
}

static struct how how_of(void)
{
    struct how how;
    memset(&how, 0, sizeof how);
    how.order = 1;
    return how;
}

/* Of two copies the first is valid and the second is tested: if it is refused, neither may be made,
 * and the error names it. */
static CUresult batch(struct want w, int form)
{
    CUdeviceptr tos[] = { roomy, w.to }, froms[] = { roomy + 2 * block_bytes, w.from };
    size_t sizes[] = { 64, w.bytes }, first_of[] = { 0 }, failed = 77;
    struct how how = how_of();
    CUresult result;
    switch (form) {
    case 0: result = cuMemcpyBatchAsync(tos, froms, sizes, 2, &how, first_of, 1, &failed, stream); break;
    case 1: result = cuMemcpyBatchAsync_ptsz(tos, froms, sizes, 2, &how, first_of, 1, &failed, stream); break;
    case 2: return cuMemcpyBatchAsync_v2(tos, froms, sizes, 2, &how, first_of, 1, stream);
    default: return cuMemcpyBatchAsync_v2_ptsz(tos, froms, sizes, 2, &how, first_of, 1, stream);
    }
    if (result && failed != 1)
        printf("copy %zu of the batch is named\n", failed);
    return result;
}

static CUresult bricks(struct want w, int form)
{
    struct want good = { roomy, roomy + 2 * block_bytes, 0, 1 };
    struct operation list[] = { brick(good), brick(w) };
    size_t failed = 77;
    CUresult result;
    switch (form) {
    case 0: result = cuMemcpy3DBatchAsync(2, list, &failed, 0, stream); break;
    case 1: result = cuMemcpy3DBatchAsync_ptsz(2, list, &failed, 0, stream); break;
    case 2: return cuMemcpy3DBatchAsync_v2(2, list, 0, stream);
    case 3: return cuMemcpy3DBatchAsync_v2_ptsz(2, list, 0, stream);
    case 4: return cuMemcpy3DWithAttributesAsync(&list[1], 0, stream);
    default: return cuMemcpy3DWithAttributesAsync_ptsz(&list[1], 0, stream);
    }
    if (result && failed != 1)
        printf("copy %zu of the batch is named\n", failed);
    return result;
}

static struct node copy_node(struct volume copy)
{
    struct node n;
    memset(&n, 0, sizeof n);
    n.kind = 1, n.body.copy.copy = copy, n.body.copy.context = here;
    return n;
}

static struct memset_node set_of(struct want w)
{
    return (struct memset_node){ w.to + WIDTH, PITCH, 7, 1, WIDTH, w.rows };
}

static struct node set_node(struct want w)
{
    struct node n;
    struct memset_node set = set_of(w);
    memset(&n, 0, sizeof n);
    n.kind = 2;
    memcpy(&n.body, &set, sizeof set);
    memcpy((char *)&n.body + sizeof set, &here, sizeof here);
    return n;
}

/* A valid node of each kind, and the graph made of them. */
static struct want good(void) { return (struct want){ roomy, roomy + 2 * block_bytes, 64, 1 }; }

static CUgraphNode good_node(int is_set)
{
    CUgraphNode node;
    struct node n = is_set ? set_node(good()) : copy_node(straight(good()));
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddNode(&node, graph, NULL, 0, &n));
    return node;
}

/* A node that is added, changed, or changed in a graph that is ready. No graph is launched. */
static CUresult graph_form(struct want w, int is_set, int form)
{
    CUgraphNode node;
    CUgraphExec exec;
    struct volume copy = w.rows > 1 ? volume_of(w) : straight(w);
    struct memset_node set = set_of(w);
    struct node any = is_set ? set_node(w) : copy_node(copy);
    CUresult result;
    if (form < 3) {
        MUST(cuGraphCreate(&graph, 0));
        result = form == 1 ? cuGraphAddNode(&node, graph, NULL, 0, &any)
            : form == 2    ? cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &any)
            : is_set       ? cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, here)
                           : cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, here);
    } else {
        node = good_node(is_set);
        MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
        switch (form) {
        case 3: result = is_set ? cuGraphMemsetNodeSetParams(node, &set) : cuGraphMemcpyNodeSetParams(node, &copy); break;
        case 4: result = cuGraphNodeSetParams(node, &any); break;
        case 5:
            result = is_set ? cuGraphExecMemsetNodeSetParams(exec, node, &set, here)
                            : cuGraphExecMemcpyNodeSetParams(exec, node, &copy, here);
            break;
        default: result = cuGraphExecNodeSetParams(exec, node, &any);
        }
        MUST(cuGraphExecDestroy(exec));
    }
    MUST(cuGraphDestroy(graph));
    return result;
}

static CUresult captured(struct want w, int is_set)
{
    CUstream other;
    MUST(cuStreamCreate(&other, 1));
    MUST(cuStreamBeginCapture_v2(other, 2));
    CUresult result = is_set ? cuMemsetD8Async(w.to, 7, w.bytes, other) : cuMemcpyDtoDAsync_v2(w.to, w.from, w.bytes, other);
    CUresult ended = cuStreamEndCapture(other, &graph);
    if (!ended)
        MUST(cuGraphDestroy(graph));
    MUST(cuStreamDestroy_v2(other));
    return result;
}

/* The ends at which a form can be tried, the unit of its size, and whether it waits for the stream:
 * in a held stream such a form would not return. */
enum { TO = 1, FROM = 2, BOTH = 3, ROWS = 4, WAITS = 8, WIDE = 16 };

#define FLAT(X)                                                                                   \
    X(cuMemcpyHtoD_v2, TO | WAITS, cuMemcpyHtoD_v2(w.to, host, w.bytes))                           \
    X(cuMemcpyHtoD_v2_ptds, TO | WAITS, cuMemcpyHtoD_v2_ptds(w.to, host, w.bytes))                 \
    X(cuMemcpyHtoDAsync_v2, TO, cuMemcpyHtoDAsync_v2(w.to, host, w.bytes, stream))                 \
    X(cuMemcpyHtoDAsync_v2_ptsz, TO, cuMemcpyHtoDAsync_v2_ptsz(w.to, host, w.bytes, stream))       \
    X(cuMemcpyDtoH_v2, FROM | WAITS, cuMemcpyDtoH_v2(host, w.from, w.bytes))                       \
    X(cuMemcpyDtoH_v2_ptds, FROM | WAITS, cuMemcpyDtoH_v2_ptds(host, w.from, w.bytes))             \
    X(cuMemcpyDtoHAsync_v2, FROM, cuMemcpyDtoHAsync_v2(host, w.from, w.bytes, stream))             \
    X(cuMemcpyDtoHAsync_v2_ptsz, FROM, cuMemcpyDtoHAsync_v2_ptsz(host, w.from, w.bytes, stream))   \
    X(cuMemcpyDtoD_v2, BOTH | WAITS, cuMemcpyDtoD_v2(w.to, w.from, w.bytes))                       \
    X(cuMemcpyDtoD_v2_ptds, BOTH | WAITS, cuMemcpyDtoD_v2_ptds(w.to, w.from, w.bytes))             \
    X(cuMemcpyDtoDAsync_v2, BOTH, cuMemcpyDtoDAsync_v2(w.to, w.from, w.bytes, stream))             \
    X(cuMemcpyDtoDAsync_v2_ptsz, BOTH, cuMemcpyDtoDAsync_v2_ptsz(w.to, w.from, w.bytes, stream))   \
    X(cuMemcpy, BOTH | WAITS, cuMemcpy(w.to, w.from, w.bytes))                                     \
    X(cuMemcpy_ptds, BOTH | WAITS, cuMemcpy_ptds(w.to, w.from, w.bytes))                           \
    X(cuMemcpyAsync, BOTH, cuMemcpyAsync(w.to, w.from, w.bytes, stream))                           \
    X(cuMemcpyAsync_ptsz, BOTH, cuMemcpyAsync_ptsz(w.to, w.from, w.bytes, stream))                 \
    X(cuMemcpyAsync_of_the_host, TO, cuMemcpyAsync(w.to, (CUdeviceptr)(uintptr_t)host, w.bytes, stream)) \
    X(cuMemcpyPeer, BOTH | WAITS, cuMemcpyPeer(w.to, here, w.from, here, w.bytes))                 \
    X(cuMemcpyPeer_ptds, BOTH | WAITS, cuMemcpyPeer_ptds(w.to, here, w.from, here, w.bytes))       \
    X(cuMemcpyPeerAsync, BOTH, cuMemcpyPeerAsync(w.to, here, w.from, here, w.bytes, stream))       \
    X(cuMemcpyPeerAsync_ptsz, BOTH, cuMemcpyPeerAsync_ptsz(w.to, here, w.from, here, w.bytes, stream)) \
    X(cuMemcpyWithAttributesAsync, BOTH, cuMemcpyWithAttributesAsync(w.to, w.from, w.bytes, &how, stream)) \
    X(cuMemcpyWithAttributesAsync_ptsz, BOTH, cuMemcpyWithAttributesAsync_ptsz(w.to, w.from, w.bytes, &how, stream)) \
    X(cuMemcpyBatchAsync, BOTH, batch(w, 0))                                                       \
    X(cuMemcpyBatchAsync_ptsz, BOTH, batch(w, 1))                                                  \
    X(cuMemcpyBatchAsync_v2, BOTH, batch(w, 2))                                                    \
    X(cuMemcpyBatchAsync_v2_ptsz, BOTH, batch(w, 3))                                               \
    X(captured_copy, BOTH, captured(w, 0))                                                         \
    X(captured_memset, TO, captured(w, 1))                                                         \
    X(cuMemsetD8_v2, TO | WAITS, cuMemsetD8_v2(w.to, 7, w.bytes))                                  \
    X(cuMemsetD8_v2_ptds, TO | WAITS, cuMemsetD8_v2_ptds(w.to, 7, w.bytes))                        \
    X(cuMemsetD8Async, TO, cuMemsetD8Async(w.to, 7, w.bytes, stream))                              \
    X(cuMemsetD8Async_ptsz, TO, cuMemsetD8Async_ptsz(w.to, 7, w.bytes, stream))                    \
    X(cuMemsetD16_v2, TO | WAITS | WIDE, cuMemsetD16_v2(w.to, 7, w.bytes / 2))                     \
    X(cuMemsetD16_v2_ptds, TO | WAITS | WIDE, cuMemsetD16_v2_ptds(w.to, 7, w.bytes / 2))           \
    X(cuMemsetD16Async, TO | WIDE, cuMemsetD16Async(w.to, 7, w.bytes / 2, stream))                 \
    X(cuMemsetD16Async_ptsz, TO | WIDE, cuMemsetD16Async_ptsz(w.to, 7, w.bytes / 2, stream))       \
    X(cuMemsetD32_v2, TO | WAITS | WIDE, cuMemsetD32_v2(w.to, 7, w.bytes / 4))                     \
    X(cuMemsetD32_v2_ptds, TO | WAITS | WIDE, cuMemsetD32_v2_ptds(w.to, 7, w.bytes / 4))           \
    X(cuMemsetD32Async, TO | WIDE, cuMemsetD32Async(w.to, 7, w.bytes / 4, stream))                 \
    X(cuMemsetD32Async_ptsz, TO | WIDE, cuMemsetD32Async_ptsz(w.to, 7, w.bytes / 4, stream))       \
    X(graph_copy_added, BOTH, graph_form(w, 0, 0))                                                 \
    X(graph_copy_added_any, BOTH, graph_form(w, 0, 1))                                             \
    X(graph_copy_added_any_v2, BOTH, graph_form(w, 0, 2))                                          \
    X(graph_copy_set, BOTH, graph_form(w, 0, 3))                                                   \
    X(graph_copy_set_any, BOTH, graph_form(w, 0, 4))                                               \
    X(graph_copy_set_ready, BOTH, graph_form(w, 0, 5))                                             \
    X(graph_copy_set_ready_any, BOTH, graph_form(w, 0, 6))

#define SHAPED(X)                                                                                 \
    X(cuMemcpy2D_v2, BOTH | WAITS, cuMemcpy2D_v2(&p))                                              \
    X(cuMemcpy2D_v2_ptds, BOTH | WAITS, cuMemcpy2D_v2_ptds(&p))                                    \
    X(cuMemcpy2DUnaligned_v2, BOTH | WAITS, cuMemcpy2DUnaligned_v2(&p))                            \
    X(cuMemcpy2DUnaligned_v2_ptds, BOTH | WAITS, cuMemcpy2DUnaligned_v2_ptds(&p))                  \
    X(cuMemcpy2DAsync_v2, BOTH, cuMemcpy2DAsync_v2(&p, stream))                                    \
    X(cuMemcpy2DAsync_v2_ptsz, BOTH, cuMemcpy2DAsync_v2_ptsz(&p, stream))                          \
    X(cuMemcpy2DAsync_unified, BOTH, cuMemcpy2DAsync_v2(&u, stream))                               \
    X(cuMemcpy3D_v2, BOTH | WAITS, cuMemcpy3D_v2(&v))                                              \
    X(cuMemcpy3D_v2_ptds, BOTH | WAITS, cuMemcpy3D_v2_ptds(&v))                                    \
    X(cuMemcpy3DAsync_v2, BOTH, cuMemcpy3DAsync_v2(&v, stream))                                    \
    X(cuMemcpy3DAsync_v2_ptsz, BOTH, cuMemcpy3DAsync_v2_ptsz(&v, stream))                          \
    X(cuMemcpy3DPeer, BOTH | WAITS, cuMemcpy3DPeer(&c))                                            \
    X(cuMemcpy3DPeer_ptds, BOTH | WAITS, cuMemcpy3DPeer_ptds(&c))                                  \
    X(cuMemcpy3DPeerAsync, BOTH, cuMemcpy3DPeerAsync(&c, stream))                                  \
    X(cuMemcpy3DPeerAsync_ptsz, BOTH, cuMemcpy3DPeerAsync_ptsz(&c, stream))                        \
    X(cuMemcpy3DBatchAsync, BOTH, bricks(w, 0))                                                    \
    X(cuMemcpy3DBatchAsync_ptsz, BOTH, bricks(w, 1))                                               \
    X(cuMemcpy3DBatchAsync_v2, BOTH, bricks(w, 2))                                                 \
    X(cuMemcpy3DBatchAsync_v2_ptsz, BOTH, bricks(w, 3))                                            \
    X(cuMemcpy3DWithAttributesAsync, BOTH, bricks(w, 4))                                           \
    X(cuMemcpy3DWithAttributesAsync_ptsz, BOTH, bricks(w, 5))                                      \
    X(cuMemsetD2D8_v2, TO | WAITS, cuMemsetD2D8_v2(w.to + WIDTH, PITCH, 7, WIDTH, w.rows))         \
    X(cuMemsetD2D8_v2_ptds, TO | WAITS, cuMemsetD2D8_v2_ptds(w.to + WIDTH, PITCH, 7, WIDTH, w.rows)) \
    X(cuMemsetD2D8Async, TO, cuMemsetD2D8Async(w.to + WIDTH, PITCH, 7, WIDTH, w.rows, stream))     \
    X(cuMemsetD2D8Async_ptsz, TO, cuMemsetD2D8Async_ptsz(w.to + WIDTH, PITCH, 7, WIDTH, w.rows, stream)) \
    X(cuMemsetD2D16_v2, TO | WAITS | WIDE, cuMemsetD2D16_v2(w.to + WIDTH, PITCH, 7, WIDTH / 2, w.rows)) \
    X(cuMemsetD2D16_v2_ptds, TO | WAITS | WIDE, cuMemsetD2D16_v2_ptds(w.to + WIDTH, PITCH, 7, WIDTH / 2, w.rows)) \
    X(cuMemsetD2D16Async, TO | WIDE, cuMemsetD2D16Async(w.to + WIDTH, PITCH, 7, WIDTH / 2, w.rows, stream)) \
    X(cuMemsetD2D16Async_ptsz, TO | WIDE, cuMemsetD2D16Async_ptsz(w.to + WIDTH, PITCH, 7, WIDTH / 2, w.rows, stream)) \
    X(cuMemsetD2D32_v2, TO | WAITS | WIDE, cuMemsetD2D32_v2(w.to + WIDTH, PITCH, 7, WIDTH / 4, w.rows)) \
    X(cuMemsetD2D32_v2_ptds, TO | WAITS | WIDE, cuMemsetD2D32_v2_ptds(w.to + WIDTH, PITCH, 7, WIDTH / 4, w.rows)) \
    X(cuMemsetD2D32Async, TO | WIDE, cuMemsetD2D32Async(w.to + WIDTH, PITCH, 7, WIDTH / 4, w.rows, stream)) \
    X(cuMemsetD2D32Async_ptsz, TO | WIDE, cuMemsetD2D32Async_ptsz(w.to + WIDTH, PITCH, 7, WIDTH / 4, w.rows, stream)) \
    X(graph_volume_added, BOTH, graph_form(w, 0, 0))                                               \
    X(graph_volume_set_ready, BOTH, graph_form(w, 0, 6))                                           \
    X(graph_memset_added, TO, graph_form(w, 1, 0))                                                 \
    X(graph_memset_added_any, TO, graph_form(w, 1, 1))                                             \
    X(graph_memset_added_any_v2, TO, graph_form(w, 1, 2))                                          \
    X(graph_memset_set, TO, graph_form(w, 1, 3))                                                   \
    X(graph_memset_set_any, TO, graph_form(w, 1, 4))                                               \
    X(graph_memset_set_ready, TO, graph_form(w, 1, 5))                                             \
    X(graph_memset_set_ready_any, TO, graph_form(w, 1, 6))

static const struct form { const char *name; int about; } forms[] = {
#define NAME(name, about, call) { #name, about },
#define SHAPE(name, about, call) { #name, (about) | ROWS },
    FLAT(NAME) SHAPED(SHAPE)
};

enum { FORMS = sizeof forms / sizeof *forms };

static CUresult make(size_t form, struct want w)
{
    struct how how = how_of();
    size_t number = 0;
#define TRY(name, about, call) if (number++ == form) return call;
    FLAT(TRY)
    struct plane p = plane_of(w, DEVICE), u = plane_of(w, UNIFIED);
    struct volume v = volume_of(w), c = with_contexts(v);
    SHAPED(TRY)
    exit(90);
}

/* A copy from or to the block, which passes the block's end by this number of bytes. */
static struct want wanted(const struct form *form, int end, size_t past)
{
    struct want w = { roomy, roomy + 2 * block_bytes, block_bytes + past, 1 };
    CUdeviceptr start = first;
    if (form->about & ROWS) {
        /* The last row ends with the block, or this number of bytes behind it. */
        w.rows = block_bytes / PITCH + past / PITCH;
        start += block_bytes % PITCH + past % PITCH;
    }
    if (end == TO)
        w.to = start;
    else
        w.from = start;
    return w;
}

/* Memory that only a wrong copy changes. */
static void fill(void)
{
    for (size_t i = 0; i < BLOCKS; i++)
        MUST(cuMemcpyHtoD_v2(blocks[i], kept, block_bytes));
    MUST(cuMemcpyHtoD_v2(roomy, kept, 4 * block_bytes));
}

static void look(const char *name, CUdeviceptr at, size_t bytes)
{
    size_t i = 0;
    MUST(cuMemcpyDtoH_v2(is, at, bytes));
    if (!memcmp(is, kept, bytes))
        return;
    while (is[i] == KEEP)
        i++;
    printf("%s: byte %zu of %s was written\n", name, i, at == roomy ? "the other end" : at == first ? "the block" : "another block");
    fflush(stdout);
    exit(1);
}

static void expect_untouched(const char *name)
{
    MUST(cuCtxSynchronize());
    for (size_t i = 0; i < BLOCKS; i++)
        look(name, blocks[i], block_bytes);
    look(name, roomy, 4 * block_bytes);
}

static void try(size_t number, int end, size_t past, int held)
{
    const struct form *form = &forms[number];
    /* Sets of words end at a word's end. */
    size_t step = form->about & WIDE ? 4 : 1, over = (past + step - 1) / step * step;
    if (!(form->about & end) || (held && form->about & WAITS))
        return;
    if (form->about & WIDE && block_bytes % 4)
        return;
    if (!held)
        fill();
    CUresult wrong = make(number, wanted(form, end, over));
    if (!held)
        expect_untouched(form->name);
    CUresult right = make(number, wanted(form, end, 0));
    if (!held)
        MUST(cuCtxSynchronize());
    printf("%s %s: %d, past it %d\n", form->name, end == TO ? "to" : "from", right, wrong);
    fflush(stdout);
}

static CUdeviceptr allocate(const char *kind, size_t bytes)
{
    CUdeviceptr address;
    MUST(strcmp(kind, "pool") ? cuMemAlloc_v2(&address, bytes) : cuMemAllocAsync(&address, bytes, stream));
    return address;
}

/* A block directly behind which another one begins, or none. */
static int has_neighbour(void)
{
    size_t rounded = (block_bytes + 511) / 512 * 512;
    for (size_t i = 0; i < BLOCKS; i++)
        for (size_t j = 0; j < BLOCKS; j++)
            if (blocks[j] == blocks[i] + rounded) {
                first = blocks[i];
                return 1;
            }
    first = blocks[0];
    return 0;
}

int main(int arguments, char **argument)
{
    if (arguments < 4)
        return 2;
    const char *kind = argument[1];
    size_t past = strtoull(argument[3], NULL, 0);
    int held = arguments > 4 && !strcmp(argument[4], "held");
    block_bytes = strtoull(argument[2], NULL, 0);
    here = begin();
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuMemAllocHost_v2((void **)&host, 4 * block_bytes));
    MUST(cuMemAllocHost_v2((void **)&flag, sizeof *flag));
    is = malloc(4 * block_bytes), kept = malloc(4 * block_bytes);
    memset(kept, KEEP, 4 * block_bytes);
    roomy = allocate(kind, 4 * block_bytes);
    if (!strcmp(kind, "cut"))
        MUST(cuMemFree_v2(allocate("plain", BLOCKS * block_bytes)));
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = allocate(kind, block_bytes);
    MUST(cuStreamSynchronize(stream));
    if (!has_neighbour() && wmshim_stats_json)
        return 3;
    memset(host, 7, 4 * block_bytes);
    *flag = 0;
    fill();
    MUST(cuCtxSynchronize());
    if (held)
        MUST(cuStreamWaitValue32_v2(stream, (CUdeviceptr)(uintptr_t)flag, 1, 0));
    for (size_t form = 0; form < FORMS; form++) {
        try(form, TO, past, held);
        try(form, FROM, past, held);
    }
    *(volatile unsigned *)flag = 1;
    MUST(cuCtxSynchronize());
    return 0;
}
