/* A model of PyTorch's expandable segments: one large reservation, filled with pieces of 4 MiB that
 * are made, mapped and opened one by one. Arguments: the number of pieces, and the kind to ask for
 * beside plain memory ("plain", "descriptor", "fabric"; "unflagged": not for
 * network cards either), a number of plain blocks to take besides,
 * a number of them to take and free before, and any sixth to copy everything to a second device and
 * back. HAZARD_BESIDE names a library to load before. Prints where the pieces are, and ends with 0 if every byte was as written and every
 * answer that of device memory; with the driver's code if a piece could not be made. */

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "report.h"

enum { PIECE = 4 << 20, MOST = 64, HOST = 2, FABRIC = 8, OUT_OF_MEMORY = 2 };
enum { CONTEXT = 1, MEMORY_TYPE = 2, DEVICE_POINTER = 3, HOST_POINTER = 4, IS_MANAGED = 8, ORDINAL = 9 };

CUresult cuMemExportToShareableHandle(void *shared, unsigned long long handle, int type, unsigned long long flags);
CUresult cuMemImportFromShareableHandle(unsigned long long *handle, void *shared, int type);
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes);
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **data, CUdeviceptr address);

static const struct access FOR_DEVICE = { { DEVICE, 0 }, READWRITE }, FOR_CPU = { { HOST, 0 }, READWRITE };
static struct property wanted = { .type = 1, .location = { DEVICE, 0 }, .flags = { .rdma = 1 } };
static unsigned long long handles[MOST];
static CUdeviceptr base;
static int count, unshared;

static void check(int holds, const char *what, int piece)
{
    if (!holds) {
        fprintf(stderr, "piece %d: %s\n", piece, what);
        exit(70);
    }
}

/* PyTorch's assertion, with the memory that this program made itself. */
static void check_figures(size_t held, int piece)
{
    size_t free, total;
    MUST(cuMemGetInfo_v2(&free, &total));
    check(free + held <= total, "free and held are more than the total", piece);
}

static CUresult grow(int piece)
{
    CUdeviceptr at = base + (CUdeviceptr)piece * PIECE;
    CUresult made = make_piece(&handles[piece], PIECE, &wanted);
    if (made)
        return made;
    MUST(cuMemMap(at, PIECE, 0, handles[piece], 0));
    MUST(cuMemSetAccess(at, PIECE, &FOR_DEVICE, 1));
    check_figures((size_t)(piece + 1) * PIECE, piece);
    return CUDA_SUCCESS;
}

static void shrink(int piece)
{
    MUST(cuMemUnmap(base + (CUdeviceptr)piece * PIECE, PIECE));
    MUST(cuMemRelease(handles[piece]));
}

/* Every answer must be the one for device memory, from the first byte to the last. */
static void check_answers(int piece)
{
    CUdeviceptr at = base + (CUdeviceptr)piece * PIECE, start;
    int type = 0, ordinal = -1, managed = -1, type_again = 0, attributes[] = { MEMORY_TYPE, HOST_POINTER, DEVICE_POINTER };
    void *host = &host;
    CUdeviceptr device = 0;
    void *places[] = { &type_again, &host, &device };
    size_t bytes;
    struct property is;
    MUST(cuPointerGetAttribute(&type, MEMORY_TYPE, at + 5));
    MUST(cuPointerGetAttribute(&ordinal, ORDINAL, at + PIECE - 1));
    MUST(cuPointerGetAttribute(&managed, IS_MANAGED, at));
    MUST(cuPointerGetAttributes(3, attributes, places, at + 7));
    check(type == 2 && type_again == 2 && ordinal == 0 && managed == 0, "is not device memory", piece);
    check(host == NULL && device == at + 7, "has an address of the host", piece);
    check(cuPointerGetAttribute(&host, HOST_POINTER, at) != CUDA_SUCCESS, "has a pointer of the host", piece);
    MUST(cuMemGetAddressRange_v2(&start, &bytes, at + 9));
    check(start == at && bytes == PIECE, "has another range", piece);
    MUST(cuMemGetAllocationPropertiesFromHandle(&is, handles[piece]));
    check(is.location.type == DEVICE && is.location.id == 0, "is said to be elsewhere", piece);
    check(is.handle_types == wanted.handle_types, "is said to be shared otherwise", piece);
    check(cuMemSetAccess(at, PIECE, &FOR_CPU, 1) != CUDA_SUCCESS, "is open to the CPU", piece);
}

