/* A thread that is to be cancelled makes calls first: they return, and the thread ends at its own
 * point. With "copy", it copies over several links; with "scarce", it allocates in stream order
 * more than the device has room for, while kernels run, and says whether blocks moved. Ends with 0
 * if the thread has seen all its calls return. */

#include <pthread.h>
#include <string.h>

#include "driver.h"

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
const char *wmshim_stats_json(void);

enum { BYTES = 12 << 20 };

static CUcontext context;
static volatile int returned;

/* The first such figure is that of the device's moves. */
static int moves(void)
{
    const char *figure = strstr(wmshim_stats_json(), "\"moves\":{");
    figure = figure ? strstr(figure, "\"out_bytes\":") : NULL;
    return figure && strncmp(figure, "\"out_bytes\":0,", 14);
}

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

/* Copies that take some time go on in another stream while blocks of this one are placed elsewhere,
 * and blocks are evicted where it has ended. */
static void *scarce(void *unused)
{
    enum { BLOCKS = 8 };
    CUdeviceptr blocks[BLOCKS], last;
    CUstream busy, stream;
    void *host;
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&busy, 1));
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuMemHostAlloc(&host, BYTES, 0));
    for (int i = 0; i < BLOCKS; i++) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        MUST(cuMemAllocAsync(&blocks[i], BYTES, stream));
        MUST(cuMemsetD8Async(blocks[i], 1, BYTES, stream));
        MUST(cuStreamSynchronize(stream));
        /* A request waits for the copy, but not for as long as it takes; a later one moves memory. */
        MUST(cuMemcpyDtoHAsync_v2(host, blocks[i], BYTES, busy));
        if (i % 2)
            MUST(cuStreamSynchronize(busy));
        if (i == 2)
            pthread_cancel(pthread_self());
        /* The request may take effect only in the calls under test. */
        if (i >= 2) {
            pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
            MUST(cuMemAllocAsync(&last, BYTES, stream));
            MUST(cuMemFreeAsync(last, stream));
        }
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
    int is_scarce = count > 1 && !strcmp(words[1], "scarce");
    pthread_create(&thread, NULL, is_scarce ? scarce : calls, count > 1 ? words[1] : NULL);
    pthread_join(thread, &end);
    printf("returned %d, cancelled %d", returned, end == PTHREAD_CANCELED);
    if (is_scarce)
        printf(", moved %d", moves());
    printf("\n");
    /* The process can still use the driver. */
    round_trip(1);
    return 0;
}
