/* A program whose weights other processes have, too: `shared IMAGE`. It obeys lines of standard
 * input, and answers each with one line.
 *
 *   load BLOCK SEED MIB      allocates and copies the words of this seed from the host: cuMemAlloc, cuMemcpyHtoD
 *   read                     has a kernel read all blocks: "right" or the fault
 *   share MIB MILLISECONDS   reads again and again until MIB are shared, or the time is over: the shared bytes
 *   verify                   reads all blocks by a kernel and by copies: "right" or the fault
 *   write WAY BLOCK SEED     writes over a whole block
 *   part WAY BLOCK SEED      writes over its second chunk only
 *   capture WAY BLOCK SEED   makes a graph that writes over it; `launch` launches the graph, which then has happened, and `relaunch` the one before it
 *   recapture WAY BLOCK SEED captures that graph again, so that it writes over this block
 *   node WAY BLOCK SEED      makes such a graph node by node; WAY is `kernel`, `memset32`, or `any-kernel`, `any-memset32` by the call for nodes of any kind
 *   empty BLOCK MIB          takes a block and writes nothing to it; `fill-in BLOCK SEED` loads it
 *   held WAY BLOCK SEED      writes over a block, in a stream, while another stream waits for the host: the milliseconds until it is written
 *   renew MILLISECONDS AS    loads the kernel that reads from another image, and reads by that one after this time. AS is `module`, or of a library
 *                            `kernel`, `function` or `part`, the library's module in this context
 *   fault                    reads all blocks, and has a kernel write where no memory is
 *   abandon                  destroys a stream that is captured
 *   cancelled LINE           has a thread obey that line that is to be cancelled, while the GPU copies; the thread ends after it
 *   child                    forks a child, which lives for 0.3 s beside the program and then exits
 *   endless                  sets memory without an end, which the driver refuses
 *   free BLOCK
 *   piece BLOCK SEED MIB     the same in memory of its own: cuMemCreate, cuMemMap; it fills the reserved addresses
 *   segment BLOCK SEED MIB   the same in addresses of twice the size, so that an object could go on behind it
 *   tensors BLOCK COUNT SEED MIB   so many blocks side by side, as PyTorch makes tensors: in pieces of 4 MiB of one reservation, and told of
 *   drop BLOCK               tells that such a tensor is freed; its addresses are used as before
 *   elsewhere BLOCK          unmaps that memory, and maps it at other addresses
 *   twice BLOCK SEED         maps that memory a second time, and writes over it from there
 *   rights BLOCK             takes the right to write it away and gives it again
 *   granted BLOCK            the rights that the driver tells
 *   retain BLOCK             has the handle told by the address, and gives it back
 *   beside BLOCK             reserves the addresses beside it, as a program that lets an object grow
 *   pass-on BLOCK            has a descriptor of that memory made, which ends the sharing of equal bytes
 *   export BLOCK             lets other processes open it, which ends the sharing of equal bytes
 *   stats                    the figures of the library
 *   last alone               an exit handler verifies; `last beside`: another thread verifies now, and the handler waits for it; `last late`: one that
 *                            runs after the driver's copies, which the driver refuses
 *
 * Ways: `kernel`, `fill` (a kernel of another signature), `memset`, `memset32`, `host`,
 * `host-async`, `device`, `device-async`. The end of the input ends the program. */

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fill.h"
#include "wmshim.h"

typedef struct CUlib_st *CUlibrary;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t bytes);
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream);
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t words, CUstream stream);
CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t words);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, void *callback, void *data);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, unsigned value, unsigned flags);
CUresult cuLibraryLoadData(CUlibrary *library, const void *image, void *jit, void **jit_values, unsigned jit_count, void *options,
                           void **values, unsigned count);
