/* Fills the device with plain blocks and frees them, then asks for most of it in a pool of its own.
 * Prints the answer. */

#include <string.h>

#include "driver.h"

enum { BLOCKS = 6 };

int main(void)
{
    CUdeviceptr blocks[BLOCKS], address;
    CUmemPoolProps properties;
    CUmemoryPool pool;
    CUstream stream;
    size_t free, total;
    begin();
    MUST(cuMemGetInfo_v2(&free, &total));
    memset(&properties, 0, sizeof properties);
    properties.allocType = 1;
    properties.location.type = 1;
    MUST(cuMemPoolCreate(&pool, &properties));
    MUST(cuStreamCreate(&stream, 1));
    for (int i = 0; i < BLOCKS; i++)
        MUST(cuMemAlloc_v2(&blocks[i], total / 8));
    for (int i = 0; i < BLOCKS; i++)
        MUST(cuMemFree_v2(blocks[i]));
    printf("%d\n", cuMemAllocFromPoolAsync(&address, total / 2, pool, stream));
    return 0;
}
