/* PyTorch's expandable segments under pressure: pages of 4 MiB are mapped at some addresses,
 * released, and made again at others. Arguments: rounds. Each page is written as a whole, and
 * checked when all pages of the round are mapped. At the end all pages are released, most of the
 * device is taken with cuMemAlloc, and the figures must be as at the beginning. Ends with 0 if all
 * checks passed. */

#include <string.h>

#include "pieces.h"

enum { PAGE = 4 << 20, PAGES = 40, AT_ONCE = 6 };

CUresult cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);

static const struct access FOR_DEVICE = { { DEVICE, 0 }, READWRITE };
static struct property wanted = { .type = 1, .handle_types = DESCRIPTOR, .location = { DEVICE, 0 } };
static unsigned long long handles[PAGES];
static CUdeviceptr base;

static void check(int holds, const char *what, int page)
{
    if (!holds) {
        fprintf(stderr, "page %d: %s\n", page, what);
        exit(70);
    }
}

static CUdeviceptr at(int page) { return base + (CUdeviceptr)page * PAGE; }

static void map(int first, int count)
{
    for (int page = first; page < first + count; page++)
        MUST(make_piece(&handles[page], PAGE, &wanted));
    for (int page = first; page < first + count; page++)
        MUST(cuMemMap(at(page), PAGE, 0, handles[page], 0));
    MUST(cuMemSetAccess(at(first), (size_t)count * PAGE, &FOR_DEVICE, 1));
}

static void unmap(int page)
{
    MUST(cuMemUnmap(at(page), PAGE));
    MUST(cuMemRelease(handles[page]));
}

static unsigned char value(int round, int page) { return (unsigned char)(round * 41 + page * 7 + 1); }

static void fill(int round, int first, int count)
{
    static unsigned char seen[PAGE];
    for (int page = first; page < first + count; page++)
        MUST(cuMemsetD8_v2(at(page), value(round, page), PAGE));
    for (int page = first; page < first + count; page++) {
        MUST(cuMemcpyDtoH_v2(seen, at(page), PAGE));
        for (int i = 0; i < PAGE; i++)
            check(seen[i] == value(round, page), "is not what was written", page);
    }
}

static size_t free_bytes(void)
{
    size_t free, total;
    MUST(cuMemGetInfo_v2(&free, &total));
    return free;
}

int main(int arguments, char **argument)
{
    int rounds = arguments > 1 ? atoi(argument[1]) : 1;
    begin();
    MUST(cuMemAddressReserve(&base, (size_t)PAGES * PAGE, 0, 0, 0));
    size_t before = free_bytes();
    for (int round = 0; round < rounds; round++) {
        int first = round % 3 * 11;
        map(first, AT_ONCE);
        fill(round, first, AT_ONCE);
        check(free_bytes() + (size_t)AT_ONCE * PAGE <= before, "more is free than there can be", round);
        for (int page = first; page < first + AT_ONCE; page++)
            unmap(page);
    }
    /* A reservation that another thread may get, and one at a fixed address. */
    int descriptor = -1;
    unsigned long long same;
    struct property is;
    map(3, 2);
    MUST(export_piece(&descriptor, handles[3], DESCRIPTOR));
    MUST(cuMemGetAllocationPropertiesFromHandle(&is, handles[4]));
    check(is.handle_types == DESCRIPTOR && is.location.type == DEVICE, "is said to be another", 4);
    MUST(cuMemRetainAllocationHandle(&same, (void *)(at(4) + 5)));
    fill(rounds, 3, 2);
    unmap(3);
    unmap(4);
    MUST(cuMemRelease(same));
    char *stats = wmshim_stats_json();
    printf("%s\n", stats ? stats : "");
    free(stats);
    check(free_bytes() == before, "the figures are others than at the beginning", 0);
    CUdeviceptr large;
    MUST(cuMemAlloc_v2(&large, (size_t)8 * PAGE));
    map(20, 1);
    fill(rounds, 20, 1);
    unmap(20);
    MUST(cuMemFree_v2(large));
    MUST(cuMemAddressFree(base, (size_t)PAGES * PAGE));
    return 0;
}
