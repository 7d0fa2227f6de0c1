/* A program that uses the driver and lives in the ways that break interposers.
 *
 *   life race            many threads make their first calls at once
 *   life fork_in_use     forks while using the driver; the child makes calls and exits with all its handlers
 *   life fork_before     forks before first use; child and parent both use the driver
 *   life exec_in_use     replaces itself while using the driver
 *   life spawn_in_use    starts other programs while using the driver, which use it too
 *   life exit_busy       exits while other threads are inside calls
 *   life threads N       N short threads, one after another, each uses the driver
 *   life thread_end      threads that use the driver as they end, from destructors of their thread-local values
 *   life little_stack    first uses the driver on a thread that has little stack
 *   life late            uses the driver from exit handlers and destructors, after the shim's own
 *   life early           uses the driver from a constructor, before main
 *   life stream_ends     allocates in a stream that another thread destroys meanwhile
 *   life last_and_first N  N times: threads use contexts of their own for the first time while the context
 *                        that the device was used through so far is reset
 *   life closed          closes its handle of the library many times and uses the driver again */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

enum { RACERS = 32, BUSY = 4 };

static CUcontext shared;

/* ---- first calls at once */

static pthread_barrier_t start;

static void *racer(void *argument)
{
    long number = (long)argument;
    int count = 0;
    size_t free, total;
    pthread_barrier_wait(&start);
    CUresult first = number % 4 == 0   ? cuInit(0)
                     : number % 4 == 1 ? cuDriverGetVersion(&count)
                     : number % 4 == 2 ? cuDeviceGetCount(&count)
                                       : cuMemGetInfo_v2(&free, &total);
    /* All but cuInit and the version may come before cuInit, or before a context. */
    if (number % 4 < 2 && first != CUDA_SUCCESS)
        exit(82);
    begin();
    round_trip(number);
    return NULL;
}

