/* Shares memory with other processes by cuIpc*, as one side of it.
 *
 *   share [pid] [net] export BYTES       prints a handle of that much memory, then obeys words from standard input
 *   share [pid] [net] export-pieces N    the same, for a block of N pieces, with few descriptors left to it
 *   share [pid] [net] import HANDLE HOW  opens the handle and checks the memory
 *
 * `pid` and `net`: in a namespace of its own of that kind; exit code 77 where that is not allowed.
 * Words: `fork` makes a child that lives until it is killed, and prints its number; the end of the
 * input ends the program. Ways to import:
 *
 *   once        open, check, close; prints the code of the open
 *   signals     the same, many times, while a timer interrupts
 *   scarce N    the same, for a block of N pieces, with few descriptors left
 *   copy        then copy it to another device, which has no access to this one's memory
 *   enable      then let another device access this one's memory, and use it there
 *   enabled     the same, in the other order
 *   anew        and once more after the device's context has ended, with the handle still open
 *   threads     many threads open and close it on one device, and then access is granted to the other
 *   elsewhere   with another device current than the memory is on; prints the ordinal of the memory */

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

enum { VALUE = 0xC3, PIECE = 2 << 20, LOOK = 4096, SPARE = 80 };

static CUcontext contexts[2];

static void two_devices(void)
{
    MUST(cuInit(0));
    for (int ordinal = 1; ordinal >= 0; ordinal--) {
        MUST(cuDevicePrimaryCtxRetain(&contexts[ordinal], ordinal));
        MUST(cuCtxSetCurrent(contexts[ordinal]));
    }
}

/* Limits the process to this number of descriptors beside the open ones. */
static void spare(int count)
{
    struct rlimit limit;
    int next = open("/dev/null", O_RDONLY);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = next + count;
    if (next < 0 || setrlimit(RLIMIT_NOFILE, &limit))
        exit(82);
    close(next);
}

/* A block made of pieces that were freed between other blocks. */
static CUdeviceptr of_pieces(int count)
{
    CUdeviceptr pieces[2 * count], joined;
    for (int i = 0; i < 2 * count; i++)
        MUST(cuMemAlloc_v2(&pieces[i], PIECE));
    for (int i = 0; i < 2 * count; i += 2)
        MUST(cuMemFree_v2(pieces[i]));
    MUST(cuCtxSynchronize());
    MUST(cuMemAlloc_v2(&joined, (size_t)count * PIECE));
    return joined;
}

/* Returns when the child has returned from `fork`. */
static void make_child(void)
{
    int ends[2];
    char byte = 0;
    if (pipe(ends))
        exit(84);
    pid_t child = fork();
    if (child == 0) {
        if (write(ends[1], &byte, 1) == 1)
            for (;;)
                pause();
        _exit(85);
    }
    if (read(ends[0], &byte, 1) != 1)
        exit(86);
    printf("%d\n", child);
}

static int export(CUdeviceptr address, size_t bytes)
{
    CUipcMemHandle handle;
    char word[16];
    MUST(cuMemsetD8_v2(address, VALUE, bytes));
    MUST(cuCtxSynchronize());
    MUST(cuIpcGetMemHandle(&handle, address));
    for (int i = 0; i < 64; i++)
        printf("%02x", (unsigned char)handle.reserved[i]);
    printf("\n");
    while (fgets(word, sizeof word, stdin))
        if (!strcmp(word, "fork\n"))
            make_child();
    return 0;
}

static CUipcMemHandle decode(const char *text)
{
    CUipcMemHandle handle;
    for (int i = 0; i < 64; i++)
        if (sscanf(text + 2 * i, "%2hhx", (unsigned char *)&handle.reserved[i]) != 1)
            exit(99);
    return handle;
}

/* The block's first and last bytes are those of the exporter. */
static void look(CUdeviceptr address)
{
    unsigned char bytes[LOOK];
    CUdeviceptr base;
    size_t size;
    MUST(cuMemGetAddressRange_v2(&base, &size, address));
    for (int end = 0; end < 2; end++) {
        MUST(cuMemcpyDtoH_v2(bytes, end ? base + size - LOOK : base, LOOK));
        for (int i = 0; i < LOOK; i++)
            if (bytes[i] != VALUE)
                exit(81);
    }
}

static CUdeviceptr open_block(const CUipcMemHandle *handle)
{
    CUdeviceptr address = 0;
    MUST(cuIpcOpenMemHandle_v2(&address, *handle, 1));
    return address;
}

static int once(const CUipcMemHandle *handle)
{
    CUdeviceptr address = 0;
    CUresult code = cuIpcOpenMemHandle_v2(&address, *handle, 1);
    printf("%d\n", code);
    if (code == CUDA_SUCCESS) {
        look(address);
        MUST(cuIpcCloseMemHandle(address));
    }
    return 0;
}

static volatile sig_atomic_t interrupts;

static void on_timer(int number)
{
    (void)number;
    interrupts++;
}

