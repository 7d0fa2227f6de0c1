/* A program whose memory does not fit its device, and that uses most what was allocated last. Its kernel is one of a library, which it
 * has before memory is short.
 *
 *   arranged IMAGE      the MiB that came to the device until it has what is used most, and the MiB that have moved 300 steps later */

#include <string.h>
#include <time.h>

#include "fill.h"
#include "wmshim.h"

typedef struct CUlib_st *CUlibrary;

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, void *jit, void **jit_values, unsigned jit_count, void *options,
                           void **values, unsigned count);
CUresult cuLibraryGetKernel(CUfunction *kernel, CUlibrary library, const char *name);

enum { MIB = 1 << 20, BYTES = 64 * MIB, SELDOM = 4, PART = 4096 };

/* MiB that moved, in a direction. */
static unsigned long long moved(const char *direction)
{
    const char *at = strstr(wmshim_stats_json(), "\"moves\":{");
    at = at ? strstr(at, direction) : NULL;
    return at ? strtoull(at + strlen(direction), NULL, 10) / MIB : 0;
}

static CUdeviceptr seldom[SELDOM], often;

static void step(unsigned number)
{
    for (int use = 0; use < 8; use++)
        MUST(fill_by_kernel(often, PART, number, NULL));
    MUST(fill_by_kernel(seldom[number % SELDOM], PART, number, NULL));
    MUST(cuCtxSynchronize());
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
    static char image[1 << 20];
    CUlibrary library;
    unsigned number = 0;
    FILE *file = fopen(argument[count - 1], "rb");
    if (!file || fread(image, 1, sizeof image - 1, file) == 0)
        exit(83);
    load(argument[count - 1]);
    MUST(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    MUST(cuLibraryGetKernel(&fill, library, "wm_fill_u32"));
    for (int at = 0; at < SELDOM; at++)
        MUST(cuMemAlloc_v2(&seldom[at], BYTES));
    MUST(cuMemAlloc_v2(&often, BYTES));
    for (time_t begun = time(NULL); moved("\"in_bytes\":") < BYTES / MIB && time(NULL) - begun < 60;)
        step(number++);
    printf("%llu ", moved("\"in_bytes\":"));
    for (unsigned end = number + 300; number < end;)
        step(number++);
    printf("%llu\n", moved("\"in_bytes\":") + moved("\"out_bytes\":"));
    must_hold(often, number - 1);
    for (unsigned last = number - SELDOM; last < number; last++)
        must_hold(seldom[last % SELDOM], last);
    return 0;
}