CUresult cuLibraryGetKernel(CUfunction *kernel, CUlibrary library, const char *name);
CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library);
CUresult cuKernelGetFunction(CUfunction *function, CUfunction kernel);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream);
CUresult cuGraphExecDestroy(CUgraphExec executable);
CUresult cuGraphDestroy(CUgraph graph);

typedef struct CUgraphNode_st *CUgraphNode;

struct kernel_node {
    CUfunction function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    void *kernel, *context;
};

struct memset_node {
    CUdeviceptr to;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
    void *context;
};

/* Any kind of node: 0 a kernel, 2 a memset. */
struct node {
    unsigned kind;
    int reserved[3];
    union {
        struct kernel_node kernel;
        struct memset_node memset;
        long long bytes[29];
    } of;
    long long more;
};

CUresult cuGraphCreate(CUgraph *graph, unsigned flags);
CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, const struct kernel_node *kernel);
CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, const struct memset_node *memset, CUcontext context);
CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, struct node *params);
CUresult cuCtxGetCurrent(CUcontext *context);

struct location { int type, id; };
struct property { int type, handle_types; struct location location; void *metadata; unsigned char flags[8]; };
struct access { struct location location; int flags; };

CUresult cuMemCreate(unsigned long long *handle, size_t bytes, const struct property *property, unsigned long long flags);
CUresult cuMemRelease(unsigned long long handle);
CUresult cuMemAddressReserve(CUdeviceptr *base, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr base, size_t bytes);
CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr at, size_t bytes);
CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const struct access *access, size_t count);
CUresult cuMemGetAccess(unsigned long long *flags, const struct location *location, CUdeviceptr at);
CUresult cuMemRetainAllocationHandle(unsigned long long *handle, void *address);
CUresult cuMemExportToShareableHandle(void *shareable, unsigned long long handle, int type, unsigned long long flags);

/* By which PyTorch's allocator tells of a block of a tensor; c10::Device in two bytes. */
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *block, long bytes, size_t live, size_t held, unsigned short device);

enum { MIB = 1 << 20, CHUNK = 2 * MIB, BLOCKS = 16, MOST = 8 * MIB };

/* A block, and its expected contents. */
struct block {
    CUdeviceptr address;
    size_t bytes;
    unsigned char *model;
    /* Of memory that the program made itself, and the addresses that it reserved for it. */
    unsigned long long handle;
    size_t reserved;
    /* Addresses right beside those, which nothing else takes. */
    CUdeviceptr kept_free;
};

static struct block blocks[BLOCKS];
static CUfunction pattern, verify;
static CUdeviceptr wrong, other;
static CUstream stream;
static unsigned char *staged;
static CUgraph graph;
static CUgraphExec executable, former;
static char problem[160];
static const char *image_path;

/* As `wm_fill_pattern_u64`. */
static void words_of(void *to, size_t bytes, uint64_t seed)
{
    uint64_t *words = to;
    for (uint64_t i = 0; i < bytes / 8; i++) {
        uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        words[i] = z ^ (z >> 31);
    }
}

static void load_more(const char *path)
{
    CUmodule module = load_image(path);
    MUST(cuModuleGetFunction(&pattern, module, "wm_fill_pattern_u64"));
    MUST(cuModuleGetFunction(&verify, module, "wm_verify_pattern_u64"));
}

static struct block *block_of(unsigned number)
{
    if (number >= BLOCKS)
        exit(84);
    return &blocks[number];
}

static void take_block(unsigned number, size_t mib)
{
    struct block *block = block_of(number);
    block->bytes = mib * MIB;
    block->model = malloc(block->bytes);
    MUST(cuMemAlloc_v2(&block->address, block->bytes));
}

static void fill_in(unsigned number, uint64_t seed)
{
    struct block *block = block_of(number);
    words_of(block->model, block->bytes, seed);
    memcpy(staged, block->model, block->bytes);
    MUST(cuMemcpyHtoD_v2(block->address, staged, block->bytes));
}

