/* Makes each of many harmless calls first, in a process of its own, then begins as usual.
 * Prints the call and both answers: with the shim they must be those of the driver alone. */

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static int number;
static size_t bytes, more;
static char text[64];
static const char *words;
static void *function;
static CUdeviceptr address;
static CUcontext context;
static CUstream stream;
static CUevent event;

#define CALLS                                                                                                        \
    CALL(cuInit(0))                                                                                                  \
    CALL(cuInit(1))                                                                                                  \
    CALL(cuDriverGetVersion(&number))                                                                                \
    CALL(cuDriverGetVersion(NULL))                                                                                   \
    CALL(cuDeviceGet(&number, 0))                                                                                    \
    CALL(cuDeviceGetCount(&number))                                                                                  \
    CALL(cuDeviceGetName(text, sizeof text, 0))                                                                      \
    CALL(cuDeviceGetAttribute(&number, 1, 0))                                                                        \
    CALL(cuDeviceTotalMem_v2(&bytes, 0))                                                                             \
    CALL(cuDeviceCanAccessPeer(&number, 0, 0))                                                                       \
    CALL(cuDevicePrimaryCtxRetain(&context, 0))                                                                      \
    CALL(cuDevicePrimaryCtxRelease_v2(0))                                                                            \
    CALL(cuCtxSetCurrent(NULL))                                                                                      \
    CALL(cuCtxGetCurrent(&context))                                                                                  \
    CALL(cuCtxGetDevice(&number))                                                                                    \
    CALL(cuCtxPushCurrent_v2(NULL))                                                                                  \
    CALL(cuCtxPopCurrent_v2(&context))                                                                               \
    CALL(cuCtxSynchronize())                                                                                         \
    CALL(cuGetErrorName(100, &words))                                                                                \
    CALL(cuGetErrorString(100, &words))                                                                              \
    CALL(cuGetErrorString(-1, &words))                                                                               \
    CALL(cuMemGetInfo_v2(&bytes, &more))                                                                             \
    CALL(cuMemGetInfo_v2(NULL, NULL))                                                                                \
    CALL(cuMemAlloc_v2(&address, 4096))                                                                              \
    CALL(cuMemAlloc_v2(&address, 0))                                                                                 \
    CALL(cuMemAlloc_v2(NULL, 4096))                                                                                  \
    CALL(cuMemFree_v2(0))                                                                                            \
    CALL(cuMemFree_v2(4096))                                                                                         \
    CALL(cuMemAllocAsync(&address, 4096, NULL))                                                                      \
    CALL(cuMemFreeAsync(0, NULL))                                                                                    \
    CALL(cuMemAllocHost_v2(&function, 4096))                                                                         \
    CALL(cuMemFreeHost(NULL))                                                                                        \
    CALL(cuMemAllocManaged(&address, 4096, 1))                                                                       \
    CALL(cuMemGetAddressRange_v2(&address, &bytes, 4096))                                                            \
    CALL(cuMemcpyHtoD_v2(0, text, 0))                                                                                \
    CALL(cuMemcpyDtoH_v2(text, 0, 0))                                                                                \
    CALL(cuMemsetD8_v2(0, 0, 0))                                                                                     \
    CALL(cuPointerGetAttribute(&number, 2, 4096))                                                                    \
    CALL(cuStreamCreate(&stream, 0))                                                                                 \
    CALL(cuStreamQuery(NULL))                                                                                        \
    CALL(cuStreamSynchronize(NULL))                                                                                  \
    CALL(cuEventCreate(&event, 0))                                                                                   \
    CALL(cuProfilerStart())                                                                                          \
    CALL(cuProfilerStop())                                                                                           \
    CALL(cuGetProcAddress("cuInit", &function, 12000, 0))                                                            \
    CALL(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &number))                                            \
    CALL(cuGetProcAddress_v2("cuNoSuchFunction", &function, 12000, 0, NULL))

int main(void)
{
#define CALL(call)                                                         \
    if (fork() == 0) {                                                     \
        int first = (call);                                                \
        char line[160];                                                    \
        int length = snprintf(line, sizeof line, "%s %d %d\n", #call, first, cuInit(0)); \
        _exit(write(1, line, length) != length);                           \
    } else {                                                               \
        int status;                                                        \
        wait(&status);                                                     \
        if (status)                                                        \
            printf("%s: status %x\n", #call, status), fflush(stdout);      \
    }
    CALLS
    return 0;
}
