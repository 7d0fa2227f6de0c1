/* A program whose large pieces do not fit its device, and that makes small ones from step to step, as PyTorch does for the growing keys and
 * values of a language model.
 *
 *   small_pieces IMAGE      the pieces that found no room on the device: of the large ones, and of all in the end */

#include <string.h>
#include <time.h>

#include "fill.h"
#include "pieces.h"

CUresult cuMemCreate(unsigned long long *handle, size_t bytes, const struct property *property, unsigned long long flags);

enum { MIB = 1 << 20, SMALL = 2 * MIB, LARGE = 20 * MIB, LARGE_ONES = 60, SMALL_ONES = 48, PART = 4096 };

static CUdeviceptr piece(size_t bytes)
{
    static const struct access rights = { { DEVICE, 0 }, READWRITE };
    static const struct property wanted = { .type = 1, .location = { DEVICE, 0 } };
    unsigned long long handle;
    CUdeviceptr at;
    MUST(cuMemCreate(&handle, bytes, &wanted, 0));
    MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    MUST(cuMemMap(at, bytes, 0, handle, 0));
    MUST(cuMemSetAccess(at, bytes, &rights, 1));
    return at;
}

static unsigned long long overflows(void)
{
    const char *at = strstr(wmshim_stats_json(), "\"pieces\":{");
    at = at ? strstr(at, "\"overflows\":") : NULL;
    return at ? strtoull(at + 12, NULL, 10) : 999;
}

static void must_hold(CUdeviceptr block, unsigned word)
{
    static unsigned words[PART / 4];
    MUST(cuMemcpyDtoH_v2(words, block, PART));
    for (int at = 0; at < PART / 4; at++)
        if (words[at] != word)
            exit(81);
}

int main(int count, char **argument)
{
    static CUdeviceptr large[LARGE_ONES], small[SMALL_ONES];
    load(argument[count - 1]);
    for (int at = 0; at < LARGE_ONES; at++)
        large[at] = piece(LARGE);
    printf("%llu ", overflows());
    for (int step = 0; step < SMALL_ONES; step++) {
        small[step] = piece(SMALL);
        MUST(fill_by_kernel(small[step], PART, step, NULL));
        for (int at = 0; at < LARGE_ONES; at++)
            MUST(fill_by_kernel(large[at], PART, 1000 * at + step, NULL));
        MUST(cuCtxSynchronize());
        // The host's own part of a step. Moves have a share of the time.
        nanosleep(&(struct timespec) { .tv_nsec = 10000000 }, NULL);
    }
    printf("%llu\n", overflows());
    for (int step = 0; step < SMALL_ONES; step++)
        must_hold(small[step], step);
    for (int at = 0; at < LARGE_ONES; at++)
        must_hold(large[at], 1000 * at + SMALL_ONES - 1);
    return 0;
}