static void load_block(unsigned number, uint64_t seed, size_t mib)
{
    take_block(number, mib);
    fill_in(number, seed);
}

enum { ON_DEVICE = 1, READ = 1, READ_WRITE = 3, DESCRIPTOR = 1 };

static const struct location DEVICE = { ON_DEVICE, 0 };

static void grant(CUdeviceptr at, size_t bytes, int flags)
{
    struct access access = { DEVICE, flags };
    MUST(cuMemSetAccess(at, bytes, &access, 1));
}

/* No memory of the process comes to lie right below or behind the block. */
static int keep_free(struct block *block)
{
    CUdeviceptr sides[] = { block->address - block->reserved, block->address + block->reserved };
    for (int side = 0; side < 2 && !block->kept_free; side++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        void *at = mmap((void *)sides[side], block->reserved, PROT_NONE, flags, -1, 0);
        if ((CUdeviceptr)at == sides[side])
            block->kept_free = sides[side];
        else if (at != MAP_FAILED)
            munmap(at, block->reserved);
    }
    return block->kept_free != 0;
}

static void map_piece(struct block *block)
{
    /* A range between others is left alone: another one is reserved. */
    for (int tries = 0; tries < 16; tries++) {
        MUST(cuMemAddressReserve(&block->address, block->reserved, 0, 0, 0));
        if (block->kept_free || keep_free(block))
            break;
    }
    MUST(cuMemMap(block->address, block->bytes, 0, block->handle, 0));
    grant(block->address, block->bytes, READ_WRITE);
}

static void unmap_piece(struct block *block)
{
    MUST(cuMemUnmap(block->address, block->bytes));
    MUST(cuMemAddressFree(block->address, block->reserved));
}

static void load_piece(unsigned number, uint64_t seed, size_t mib, size_t times)
{
    struct block *block = block_of(number);
    struct property property = { .type = 1, .handle_types = DESCRIPTOR, .location = DEVICE };
    block->bytes = mib * MIB;
    block->reserved = times * block->bytes;
    block->model = malloc(block->bytes);
    MUST(cuMemCreate(&block->handle, block->bytes, &property, 0));
    map_piece(block);
    fill_in(number, seed);
}

enum { PIECE = 4 * MIB, ON_CUDA = 1 };

static void tell(const struct block *block, long bytes)
{
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)block->address, bytes, 0, 0, ON_CUDA);
}

static void load_tensors(unsigned first, unsigned count, uint64_t seed, size_t mib)
{
    struct property property = { .type = 1, .handle_types = DESCRIPTOR, .location = DEVICE };
    size_t all = (count * mib * MIB + PIECE - 1) / PIECE * PIECE;
    CUdeviceptr segment;
    MUST(cuMemAddressReserve(&segment, 2 * all, 0, 0, 0));
    for (size_t at = 0; at < all; at += PIECE) {
        unsigned long long handle;
        MUST(cuMemCreate(&handle, PIECE, &property, 0));
        MUST(cuMemMap(segment + at, PIECE, 0, handle, 0));
    }
    grant(segment, all, READ_WRITE);
    for (unsigned i = 0; i < count; i++) {
        struct block *block = block_of(first + i);
        *block = (struct block){ .address = segment + i * mib * MIB, .bytes = mib * MIB, .model = malloc(mib * MIB) };
        tell(block, (long)block->bytes);
        fill_in(first + i, seed + i);
    }
}

static void move_elsewhere(unsigned number)
{
    struct block *block = block_of(number);
    struct block before = *block;
    MUST(cuMemUnmap(before.address, before.bytes));
    map_piece(block);
    MUST(cuMemAddressFree(before.address, before.reserved));
}

static void write_elsewhere(unsigned number, uint64_t seed)
{
    struct block *block = block_of(number), second = *block;
    words_of(block->model, block->bytes, seed);
    memcpy(staged, block->model, block->bytes);
    map_piece(&second);
    MUST(cuMemcpyHtoD_v2(second.address, staged, block->bytes));
    unmap_piece(&second);
}

