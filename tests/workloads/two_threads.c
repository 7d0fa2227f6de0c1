/* Two threads copy into one block of the device, in one stream: of two copies either may be the
 * last, and no result may be a mixture of both.
 *
 *   gcc -O1 -pthread -o two_threads tests/workloads/two_threads.c -L/usr/local/nvidia/lib64 -l:libcuda.so.1
 *   ./two_threads                                                                      bare
 *   LD_PRELOAD=dist/lib/libwmshim.so WMSHIM_MULTIPATH=0,1 ./two_threads                 with a relay
 *
 * Pinned and pageable memory in turn; 20 results of each are checked. Ends with 1 if one is a
 * mixture. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long CUdeviceptr;

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuStreamCreate(void **, unsigned);
int cuStreamSynchronize(void *);
int cuMemAlloc_v2(CUdeviceptr *, size_t);
int cuMemHostAlloc(void **, size_t, unsigned);
int cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, void *);
int cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);

enum { ROUNDS = 20, WARM = 5 };
static const size_t BYTES = 256UL << 20;

static void *context, *stream;
static CUdeviceptr target;
static pthread_barrier_t begin, end;
static unsigned char *from[2];

static void must(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "%s: error %d\n", what, code);
        exit(2);
    }
}

static void *copies(void *number)
{
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (int round = 0; round < ROUNDS + WARM; round++) {
        pthread_barrier_wait(&begin);
        must(cuMemcpyHtoDAsync_v2(target, from[(size_t)number], BYTES, stream), "cuMemcpyHtoDAsync");
        pthread_barrier_wait(&end);
    }
    return NULL;
}

static int mixtures(int is_pinned)
{
    unsigned char *back;
    must(cuMemHostAlloc((void **)&back, BYTES, 0), "cuMemHostAlloc");
    for (int i = 0; i < 2; i++) {
        if (is_pinned)
            must(cuMemHostAlloc((void **)&from[i], BYTES, 0), "cuMemHostAlloc");
        else
            from[i] = malloc(BYTES);
        memset(from[i], 7 + i, BYTES);
    }
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, copies, (void *)i);
    int mixed = 0;
    for (int round = 0; round < ROUNDS + WARM; round++) {
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&end);
        must(cuStreamSynchronize(stream), "cuStreamSynchronize");
        must(cuMemcpyDtoH_v2(back, target, BYTES), "cuMemcpyDtoH");
        /* The first rounds measure the links. */
        mixed += round >= WARM && memcmp(back, back + 1, BYTES - 1) != 0;
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return mixed;
}

int main(void)
{
    must(cuInit(0), "cuInit");
    must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    must(cuStreamCreate(&stream, 1), "cuStreamCreate");
    must(cuMemAlloc_v2(&target, BYTES), "cuMemAlloc");
    pthread_barrier_init(&begin, NULL, 3);
    pthread_barrier_init(&end, NULL, 3);
    int pinned = mixtures(1), pageable = mixtures(0);
    printf("mixtures of %d: pinned %d, pageable %d\n", ROUNDS, pinned, pageable);
    return pinned + pageable > 0;
}
