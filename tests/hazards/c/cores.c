/* A machine with eight idle cores, whatever it has: what a thread is told of its affinity, and that nobody counts how long it waits for a
   core. */

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
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

int open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (strcmp(path, "/proc/thread-self/schedstat") == 0) {
        errno = ENOENT;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
