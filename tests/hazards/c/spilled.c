/* Takes memory as its arguments say, one after the other, and prints the answer of each: `aN` a
 * block of N MiB, `sN` one in a stream, `pN` a piece that it makes itself. `f` frees the last
 * block, `dN` makes device N current, `k` forks a child that ends by itself, and `r` ends the
 * context of the current device. */

#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "pieces.h"

CUresult cuMemCreate(unsigned long long *handle, size_t bytes, const struct property *property, unsigned long long flags);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);

static int device;

static CUresult make(size_t bytes)
{
    struct property wanted = { .type = 1, .location = { DEVICE, device } };
    unsigned long long handle;
    return cuMemCreate(&handle, bytes, &wanted, 0);
}

static void use(int ordinal)
{
    CUcontext context;
    device = ordinal;
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
}

static void fork_child(void)
{
    int status = 1;
    pid_t child = fork();
    if (!child)
        exit(0);
    waitpid(child, &status, 0);
    if (status)
        exit(82);
}

int main(int arguments, char **argument)
{
    CUdeviceptr block = 0;
    begin();
    for (int i = 1; i < arguments; i++) {
        size_t number = strtoul(argument[i] + 1, NULL, 10);
        switch (argument[i][0]) {
        case 'a':
            printf("%d\n", cuMemAlloc_v2(&block, number << 20));
            break;
        case 's':
            printf("%d\n", cuMemAllocAsync(&block, number << 20, NULL));
            break;
        case 'p':
            printf("%d\n", make(number << 20));
            break;
        case 'f':
            MUST(cuMemFree_v2(block));
            break;
        case 'd':
            use((int)number);
            break;
        case 'r':
            MUST(cuDevicePrimaryCtxReset_v2(device));
            break;
        case 'k':
            fork_child();
            break;
        default:
            return 83;
        }
    }
    return 0;
}