static int race(void)
{
    pthread_t threads[RACERS];
    pthread_barrier_init(&start, NULL, RACERS);
    for (long i = 0; i < RACERS; i++)
        pthread_create(&threads[i], NULL, racer, (void *)i);
    for (int i = 0; i < RACERS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

/* ---- fork and exec */

static int wait_for(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

static int child_of_user(CUdeviceptr parents)
{
    CUdeviceptr address = 0;
    CUcontext context;
    CUstream stream;
    size_t free, total;
    int count;
    printf("cuInit %d\n", cuInit(0));
    printf("cuDeviceGetCount %d\n", cuDeviceGetCount(&count));
    printf("cuMemAlloc %d\n", cuMemAlloc_v2(&address, 4 << 20));
    printf("cuMemAllocAsync %d\n", cuMemAllocAsync(&address, 4 << 20, NULL));
    printf("cuMemFree %d\n", cuMemFree_v2(parents));
    printf("cuMemFreeAsync %d\n", cuMemFreeAsync(parents, NULL));
    printf("cuMemGetInfo %d\n", cuMemGetInfo_v2(&free, &total));
    printf("cuStreamCreate %d\n", cuStreamCreate(&stream, 0));
    printf("cuCtxGetCurrent %d\n", cuCtxGetCurrent(&context));
    printf("cuCtxSynchronize %d\n", cuCtxSynchronize());
    return 0;
}

static int fork_in_use(void)
{
    CUdeviceptr address;
    begin();
    MUST(cuMemAlloc_v2(&address, 4 << 20));
    pid_t child = fork();
    if (child == 0)
        exit(child_of_user(address));
    int code = wait_for(child);
    MUST(cuMemFree_v2(address));
    round_trip(1);
    return code;
}

static int fork_before(void)
{
    pid_t child = fork();
    begin();
    round_trip(child == 0);
    return child ? wait_for(child) : 0;
}

static int exec_in_use(char *self)
{
    begin();
    round_trip(1);
    execl(self, self, "race", (char *)NULL);
    return 83;
}

static int spawn_in_use(char *self)
{
    char command[4096];
    begin();
    round_trip(1);
    /* One through a shell, one without: both start without the handlers of fork, or replace the
     * forked process. */
    snprintf(command, sizeof command, "'%s' fork_before", self);
    int through_shell = system(command);
    pid_t child = fork();
    if (child == 0)
        execl(self, self, "fork_before", (char *)NULL);
    round_trip(2);
    return through_shell ? 87 : wait_for(child);
}

/* ---- exit and threads */

static atomic_int busy;

static void *keep_calling(void *unused)
{
    (void)unused;
    MUST(cuCtxSetCurrent(shared));
    atomic_fetch_add(&busy, 1);
    for (;;) {
        /* Once the process exits the driver may refuse, but must not crash. */
        CUdeviceptr address;
        size_t free, total;
        if (cuMemAlloc_v2(&address, 3 << 20) == CUDA_SUCCESS)
            cuMemFree_v2(address);
        cuMemGetInfo_v2(&free, &total);
    }
    return NULL;
}

static int exit_busy(void)
{
    pthread_t thread;
    shared = begin();
    for (int i = 0; i < BUSY; i++)
        pthread_create(&thread, NULL, keep_calling, NULL);
    while (atomic_load(&busy) < BUSY)
        round_trip(busy);
    exit(7);
}

static void *short_life(void *unused)
{
    (void)unused;
    MUST(cuCtxSetCurrent(shared));
    round_trip(1);
    return NULL;
}

static int threads(int count, void *(*life)(void *))
{
    pthread_t thread;
    shared = begin();
    for (int i = 0; i < count; i++) {
        if (pthread_create(&thread, NULL, life, NULL))
            return 84;
        pthread_join(thread, NULL);
    }
    return 0;
}

static pthread_key_t key;

static void at_thread_end(void *unused)
{
    (void)unused;
    round_trip(2);
}

static void *late_life(void *unused)
{
    pthread_setspecific(key, &key);
    return short_life(unused);
}

static int thread_end(void)
{
    pthread_key_create(&key, at_thread_end);
    return threads(100, late_life);
}

static void *first_use(void *unused)
{
    (void)unused;
    begin();
    round_trip(1);
    return NULL;
}

static int little_stack(void)
{
    enum { BYTES = 64 << 10 };
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, BYTES);
    return pthread_create(&thread, &attributes, first_use, NULL) || pthread_join(thread, NULL) ? 84 : 0;
}

/* ---- before main and after exit began */

static int is_late;

static void late_calls(void)
{
    CUdeviceptr address;
    size_t free, total;
    if (cuMemAlloc_v2(&address, 1 << 20) == CUDA_SUCCESS)
        cuMemFree_v2(address);
    cuMemGetInfo_v2(&free, &total);
}

__attribute__((destructor)) static void at_unload(void)
{
    if (is_late)
        late_calls();
}

static int late(void)
{
    /* Handlers run in reverse: this one after the shim's, which is set at the first call. */
    is_late = 1;
    atexit(late_calls);
    begin();
    round_trip(1);
    return 0;
}

static int was_early;

__attribute__((constructor)) static void before_main(int count, char **argument)
{
    if (count > 1 && !strcmp(argument[1], "early")) {
        begin();
        round_trip(1);
        was_early = 1;
    }
}

static int early(void)
{
    round_trip(2);
    return was_early ? 0 : 85;
}

static void *destroyer(void *stream)
{
    MUST(cuStreamDestroy_v2(stream));
    return NULL;
}

static int stream_ends(void)
{
    CUdeviceptr address;
    CUstream stream;
    pthread_t other;
    begin();
    MUST(cuStreamCreate(&stream, 0));
    for (int i = 0; i < 3; i++) {
        MUST(cuMemAllocAsync(&address, 1 << 20, stream));
        MUST(cuMemFreeAsync(address, stream));
    }
    pthread_create(&other, NULL, destroyer, stream);
    pthread_join(other, NULL);
    printf("cuMemAllocAsync %d\n", cuMemAllocAsync(&address, 1 << 20, stream));
    return 0;
}

/* ---- a device's last context ends, and its first begins */

enum { USERS = 3 };

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);

static pthread_barrier_t turn;
static atomic_uint spread;

static void *beginner(void *rounds)
{
    CUcontext context;
    for (long round = 0; round < (long)rounds; round++) {
        MUST(cuCtxCreate_v2(&context, 0, 0));
        pthread_barrier_wait(&turn);
        /* The reset takes as long as some of these loops. */
        for (volatile unsigned i = atomic_fetch_add(&spread, 97) % 4096; i > 0; i--)
            ;
        round_trip(round);
        pthread_barrier_wait(&turn);
        MUST(cuCtxDestroy_v2(context));
    }
    return NULL;
}

static int last_and_first(long rounds)
{
    pthread_t threads[USERS];
    MUST(cuInit(0));
    pthread_barrier_init(&turn, NULL, USERS + 1);
    for (int i = 0; i < USERS; i++)
        pthread_create(&threads[i], NULL, beginner, (void *)rounds);
    for (long round = 0; round < rounds; round++) {
        begin();
        round_trip(round);
        pthread_barrier_wait(&turn);
        MUST(cuDevicePrimaryCtxReset_v2(0));
        pthread_barrier_wait(&turn);
    }
    for (int i = 0; i < USERS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

static int closed(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(library, "cuInit");
    for (int i = 0; i < 100; i++)
        dlclose(library);
    if (init(0) != CUDA_SUCCESS)
        return 86;
    begin();
    round_trip(1);
    return 0;
}

int main(int count, char **argument)
{
    const char *way = count > 1 ? argument[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    return !strcmp(way, "race")          ? race()
           : !strcmp(way, "fork_in_use") ? fork_in_use()
           : !strcmp(way, "fork_before") ? fork_before()
           : !strcmp(way, "exec_in_use") ? exec_in_use(argument[0])
           : !strcmp(way, "spawn_in_use") ? spawn_in_use(argument[0])
           : !strcmp(way, "exit_busy")   ? exit_busy()
           : !strcmp(way, "threads")     ? threads(atoi(argument[2]), short_life)
           : !strcmp(way, "thread_end")  ? thread_end()
           : !strcmp(way, "little_stack") ? little_stack()
           : !strcmp(way, "late")        ? late()
           : !strcmp(way, "early")       ? early()
           : !strcmp(way, "stream_ends") ? stream_ends()
           : !strcmp(way, "last_and_first") ? last_and_first(atol(argument[2]))
           : !strcmp(way, "closed")      ? closed()
                                         : 99;
}
