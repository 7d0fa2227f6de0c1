/* The part of PyTorch's core library that tells its profiler of blocks: `libc10.so`. Its own calls
 * go through the loader, as those of other libraries do. */

#include <stdio.h>

void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *block, long bytes, size_t live, size_t held, unsigned short device)
{
    printf("%p %ld %zu %zu %hu\n", block, bytes, live, held, device);
}

void report_all(void)
{
    const unsigned short CUDA = 1, CPU = 0;
    void *blocks[] = {(void *)0x7f0000000000, (void *)0x7f0000200000, NULL};
    for (int i = 0; i < 3; i++) {
        _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(blocks[i], 3 << 20, 1, (size_t)-1, CUDA | 0x300);
        _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(blocks[i], -(3 << 20), 2, 3, CUDA);
        _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(blocks[i], 64, 4, 5, CPU);
    }
}
