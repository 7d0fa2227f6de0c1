/* Another preload, of the kind that wraps calls: its dlopen calls the next one in the loader's
 * order, and its dlsym returns the first definition in the process for the driver's names. Prints
 * on standard error how often it was called. */

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef void *(*dlopen_t)(const char *, int);
typedef void *(*dlsym_t)(void *, const char *);

static int opens;

static void *real_dlsym(void *library, const char *name)
{
    static dlsym_t real;
    if (!real)
        real = (dlsym_t)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real)
        real = (dlsym_t)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real(library, name);
}

void *dlsym(void *library, const char *name)
{
    return real_dlsym(strncmp(name, "cu", 2) ? library : RTLD_DEFAULT, name);
}

void *dlopen(const char *name, int flags)
{
    opens++;
    return ((dlopen_t)real_dlsym(RTLD_NEXT, "dlopen"))(name, flags);
}

__attribute__((destructor)) static void report(void) { fprintf(stderr, "wrapper: %d\n", opens); }
