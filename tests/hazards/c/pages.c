/* A small model of PyTorch's expandable segments, as a library of its own: freed pages stay mapped,
 * and are released at a shortage, before it is an error, unless a private pool is in use. The second
 * attempt has another return address than the first. */

#include "driver.h"
#include "pieces.h"
#include "pools.h"

enum { OUT_OF_MEMORY = 2, PAGE = 4 << 20, MOST = 64 };

static const struct access FOR_DEVICE = { { DEVICE, 0 }, READWRITE };
static const struct property WANTED = { .type = 1, .handle_types = DESCRIPTOR, .location = { DEVICE, 0 } };
static unsigned long long handles[MOST];
static char mapped[MOST], used[MOST];
static int emptied;
static CUdeviceptr base;

CUresult cuMemCreate(unsigned long long *handle, size_t bytes, const struct property *property, unsigned long long flags);

int pages_emptied(void) { return emptied; }

static CUdeviceptr at(int page) { return base + (CUdeviceptr)page * PAGE; }

__attribute__((noinline)) static int map(int first, int count)
{
    for (int page = first; page < first + count; page++) {
        if (mapped[page])
            continue;
        CUresult made = cuMemCreate(&handles[page], PAGE, &WANTED, 0);
        if (made == OUT_OF_MEMORY) {
            while (--page >= first)
                if (!mapped[page])
                    MUST(cuMemRelease(handles[page]));
            return made;
        }
        MUST(made);
    }
    for (int page = first; page < first + count; page++) {
        if (mapped[page])
            continue;
        MUST(cuMemMap(at(page), PAGE, 0, handles[page], 0));
        MUST(cuMemSetAccess(at(page), PAGE, &FOR_DEVICE, 1));
        mapped[page] = 1;
    }
    return 0;
}

void pages_empty(void)
{
    for (int page = 0; page < MOST; page++) {
        if (!mapped[page] || used[page])
            continue;
        MUST(cuMemUnmap(at(page), PAGE));
        MUST(cuMemRelease(handles[page]));
        mapped[page] = 0;
    }
    emptied++;
}

int pages_take(int first, int count)
{
    if (!base)
        MUST(cuMemAddressReserve(&base, (size_t)MOST * PAGE, 0, 0, 0));
    int asks_again = !pools_in_use();
    volatile int taken = map(first, count);
    if (taken == OUT_OF_MEMORY && asks_again) {
        pages_empty();
        taken = map(first, count);
    }
    for (int page = first; page < first + count; page++)
        used[page] = taken == 0;
    return taken;
}

void pages_give(int first, int count)
{
    for (int page = first; page < first + count; page++)
        used[page] = 0;
}
