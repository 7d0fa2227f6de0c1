/* One of several ranks on one machine: waits for a byte of standard input, then takes blocks of MIB
 * on each device until one is refused. Prints how many it got, and stays until standard input ends.
 * Arguments: devices, MIB. */

#include <pthread.h>

#include "meminfo.h"

#include "driver.h"

static size_t block;

static void *take(void *device)
{
    CUcontext context;
    CUdeviceptr address;
    long got = 0;
    MUST(cuDevicePrimaryCtxRetain(&context, (int)(long)device));
    MUST(cuCtxSetCurrent(context));
    while (cuMemAlloc_v2(&address, block) == CUDA_SUCCESS)
        got++;
    return (void *)got;
}

int main(int arguments, char **argument)
{
    enum { MOST = 8 };
    int devices = arguments > 1 ? atoi(argument[1]) : 1;
    pthread_t threads[MOST];
    long got = 0;
    char byte;
    block = (size_t)(arguments > 2 ? atoi(argument[2]) : 64) << 20;
    begin();
    puts("ready");
    fflush(stdout);
    if (read(0, &byte, 1) != 1)
        return 90;
    for (long device = 0; device < devices && device < MOST; device++)
        if (pthread_create(&threads[device], NULL, take, (void *)device))
            return 91;
    for (int device = 0; device < devices && device < MOST; device++) {
        void *taken;
        pthread_join(threads[device], &taken);
        got += (long)taken;
    }
    printf("%ld\n", got);
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
