/* A CUDA program that may be installed with the set-user-ID bit. Prints whether the loader runs it
 * in secure mode (its caller has fewer rights), makes the calls of a small program, and names the
 * files that are mapped into it. */

#include <string.h>
#include <sys/auxv.h>

#include "driver.h"

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr address;
    char line[8192];
    FILE *maps;
    printf("secure %lu\n", getauxval(AT_SECURE));
    int error = cuInit(0);
    error = error ? error : cuDeviceGet(&device, 0);
    error = error ? error : cuDevicePrimaryCtxRetain(&context, device);
    error = error ? error : cuCtxSetCurrent(context);
    error = error ? error : cuMemAlloc_v2(&address, 4 << 20);
    error = error ? error : cuMemFree_v2(address);
    printf("calls %d\n", error);
    if (!(maps = fopen("/proc/self/maps", "r")))
        return 1;
    while (fgets(line, sizeof line, maps)) {
        char *file = strchr(line, '/');
        if (file)
            printf("mapped %s", file);
    }
    return fclose(maps);
}
