/* Another preload, of the kind that watches calls: its cuInit prints a line and calls the next one
 * in the loader's order. */

#include <dlfcn.h>
#include <stdio.h>

typedef int (*init_t)(unsigned);

int cuInit(unsigned flags);

int cuInit(unsigned flags)
{
    init_t next = (init_t)dlsym(RTLD_NEXT, "cuInit");
    fprintf(stderr, "profiler: cuInit\n");
    return next ? next(flags) : 96;
}
