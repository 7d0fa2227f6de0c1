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

#ifdef __cplusplus
}
#endif

#endif
