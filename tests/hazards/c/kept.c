/* Pieces of 4 MiB as PyTorch keeps them, under what befalls them. The first argument says what:
 * "reset": the device's context ends while pieces are mapped, held only, and not mapped yet: all
 * live on; "unmap": as the other, with calls that fail, each of which is made once more. At the end
 * all memory is the device's again. Ends with 0 if each piece has its bytes. */

#include <string.h>

#include "pieces.h"

enum { PIECE = 4 << 20, PIECES = 6 };

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);

static const struct access FOR_DEVICE = { { DEVICE, 0 }, READWRITE };
static const struct property WANTED = { .type = 1, .handle_types = DESCRIPTOR, .location = { DEVICE, 0 } };
static unsigned long long handles[PIECES];
static CUdeviceptr base;

/* A call that fails is made once more: the program looks at every answer. */
#define AGAIN(call) do { if (call) MUST(call); } while (0)

static CUdeviceptr at(int place) { return base + (CUdeviceptr)place * PIECE; }

static void check(int holds, const char *what, int piece)
{
    if (!holds) {
        fprintf(stderr, "piece %d: %s\n", piece, what);
        exit(70);
    }
}

static void put(int place, int piece)
{
    AGAIN(cuMemMap(at(place), PIECE, 0, handles[piece], 0));
    AGAIN(cuMemSetAccess(at(place), PIECE, &FOR_DEVICE, 1));
}

static void holds(int place, int piece)
{
    static unsigned char seen[PIECE];
    MUST(cuMemcpyDtoH_v2(seen, at(place), PIECE));
    for (int i = 0; i < PIECE; i++)
        check(seen[i] == (unsigned char)(piece + 1), "has other bytes", piece);
}

static void give_up(int place, int piece)
{
    AGAIN(cuMemUnmap(at(place), PIECE));
    AGAIN(cuMemRelease(handles[piece]));
}

static void is_known(int piece)
{
    struct property is;
    MUST(cuMemGetAllocationPropertiesFromHandle(&is, handles[piece]));
    check(is.location.type == DEVICE && is.handle_types == DESCRIPTOR, "is said to be another", piece);
}

static size_t free_bytes(void)
{
    size_t free, total;
    MUST(cuMemGetInfo_v2(&free, &total));
    return free;
}

int main(int arguments, char **argument)
{
    int resets = arguments > 1 && !strcmp(argument[1], "reset");
    unsigned long long same;
    CUcontext context;
    begin();
    size_t before = free_bytes();
    AGAIN(cuMemAddressReserve(&base, 2 * PIECES * PIECE, 0, 0, 0));
    for (int piece = 0; piece < PIECES; piece++) {
        AGAIN(make_piece(&handles[piece], PIECE, &WANTED));
        put(piece, piece);
        MUST(cuMemsetD8_v2(at(piece), (unsigned char)(piece + 1), PIECE));
    }
    MUST(cuCtxSynchronize());
    AGAIN(cuMemUnmap(at(2), PIECE));
    /* Idle memory: one piece of it is promised to a handle that is not mapped yet. */
    give_up(4, 4);
    give_up(5, 5);
    AGAIN(make_piece(&handles[5], PIECE, &WANTED));
    if (resets) {
        MUST(cuDevicePrimaryCtxReset_v2(0));
        MUST(cuDevicePrimaryCtxRetain(&context, 0));
        MUST(cuCtxSetCurrent(context));
    }
    holds(0, 0), holds(3, 3);
    is_known(1), is_known(2), is_known(5);
    put(PIECES + 2, 2);
    holds(PIECES + 2, 2);
    put(4, 5);
    MUST(cuMemsetD8_v2(at(4), 6, PIECE));
    holds(4, 5);
    AGAIN(cuMemRetainAllocationHandle(&same, (void *)(at(1) + 7)));
    check(same == handles[1], "has another handle at its address", 1);
    AGAIN(cuMemRelease(same));
    give_up(4, 5);
    if (cuMemRetainAllocationHandle(&same, (void *)at(4)) == CUDA_SUCCESS)
        check(0, "is given out though it was given up", 5);
    for (int piece = 0; piece < 4; piece++)
        give_up(piece == 2 ? PIECES + 2 : piece, piece);
    AGAIN(cuMemAddressFree(base, 2 * PIECES * PIECE));
    check(free_bytes() == before, "the figures are others than at the beginning", 0);
    /* Nearly all of the device: what was idle is not lost. */
    CUdeviceptr all;
    AGAIN(cuMemAlloc_v2(&all, (size_t)15 * PIECE));
    MUST(cuMemFree_v2(all));
    return 0;
}
