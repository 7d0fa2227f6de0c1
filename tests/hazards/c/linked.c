/* A program that is linked with -lcuda. Says whose cuInit the loader gave it, and calls it. See opener.c. */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int cuInit(unsigned flags);

static int is(const char *path, const char *variable)
{
    struct stat a, b;
    return !stat(path, &a) && !stat(getenv(variable), &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int main(void)
{
    Dl_info info;
    if (!dladdr((void *)cuInit, &info))
        return 90;
    puts(is(info.dli_fname, "HAZARD_SHIM") ? "shim" : is(info.dli_fname, "HAZARD_DRIVER") ? "driver" : info.dli_fname);
    return cuInit(0);
}
