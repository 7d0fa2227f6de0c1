/* A program whose handler of a signal calls exit, in the middle of a call: terminated SEED. It ends
 * with 7.
 *
 * It holds blocks that came from the host, asks for one more again and again, and waits for the
 * device: at these calls the library exchanges and moves memory. The signal comes at a random
 * moment, and is unblocked only inside those calls. */

#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "driver.h"

enum { BLOCKS = 6, BYTES = 8 << 20, CODE = 7 };

static void leave(int number)
{
    (void)number;
    exit(CODE);
}

int main(int count, char **words)
{
    static unsigned char bytes[BYTES];
    CUdeviceptr blocks[BLOCKS], more;
    sigset_t alarm;
    unsigned seed = count > 1 ? (unsigned)atoi(words[1]) : 1;
    struct itimerval timer = {.it_value = {0, 1000 * (1 + seed * 7919 % 150)}};
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm, NULL);
    signal(SIGALRM, leave);
    begin();
    for (int i = 0; i < BLOCKS; i++) {
        memset(bytes, i, BYTES);
        MUST(cuMemAlloc_v2(&blocks[i], BYTES));
        MUST(cuMemcpyHtoD_v2(blocks[i], bytes, BYTES));
    }
    setitimer(ITIMER_REAL, &timer, NULL);
    for (;;) {
        sigprocmask(SIG_UNBLOCK, &alarm, NULL);
        MUST(cuMemAlloc_v2(&more, BYTES));
        MUST(cuCtxSynchronize());
        sigprocmask(SIG_BLOCK, &alarm, NULL);
        MUST(cuMemFree_v2(more));
    }
}
