/* A small model of PyTorch's own allocator, as a library of its own: freed blocks stay in a cache
 * by their exact size, and a shortage empties it before it is an error, unless a private pool is in
 * use. */

#include "pools.h"

typedef unsigned long long address;

int cuMemAlloc_v2(address *block, unsigned long bytes);
int cuMemFree_v2(address block);

enum { OUT_OF_MEMORY = 2, MOST = 64 };
static struct { address block; unsigned long bytes; } cache[MOST];
static int cached, emptied;

int cache_emptied(void)
{
    return emptied;
}

static int empty(void)
{
    int any = cached > 0;
    while (cached > 0)
        cuMemFree_v2(cache[--cached].block);
    emptied += any;
    return any;
}

int cache_take(address *block, unsigned long bytes)
{
    for (int i = 0; i < cached; i++)
        if (cache[i].bytes == bytes) {
            *block = cache[i].block;
            cache[i] = cache[--cached];
            return 0;
        }
    int asks_again = !pools_in_use();
    volatile int taken = cuMemAlloc_v2(block, bytes);
    if (taken == OUT_OF_MEMORY && asks_again) {
        empty();
        taken = cuMemAlloc_v2(block, bytes);
    }
    return taken;
}

void cache_give(address block, unsigned long bytes)
{
    cache[cached].block = block;
    cache[cached++].bytes = bytes;
}