static int with_signals(const CUipcMemHandle *handle)
{
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    struct itimerval every = {.it_interval = {.tv_usec = 300}, .it_value = {.tv_usec = 300}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    for (int i = 0; i < 100; i++)
        MUST(cuIpcCloseMemHandle(open_block(handle)));
    return interrupts > 20 ? 0 : 83;
}

/* Device 1 has no access to memory that is opened on device 0, but the driver copies between all
 * devices. */
static int copy(const CUipcMemHandle *handle)
{
    CUdeviceptr there;
    CUdeviceptr opened = open_block(handle);
    MUST(cuCtxSetCurrent(contexts[1]));
    MUST(cuMemAlloc_v2(&there, LOOK));
    MUST(cuMemcpyDtoD_v2(there, opened, LOOK));
    MUST(cuCtxSynchronize());
    look(there);
    return 0;
}

static void enable(void)
{
    MUST(cuCtxSetCurrent(contexts[1]));
    MUST(cuCtxEnablePeerAccess(contexts[0], 0));
    MUST(cuCtxSetCurrent(contexts[0]));
}

/* Device 1 reads and writes memory that is opened on device 0. */
static void use(CUdeviceptr opened)
{
    MUST(cuCtxSetCurrent(contexts[1]));
    MUST(cuMemsetD8_v2(opened, VALUE, LOOK));
    MUST(cuCtxSynchronize());
    look(opened);
}

static int anew(const CUipcMemHandle *handle)
{
    CUdeviceptr opened = open_block(handle);
    look(opened);
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    begin();
    opened = open_block(handle);
    look(opened);
    MUST(cuIpcCloseMemHandle(opened));
    return cuIpcCloseMemHandle(opened) == CUDA_SUCCESS ? 87 : 0;
}

static int elsewhere(const CUipcMemHandle *handle)
{
    int ordinal = -1;
    MUST(cuCtxSetCurrent(contexts[1]));
    CUdeviceptr opened = open_block(handle);
    MUST(cuPointerGetAttribute(&ordinal, 9, opened));
    printf("%d\n", ordinal);
    look(opened);
    return 0;
}

static pthread_barrier_t half;

static void *opens_and_closes(void *handle)
{
    MUST(cuCtxSetCurrent(contexts[0]));
    for (int i = 0; i < 40; i++) {
        CUdeviceptr opened = open_block(handle);
        if (i == 20)
            pthread_barrier_wait(&half);
        look(opened);
        MUST(cuIpcCloseMemHandle(opened));
    }
    return NULL;
}

static int threads(CUipcMemHandle *handle)
{
    enum { COUNT = 4 };
    pthread_t thread[COUNT];
    pthread_barrier_init(&half, NULL, COUNT + 1);
    for (int i = 0; i < COUNT; i++)
        pthread_create(&thread[i], NULL, opens_and_closes, handle);
    pthread_barrier_wait(&half);
    enable();
    for (int i = 0; i < COUNT; i++)
        pthread_join(thread[i], NULL);
    use(open_block(handle));
    return 0;
}

static int import(CUipcMemHandle *handle, char **how)
{
    static const char *const with_two[] = {"copy", "enable", "enabled", "elsewhere", "threads"};
    int two = 0;
    for (size_t i = 0; i < sizeof with_two / sizeof *with_two; i++)
        two |= !strcmp(how[0], with_two[i]);
    if (two)
        two_devices();
    else
        begin();
    if (!strcmp(how[0], "scarce"))
        /* The simulated driver keeps a descriptor open for each piece. */
        spare(atoi(how[1]) + SPARE);
    if (!strcmp(how[0], "once") || !strcmp(how[0], "scarce"))
        return once(handle);
    if (!strcmp(how[0], "signals"))
        return with_signals(handle);
    if (!strcmp(how[0], "copy"))
        return copy(handle);
    if (!strcmp(how[0], "elsewhere"))
        return elsewhere(handle);
    if (!strcmp(how[0], "threads"))
        return threads(handle);
    if (!strcmp(how[0], "anew"))
        return anew(handle);
    if (!strcmp(how[0], "enabled"))
        enable();
    CUdeviceptr opened = open_block(handle);
    if (!strcmp(how[0], "enable"))
        enable();
    use(opened);
    return 0;
}

static int play(char **word)
{
    if (!strcmp(word[0], "import")) {
        CUipcMemHandle handle = decode(word[1]);
        return import(&handle, word + 2);
    }
    begin();
    CUdeviceptr address;
    size_t bytes = strtoull(word[1], NULL, 10);
    if (!strcmp(word[0], "export")) {
        MUST(cuMemAlloc_v2(&address, bytes));
        return export(address, bytes);
    }
    address = of_pieces(bytes);
    spare(SPARE);
    return export(address, bytes * PIECE);
}

int main(int count, char **argument)
{
    char **word = argument + 1;
    int kinds = 0, status = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (; *word && (!strcmp(*word, "pid") || !strcmp(*word, "net")); word++)
        kinds |= !strcmp(*word, "pid") ? CLONE_NEWPID : CLONE_NEWNET;
    if (argument + count - word < 2)
        return 99;
    if (!kinds)
        return play(word);
    if (unshare(kinds | (geteuid() ? CLONE_NEWUSER : 0)))
        return 77;
    pid_t child = fork();
    if (child == 0)
        exit(play(word));
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}
