/*
 * wmshim.h: what a program may ask of libwmshim.so when it runs under it.
 *
 * Nothing has to be linked. The functions are weak: in a process without the shim they are null, so
 * a program asks first, and runs everywhere:
 *
 *     if (wmshim_version)
 *         printf("under wmshim %s\n", wmshim_version());
 *
 * With WMSHIM_MIGRATE=on a block leaves for the host and comes back at the same address
 * (examples/c/advise.c):
 *
 *     cuCtxSynchronize();                                       // advice never waits
 *     if (wmshim_advise && wmshim_advise(weights, bytes, WMSHIM_COLD) == 0)
 *         ...;                                                  // the device has room for something else
 *     if (wmshim_advise)
 *         wmshim_advise(weights, bytes, WMSHIM_PREFETCH);
 *
 * A block that begins on the host, whatever the device has left:
 *
 *     void *cache;
 *     int code = wmshim_alloc ? wmshim_alloc(&cache, bytes, WMSHIM_HOST) : (int)cuMemAlloc((CUdeviceptr *)&cache, bytes);
 *
 * A block that the CPU and the GPU use in turn, by one pointer (examples/c/unified.c):
 *
 *     float *table;
 *     wmshim_alloc((void **)&table, bytes, WMSHIM_UNIFIED);
 *     wmshim_access(table, bytes, WMSHIM_CPU);                  // waits for the GPU
 *     table[0] = 1;
 *     wmshim_access(table, bytes, WMSHIM_GPU);                  // before kernels and copies use it
 *
 * The statistics, as text that belongs to the caller:
 *
 *     char *stats = wmshim_stats_json ? wmshim_stats_json() : NULL;
 *     if (stats)
 *         puts(stats);
 *     free(stats);
 */
#ifndef WMSHIM_H
#define WMSHIM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WMSHIM_WEAK __attribute__((weak))
#else
#define WMSHIM_WEAK
#endif

/* The library's version, such as "0.1.0". Valid for the life of the process. */
extern WMSHIM_WEAK const char *wmshim_version(void);

/* The statistics of this process: a JSON object whose schema has a version. Free it with free(); null if there is no
 * memory for it. */
extern WMSHIM_WEAK char *wmshim_stats_json(void);

/* The intercepted driver functions: a JSON array of objects. Valid for the life of the process. */
extern WMSHIM_WEAK const char *wmshim_hooks_json(void);

/* What is wrong with the settings (WMSHIM_...) among these variables, as execve takes them; null for those of this process. A
 * JSON object with a list of sentences; free it with free(). */
extern WMSHIM_WEAK char *wmshim_check_settings(const char *const *environment);

/* For a Python that loads the library itself (wmshim.enable()): the variables that choose the allocators of PyTorch and JAX, and
 * whether the settings have been read. A JSON object; free it with free(). */
extern WMSHIM_WEAK char *wmshim_late_json(void);

/* What a program says of memory that it got from cuMemAlloc, cuMemAllocAsync (or the runtime's functions for them) or wmshim_alloc. The range lies within one
 * block. Addresses stay. All but WMSHIM_READ_MOSTLY take WMSHIM_MIGRATE=on when the program starts.
 *
 * PREFETCH: moves to the device, as far as there is room. COLD: moves to the host, except memory
 * that other blocks lie on too (2 MiB and more are one piece of memory). PIN_DEVICE: the block does
 * not leave the device until it is freed, from this call on, regardless of its result. Moves the
 * range to the device. DISCARD: the program does not need the range's contents any more; it writes
 * before it reads. What is on the host moves to the device without a copy, as far
 *     as there is room. The bytes are undefined afterwards. It acts at once and leaves no mark: what is written later is kept by later moves.
 * READ_MOSTLY: CUDA_ERROR_NOT_SUPPORTED: what the program writes is not seen, so no second copy
 * could be right.
 *
 * Returns a CUresult. CUDA_SUCCESS: as far as it says above. CUDA_ERROR_INVALID_VALUE: a wrong
 * range or advice; nothing changed. CUDA_ERROR_NOT_PERMITTED: nothing may move, by the setting or
 * since something relies on where memory is (`wmctl stats` says what). CUDA_ERROR_NOT_READY: the
 * GPU has work, or other threads are giving it some; synchronize and say it again.
 * CUDA_ERROR_OUT_OF_MEMORY: there is no room for it, or for the rest of it. */
#define WMSHIM_PREFETCH 1
#define WMSHIM_COLD 2
#define WMSHIM_PIN_DEVICE 3
#define WMSHIM_DISCARD 4
#define WMSHIM_READ_MOSTLY 5
extern WMSHIM_WEAK int wmshim_advise(const void *ptr, size_t size, int advice);

