/* A machine that reports eight idle cores: a thread's affinity has eight, and the time that it
 * waits for a core is not counted.
 *
 * With TEST_COUNTED it is counted; TEST_QUOTA=2 is a control group that may use two cores. */

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int sched_getaffinity(pid_t thread, size_t size, cpu_set_t *cores)
{
    (void)thread;
    CPU_ZERO_S(size, cores);
    for (int core = 0; core < 8; core++)
        CPU_SET_S(core, size, cores);
    return 0;
}

static int file(const char *text)
{
    int descriptor = memfd_create("cores", MFD_CLOEXEC);
    if (descriptor >= 0 && pwrite(descriptor, text, strlen(text), 0) < 0)
        abort();
    return descriptor;
}

int open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (strcmp(path, "/proc/thread-self/schedstat") == 0 && getenv("TEST_COUNTED") == NULL) {
        errno = ENOENT;
        return -1;
    }
    const char *quota = getenv("TEST_QUOTA");
    if (quota != NULL && strcmp(path, "/proc/self/cgroup") == 0)
        return file("0::/of-the-test\n");
    if (quota != NULL && strcmp(path, "/sys/fs/cgroup/of-the-test/cpu.max") == 0) {
        char text[64];
        snprintf(text, sizeof text, "%s00000 100000\n", quota);
        return file(text);
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int statx(int folder, const char *path, int flags, unsigned int mask, struct statx *status)
{
    /* A probe for the call passes null, which the header declares as forbidden. */
    const char *volatile name = path;
    if (name != NULL && getenv("TEST_QUOTA") != NULL && strcmp(name, "/sys/fs/cgroup/of-the-test/cgroup.controllers") == 0) {
        memset(status, 0, sizeof *status);
        return 0;
    }
    return (int)syscall(SYS_statx, folder, name, flags, mask, status);
}