/* A piece on the host is exported by its maker alone, if that is PyTorch: an importer expects device
 * memory. */
static void check_exports(void)
{
    int refused = 0;
    for (int piece = 0; piece < count; piece++) {
        int descriptor = -1;
        CUresult exported = cuMemExportToShareableHandle(&descriptor, handles[piece], DESCRIPTOR, 0);
        check(exported == CUDA_SUCCESS || exported == OUT_OF_MEMORY, "is exported with another answer", piece);
        refused += exported == OUT_OF_MEMORY;
        if (exported == CUDA_SUCCESS)
            close(descriptor);
    }
    printf("refused %d\n", refused);
}

/* One more reference: memory that is unmapped and released once stays. */
static void check_references(int piece)
{
    unsigned long long again;
    MUST(cuMemRetainAllocationHandle(&again, (void *)(base + (CUdeviceptr)piece * PIECE + 11)));
    MUST(cuMemRelease(handles[piece]));
    handles[piece] = again;
    check_answers(piece);
}

/* Through a file descriptor into a second mapping: the same bytes. */
static void check_sharing(int piece)
{
    int descriptor = -1;
    unsigned long long copy;
    CUdeviceptr second;
    unsigned there, here;
    CUresult exported = export_piece(&descriptor, handles[piece], DESCRIPTOR);
    if (exported == OUT_OF_MEMORY) {
        unshared++;
        return;
    }
    MUST(exported);
    MUST(cuMemImportFromShareableHandle(&copy, (void *)(size_t)descriptor, DESCRIPTOR));
    MUST(cuMemAddressReserve(&second, PIECE, 0, 0, 0));
    MUST(cuMemMap(second, PIECE, 0, copy, 0));
    MUST(cuMemSetAccess(second, PIECE, &FOR_DEVICE, 1));
    MUST(cuMemcpyDtoH_v2(&there, second + PIECE - 4, 4));
    MUST(cuMemcpyDtoH_v2(&here, base + (CUdeviceptr)(piece + 1) * PIECE - 4, 4));
    check(there == here, "is shared with other bytes", piece);
    MUST(cuMemUnmap(second, PIECE));
    MUST(cuMemRelease(copy));
    MUST(cuMemAddressFree(second, PIECE));
    close(descriptor);
}

static unsigned word(size_t index, unsigned seed)
{
    return (unsigned)index * 2654435761u + seed;
}

/* Writes the whole range in copies that cross every border between pieces, and reads it back in
 * others. */
static void check_contents(unsigned seed)
{
    size_t words = (size_t)count * PIECE / 4, half = words / 2;
    unsigned *out = malloc(words * 4), *in = malloc(words * 4);
    for (size_t i = 0; i < words; i++)
        out[i] = word(i, seed);
    MUST(cuMemcpyHtoD_v2(base, out + half, half * 4));
    MUST(cuMemcpyHtoD_v2(base + half * 4, out, half * 4));
    MUST(cuMemcpyDtoH_v2(in, base, words * 4));
    check(!memcmp(in, out + half, half * 4) && !memcmp(in + half, out, half * 4), "bytes differ", 0);
    MUST(cuMemcpyDtoD_v2(base, base + half * 4, half * 4));
    MUST(cuMemsetD8_v2(base + half * 4, 0x5a, half * 4));
    MUST(cuMemcpyDtoH_v2(in, base, words * 4));
    check(!memcmp(in, out, half * 4), "bytes differ after a copy on the device", 0);
    for (size_t i = half; i < words; i++)
        check(in[i] == 0x5a5a5a5au, "bytes differ after a memset", (int)(i * 4 / PIECE));
    free(out), free(in);
}

