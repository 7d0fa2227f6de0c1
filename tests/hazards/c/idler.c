/* Takes this number of MiB of the device and frees them, five times in less than two seconds, and
 * then makes no more calls.
 *
 *   sync MIB    by cuMemAlloc and cuMemFree
 *   mixed MIB   the same with a small block of the pool that lives beside it
 *
 * Prints "idle" then, and ends when standard input does. */

#include <string.h>
#include <unistd.h>

#include "driver.h"

int main(int arguments, char **argument)
{
    const char *way = arguments > 1 ? argument[1] : "";
    size_t bytes = (size_t)(arguments > 2 ? atoi(argument[2]) : 0) << 20;
    CUdeviceptr address, beside;
    CUstream stream;
    char byte;
    begin();
    MUST(cuStreamCreate(&stream, 1));
    for (int round = 0; round < 5; round++) {
        if (!strcmp(way, "mixed"))
            MUST(cuMemAllocAsync(&beside, 1 << 20, stream));
        MUST(cuMemAlloc_v2(&address, bytes));
        MUST(cuMemsetD8_v2(address, 1, 4096));
        if (!strcmp(way, "mixed"))
            MUST(cuMemFreeAsync(beside, stream));
        usleep(200 * 1000);
        MUST(cuMemFree_v2(address));
        usleep(100 * 1000);
    }
    puts("idle");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
