/*
 * wmshim.h: what a program may ask of libwmshim.so when it runs under it.
 *
 * Nothing has to be linked. The functions are weak: in a process without the shim they are null, so a program asks
 * first, and runs everywhere:
 *
 *     if (wmshim_version)
 *         printf("under wmshim %s\n", wmshim_version());
 */
#ifndef WMSHIM_H
#define WMSHIM_H

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

/* An allocator for PyTorch, as torch.cuda.memory.CUDAPluggableAllocator takes it; `wmshim.torch.enable()` of the Python
 * package installs it. `stream` is a cudaStream_t, sizes are bytes.
 *
 * malloc: device memory in the stream's order; null for 0 bytes. A failure is thrown as PyTorch's own exception (out of memory:
 * c10::OutOfMemoryError); in a process without PyTorch it is null.
 * free: in the stream's order; null is allowed.
 * record_stream: the memory is used in this stream as well, and will not be reused before that use is over.
 * empty_cache: gives all unused memory back to the driver.
 * memory_fraction: the share of a device's memory, from 0 to 1, beyond which malloc fails. */
extern WMSHIM_WEAK void *wmshim_torch_malloc(long size, int device, void *stream);
extern WMSHIM_WEAK void wmshim_torch_free(void *ptr, long size, int device, void *stream);
extern WMSHIM_WEAK void wmshim_torch_record_stream(void *ptr, void *stream);
extern WMSHIM_WEAK void wmshim_torch_empty_cache(void);
extern WMSHIM_WEAK void wmshim_torch_memory_fraction(double fraction, int device);

#ifdef __cplusplus
}
#endif

#endif
