/* One copy, in the form that the first argument names, that involves two devices: from
 * memory of device 1 to memory of device 0, with the first one's context current; or between the
 * host and memory of device 1. The copy starts inside the blocks, and its ends are shifted against
 * each other, so that borders inside the blocks meet it at different places: where a limit makes
 * the library put the end of a block on the host. With the second argument "opened", the source is
 * memory of another process; with another one, the program prints the library's statistics first.
 * Ends with 0 if every byte is right. */

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "copies.h"

/* A function of the library, or null without it. */
__attribute__((weak)) char *wmshim_stats_json(void);

enum { MIB = 1 << 20, BLOCK = 4 * MIB, SHIFT = MIB / 2 + 3, BYTES = 3 * MIB + 5, NON_BLOCKING = 1 };
enum { PITCH = 1 << 15, WIDTH = PITCH - 7, ROWS = 90, LAYER = 45, DEVICE = 2, UNIFIED = 4, HOST = 1, GAP = 0xee };

static CUcontext here, there;
static CUdeviceptr to, from, other;
static CUstream stream;
static unsigned char *host, *wanted, *is;
/* 0: all bytes in one row; else the number of rows of WIDTH bytes, PITCH apart. */
static int rows;

static unsigned char byte(size_t i, unsigned seed) { return (unsigned char)((i * 2654435761u + seed) >> 13); }

static CUdeviceptr block_on(CUcontext context)
{
    CUdeviceptr address;
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&address, BLOCK));
    return address;
}

static void write_block(CUdeviceptr block, CUcontext context, unsigned seed)
{
    for (size_t i = 0; i < BLOCK; i++)
        wanted[i] = seed ? byte(i, seed) : GAP;
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemcpyHtoD_v2(block, wanted, BLOCK));
    MUST(cuCtxSynchronize());
}

static void read_block(CUdeviceptr block, CUcontext context)
{
    MUST(cuCtxSetCurrent(context));
    MUST(cuCtxSynchronize());
    MUST(cuMemcpyDtoH_v2(is, block, BLOCK));
}

static struct volume shape(void)
{
    struct volume v;
    memset(&v, 0, sizeof v);
    v.skind = DEVICE, v.sdevice = from, v.spitch = PITCH, v.sheight = LAYER, v.sx = 5, v.sy = 3, v.sz = 0;
    v.dkind = UNIFIED, v.ddevice = to, v.dpitch = PITCH, v.dheight = LAYER, v.dx = 2;
    v.width = WIDTH, v.height = LAYER, v.depth = ROWS / LAYER;
    v.sheight = LAYER + 3;
    return v;
}

/* Consecutive bytes as a description of a volume. */
static struct volume straight(CUdeviceptr source)
{
    struct volume v;
    memset(&v, 0, sizeof v);
    v.skind = DEVICE, v.sdevice = source + SHIFT, v.dkind = DEVICE, v.ddevice = to;
    v.width = BYTES, v.height = v.depth = 1;
    return v;
}

static struct plane rectangle(void)
{
    struct plane p;
    memset(&p, 0, sizeof p);
    p.skind = UNIFIED, p.sdevice = from, p.spitch = PITCH, p.sx = 5, p.sy = 3;
    p.dkind = DEVICE, p.ddevice = to, p.dpitch = PITCH, p.dx = 2, p.width = WIDTH, p.height = ROWS;
    return p;
}

static struct operation brick(void)
{
    struct operation o;
    memset(&o, 0, sizeof o);
    o.from = (struct operand){ 1, from + 3 * PITCH + 5, PITCH, LAYER + 3, { 0, 0 } };
    o.to = (struct operand){ 1, to + 2, PITCH, LAYER, { 0, 0 } };
    o.width = WIDTH, o.height = LAYER, o.depth = ROWS / LAYER, o.order = 1;
    return o;
}

static struct volume with_contexts(struct volume v)
{
    v.dcontext = here, v.scontext = there;
    return v;
}

static struct node node_of(struct volume copy)
{
    struct node n;
    memset(&n, 0, sizeof n);
    n.kind = 1, n.body.copy.copy = copy;
    return n;
}

