/* A program with an exit that may allocate nothing: last_lines IMAGE BLOCKS [PAST]. It ends with 7.
 *
 * Its own malloc stands before the C library's. While the exit handlers run that were registered
 * after main began, a call that takes the allocator's lock ends the process with 86 and the number
 * of the bytes: the exit may have begun in a handler of a signal, in a thread that has that lock.
 *
 * It allocates as many blocks of 16 MiB, writes PAST bytes past the end of the first one, and frees
 * it. */

#include <execinfo.h>
#include <unistd.h>

#include "fill.h"

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

enum { BLOCK = 16 << 20, CODE = 7, ALLOCATES = 86 };

static __thread int is_watched;

static void look(const char *call, size_t bytes)
{
    if (is_watched) {
        char text[100];
        void *frames[40];
        is_watched = 0;
        int length = snprintf(text, sizeof text, "%s of %zu bytes at the exit\n", call, bytes);
        (void)!write(2, text, length);
        backtrace_symbols_fd(frames, backtrace(frames, 40), 2);
        _exit(ALLOCATES);
    }
}

void *malloc(size_t bytes)
{
    look("malloc", bytes);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    look("calloc", count * bytes);
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    look("realloc", bytes);
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    look("aligned_alloc", bytes);
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    look("posix_memalign", bytes);
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : 12;
}

void free(void *memory)
{
    if (memory)
        look("free", 0);
    __libc_free(memory);
}

static void watch(void)
{
    is_watched = 1;
}

static void watch_no_more(void)
{
    is_watched = 0;
}

int main(int count, char **words)
{
    int blocks = count > 2 ? atoi(words[2]) : 0, past = count > 3 ? atoi(words[3]) : 0;
    CUdeviceptr first = 0, next;
    CUstream stream;
    void *frames[1];
    /* It loads code at its first call. */
    backtrace(frames, 1);
    atexit(watch_no_more);
    load(words[1]);
    MUST(cuStreamCreate(&stream, 1));
    for (int i = 0; i < blocks; i++) {
        MUST(cuMemAllocAsync(&next, BLOCK, stream));
        first = first ? first : next;
    }
    MUST(fill_by_kernel(first, BLOCK + past, 1, stream));
    MUST(cuMemFreeAsync(first, stream));
    /* A wait that the library does not see: the last figures are ready. */
    while (cuStreamQuery(stream) != CUDA_SUCCESS)
        ;
    atexit(watch);
    exit(CODE);
}
