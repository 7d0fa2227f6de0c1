/* Uses the library's allocator as PyTorch's CUDAPluggableAllocator does, from threads with no
 * current device or with another one. The argument names the step. Failures in C++ are in
 * shortage.cc. */

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

void *wmshim_torch_malloc(long size, int device, void *stream);
void wmshim_torch_free(void *address, long size, int device, void *stream);
void wmshim_torch_record_stream(void *address, void *stream);
void wmshim_torch_empty_cache(void);
CUresult cuStreamBeginCapture_v2(CUstream stream, unsigned mode);
CUresult cuStreamEndCapture(CUstream stream, void **graph);
CUresult cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags);
CUresult cuGraphGetNodes(void *graph, void **nodes, size_t *count);
CUresult cuGraphLaunch(void *executable, CUstream stream);
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, unsigned value, unsigned flags);
CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult cuDeviceGetDefaultMemPool(void **pool, CUdevice device);
CUresult cuMemPoolGetAttribute(void *pool, int attribute, void *value);

static const long MIB = 1 << 20;
enum { RESERVED = 5, USED = 7, ORDINAL = 9 };

static void check(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s\n", what);
        exit(70);
    }
}

static CUdeviceptr address(void *pointer) { return (CUdeviceptr)pointer; }

static unsigned long long figure(int device, int attribute)
{
    void *pool;
    unsigned long long value = 0;
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    MUST(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

/* Written bytes can be read, and the memory is the device's. */
static void check_use(void *pointer, long bytes, int device)
{
    char *out = malloc(bytes), *in = calloc(1, bytes);
    int ordinal = -1;
    memset(out, 'w', bytes);
    MUST(cuPointerGetAttribute(&ordinal, ORDINAL, address(pointer)));
    check(ordinal == device, "is on another device");
    MUST(cuMemcpyHtoD_v2(address(pointer), out, bytes));
    MUST(cuMemcpyDtoH_v2(in, address(pointer), bytes));
    check(!memcmp(in, out, bytes), "bytes differ");
    free(out), free(in);
}

/* Sizes, zero among them, and the statistics after each. */
static void plain(void)
{
    begin();
    void *large = wmshim_torch_malloc(3 * MIB, 0, NULL), *small = wmshim_torch_malloc(100, 0, NULL);
    check(large && small && large != small, "nothing was given");
    check(wmshim_torch_malloc(0, 0, NULL) == NULL, "zero bytes have an address");
    wmshim_torch_free(NULL, 0, 0, NULL);
    check_use(large, 3 * MIB, 0);
    check_use(small, 100, 0);
    check(figure(0, USED) == 3ull * MIB + 100, "used is not the requested size");
    wmshim_torch_free(small, 100, 0, NULL);
    wmshim_torch_free(large, 3 * MIB, 0, NULL);
    MUST(cuCtxSynchronize());
    check(figure(0, USED) == 0 && figure(0, RESERVED) > 0, "the pool gave its memory back when the host waited");
    wmshim_torch_empty_cache();
    check(figure(0, RESERVED) == 0, "an emptied cache holds memory");
}

struct guest {
    void *mine, *yours;
    CUcontext context;
};

/* A thread without a current device takes memory of the second device and frees memory of the
 * first. */
static void *visit(void *argument)
{
    struct guest *guest = argument;
    guest->mine = wmshim_torch_malloc(MIB, 1, NULL);
    wmshim_torch_free(guest->yours, MIB, 0, NULL);
    MUST(cuCtxGetCurrent(&guest->context));
    return NULL;
}

/* The calling thread's device is not the one that is named; the null stream means the named
 * device's. */
static void threads(void)
{
    pthread_t thread;
    begin();
    void *here = wmshim_torch_malloc(MIB, 0, NULL), *there = wmshim_torch_malloc(MIB, 1, NULL);
    struct guest guest = { NULL, here, NULL };
    CUdevice device = -1;
    MUST(cuCtxGetDevice(&device));
    check(device == 0, "the thread's device has changed");
    check_use(here, MIB, 0), check_use(there, MIB, 1);
    pthread_create(&thread, NULL, visit, &guest);
    pthread_join(thread, NULL);
    check(guest.context == NULL, "a thread was left with a context");
    check(figure(0, USED) == 0 && figure(1, USED) == 2ull * MIB, "figures are of other devices");
    wmshim_torch_free(there, MIB, 1, NULL);
    /* The free is in the order of device 1's null stream, not of device 0's. */
    void *again = wmshim_torch_malloc(MIB, 1, NULL);
    check(again == there, "memory of the same stream is not used again");
    wmshim_torch_free(again, MIB, 1, NULL), wmshim_torch_free(guest.mine, MIB, 1, NULL);
}

/* Does the first stream get memory that another stream may still use? */
static bool is_reused(CUstream first, CUstream second, bool recorded)
{
    unsigned *gate;
    void *host;
    MUST(cuMemHostAlloc(&host, 4, 0));
    gate = host, *gate = 0;
    void *tensor = wmshim_torch_malloc(4 * MIB, 0, first);
    MUST(cuStreamSynchronize(first));
    MUST(cuStreamWaitValue32_v2(second, (CUdeviceptr)gate, 1, 1));
    MUST(cuMemsetD8Async(address(tensor), 1, 4 * MIB, second));
    wmshim_torch_record_stream(tensor, first);
    if (recorded)
        wmshim_torch_record_stream(tensor, second);
    wmshim_torch_free(tensor, 4 * MIB, 0, first);
    void *next = wmshim_torch_malloc(4 * MIB, 0, first);
    bool reused = next == tensor && cuStreamQuery(first) == CUDA_SUCCESS;
    __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
    MUST(cuStreamSynchronize(second));
    wmshim_torch_free(next, 4 * MIB, 0, first);
    MUST(cuStreamSynchronize(first));
    return reused;
}

static void streams(void)
{
    CUstream first, second;
    begin();
    MUST(cuStreamCreate(&first, 1));
    MUST(cuStreamCreate(&second, 1));
    check(is_reused(first, second, false), "memory of one stream is not reused at once");
    check(!is_reused(first, second, true), "memory is reused while another stream uses it");
    check(is_reused(first, second, false), "a use of the past is held against the memory");
}

/* The other stream is of another device, which reads the tensor over a link. */
static void elsewhere(void)
{
    CUcontext here = begin(), there;
    CUstream first, second;
    void *host;
    MUST(cuStreamCreate(&first, 1));
    MUST(cuDevicePrimaryCtxRetain(&there, 1));
    MUST(cuCtxSetCurrent(there));
    MUST(cuStreamCreate(&second, 1));
    MUST(cuMemHostAlloc(&host, 4, 0));
    unsigned *gate = host;
    *gate = 0;
    MUST(cuStreamWaitValue32_v2(second, (CUdeviceptr)gate, 1, 1));
    MUST(cuCtxSetCurrent(here));
    void *tensor = wmshim_torch_malloc(4 * MIB, 0, first);
    wmshim_torch_record_stream(tensor, second);
    wmshim_torch_free(tensor, 4 * MIB, 0, first);
    void *next = wmshim_torch_malloc(4 * MIB, 0, first);
    check(next != tensor || cuStreamQuery(first) != CUDA_SUCCESS, "memory is reused while another device's stream uses it");
    __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
    MUST(cuStreamSynchronize(second));
    MUST(cuStreamSynchronize(first));
}

/* A tensor from before a capture, the capture's tensors, and their end. */
static void capture(void)
{
    CUstream stream;
    void *graph, *executable, *kept, *passing, *before;
    size_t nodes = 0;
    begin();
    MUST(cuStreamCreate(&stream, 1));
    before = wmshim_torch_malloc(MIB, 0, stream);
    MUST(cuStreamBeginCapture_v2(stream, 0));
    passing = wmshim_torch_malloc(MIB, 0, stream);
    kept = wmshim_torch_malloc(MIB, 0, stream);
    MUST(cuMemsetD8Async(address(passing), 3, MIB, stream));
    MUST(cuMemsetD8Async(address(kept), 7, MIB, stream));
    wmshim_torch_free(passing, MIB, 0, stream);
    wmshim_torch_free(before, MIB, 0, stream);
    /* Must do nothing: a wait, or a trim of the driver's pool, would invalidate the capture. */
    wmshim_torch_empty_cache();
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphGetNodes(graph, NULL, &nodes));
    check(nodes == 5, "a graph of two allocations, two memsets and one free has other nodes");
    check(figure(0, USED) == 0, "what was freed during the capture is not free");
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 1));
    for (int i = 0; i < 2; i++) {
        unsigned char byte = 0;
        MUST(cuGraphLaunch(executable, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuMemcpyDtoH_v2(&byte, address(kept) + MIB - 1, 1));
        check(byte == 7, "a replay wrote elsewhere");
    }
    wmshim_torch_free(kept, MIB, 0, stream);
    void *after = wmshim_torch_malloc(MIB, 0, stream);
    check_use(after, MIB, 0);
    wmshim_torch_free(after, MIB, 0, stream);
}

