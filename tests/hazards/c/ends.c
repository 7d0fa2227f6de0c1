/* Uses the driver and ends in one of many ways, most of which run no handler of an exit.
 *
 *   crash    holds 1 MiB, and writes to nowhere
 *   leave    holds 1 MiB, and leaves by _exit
 *   kill     holds 1 MiB, and is killed 10 ms later
 *   exit     holds 1 MiB, and exits
 *   many     40 children hold 1 to 40 MiB each, churn, and are killed in the midst of it
 *   hits     gives back and takes again, 1000 times without a call of the driver; holds 3 of 8 MiB at
 *            the end, of 11 at most, and leaves by _exit
 *   forks    holds 1 MiB; a forked child tries for 64 more and leaves by _exit; then exits
 *   execs    holds 1 MiB, and executes `cat`
 *   oom      asks for 1 TiB, and leaves by _exit */

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static CUdeviceptr take(size_t mib)
{
    CUdeviceptr address;
    MUST(cuMemAlloc_v2(&address, mib << 20));
    return address;
}

static void be_one_of_many(int number)
{
    begin();
    take(number);
    for (int round = 0; round < 100; round++)
        MUST(cuMemFree_v2(take(1)));
    raise(SIGKILL);
}

static void many(void)
{
    for (int number = 1; number <= 40; number++)
        if (fork() == 0)
            be_one_of_many(number);
    while (wait(NULL) > 0)
        ;
}

static void hits(void)
{
    CUdeviceptr blocks[11];
    for (int number = 0; number < 11; number++)
        blocks[number] = take(1);
    for (int round = 0; round < 1000; round++) {
        MUST(cuMemFree_v2(blocks[round % 11]));
        blocks[round % 11] = take(1);
    }
    for (int number = 3; number < 11; number++)
        MUST(cuMemFree_v2(blocks[number]));
}

static void forks(void)
{
    pid_t child = fork();
    CUdeviceptr address;
    if (child == 0) {
        (void)cuMemAlloc_v2(&address, 64 << 20);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(int count, char **words)
{
    const char *way = count > 1 ? words[1] : "";
    CUdeviceptr address;
    if (!strcmp(way, "many")) {
        many();
        return 0;
    }
    begin();
    if (!strcmp(way, "hits")) {
        hits();
        _exit(0);
    }
    if (!strcmp(way, "oom")) {
        (void)cuMemAlloc_v2(&address, 1ULL << 40);
        _exit(0);
    }
    take(1);
    if (!strcmp(way, "crash"))
        *(volatile int *)0 = 1;
    if (!strcmp(way, "leave"))
        _exit(0);
    if (!strcmp(way, "kill")) {
        usleep(10000);
        raise(SIGKILL);
    }
    if (!strcmp(way, "forks"))
        forks();
    if (!strcmp(way, "execs"))
        execlp("cat", "cat", (char *)NULL);
    return 0;
}
