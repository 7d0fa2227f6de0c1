/* Asks PyTorch's way of mapping (grown.c) for tensors from a part of the device up to more than
 * device and host have, with a fresh cache and with a fragmented one, in two streams, with the
 * cache emptied between them. Prints each result; a tensor must hold the words that are written at
 * its ends. Ends with 70 if one does not. With an argument, asks only for tensors that are larger
 * than any segment. */

#include "grown.h"

enum { STREAMS = 2, KEPT = 6 };

char *wmshim_stats_json(void) __attribute__((weak));

static void report(const char *when)
{
    char *stats = wmshim_stats_json ? wmshim_stats_json() : NULL;
    printf("%s %s\n", when, stats ? stats : "");
    free(stats);
}

static void check_end(CUdeviceptr at, unsigned value)
{
    unsigned seen = 0;
    MUST(cuMemcpyHtoD_v2(at, &value, sizeof value));
    MUST(cuMemcpyDtoH_v2(&seen, at, sizeof seen));
    if (seen != value)
        exit(70);
}

static void ask(const char *cache, int stream, const char *name, size_t bytes)
{
    CUdeviceptr at = grown_malloc(stream, bytes);
    printf("%s %d %s %s\n", cache, stream, name, at ? "given" : "refused");
    if (!at)
        return;
    check_end(at, 0x5eed);
    check_end(at + (bytes - 4) / 4 * 4, 0xfeed);
    grown_free(at);
}

static void ask_all(const char *cache, int stream, size_t device)
{
    size_t eighth = device / 8;
    ask(cache, stream, "0.5", 4 * eighth);
    ask(cache, stream, "1.0", device);
    ask(cache, stream, "1.1", device / 10 * 11);
    ask(cache, stream, "1.125", 9 * eighth);
    ask(cache, stream, "1.2", device / 10 * 12);
    ask(cache, stream, "1.5", 12 * eighth);
    grown_empty_cache();
    ask(cache, stream, "3.0", 3 * device);
    ask(cache, stream, "TiB", (size_t)1 << 40);
    ask(cache, stream, "most", (size_t)800000000 << 30);
    ask(cache, stream, "again", 4 * eighth);
}

static void ask_for_too_much(size_t device)
{
    ask("fresh", 0, "3.0", 3 * device);
    ask("fresh", 0, "TiB", (size_t)1 << 40);
    ask("fresh", 1, "most", (size_t)800000000 << 30);
    report("refused");
}

int main(int arguments, char **argument)
{
    CUdeviceptr kept[STREAMS][KEPT];
    size_t device;
    (void)argument;
    begin();
    MUST(cuDeviceTotalMem_v2(&device, 0));
    if (arguments > 1) {
        ask_for_too_much(device);
        return 0;
    }
    for (int stream = 0; stream < STREAMS; stream++) {
        ask_all("fresh", stream, device);
        grown_empty_cache();
    }
    report("fresh");
    for (int stream = 0; stream < STREAMS; stream++) {
        for (int i = 0; i < KEPT; i++)
            if (!(kept[stream][i] = grown_malloc(stream, i % 3 ? 9 << 20 : 1 << 20)))
                return 71;
        for (int i = 0; i < KEPT; i += 2)
            grown_free(kept[stream][i]);
        ask_all("fragmented", stream, device);
    }
    for (int stream = 0; stream < STREAMS; stream++)
        for (int i = 1; i < KEPT; i += 2)
            check_end(kept[stream][i], (unsigned)(stream * KEPT + i));
    report("end");
    return 0;
}