static void change_rights(unsigned number)
{
    struct block *block = block_of(number);
    grant(block->address, block->bytes, READ);
    grant(block->address, block->bytes, READ_WRITE);
}

static unsigned long long granted(unsigned number)
{
    unsigned long long flags = 0;
    MUST(cuMemGetAccess(&flags, &DEVICE, block_of(number)->address));
    return flags;
}

static void retain(unsigned number)
{
    struct block *block = block_of(number);
    unsigned long long handle = 0;
    MUST(cuMemRetainAllocationHandle(&handle, (void *)block->address));
    if (handle != block->handle)
        exit(88);
    MUST(cuMemRelease(handle));
}

static void reserve_beside(unsigned number)
{
    struct block *block = block_of(number);
    CUdeviceptr beside = 0;
    if (!block->kept_free || munmap((void *)block->kept_free, block->reserved))
        exit(89);
    MUST(cuMemAddressReserve(&beside, block->reserved, 0, block->kept_free, 0));
    if (beside != block->kept_free)
        exit(90);
}

static void pass_on(unsigned number)
{
    int descriptor = -1;
    MUST(cuMemExportToShareableHandle(&descriptor, block_of(number)->handle, DESCRIPTOR, 0));
    close(descriptor);
}

static void free_block(unsigned number)
{
    struct block *block = block_of(number);
    if (block->handle) {
        unmap_piece(block);
        MUST(cuMemRelease(block->handle));
    } else {
        MUST(cuMemFree_v2(block->address));
    }
    free(block->model);
    memset(block, 0, sizeof *block);
}

/* The kernel counts words that are not the pattern of seed 0: the model knows their number. */
static uint64_t counted(const struct block *block)
{
    uint64_t count = 0, words = block->bytes / 8, seed = 0;
    CUdeviceptr address = block->address;
    void *parameters[] = {&address, &words, &seed, &wrong};
    MUST(cuMemcpyHtoD_v2(wrong, &count, sizeof count));
    MUST(cuLaunchKernel(verify, 4, 1, 1, 64, 1, 1, 0, stream, parameters, NULL));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemcpyDtoH_v2(&count, wrong, sizeof count));
    return count;
}

/* Most of the time of a long test passes here. */
__attribute__((optimize("O3"))) static uint64_t differing(const uint64_t *words, const uint64_t *others, size_t count)
{
    uint64_t differing = 0;
    for (size_t word = 0; word < count; word++)
        differing += words[word] != others[word];
    return differing;
}

static const char *read_all(void)
{
    static uint64_t *none;
    if (!none) {
        none = malloc(MOST);
        words_of(none, MOST, 0);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (!blocks[i].address)
            continue;
        uint64_t expected = differing((const uint64_t *)blocks[i].model, none, blocks[i].bytes / 8);
        uint64_t count = counted(&blocks[i]);
        if (count != expected) {
            snprintf(problem, sizeof problem, "a kernel counts %llu words of block %u, not %llu", (unsigned long long)count, i,
                     (unsigned long long)expected);
            return problem;
        }
    }
    return "right";
}

static const char *verify_all(void)
{
    const char *answer = read_all();
    if (strcmp(answer, "right"))
        return answer;
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (!blocks[i].address)
            continue;
        MUST(cuMemcpyDtoH_v2(staged, blocks[i].address, blocks[i].bytes));
        if (!memcmp(staged, blocks[i].model, blocks[i].bytes))
            continue;
        for (size_t byte = 0; byte < blocks[i].bytes; byte++)
            if (staged[byte] != blocks[i].model[byte]) {
                snprintf(problem, sizeof problem, "byte %zu of block %u is %u, not %u", byte, i, staged[byte], blocks[i].model[byte]);
                return problem;
            }
    }
    return "right";
}

