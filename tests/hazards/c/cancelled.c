/* A thread that is to be cancelled makes calls first: they return, and the thread ends at its own point. With an argument, it copies
 * over several links. Ends with 0 if the thread has seen all its calls return. */

#include <pthread.h>
#include <string.h>

#include "driver.h"

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
const char *wmshim_stats_json(void);

enum { BYTES = 12 << 20 };

static CUcontext context;
static volatile int returned;

static int relays(void)
{
    return strstr(wmshim_stats_json(), "\"relay ") != NULL;
}

static void *calls(void *argument)
{
    CUdeviceptr address;
    void *host;
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemHostAlloc(&host, BYTES, 0));
    MUST(cuMemAlloc_v2(&address, BYTES));
    while (argument && !relays())
        MUST(cuMemcpyHtoD_v2(address, host, BYTES));
    pthread_cancel(pthread_self());
    if (argument) {
        MUST(cuMemcpyHtoD_v2(address, host, BYTES));
        MUST(cuMemcpyDtoH_v2(host, address, BYTES));
    }
    MUST(cuMemFree_v2(address));
    MUST(cuMemAlloc_v2(&address, 3 * BYTES));
    MUST(cuMemFree_v2(address));
    for (size_t bytes = BYTES; bytes < 16 * (size_t)BYTES; bytes *= 2) {
        MUST(cuMemAllocAsync(&address, bytes, NULL));
        MUST(cuMemFreeAsync(address, NULL));
    }
    returned = 1;
    pthread_testcancel();
    returned = 2;
    return NULL;
}

int main(int count, char **words)
{
    pthread_t thread;
    void *end = NULL;
    context = begin();
    pthread_create(&thread, NULL, calls, count > 1 ? words[1] : NULL);
    pthread_join(thread, &end);
    printf("returned %d, cancelled %d\n", returned, end == PTHREAD_CANCELED);
    /* The process has not suffered. */
    round_trip(1);
    return 0;
}
