/* Unmaps a piece without releasing it, and maps it again at the address of another one that was
 * unmapped and released. Ends with 0 if it has its own bytes there, and if calls that name no whole
 * piece change nothing. */

#include <string.h>

#include "pieces.h"

enum { PIECE = 4 << 20, INVALID_VALUE = 1 };

static const struct access FOR_DEVICE = { { DEVICE, 0 }, READWRITE };
static const struct property WANTED = { .type = 1, .handle_types = DESCRIPTOR, .location = { DEVICE, 0 } };
static CUdeviceptr base;

static CUdeviceptr at(int place) { return base + (CUdeviceptr)place * PIECE; }

static void put(int place, unsigned long long handle)
{
    MUST(cuMemMap(at(place), PIECE, 0, handle, 0));
    MUST(cuMemSetAccess(at(place), PIECE, &FOR_DEVICE, 1));
}

static void check(int place, unsigned char value, const char *what)
{
    static unsigned char seen[PIECE];
    MUST(cuMemcpyDtoH_v2(seen, at(place), PIECE));
    for (int i = 0; i < PIECE; i++)
        if (seen[i] != value) {
            fprintf(stderr, "%s: byte %d is %d\n", what, i, seen[i]);
            exit(70);
        }
}

int main(void)
{
    unsigned long long one, other;
    begin();
    MUST(cuMemAddressReserve(&base, 8 * PIECE, 0, 0, 0));
    MUST(make_piece(&one, PIECE, &WANTED));
    MUST(make_piece(&other, PIECE, &WANTED));
    put(0, one), put(1, other);
    MUST(cuMemsetD8_v2(at(0), 1, PIECE));
    MUST(cuMemsetD8_v2(at(1), 2, PIECE));
    MUST(cuCtxSynchronize());
    MUST(cuMemUnmap(at(1), PIECE));
    MUST(cuMemRelease(other));
    MUST(cuMemUnmap(at(0), PIECE));
    put(1, one);
    check(1, 1, "mapped again");
    put(0, one);
    check(0, 1, "mapped twice");
    if (cuMemUnmap(at(0) + PIECE / 2, PIECE) != INVALID_VALUE || cuMemSetAccess(at(0), PIECE, &FOR_DEVICE, 0) != INVALID_VALUE)
        return 71;
    check(1, 1, "beside no whole piece");
    return 0;
}
