/* Finds the library that a function belongs to, by its file: HAZARD_SHIM and HAZARD_DRIVER are
 * lists like PATH. */

#ifndef FILES_H
#define FILES_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static inline int is_in(const char *file, const char *variable)
{
    struct stat a, b;
    char list[8192], *rest = list;
    const char *value = getenv(variable);
    if (!value || strlen(value) >= sizeof list || stat(file, &a))
        return 0;
    strcpy(list, value);
    for (char *path; (path = strsep(&rest, ":"));)
        if (!stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
            return 1;
    return 0;
}

static inline const char *owner(void *function)
{
    static char other[4096];
    Dl_info info;
    if (!function)
        return "nothing";
    if (!dladdr(function, &info))
        return "nobody";
    if (is_in(info.dli_fname, "HAZARD_SHIM"))
        return "shim";
    return is_in(info.dli_fname, "HAZARD_DRIVER") ? "driver" : strncpy(other, info.dli_fname, sizeof other - 1);
}

#endif
