/* Takes more memory than the device has, frees part of it and takes it again, by cuMemAlloc and
 * cuMemAllocAsync in turn. After every step, the driver's free memory and the program's memory must
 * together be no more than the total.
 *
 * With an argument: takes all memory that the driver reports as free, in one block. */

#include "driver.h"

enum { BLOCK = 8 << 20, BLOCKS = 32 };

static CUdeviceptr blocks[BLOCKS];
static size_t held;

static void check(int step)
{
    size_t free, total, alone;
    MUST(cuMemGetInfo_v2(&free, &total));
    MUST(cuMemGetInfo_v2(NULL, &alone));
    if (free + held > total || alone != total) {
        fprintf(stderr, "step %d: %zu free and %zu held of %zu\n", step, free, held, total);
        exit(70);
    }
}

static void take(int i)
{
    MUST(i % 2 ? cuMemAlloc_v2(&blocks[i], BLOCK - i) : cuMemAllocAsync(&blocks[i], BLOCK - i, NULL));
    held += BLOCK - i;
    check(i);
}

static void give(int i)
{
    MUST(i % 2 ? cuMemFree_v2(blocks[i]) : cuMemFreeAsync(blocks[i], NULL));
    held -= BLOCK - i;
    check(BLOCKS + i);
}

/* Prints the free memory at first and then. */
static int take_all(void)
{
    CUdeviceptr address;
    size_t first, last;
    MUST(cuMemGetInfo_v2(&first, NULL));
    MUST(cuMemAlloc_v2(&address, first));
    MUST(cuMemsetD8_v2(address + first - 1, 1, 1));
    MUST(cuMemGetInfo_v2(&last, NULL));
    printf("%zu %zu 0\n", first >> 20, last >> 20);
    return 0;
}

int main(int argc, char **argv)
{
    size_t first, last, total;
    begin();
    (void)argv;
    if (argc > 1)
        return take_all();
    check(-1);
    MUST(cuMemGetInfo_v2(&first, &total));
    for (int i = 0; i < BLOCKS; i++)
        take(i);
    for (int i = 0; i < BLOCKS; i += 3)
        give(i);
    for (int i = 0; i < BLOCKS; i += 3)
        take(i);
    for (int i = 0; i < BLOCKS; i++)
        give(i);
    MUST(cuCtxSynchronize());
    MUST(cuMemGetInfo_v2(&last, &total));
    printf("%zu %zu %zu\n", first >> 20, last >> 20, total >> 20);
    return 0;
}
