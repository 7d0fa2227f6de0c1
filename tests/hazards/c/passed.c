/* Passes pieces on that lie on the host: a device with room for four has six. The first argument
 * says what is done with the last piece before its export: "unmapped", "mapped", "busy" (as
 * "mapped", beside a copy of another piece that takes long), "open" (mapped
 * again, without access), "held" (a stream waits for the host, and uses it then), "captured" (a
 * graph of it was made), "peer" (another device has access). The second one is the number of pieces
 * on the device that are released before. Prints the code of the export, and that of a dma-buf
 * handle for the piece's addresses, if it is mapped; then the library's statistics. If it was
 * exported, its import is the same memory, at the addresses of both, and everything answers as
 * device memory. Ends with 0 if every byte was as written. */

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "report.h"

enum { PIECE = 4 << 20, PIECES = 6, LAST = PIECES - 1, MEMORY_TYPE = 2, GLOBAL = 0 };

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr at, size_t bytes, int type, unsigned long long flags);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, unsigned value, unsigned flags);
CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned flags);
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, void **graph);

static const struct access FOR_DEVICE = { { DEVICE, 0 }, READWRITE }, FOR_PEER = { { DEVICE, 1 }, READWRITE };
static const struct property WANTED = { .type = 1, .handle_types = DESCRIPTOR, .location = { DEVICE, 0 }, .flags = { .rdma = 1 } };
static unsigned long long handles[PIECES];
static CUdeviceptr base;
static unsigned char seen[PIECE];

static CUdeviceptr at(int piece)
{
    return base + (CUdeviceptr)piece * PIECE;
}

static void check(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "the piece %s\n", what);
        exit(70);
    }
}

static void check_bytes(CUdeviceptr address, int value)
{
    MUST(cuMemcpyDtoH_v2(seen, address, PIECE));
    for (int i = 0; i < PIECE; i++)
        check(seen[i] == value, "has other bytes");
}

static void map(int piece)
{
    MUST(cuMemMap(at(piece), PIECE, 0, handles[piece], 0));
    MUST(cuMemSetAccess(at(piece), PIECE, &FOR_DEVICE, 1));
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Both are one memory, on the device. */
static void check_import(int descriptor)
{
    unsigned long long copy;
    struct property is;
    CUdeviceptr second;
    int type = 0;
    MUST(import_piece(&copy, descriptor, DESCRIPTOR));
    MUST(cuMemAddressReserve(&second, PIECE, 0, 0, 0));
    MUST(cuMemMap(second, PIECE, 0, copy, 0));
    MUST(cuMemSetAccess(second, PIECE, &FOR_DEVICE, 1));
    check_bytes(second, 40 + LAST);
    check_bytes(at(LAST), 40 + LAST);
    MUST(cuMemsetD8_v2(second, 7, PIECE));
    check_bytes(at(LAST), 7);
    MUST(cuMemsetD8_v2(at(LAST), 40 + LAST, PIECE));
    check_bytes(second, 40 + LAST);
    for (int i = 0; i < 2; i++) {
        MUST(cuMemGetAllocationPropertiesFromHandle(&is, i ? copy : handles[LAST]));
        check(is.location.type == DEVICE && is.location.id == 0, "is said to be elsewhere");
        MUST(cuPointerGetAttribute(&type, MEMORY_TYPE, i ? second : at(LAST)));
        check(type == 2, "is no device memory");
    }
    MUST(cuMemUnmap(second, PIECE));
    MUST(cuMemRelease(copy));
}

int main(int arguments, char **argument)
{
    const char *how = argument[1];
    int released = arguments > 2 ? atoi(argument[2]) : 0, descriptor = -1, handle = -1, is_peer = !strcmp(how, "peer");
    unsigned *word = NULL;
    CUcontext other;
    CUstream stream;
    void *graph;
    CUcontext here = begin();
    MUST(cuMemAddressReserve(&base, (size_t)PIECES * PIECE, 0, 0, 0));
    for (int i = 0; i < PIECES; i++) {
        MUST(make_piece(&handles[i], PIECE, &WANTED));
        map(i);
        MUST(cuMemsetD8_v2(at(i), (unsigned char)(40 + i), PIECE));
    }
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuCtxSynchronize());
    for (int i = 0; i < released; i++) {
        MUST(cuMemUnmap(at(i), PIECE));
        MUST(cuMemRelease(handles[i]));
    }
    report("full");
    if (!strcmp(how, "unmapped") || !strcmp(how, "open"))
        MUST(cuMemUnmap(at(LAST), PIECE));
    if (!strcmp(how, "open"))
        MUST(cuMemMap(at(LAST), PIECE, 0, handles[LAST], 0));
    if (!strcmp(how, "held")) {
        CUdeviceptr there;
        MUST(cuMemHostAlloc((void **)&word, 4, 2));
        MUST(cuMemHostGetDevicePointer_v2(&there, word, 0));
        *word = 0;
        MUST(cuStreamWaitValue32_v2(stream, there, 1, 0));
        MUST(cuMemsetD8Async(at(LAST), 3, PIECE, stream));
    }
    if (!strcmp(how, "busy")) {
        CUstream busy;
        void *bytes;
        MUST(cuMemHostAlloc(&bytes, PIECE, 0));
        MUST(cuStreamCreate(&busy, 1));
        MUST(cuMemcpyDtoHAsync_v2(bytes, at(LAST - 2), PIECE, busy));
    }
    if (!strcmp(how, "captured")) {
        MUST(cuStreamBeginCapture_v2(stream, GLOBAL));
        MUST(cuMemsetD8Async(at(LAST), 3, PIECE, stream));
        MUST(cuStreamEndCapture(stream, &graph));
    }
    if (is_peer) {
        MUST(cuDevicePrimaryCtxRetain(&other, 1));
        MUST(cuCtxSetCurrent(here));
        MUST(cuMemSetAccess(at(LAST), PIECE, &FOR_PEER, 1));
    }
    double begun = seconds();
    CUresult exported = export_piece(&descriptor, handles[LAST], DESCRIPTOR);
    check(seconds() - begun < 1, "is waited for too long");
    printf("export %d\n", exported);
    if (strcmp(how, "unmapped"))
        printf("range %d\n", cuMemGetHandleForAddressRange(&handle, at(LAST), PIECE, 1, 0));
    report("then");
    if (word) {
        *(volatile unsigned *)word = 1;
        MUST(cuStreamSynchronize(stream));
        MUST(cuMemsetD8_v2(at(LAST), 40 + LAST, PIECE));
    }
    if (!strcmp(how, "unmapped"))
        map(LAST);
    if (!strcmp(how, "open"))
        MUST(cuMemSetAccess(at(LAST), PIECE, &FOR_DEVICE, 1));
    if (!exported)
        check_import(descriptor);
    for (int i = released; i < PIECES; i++) {
        check_bytes(at(i), 40 + i);
        MUST(cuMemRelease(handles[i]));
        check_bytes(at(i), 40 + i);
        MUST(cuMemUnmap(at(i), PIECE));
    }
    if (!exported)
        close(descriptor);
    report("empty");
    return 0;
}
