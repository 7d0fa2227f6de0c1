/* A machine with eight cores, whatever it has: what a thread is told of its affinity. */

#include <sched.h>

int sched_getaffinity(pid_t thread, size_t size, cpu_set_t *cores)
{
    (void)thread;
    CPU_ZERO_S(size, cores);
    for (int core = 0; core < 8; core++)
        CPU_SET_S(core, size, cores);
    return 0;
}
