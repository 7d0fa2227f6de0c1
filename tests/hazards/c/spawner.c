/* Starts a program many times, one child after another, as a build system does. Prints the
 * processor time of all children in microseconds, and how often they have waited.
 *
 *   spawner N PROGRAM */

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

static long long microseconds(struct timeval time)
{
    return time.tv_sec * 1000000LL + time.tv_usec;
}

int main(int count, char **argument)
{
    char *words[] = {argument[2], NULL};
    struct rusage all;
    if (count != 3)
        return 90;
    for (int i = atoi(argument[1]); i > 0; i--) {
        pid_t child;
        int status;
        if (posix_spawn(&child, argument[2], NULL, NULL, words, environ))
            return 91;
        waitpid(child, &status, 0);
        if (status)
            return 92;
    }
    if (getrusage(RUSAGE_CHILDREN, &all))
        return 93;
    printf("%lld %ld\n", microseconds(all.ru_utime) + microseconds(all.ru_stime), all.ru_nvcsw);
    return 0;
}
