/* Sets errno before each call and prints the calls that changed it. Such a call may fail; it must
 * leave errno alone. */

#include <errno.h>

#include "driver.h"

enum { MARK = 77 };

#define KEEP(call)                              \
    do {                                        \
        errno = MARK;                           \
        (void)(call);                           \
        if (errno != MARK)                      \
            printf("%s: %d\n", #call, errno);   \
    } while (0)

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr address = 0, large = 0;
    CUstream stream = NULL;
    CUevent event = NULL;
    void *function;
    size_t free, total;
    int number;
    char text[16] = "";
    KEEP(cuDriverGetVersion(&number)); /* opens the driver */
    KEEP(cuInit(0));                   /* opens the endpoint */
    KEEP(cuInit(0));
    KEEP(cuDeviceGet(&device, 0));
    KEEP(cuDevicePrimaryCtxRetain(&context, 0));
    KEEP(cuCtxSetCurrent(context));
    KEEP(cuMemGetInfo_v2(&free, &total));
    KEEP(cuMemAlloc_v2(&address, 5 << 20));
    KEEP(cuMemAlloc_v2(&large, (size_t)1 << 50));
    KEEP(cuMemcpyHtoD_v2(address, text, sizeof text));
    KEEP(cuMemcpyDtoH_v2(text, address, sizeof text));
    KEEP(cuMemGetAddressRange_v2(&address, &total, address));
    KEEP(cuPointerGetAttribute(&number, 2, address));
    KEEP(cuMemFree_v2(address));
    KEEP(cuMemFree_v2(1));
    KEEP(cuStreamCreate(&stream, 0));
    KEEP(cuMemAllocAsync(&address, 5 << 20, stream));
    KEEP(cuMemFreeAsync(address, stream));
    KEEP(cuStreamSynchronize(stream));
    KEEP(cuStreamDestroy_v2(stream));
    KEEP(cuEventCreate(&event, 0));
    KEEP(cuEventDestroy_v2(event));
    KEEP(cuGetProcAddress("cuMemAlloc", &function, 12000, 0));
    KEEP(cuGetProcAddress_v2("cuNoSuchFunction", &function, 12000, 0, &number));
    KEEP(cuMemAllocManaged(&address, 4096, 1));
    KEEP(cuCtxSynchronize());
    KEEP(cuDevicePrimaryCtxRelease_v2(0));
    return 0;
}