static CUresult run(CUgraph graph)
{
    CUgraphExec exec;
    CUresult result = cuGraphInstantiateWithFlags(&exec, graph, 0);
    return result ? result : cuGraphLaunch(exec, stream);
}

/* A graph with one copy, made by the call for copies or by the one for nodes of any kind. */
static CUresult graphed(struct volume copy, int any, CUcontext context, CUgraphNode *node, CUgraph *graph)
{
    struct node n = node_of(copy);
    n.body.copy.context = context;
    MUST(cuGraphCreate(graph, 0));
    return any ? cuGraphAddNode(node, *graph, NULL, 0, &n) : cuGraphAddMemcpyNode(node, *graph, NULL, 0, &copy, context);
}

static CUresult graph_form(const char *form)
{
    CUgraph graph;
    CUgraphNode node;
    int shaped = strstr(form, "shape") != NULL;
    rows = shaped ? ROWS : 0;
    CUresult result = graphed(shaped ? shape() : straight(from), strstr(form, "any") != NULL, here, &node, &graph);
    return result ? result : run(graph);
}

/* A copy whose source moves to another block after the node was made: `from` must arrive. No
 * context is named. */
static CUresult changed_form(const char *form)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    struct volume copy = straight(from);
    struct node n = node_of(copy);
    CUresult result = CUDA_SUCCESS;
    MUST(graphed(straight(other), 1, NULL, &node, &graph));
    if (!strcmp(form, "set"))
        result = cuGraphMemcpyNodeSetParams(node, &copy);
    if (!strcmp(form, "set_any"))
        result = cuGraphNodeSetParams(node, &n);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    if (!strcmp(form, "set_ready"))
        result = cuGraphExecMemcpyNodeSetParams(exec, node, &copy, NULL);
    if (!strcmp(form, "set_ready_any"))
        result = cuGraphExecNodeSetParams(exec, node, &n);
    return result ? result : cuGraphLaunch(exec, stream);
}

static CUresult captured_form(void)
{
    CUgraph graph;
    MUST(cuStreamBeginCapture_v2(stream, 0));
    CUresult result = cuMemcpyAsync(to, from + SHIFT, BYTES, stream);
    MUST(cuStreamEndCapture(stream, &graph));
    return result ? result : run(graph);
}

/* Three copies; the second one is long. */
static CUresult batch_form(int second)
{
    size_t sizes[] = { 100, BYTES - 300, 200 }, first[] = { 0, 1 }, failed = 77;
    CUdeviceptr tos[] = { to, to + 100, to + BYTES - 200 };
    CUdeviceptr froms[] = { from + SHIFT, from + SHIFT + 100, from + SHIFT + BYTES - 200 };
    struct how how[2];
    memset(how, 0, sizeof how);
    how[0].order = how[1].order = 1;
    return second ? cuMemcpyBatchAsync_v2(tos, froms, sizes, 3, how, first, 2, stream)
                  : cuMemcpyBatchAsync(tos, froms, sizes, 3, how, first, 2, &failed, stream);
}