/* Limits the device memory of this process, on each device, in bytes: what `wmctl limit` does from
 * outside (docs/overflow.md). Blocks leave for the host until no more than that is held, and later
 * ones go where WMSHIM_OVERFLOW says. WMSHIM_NO_LIMIT lifts it. The node's ceiling and the control
 * group's dmem.max stay. Blocks move only with WMSHIM_MIGRATE=asked or on; without, later ones count
 * alone. Waits for the GPU for 2 s at most.
 *
 * Returns a CUresult. CUDA_SUCCESS: it is kept. In the other cases it is in force, and more is held:
 * CUDA_ERROR_NOT_READY: the GPU has work; say it again. CUDA_ERROR_NOT_PERMITTED: the rest stays
 * (`wmctl limit` says why). */
#define WMSHIM_NO_LIMIT ((size_t)-1)
extern WMSHIM_WEAK int wmshim_limit(size_t bytes);

/* Gives this process's unused device memory to the driver. */
extern WMSHIM_WEAK int wmshim_trim(void);

/* Turns the library's features off in this process, and on again: what `wmctl detach` does from
 * outside (docs/operations.md). New memory is the driver's then, nothing is shared, and nothing moves
 * by itself; what lies on the host comes to the device as far as there is room. Memory that was
 * allocated before is served as before. wmshim_alloc with a flag is CUDA_ERROR_NOT_SUPPORTED
 * meanwhile. Waits for the GPU for 2 s at most.
 *
 * Returns a CUresult. CUDA_ERROR_NOT_READY: it is detached, and some memory is still shared or on the
 * host since the GPU has work; say it again. */
extern WMSHIM_WEAK int wmshim_detach(void);
extern WMSHIM_WEAK int wmshim_attach(void);

/* Memory as cuMemAlloc gives it, in the current context. Flags: 0, or one of
 * DEVICE_ONLY: on the device until it is freed; CUDA_ERROR_OUT_OF_MEMORY where cuMemAlloc would go
 * on in host memory. HOST: in host memory, whatever the device has left; CUDA_ERROR_NOT_PERMITTED
 * where WMSHIM_OVERFLOW does not name the host. UNIFIED: as 0, for wmshim_access; of whole pieces
 * of 2 MiB, which no other block lies on; CUDA_ERROR_NOT_PERMITTED as for HOST. Returns a CUresult.
 * wmshim_free is cuMemFree: either frees what either function gave. */
#define WMSHIM_DEVICE_ONLY 1
#define WMSHIM_HOST 2
#define WMSHIM_UNIFIED 4
extern WMSHIM_WEAK int wmshim_alloc(void **ptr, size_t size, unsigned int flags);
extern WMSHIM_WEAK int wmshim_free(void *ptr);

/* Makes a UNIFIED block, all of it, the CPU's or the GPU's, under any setting of WMSHIM_MIGRATE. The
 * range names the block and lies within it. A new block is the GPU's; its address stays.
 *
 * CPU: all threads of the process may read and write the block at its own address. Its memory lies
 * on the host, pinned. GPU: kernels, copies and memsets may use it; its memory lies on the device as
 * far as there is room, and the CPU must not touch it.
 *
 * The program uses a block only on the processor that it is of, and on neither during the call: it
 * submits no work for it meanwhile, in any thread. The call waits for the work that was submitted
 * before, in all streams of the block's device, and for other threads' changes of memory: 2 seconds
 * at most. Then its copies take as long as the block's bytes take over the link, and the first way
 * out as long as the host takes to pin memory. It is over when it returns, and does nothing if the
 * block is that processor's already. wmshim_free and the end of the context take a block from
 * either; freeing one that is the CPU's may answer CUDA_ERROR_NOT_READY while another thread
 * changes it.
 *
 * Returns a CUresult. On an error the block is whose it was, with its bytes, unless the driver fails
 * twice on the way to the GPU: then it is of neither until a call succeeds.
 * CUDA_ERROR_INVALID_VALUE: not one of the two processors, or no range of a UNIFIED block.
 * CUDA_ERROR_NOT_READY: the GPU still has work; call again. CUDA_ERROR_NOT_PERMITTED: to the CPU
 * only, where something relies on where memory is: a capture in the past, a block that was shared
 * with another process, peer access, other contexts of the device, PIN_DEVICE, a library for network
 * cards or engines. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: during a capture.
 * CUDA_ERROR_OUT_OF_MEMORY: the host has no room. CUDA_ERROR_NOT_SUPPORTED: the driver gives the CPU
 * no access to such memory (before CUDA 12.2). */
