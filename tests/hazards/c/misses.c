/* Counts the files that are opened in this process while it does memory calls: this file defines
 * the C library's functions that open them.
 *
 *   rounds N          N times: allocate in stream order, set, free, wait. It holds no other block
 *   refused N BYTES   N times: a request that is refused
 *   filled            a device that is full, and one block more: it lies elsewhere
 *
 * Prints how many files were opened meanwhile, and the last answer. */

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver.h"

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream);

static volatile int opened;

static int open_counted(int folder, const char *path, int flags, va_list rest)
{
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    __atomic_add_fetch(&opened, 1, __ATOMIC_RELAXED);
    return syscall(SYS_openat, folder, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int file = open_counted(AT_FDCWD, path, flags, rest);
    va_end(rest);
    return file;
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int file = open_counted(AT_FDCWD, path, flags, rest);
    va_end(rest);
    return file;
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int file = open_counted(folder, path, flags, rest);
    va_end(rest);
    return file;
}

int openat64(int folder, const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int file = open_counted(folder, path, flags, rest);
    va_end(rest);
    return file;
}

static CUresult one_round(CUstream stream)
{
    CUdeviceptr address;
    MUST(cuMemAllocAsync(&address, 4 << 20, stream));
    MUST(cuMemsetD8Async(address, 1, 4096, stream));
    MUST(cuMemFreeAsync(address, stream));
    return cuStreamSynchronize(stream);
}

static CUresult fill(void)
{
    CUdeviceptr address;
    size_t free, total;
    MUST(cuMemGetInfo_v2(&free, &total));
    opened = 0;
    MUST(cuMemAlloc_v2(&address, free));
    return cuMemAlloc_v2(&address, 8 << 20);
}

int main(int arguments, char **argument)
{
    const char *way = arguments > 1 ? argument[1] : "";
    int times = arguments > 2 ? atoi(argument[2]) : 0;
    size_t bytes = arguments > 3 ? strtoull(argument[3], NULL, 0) : 0;
    CUdeviceptr address = 0;
    CUresult answer = CUDA_SUCCESS;
    CUstream stream;
    begin();
    MUST(cuStreamCreate(&stream, 1));
    MUST(one_round(stream));
    opened = 0;
    if (!strcmp(way, "filled"))
        answer = fill();
    for (int i = 0; i < times; i++)
        answer = strcmp(way, "rounds") ? cuMemAlloc_v2(&address, bytes) : one_round(stream);
    printf("%d %d\n", opened, answer);
    return 0;
}
