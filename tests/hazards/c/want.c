/* Wants so many MiB of the device. Prints the driver's code, and how many of them lie on the host if the library is loaded.
 * With a second argument it stays: for each byte of standard input it frees the block and asks for
 * it again, and says so once more. */

#include <string.h>
#include <unistd.h>

#include "driver.h"

char *wmshim_stats_json(void) __attribute__((weak));

static unsigned long long on_host(void)
{
    char *stats = wmshim_stats_json ? wmshim_stats_json() : NULL;
    char *tier = stats ? strstr(stats, "\"host\":{") : NULL;
    char *live = tier ? strstr(tier, "\"live_bytes\":") : NULL;
    unsigned long long bytes = live ? strtoull(live + strlen("\"live_bytes\":"), NULL, 10) : 0;
    free(stats);
    return bytes;
}

static CUdeviceptr ask(size_t bytes)
{
    CUdeviceptr address = 0;
    CUresult answer = cuMemAlloc_v2(&address, bytes);
    printf("%d %llu\n", answer, on_host());
    fflush(stdout);
    return address;
}

int main(int arguments, char **argument)
{
    size_t bytes = (size_t)(arguments > 1 ? atoi(argument[1]) : 0) << 20;
    char byte;
    begin();
    CUdeviceptr address = ask(bytes);
    while (arguments > 2 && read(0, &byte, 1) > 0) {
        MUST(cuMemFree_v2(address));
        address = ask(bytes);
    }
    return 0;
}
