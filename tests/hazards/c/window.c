/* Makes a call on one thread while another is still busy with its first one, at the worst moment:
 * the first call has a line to log, and cannot, for standard error is a pipe that is full. Run it
 * with WMSHIM_LOG=info. */

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver.h"

struct call {
    pthread_t thread;
    atomic_int id;
    atomic_int is_done;
};

static void *version(void *argument)
{
    struct call *call = argument;
    int number;
    atomic_store(&call->id, gettid());
    cuDriverGetVersion(&number);
    atomic_store(&call->is_done, 1);
    return NULL;
}

static void *information(void *argument)
{
    struct call *call = argument;
    size_t free, total;
    atomic_store(&call->id, gettid());
    cuMemGetInfo_v2(&free, &total);
    atomic_store(&call->is_done, 1);
    return NULL;
}

/* Is the thread held by this lock or pipe? The kernel says "running", or the system call's number
 * and arguments. */
static int is_in(int thread, long number, long other)
{
    char path[64], line[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    FILE *file = fopen(path, "r");
    int is_read = file && fgets(line, sizeof line, file);
    if (file)
        fclose(file);
    return is_read && line[0] != 'r' && (atol(line) == number || atol(line) == other);
}

/* Starts a call, and waits until it is done or held in one of these system calls. */
static void start(struct call *call, void *(*body)(void *), long number, long other)
{
    pthread_create(&call->thread, NULL, body, call);
    while (!atomic_load(&call->id))
        ;
    while (!atomic_load(&call->is_done) && !is_in(call->id, number, other))
        ;
}

enum { CAPACITY = 64 << 10 };

/* Empties the pipe, and prints the bytes behind the padding on standard output. */
static void *drain(void *descriptor)
{
    char bytes[4096];
    ssize_t got;
    for (size_t seen = 0; (got = read(*(int *)descriptor, bytes, sizeof bytes)) > 0; seen += got)
        if (seen >= CAPACITY)
            fwrite(bytes, 1, got, stdout);
    return NULL;
}

int main(void)
{
    static struct call first, second;
    static int ends[2];
    pthread_t reader;
    char bytes[4096];
    memset(bytes, 'x', sizeof bytes);
    if (pipe(ends))
        return 90;
    for (size_t i = 0; i < CAPACITY / sizeof bytes; i++)
        if (write(ends[1], bytes, sizeof bytes) != sizeof bytes)
            return 91;
    dup2(ends[1], 2);
    start(&first, version, SYS_write, SYS_write);
    printf("%s\n", first.is_done ? "done" : "logging");
    fflush(stdout);
    start(&second, information, SYS_futex, SYS_write);
    pthread_create(&reader, NULL, drain, &ends[0]);
    pthread_join(first.thread, NULL);
    pthread_join(second.thread, NULL);
    close(2), close(ends[1]);
    pthread_join(reader, NULL);
    return 0;
}
