/* A machine of another size, for programs that include this: the library reads the kernel's figures
 * by the C library's functions, which are found here first.
 *
 * MACHINE_MIB is all of its memory, and OTHERS_MIB the used memory beside the memory that the
 * simulator's processes have pinned, which is in the file that SIMCUDA_SHARED names. There are no
 * control groups. */

#ifndef MEMINFO_H
#define MEMINFO_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEDGER_ROWS = 256, LEDGER_COLUMNS = 65 };

static unsigned long long number_of(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

/* Bytes of the host that all processes have pinned: the first count of each row. */
static unsigned long long pinned_bytes(void)
{
    uint64_t count;
    const char *path = getenv("SIMCUDA_SHARED");
    int file = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    unsigned long long sum = 0;
    for (int row = 0; file >= 0 && row < LEDGER_ROWS; row++)
        if (pread(file, &count, sizeof count, (off_t)row * LEDGER_COLUMNS * sizeof count) == sizeof count)
            sum += count;
    if (file >= 0)
        close(file);
    return sum;
}

static int open_meminfo(void)
{
    char text[128];
    unsigned long long total = number_of("MACHINE_MIB") << 10;
    unsigned long long used = (number_of("OTHERS_MIB") << 10) + (pinned_bytes() >> 10);
    int length = snprintf(text, sizeof text, "MemTotal: %llu kB\nMemAvailable: %llu kB\n", total, total > used ? total - used : 0);
    int file = memfd_create("meminfo", MFD_CLOEXEC);
    if (write(file, text, length) != length || lseek(file, 0, SEEK_SET))
        abort();
    return file;
}

static int open_as(const char *path, int flags, va_list rest)
{
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    if (!strcmp(path, "/proc/meminfo"))
        return open_meminfo();
    if (!strcmp(path, "/proc/self/cgroup")) {
        errno = ENOENT;
        return -1;
    }
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int file = open_as(path, flags, rest);
    va_end(rest);
    return file;
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int file = open_as(path, flags, rest);
    va_end(rest);
    return file;
}

#endif