static CUresult shaped_form(const char *form)
{
    struct plane p = rectangle();
    struct volume v = shape(), c = with_contexts(v);
    rows = ROWS;
    if (!strcmp(form, "2d")) return cuMemcpy2D_v2(&p);
    if (!strcmp(form, "2d_ptds")) return cuMemcpy2D_v2_ptds(&p);
    if (!strcmp(form, "2d_unaligned")) return cuMemcpy2DUnaligned_v2(&p);
    if (!strcmp(form, "2d_async")) return cuMemcpy2DAsync_v2(&p, stream);
    if (!strcmp(form, "2d_async_ptsz")) return cuMemcpy2DAsync_v2_ptsz(&p, stream);
    if (!strcmp(form, "3d")) return cuMemcpy3D_v2(&v);
    if (!strcmp(form, "3d_ptds")) return cuMemcpy3D_v2_ptds(&v);
    if (!strcmp(form, "3d_async")) return cuMemcpy3DAsync_v2(&v, stream);
    if (!strcmp(form, "3d_async_ptsz")) return cuMemcpy3DAsync_v2_ptsz(&v, stream);
    if (!strcmp(form, "3d_peer")) return cuMemcpy3DPeer(&c);
    if (!strcmp(form, "3d_peer_ptds")) return cuMemcpy3DPeer_ptds(&c);
    if (!strcmp(form, "3d_peer_async")) return cuMemcpy3DPeerAsync(&c, stream);
    if (!strcmp(form, "3d_peer_async_ptsz")) return cuMemcpy3DPeerAsync_ptsz(&c, stream);
    struct operation o = brick();
    size_t failed = 77;
    if (!strcmp(form, "3d_batch")) return cuMemcpy3DBatchAsync(1, &o, &failed, 0, stream);
    if (!strcmp(form, "3d_batch_v2")) return cuMemcpy3DBatchAsync_v2(1, &o, 0, stream);
    if (!strcmp(form, "3d_attributes")) return cuMemcpy3DWithAttributesAsync(&o, 0, stream);
    exit(90);
}

static CUresult make(const char *form)
{
    CUdeviceptr source = from + SHIFT;
    struct how how;
    memset(&how, 0, sizeof how);
    how.order = 1;
    if (!strcmp(form, "memcpy")) return cuMemcpy(to, source, BYTES);
    if (!strcmp(form, "memcpy_ptds")) return cuMemcpy_ptds(to, source, BYTES);
    if (!strcmp(form, "memcpy_async")) return cuMemcpyAsync(to, source, BYTES, stream);
    if (!strcmp(form, "memcpy_async_null")) return cuMemcpyAsync(to, source, BYTES, NULL);
    if (!strcmp(form, "memcpy_async_ptsz")) return cuMemcpyAsync_ptsz(to, source, BYTES, NULL);
    if (!strcmp(form, "dtod")) return cuMemcpyDtoD_v2(to, source, BYTES);
    if (!strcmp(form, "dtod_ptds")) return cuMemcpyDtoD_v2_ptds(to, source, BYTES);
    if (!strcmp(form, "dtod_async")) return cuMemcpyDtoDAsync_v2(to, source, BYTES, stream);
    if (!strcmp(form, "dtod_async_ptsz")) return cuMemcpyDtoDAsync_v2_ptsz(to, source, BYTES, NULL);
    if (!strcmp(form, "peer")) return cuMemcpyPeer(to, here, source, there, BYTES);
    if (!strcmp(form, "peer_ptds")) return cuMemcpyPeer_ptds(to, here, source, there, BYTES);
    if (!strcmp(form, "peer_async")) return cuMemcpyPeerAsync(to, here, source, there, BYTES, stream);
    if (!strcmp(form, "peer_async_ptsz")) return cuMemcpyPeerAsync_ptsz(to, here, source, there, BYTES, NULL);
    if (!strcmp(form, "attributes")) return cuMemcpyWithAttributesAsync(to, source, BYTES, &how, stream);
    if (!strcmp(form, "batch")) return batch_form(0);
    if (!strcmp(form, "batch_v2")) return batch_form(1);
    if (!strcmp(form, "captured")) return captured_form();
    if (!strncmp(form, "graph", 5)) return graph_form(form);
    if (!strncmp(form, "set", 3)) return changed_form(form);
    return shaped_form(form);
}

/* The expected contents of the target: the copied bytes, and the gap everywhere else. */
static void expect(void)
{
    memset(wanted, GAP, BLOCK);
    for (size_t i = 0; !rows && i < BYTES; i++)
        wanted[i] = byte(i + SHIFT, 1);
    for (int row = 0; row < rows; row++) {
        /* The source's layers are LAYER + 3 rows apart where the form has layers. */
        size_t skipped = 3 + (size_t)row + (row >= LAYER ? 3 : 0);
        for (size_t x = 0; x < WIDTH; x++)
            wanted[(size_t)row * PITCH + 2 + x] = byte(skipped * PITCH + 5 + x, 1);
    }
}