/* `"shared_bytes"` of the library's figures. */
static unsigned long long shared_bytes(void)
{
    char *json = wmshim_stats_json();
    const char *figures = json ? strstr(json, "\"dedup\"") : NULL;
    const char *figure = figures ? strstr(figures, "\"shared_bytes\":") : NULL;
    unsigned long long bytes = figure ? strtoull(figure + strlen("\"shared_bytes\":"), NULL, 10) : 0;
    free(json);
    return bytes;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void share(unsigned long long mib, double milliseconds)
{
    double until = now() + milliseconds / 1e3;
    const char *answer = read_all();
    while (!strcmp(answer, "right") && shared_bytes() < mib * MIB && now() < until) {
        MUST(cuCtxSynchronize());
        /* The library reads memory while the GPU is idle: a server waits for requests. */
        usleep(2000);
        answer = read_all();
    }
    if (strcmp(answer, "right"))
        puts(answer);
    else
        printf("%llu\n", shared_bytes());
}

static void write_over(const char *way, CUdeviceptr to, unsigned char *model, size_t bytes, unsigned long long seed, CUstream in)
{
    uint64_t words = bytes / 8, of = seed;
    unsigned word = (unsigned)seed;
    void *parameters[] = {&to, &words, &of};
    if (!strcmp(way, "kernel")) {
        MUST(cuLaunchKernel(pattern, 4, 1, 1, 64, 1, 1, 0, in, parameters, NULL));
    } else if (!strcmp(way, "fill")) {
        MUST(fill_by_kernel(to, bytes, word, in));
    } else if (!strcmp(way, "memset")) {
        MUST(in ? cuMemsetD8Async(to, (unsigned char)seed, bytes, in) : cuMemsetD8_v2(to, (unsigned char)seed, bytes));
    } else if (!strcmp(way, "memset32")) {
        MUST(in ? cuMemsetD32Async(to, word, bytes / 4, in) : cuMemsetD32_v2(to, word, bytes / 4));
    } else {
        words_of(staged, bytes, seed);
        if (!strcmp(way, "host"))
            MUST(cuMemcpyHtoD_v2(to, staged, bytes));
        else if (!strcmp(way, "host-async"))
            MUST(cuMemcpyHtoDAsync_v2(to, staged, bytes, in));
        else if (!strcmp(way, "device"))
            MUST(cuMemcpyDtoD_v2(to, other, bytes));
        else if (!strcmp(way, "device-async"))
            MUST(cuMemcpyDtoDAsync_v2(to, other, bytes, in));
        else
            exit(85);
    }
    if (!strcmp(way, "memset")) {
        memset(model, (int)(unsigned char)seed, bytes);
    } else if (!strcmp(way, "fill") || !strcmp(way, "memset32")) {
        for (size_t i = 0; i < bytes / 4; i++)
            ((unsigned *)model)[i] = word;
    } else {
        words_of(model, bytes, seed);
    }
}

/* The GPU's work ends in an error, whatever it was before. */
static void fault(void)
{
    CUdeviceptr nowhere = 16;
    uint64_t words = 8, seed = 0;
    void *writing[] = {&nowhere, &words, &seed};
    for (unsigned i = 0; i < BLOCKS; i++) {
        uint64_t all = blocks[i].bytes / 8;
        void *reading[] = {&blocks[i].address, &all, &seed, &wrong};
        if (blocks[i].address)
            MUST(cuLaunchKernel(verify, 4, 1, 1, 64, 1, 1, 0, stream, reading, NULL));
    }
    MUST(cuLaunchKernel(pattern, 4, 1, 1, 64, 1, 1, 0, stream, writing, NULL));
    MUST(cuStreamSynchronize(stream));
}

/* The source of device copies. A kernel writes it, so that it is not shared. */
static void prepare(uint64_t seed)
{
    uint64_t words = MOST / 8;
    void *parameters[] = {&other, &words, &seed};
    MUST(cuLaunchKernel(pattern, 4, 1, 1, 64, 1, 1, 0, stream, parameters, NULL));
    MUST(cuStreamSynchronize(stream));
}

static void write_block(const char *way, unsigned number, unsigned long long seed, int is_part)
{
    struct block *block = block_of(number);
    size_t from = is_part ? CHUNK : 0, bytes = is_part ? CHUNK : block->bytes;
    prepare(seed);
    write_over(way, block->address + from, block->model + from, bytes, seed, strstr(way, "async") ? stream : NULL);
    MUST(cuCtxSynchronize());
}

static void write_held(const char *way, unsigned number, unsigned long long seed)
{
    struct block *block = block_of(number);
    void *flag;
    CUstream held;
    MUST(cuMemHostAlloc(&flag, sizeof(unsigned), 2));
    *(volatile unsigned *)flag = 0;
    MUST(cuStreamCreate(&held, 1));
    MUST(cuStreamWaitValue32_v2(held, (CUdeviceptr)flag, 1, 0));
    double begin = now();
    write_over(way, block->address, block->model, block->bytes, seed, stream);
    MUST(cuStreamSynchronize(stream));
    printf("%.0f\n", (now() - begin) * 1e3);
    *(volatile unsigned *)flag = 1;
    MUST(cuStreamSynchronize(held));
}

/* A text with another end is another image. */
static void renew(unsigned milliseconds, const char *as)
{
    static const char name[] = "wm_verify_pattern_u64";
    char *text = calloc(MIB, 1);
    FILE *file = fopen(image_path, "r");
    int is_module = !strcmp(as, "module");
    CUmodule module = NULL;
    CUlibrary library = NULL;
    if (!file || fread(text, 1, MIB - 2, file) == 0)
        exit(88);
    fclose(file);
    strcat(text, "\n//");
    strcat(text, as);
    if (is_module)
        MUST(cuModuleLoadData(&module, text));
    else
        MUST(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
    usleep(milliseconds * 1000);
    if (!strcmp(as, "part"))
        MUST(cuLibraryGetModule(&module, library));
    if (module)
        MUST(cuModuleGetFunction(&verify, module, name));
    else
        MUST(cuLibraryGetKernel(&verify, library, name));
    if (!strcmp(as, "function"))
        MUST(cuKernelGetFunction(&verify, verify));
    free(text);
}

/* The model is written when the graph is made: no block is read before it is launched. */
static void capture(const char *way, unsigned number, unsigned long long seed, int is_again)
{
    struct block *block = block_of(number);
    prepare(seed);
    former = executable;
    if (is_again)
        MUST(cuStreamBeginRecaptureToGraph(stream, 2, graph, NULL, NULL));
    else
        MUST(cuStreamBeginCapture_v2(stream, 2));
    write_over(way, block->address, block->model, block->bytes, seed, stream);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
}

static void make_nodes(const char *way, unsigned number, unsigned long long seed)
{
    struct block *block = block_of(number);
    uint64_t words = block->bytes / 8;
    void *parameters[] = {&block->address, &words, &seed};
    int is_any = !strncmp(way, "any-", 4), is_kernel = !!strstr(way, "kernel");
    struct node node = {.kind = is_kernel ? 0 : 2};
    CUgraphNode made;
    CUcontext context;
    MUST(cuCtxGetCurrent(&context));
    former = executable;
    MUST(cuGraphCreate(&graph, 0));
    if (is_kernel)
        node.of.kernel = (struct kernel_node){pattern, {4, 1, 1}, {64, 1, 1}, 0, parameters, NULL, NULL, NULL};
    else
        node.of.memset = (struct memset_node){block->address, 0, (unsigned)seed, 4, block->bytes / 4, 1, context};
    if (is_any)
        MUST(cuGraphAddNode(&made, graph, NULL, 0, &node));
    else if (is_kernel)
        MUST(cuGraphAddKernelNode_v2(&made, graph, NULL, 0, &node.of.kernel));
    else
        MUST(cuGraphAddMemsetNode(&made, graph, NULL, 0, &node.of.memset, context));
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
    if (is_kernel)
        words_of(block->model, block->bytes, seed);
    else
        for (size_t i = 0; i < block->bytes / 4; i++)
            ((unsigned *)block->model)[i] = (unsigned)seed;
}

static void launch(CUgraphExec it)
{
    MUST(cuGraphLaunch(it, stream));
    MUST(cuStreamSynchronize(stream));
}

static void abandon(void)
{
    CUstream captured;
    MUST(cuStreamCreate(&captured, 1));
    MUST(cuStreamBeginCapture_v2(captured, 2));
    MUST(cuStreamDestroy_v2(captured));
}

static void obey(char *line);

static CUcontext primary;
static volatile int has_returned;

static void *to_be_cancelled(void *line)
{
    MUST(cuCtxSetCurrent(primary));
    pthread_cancel(pthread_self());
    obey(line);
    has_returned = 1;
    pthread_testcancel();
    return NULL;
}

/* The answer is the line's own. */
static void obey_cancelled(char *line)
{
    CUdeviceptr source;
    CUstream busy;
    void *host, *end = NULL;
    pthread_t thread;
    MUST(cuCtxGetCurrent(&primary));
    MUST(cuStreamCreate(&busy, 1));
    MUST(cuMemAlloc_v2(&source, MOST));
    MUST(cuMemHostAlloc(&host, MOST, 0));
    MUST(cuMemcpyDtoHAsync_v2(host, source, MOST, busy));
    has_returned = 0;
    pthread_create(&thread, NULL, to_be_cancelled, line);
    pthread_join(thread, &end);
    if (!has_returned || end != PTHREAD_CANCELED) {
        fprintf(stderr, "%s: returned %d, cancelled %d\n", line, has_returned, end == PTHREAD_CANCELED);
        exit(87);
    }
    MUST(cuStreamSynchronize(busy));
}

static pthread_t verifier;
static int is_last, is_beside, is_late;
static const char *last_answer = "";

/* The child makes no call of the driver, and runs the handlers of an exit. */
static void fork_child(void)
{
    fflush(NULL);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    if (fork())
        return;
    is_last = 0;
    usleep(300000);
    exit(0);
}

static void *verify_beside(void *none)
{
    MUST(cuCtxSetCurrent(primary));
    last_answer = verify_all();
    return none;
}

/* Registered after the driver's handler and before the library's last one: it runs between them. */
static void verify_at_exit(void)
{
    if (!is_last || is_late)
        return;
    if (is_beside)
        pthread_join(verifier, NULL);
    else
        last_answer = verify_all();
    if (strcmp(last_answer, "right")) {
        fprintf(stderr, "at exit: %s\n", last_answer);
        _exit(89);
    }
}

/* Registered before the driver's handler, so that it runs after that. */
static void copy_late(void)
{
    if (is_late && cuMemcpyDtoH_v2(staged, block_of(0)->address, 4) == CUDA_SUCCESS)
        _exit(90);
}

static void verify_last(const char *how)
{
    MUST(cuCtxGetCurrent(&primary));
    is_late = !strcmp(how, "late");
    is_last = 1;
    is_beside = !strcmp(how, "beside");
    if (is_beside)
        pthread_create(&verifier, NULL, verify_beside, NULL);
}

static void obey(char *line)
{
    char word[16] = "", way[16] = "";
    unsigned number = 0, count = 0;
    unsigned long long seed = 0, amount = 0;
    CUipcMemHandle handle;
    if (!strncmp(line, "cancelled ", 10))
        return obey_cancelled(line + 10);
    if (sscanf(line, "load %u %llu %llu", &number, &seed, &amount) == 3)
        load_block(number, seed, amount);
    else if (sscanf(line, "piece %u %llu %llu", &number, &seed, &amount) == 3)
        load_piece(number, seed, amount, 1);
    else if (sscanf(line, "segment %u %llu %llu", &number, &seed, &amount) == 3)
        load_piece(number, seed, amount, 2);
    else if (sscanf(line, "tensors %u %u %llu %llu", &number, &count, &seed, &amount) == 4)
        load_tensors(number, count, seed, amount);
    else if (sscanf(line, "drop %u", &number) == 1)
        tell(block_of(number), -(long)block_of(number)->bytes);
    else if (sscanf(line, "elsewhere %u", &number) == 1)
        move_elsewhere(number);
    else if (sscanf(line, "twice %u %llu", &number, &seed) == 2)
        write_elsewhere(number, seed);
    else if (sscanf(line, "rights %u", &number) == 1)
        change_rights(number);
    else if (sscanf(line, "granted %u", &number) == 1)
        return (void)printf("%llu\n", granted(number));
    else if (sscanf(line, "retain %u", &number) == 1)
        retain(number);
    else if (sscanf(line, "beside %u", &number) == 1)
        reserve_beside(number);
    else if (sscanf(line, "pass-on %u", &number) == 1)
        pass_on(number);
    else if (sscanf(line, "empty %u %llu", &number, &amount) == 2)
        take_block(number, amount);
    else if (sscanf(line, "fill-in %u %llu", &number, &seed) == 2)
        fill_in(number, seed);
    else if (sscanf(line, "share %llu %llu", &seed, &amount) == 2)
        return share(seed, (double)amount);
    else if (sscanf(line, "capture %15s %u %llu", way, &number, &seed) == 3)
        capture(way, number, seed, 0);
    else if (sscanf(line, "recapture %15s %u %llu", way, &number, &seed) == 3)
        capture(way, number, seed, 1);
    else if (sscanf(line, "node %15s %u %llu", way, &number, &seed) == 3)
        make_nodes(way, number, seed);
    else if (sscanf(line, "held %15s %u %llu", way, &number, &seed) == 3)
        return write_held(way, number, seed);
    else if (sscanf(line, "renew %u %15s", &number, way) == 2)
        renew(number, way);
    else if (sscanf(line, "%15s %15s %u %llu", word, way, &number, &seed) == 4)
        write_block(way, number, seed, !strcmp(word, "part"));
    else if (sscanf(line, "free %u", &number) == 1)
        free_block(number);
    else if (sscanf(line, "export %u", &number) == 1)
        MUST(cuIpcGetMemHandle(&handle, block_of(number)->address));
    else if (!strcmp(line, "fault"))
        fault();
    else if (!strcmp(line, "abandon"))
        abandon();
    else if (!strcmp(line, "child"))
        fork_child();
    else if (!strcmp(line, "endless"))
        return (void)puts(cuMemsetD8_v2(0, 0, (size_t)-1) == CUDA_SUCCESS ? "done?" : "done");
    else if (!strcmp(line, "launch"))
        launch(executable);
    else if (!strcmp(line, "relaunch"))
        launch(former);
    else if (!strcmp(line, "read"))
        return (void)puts(read_all());
    else if (!strcmp(line, "verify"))
        return (void)puts(verify_all());
    else if (sscanf(line, "last %15s", word) == 1)
        verify_last(word);
    else if (!strcmp(line, "stats"))
        return (void)puts(wmshim_stats_json());
    else
        exit(86);
    puts("done");
}

int main(int argc, char **argv)
{
    char line[128];
    if (argc != 2)
        return 64;
    image_path = argv[1];
    atexit(copy_late);
    load(argv[1]);
    load_more(argv[1]);
    atexit(verify_at_exit);
    staged = malloc(MOST);
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuMemAlloc_v2(&wrong, 64));
    MUST(cuMemAlloc_v2(&other, MOST));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        obey(line);
        fflush(stdout);
    }
    return 0;
}