/* Plain memory, which counts against the same limits: this number of blocks of 4 MiB. */
static void take_blocks(int blocks)
{
    CUdeviceptr block;
    if (!blocks)
        return;
    for (int i = 0; i < blocks; i++) {
        MUST(cuMemAlloc_v2(&block, 4 << 20));
        MUST(cuMemsetD8_v2(block, i, 4 << 20));
    }
    report("mixed");
}

/* The same number of blocks, freed at once: idle memory of the library. */
static void leave_blocks(int blocks)
{
    CUdeviceptr block[MOST];
    for (int i = 0; i < blocks; i++)
        MUST(cuMemAlloc_v2(&block[i], 4 << 20));
    for (int i = 0; i < blocks; i++)
        MUST(cuMemFree_v2(block[i]));
}

/* All pieces at once to another device, by the copy between contexts and by addresses, and back. */
static void check_peer(CUcontext here)
{
    static const struct access FOR_PEER = { { DEVICE, 1 }, READWRITE };
    size_t bytes = (size_t)count * PIECE;
    unsigned *out = malloc(bytes), *in = malloc(bytes);
    CUcontext there;
    CUdeviceptr block;
    MUST(cuDevicePrimaryCtxRetain(&there, 1));
    MUST(cuCtxSetCurrent(there));
    MUST(cuMemAlloc_v2(&block, bytes));
    MUST(cuCtxSetCurrent(here));
    MUST(cuMemSetAccess(base, bytes, &FOR_PEER, 1));
    for (size_t i = 0; i < bytes / 4; i++)
        out[i] = word(i, 3);
    MUST(cuMemcpyHtoD_v2(base, out, bytes));
    MUST(cuMemcpyPeer(block, there, base, here, bytes));
    MUST(cuCtxSynchronize());
    MUST(cuMemsetD8_v2(base, 0, bytes));
    MUST(cuMemcpyDtoD_v2(base + 4, block, bytes - 4));
    MUST(cuMemcpyDtoH_v2(in, base, bytes));
    check(in[0] == 0 && !memcmp(in + 1, out, bytes - 4), "went to the other device and came back with other bytes", 0);
    free(out), free(in);
}

int main(int arguments, char **argument)
{
    count = arguments > 1 ? atoi(argument[1]) : 1;
    if (getenv("HAZARD_BESIDE") && !dlopen(getenv("HAZARD_BESIDE"), RTLD_NOW))
        return 83;
    wanted.flags.rdma = strcmp(argument[2], "unflagged") != 0;
    if (!strcmp(argument[2], "descriptor"))
        wanted.handle_types = DESCRIPTOR;
    if (!strcmp(argument[2], "fabric"))
        wanted.handle_types = FABRIC;
    CUcontext here = begin();
    if (arguments > 4)
        leave_blocks(atoi(argument[4]));
    MUST(cuMemAddressReserve(&base, (size_t)MOST * PIECE, 0, 0, 0));
    for (int piece = 0; piece < count; piece++) {
        CUresult made = grow(piece);
        if (made) {
            printf("piece %d: %d\n", piece, made);
            report("then");
            return made;
        }
    }
    report("full");
    if (wanted.handle_types == DESCRIPTOR)
        check_exports();
    take_blocks(arguments > 3 ? atoi(argument[3]) : 0);
    check_contents(1);
    if (arguments > 5)
        check_peer(here);
    for (int piece = 0; piece < count; piece++) {
        check_answers(piece);
        check_references(piece);
        if (wanted.handle_types == DESCRIPTOR)
            check_sharing(piece);
    }
    printf("unshared %d\n", unshared);
    /* A segment shrinks at its end and grows again. */
    shrink(count - 1);
    report("shrunk");
    check(grow(count - 1) == CUDA_SUCCESS, "cannot be made again", count - 1);
    check_contents(2);
    for (int piece = 0; piece < count; piece++)
        shrink(piece);
    MUST(cuMemAddressFree(base, (size_t)MOST * PIECE));
    report("empty");
    return 0;
}
