/* Pieces of 4 MiB for a device that is not current: as many as the first argument says, or until
 * one is refused. The device's context was never made or, with the second argument "used", made
 * before. All are mapped beside each other and written, and hold the written bytes; at the end both
 * devices' figures are as at the beginning. Prints their number, and the code of the refusal. */

#include <string.h>

#include "report.h"

enum { PIECE = 4 << 20, MOST = 64, THERE = 1 };

static const struct access FOR_DEVICE = { { DEVICE, THERE }, READWRITE };
static const struct property WANTED = { .type = 1, .handle_types = DESCRIPTOR, .location = { DEVICE, THERE } };

static void check(CUdeviceptr at, int piece)
{
    static unsigned char seen[PIECE];
    MUST(cuMemcpyDtoH_v2(seen, at, PIECE));
    for (int i = 0; i < PIECE; i++)
        if (seen[i] != (unsigned char)(piece + 1))
            exit(70);
}

int main(int arguments, char **argument)
{
    unsigned long long handles[MOST];
    int wanted = atoi(argument[1]), made = 0, type = 0, ordinal = -1;
    CUcontext here = begin(), there;
    CUdeviceptr base;
    CUresult code = CUDA_SUCCESS;
    if (arguments > 2)
        MUST(cuDevicePrimaryCtxRetain(&there, THERE));
    MUST(cuMemAddressReserve(&base, (size_t)MOST * PIECE, 0, 0, 0));
    for (; made < wanted; made++)
        if ((code = make_piece(&handles[made], PIECE, &WANTED)))
            break;
    for (int i = 0; i < made; i++)
        MUST(cuMemMap(base + (size_t)i * PIECE, PIECE, 0, handles[i], 0));
    MUST(cuMemSetAccess(base, (size_t)made * PIECE, &FOR_DEVICE, 1));
    printf("made %d %d\n", made, code);
    report("full");
    MUST(cuDevicePrimaryCtxRetain(&there, THERE));
    MUST(cuCtxSetCurrent(there));
    for (int i = 0; i < made; i++)
        MUST(cuMemsetD8_v2(base + (size_t)i * PIECE, (unsigned char)(i + 1), PIECE));
    for (int i = 0; i < made; i++) {
        CUdeviceptr at = base + (size_t)i * PIECE;
        check(at, i);
        MUST(cuPointerGetAttribute(&type, 2, at));
        MUST(cuPointerGetAttribute(&ordinal, 9, at));
        if (type != 2 || ordinal != THERE)
            return 71;
    }
    for (int i = 0; i < made; i++) {
        MUST(cuMemUnmap(base + (size_t)i * PIECE, PIECE));
        MUST(cuMemRelease(handles[i]));
    }
    report("empty");
    round_trip(3);
    MUST(cuCtxSetCurrent(here));
    round_trip(5);
    return 0;
}