#define WMSHIM_CPU 1
#define WMSHIM_GPU 2
extern WMSHIM_WEAK int wmshim_access(const void *ptr, size_t size, unsigned int processor);

/* Pauses this process: its device memory goes to the host, where it stays at its addresses, and what it leaves goes to the
 * driver. Until wmshim_resume, calls of all threads that submit work, copy, or ask for device memory wait; others do not. Graphs
 * and libraries' handles live on. Takes WMSHIM_PAUSE=on (or auto, or WMSHIM_MIGRATE=on) when the program starts. `wmctl pause` and
 * `wmctl resume` do the same from outside.
 *
 * pause waits for work that was submitted before, for so many milliseconds at most (0: 10 seconds). A process that is paused already stays so. The thread that
 * has paused the process does not wait for itself: a call of it that would wait resumes the process. resume brings back what fits,
 * the memory that was used last first; what stays on the host is read there. It does not fail where memory is short, and does nothing
 * in a process that runs.
 *
 * Return a CUresult. On an error the process runs as before. CUDA_ERROR_NOT_SUPPORTED: it cannot be paused, by its settings.
 * CUDA_ERROR_NOT_READY: work or a call did not end, as where a stream waits for the host. CUDA_ERROR_NOT_PERMITTED: something
 * relies on where all memory is (`wmctl stats` says what), or the calling thread is inside a CUDA call.
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: during a capture. CUDA_ERROR_OUT_OF_MEMORY: the host has no room.
 * CUDA_ERROR_NOT_INITIALIZED: no CUDA call was made yet, or this is a forked child. CUDA_ERROR_DEINITIALIZED: the process exits.
 *
 * pause_to writes the memory to files in a folder, which have no names, and gives host memory back, too. CUDA_ERROR_OPERATING_SYSTEM:
 * the folder cannot be written; CUDA_ERROR_OUT_OF_MEMORY: it has no room. A resume waits then while neither the device nor the
 * host has room, and returns CUDA_ERROR_OPERATING_SYSTEM, with the process paused, where a file cannot be read. */
extern WMSHIM_WEAK int wmshim_pause(unsigned int milliseconds);
extern WMSHIM_WEAK int wmshim_pause_to(const char *folder, unsigned int milliseconds);
extern WMSHIM_WEAK int wmshim_resume(void);

/* Makes host memory for all that a pause would move, which takes longer than the copies of the pause, and waits until it is there.
 * Other calls go on meanwhile. It stays pinned until wmshim_trim or wmshim_detach. WMSHIM_PAUSE_ARENA=auto does the same while the
 * program grows. CUDA_ERROR_OUT_OF_MEMORY: the host has no room for all of it; a pause makes the rest, or is refused. */
extern WMSHIM_WEAK int wmshim_pause_prepare(void);

/* A line of the program's own, such as "step 12", beside its memory over time: in the black box of the process, which keeps the
 * last 64 (56 bytes of each), and in a recording (WMSHIM_TRACE, 200 bytes of each). `wmctl report` shows it. `text` is UTF-8
 * and belongs to the caller. Returns a CUresult: CUDA_ERROR_INVALID_VALUE for null. It makes no driver call and waits for no
 * GPU. */
extern WMSHIM_WEAK int wmshim_mark(const char *text);

/* An allocator for PyTorch, as torch.cuda.memory.CUDAPluggableAllocator takes it; `wmshim.torch.enable()` of the Python
 * package installs it. `stream` is a cudaStream_t, sizes are bytes.
 *
 * malloc: device memory in the stream's order; null for 0 bytes. A failure is thrown as PyTorch's
 * own exception (out of memory: c10::OutOfMemoryError); in a process without PyTorch it is null.
 * free: in the stream's order; null is allowed. record_stream: the memory is used in this stream as
 * well, and will not be reused before that use is over. empty_cache: gives all unused memory back
 * to the driver. memory_fraction: the share of a device's memory, from 0 to 1, beyond which malloc
 * fails. */
extern WMSHIM_WEAK void *wmshim_torch_malloc(long size, int device, void *stream);
extern WMSHIM_WEAK void wmshim_torch_free(void *ptr, long size, int device, void *stream);
extern WMSHIM_WEAK void wmshim_torch_record_stream(void *ptr, void *stream);
extern WMSHIM_WEAK void wmshim_torch_empty_cache(void);
extern WMSHIM_WEAK void wmshim_torch_memory_fraction(double fraction, int device);

#ifdef __cplusplus
}
#endif

#endif