/* Without C++ exceptions a failure returns null and changes nothing else. */
static void shortage(void)
{
    begin();
    void *held = wmshim_torch_malloc(MIB, 0, NULL);
    check(wmshim_torch_malloc(1L << 40, 0, NULL) == NULL, "what cannot be had was given");
    check(wmshim_torch_malloc(-1, 0, NULL) == NULL, "a negative size was given");
    check(wmshim_torch_malloc(MIB, 77, NULL) == NULL, "memory of no device was given");
    check_use(held, MIB, 0);
    wmshim_torch_free(held, MIB, 0, NULL);
}

/* A child of a process that has used CUDA: it drops the inherited memory, and gets nothing new. */
static void child(void)
{
    int status = -1;
    begin();
    void *held = wmshim_torch_malloc(MIB, 0, NULL), *marked = wmshim_torch_malloc(MIB, 0, NULL);
    wmshim_torch_record_stream(marked, (void *)2);
    pid_t process = fork();
    if (process == 0) {
        alarm(20);
        wmshim_torch_record_stream(held, (void *)2);
        wmshim_torch_free(held, MIB, 0, NULL);
        wmshim_torch_free(marked, MIB, 0, NULL);
        wmshim_torch_empty_cache();
        _exit(wmshim_torch_malloc(MIB, 0, NULL) != NULL);
    }
    check(waitpid(process, &status, 0) == process && status == 0, "a forked child did not end well");
    check_use(held, MIB, 0), check_use(marked, MIB, 0);
}

static void *take(void *argument)
{
    (void)argument;
    return wmshim_torch_malloc(MIB, 0, NULL);
}

/* A thread without a current device, before a reset of the device and afterwards. */
static void reset(void)
{
    pthread_t thread;
    void *given = NULL;
    MUST(cuInit(0));
    for (int life = 0; life < 3; life++) {
        pthread_create(&thread, NULL, take, NULL);
        pthread_join(thread, &given);
        check(given != NULL, life ? "nothing was given after a reset" : "nothing was given");
        MUST(cuDevicePrimaryCtxReset_v2(0));
    }
}

int main(int count, char **argument)
{
    static const struct { const char *name; void (*body)(void); } ALL[] = {
        { "plain", plain }, { "threads", threads }, { "streams", streams }, { "elsewhere", elsewhere }, { "capture", capture }, { "shortage", shortage },
        { "child", child }, { "reset", reset },
    };
    for (size_t i = 0; count > 1 && i < sizeof ALL / sizeof *ALL; i++)
        if (!strcmp(argument[1], ALL[i].name)) {
            ALL[i].body();
            return 0;
        }
    return 71;
}
