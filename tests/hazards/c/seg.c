/* Makes N pieces of 20 MiB and maps them one behind the other, as an expandable segment of PyTorch's.
 * Prints how many it got, and waits until standard input ends. With `end` it then gives them up: the
 * first half is unmapped and released, the second released and unmapped, one of it by a handle that
 * it asks for. A call that fails once is made again. It does all that twice. */

#include <string.h>
#include <unistd.h>

#include "driver.h"
#include "pieces.h"

CUresult cuMemCreate(unsigned long long *handle, size_t bytes, const struct property *property, unsigned long long flags);

enum { PIECES = 64 };
static const size_t PIECE = 20u << 20;

#define TWICE(call)            \
    do {                       \
        if ((call) != 0)       \
            MUST(call);        \
    } while (0)

static void give_up(CUdeviceptr base, const unsigned long long *handle, int count)
{
    unsigned long long again;
    for (int i = 0; i < count; i++) {
        CUdeviceptr at = base + i * PIECE;
        if (i < count / 2)
            TWICE(cuMemUnmap(at, PIECE));
        TWICE(cuMemRelease(handle[i]));
        if (i < count / 2)
            continue;
        if (i == count - 1) {
            MUST(cuMemRetainAllocationHandle(&again, (void *)at));
            TWICE(cuMemUnmap(at, PIECE));
            TWICE(cuMemRelease(again));
        } else {
            TWICE(cuMemUnmap(at, PIECE));
        }
    }
}

static int make(CUdeviceptr base, unsigned long long *handle, int wish)
{
    struct property wanted = { .type = 1, .location = { DEVICE, 0 } };
    struct access access = { { DEVICE, 0 }, READWRITE };
    int count = 0;
    for (; count < wish && cuMemCreate(&handle[count], PIECE, &wanted, 0) == 0; count++) {
        MUST(cuMemMap(base + count * PIECE, PIECE, 0, handle[count], 0));
        MUST(cuMemSetAccess(base + count * PIECE, PIECE, &access, 1));
    }
    return count;
}

int main(int arguments, char **argument)
{
    unsigned long long handle[PIECES];
    CUdeviceptr base;
    char byte;
    int wish = atoi(argument[1]), ends = arguments > 2 && strcmp(argument[2], "end") == 0;
    begin();
    MUST(cuMemAddressReserve(&base, wish * PIECE, 0, 0, 0));
    int count = make(base, handle, wish);
    printf("%d\n", count);
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    for (int round = 0; ends && round < 2; round++) {
        if (round > 0)
            count = make(base, handle, wish);
        give_up(base, handle, count);
    }
    return 0;
}
