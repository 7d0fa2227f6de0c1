// Does a thread end that has used its default stream? On the driver of docs/dev/measurements.md,
// with nothing preloaded, it waits for ever in the driver's own clean-up where memory of that
// stream was still in use by it. Each kind of use has a process of its own; one that hangs is ended
// by its alarm.
//
//   gcc -o thread_ends tests/workloads/thread_ends.c -lcuda -lpthread && ./thread_ends
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORK = 1, ALLOCATE = 2, KEEP = 4, SYNCHRONIZE = 8, KINDS = 16 };
enum { THREADS = 8, DEADLINE = 4, BLOCK = 6 << 20, LARGE = 256 << 20 };

static int kind;
static CUcontext context;
static CUdeviceptr large;

static void ok(CUresult code) {
    if (code != CUDA_SUCCESS) fprintf(stderr, "error %d\n", code), exit(3);
}

static void *use(void *nothing) {
    CUdeviceptr block;
    ok(cuCtxSetCurrent(context));
    if (kind & ALLOCATE) {
        ok(cuMemAllocAsync(&block, BLOCK, CU_STREAM_PER_THREAD));
        ok(cuMemsetD8Async(block, 1, BLOCK, CU_STREAM_PER_THREAD));
    }
    for (int i = 0; kind & WORK && i < 4; i++) ok(cuMemsetD32Async(large, 1, LARGE / 4, CU_STREAM_PER_THREAD));
    if (kind & ALLOCATE && !(kind & KEEP)) ok(cuMemFreeAsync(block, CU_STREAM_PER_THREAD));
    if (kind & SYNCHRONIZE) ok(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    return nothing;
}

static void child(void) {
    CUdevice device;
    alarm(DEADLINE);
    ok(cuInit(0));
    ok(cuDeviceGet(&device, 0));
    ok(cuDevicePrimaryCtxRetain(&context, device));
    ok(cuCtxSetCurrent(context));
    ok(cuMemAlloc(&large, LARGE));
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, use, NULL);
        pthread_join(thread, NULL);
    }
    ok(cuCtxSynchronize());
    _exit(0);
}

int main(void) {
    for (kind = 0; kind < KINDS; kind++) {
        int status;
        pid_t process = fork();
        if (process == 0) child();
        waitpid(process, &status, 0);
        printf("%-6s %-10s %-6s %-14s %s\n", kind & WORK ? "work" : "-", kind & ALLOCATE ? "allocation" : "-", kind & KEEP ? "kept" : "-",
               kind & SYNCHRONIZE ? "synchronized" : "-", status == 0 ? "ends" : WIFSIGNALED(status) ? "hangs" : "fails");
        fflush(stdout);
    }
}
