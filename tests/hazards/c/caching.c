/* Allocates through a library that caches freed blocks: five blocks of 4 MiB that are freed, one of
 * 8 MiB, then five more of 4 MiB that are kept. Prints how often the cache was emptied and how much
 * memory of the host is in use, after the large block and at the end. */

#include <string.h>

#include "driver.h"

int cache_take(CUdeviceptr *block, unsigned long bytes);
void cache_give(CUdeviceptr block, unsigned long bytes);
int cache_emptied(void);
char *wmshim_stats_json(void);

enum { BLOCKS = 5 };

static void report(void)
{
    char *stats = wmshim_stats_json();
    printf("%d %s\n", cache_emptied(), stats ? stats : "");
    free(stats);
}

int main(void)
{
    CUdeviceptr blocks[BLOCKS], large;
    begin();
    for (int i = 0; i < BLOCKS; i++)
        MUST(cache_take(&blocks[i], 4ul << 20));
    for (int i = 0; i < BLOCKS; i++)
        cache_give(blocks[i], 4ul << 20);
    MUST(cache_take(&large, 8ul << 20));
    report();
    for (int i = 0; i < BLOCKS; i++)
        MUST(cache_take(&blocks[i], 4ul << 20));
    report();
    return 0;
}