static void expect_plane(void)
{
    memset(wanted, GAP, BLOCK);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t x = 0; x < WIDTH; x++)
            wanted[row * PITCH + 2 + x] = byte((row + 3) * PITCH + 5 + x, 1);
}

static void compare(const char *form)
{
    for (size_t i = 0; i < BLOCK; i++)
        if (is[i] != wanted[i]) {
            printf("%s: byte %zu is %d, not %d\n", form, i, is[i], wanted[i]);
            exit(1);
        }
}

/* Between the host and the other device's block, with this one's context current. */
static int host_form(const char *form)
{
    int in = !strncmp(form, "htod", 4), later = strstr(form, "async") != NULL, any = strstr(form, "any") != NULL;
    write_block(from, there, in ? 0 : 1);
    for (size_t i = 0; i < BYTES; i++)
        host[i] = in ? byte(i, 9) : GAP;
    MUST(cuCtxSetCurrent(here));
    CUdeviceptr block = from + SHIFT, at = (CUdeviceptr)(uintptr_t)host;
    CUresult result;
    if (any)
        result = later ? cuMemcpyAsync(in ? block : at, in ? at : block, BYTES, stream) : cuMemcpy(in ? block : at, in ? at : block, BYTES);
    else if (in)
        result = later ? cuMemcpyHtoDAsync_v2(block, host, BYTES, stream) : cuMemcpyHtoD_v2(block, host, BYTES);
    else
        result = later ? cuMemcpyDtoHAsync_v2(host, block, BYTES, stream) : cuMemcpyDtoH_v2(host, block, BYTES);
    if (!result && later)
        result = cuStreamSynchronize(stream);
    if (result)
        return result;
    read_block(from, there);
    for (size_t i = 0; i < BYTES; i++)
        if (in ? is[i + SHIFT] != byte(i, 9) : host[i] != byte(i + SHIFT, 1)) {
            printf("%s: byte %zu is wrong\n", form, i);
            return 1;
        }
    return 0;
}

/* A second process, started before this one loads a driver: its block on device 1 is opened here.
 * It ends when this one does. */
static int exporter(void)
{
    int ends[2];
    if (pipe(ends))
        exit(91);
    if (fork())
        return ends[0];
    CUipcMemHandle named;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    begin();
    MUST(cuDevicePrimaryCtxRetain(&there, 1));
    MUST(cuIpcGetMemHandle(&named, block_on(there)));
    if (write(ends[1], &named, sizeof named) != sizeof named)
        _exit(92);
    pause();
    _exit(0);
}

static CUdeviceptr open_from(int pipe)
{
    CUipcMemHandle named;
    CUdeviceptr opened;
    if (read(pipe, &named, sizeof named) != sizeof named)
        exit(93);
    MUST(cuCtxSetCurrent(there));
    MUST(cuIpcOpenMemHandle_v2(&opened, named, 1));
    return opened;
}

int main(int arguments, char **argument)
{
    const char *form = arguments > 1 ? argument[1] : "memcpy";
    int opens = arguments > 2 && !strcmp(argument[2], "opened"), pipe = opens ? exporter() : 0;
    here = begin();
    MUST(cuDevicePrimaryCtxRetain(&there, 1));
    wanted = malloc(BLOCK), is = malloc(BLOCK);
    MUST(cuMemAllocHost_v2((void **)&host, BLOCK));
    if (!strncmp(form, "set", 3))
        other = block_on(there);
    from = opens ? open_from(pipe) : block_on(there), to = block_on(here);
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    if (arguments > 2 && !opens && wmshim_stats_json) {
        char *stats = wmshim_stats_json();
        printf("stats %s\n", stats);
        free(stats);
    }
    if (strstr(form, "toh") || strstr(form, "htod"))
        return host_form(form);
    write_block(from, there, 1);
    if (other)
        write_block(other, there, 5);
    write_block(to, here, 0);
    CUresult result = make(form);
    if (result) {
        printf("%s: %d\n", form, result);
        return 2;
    }
    MUST(cuStreamSynchronize(stream));
    read_block(to, here);
    if (!strncmp(form, "2d", 2))
        expect_plane();
    else
        expect();
    compare(form);
    return 0;
}
