/* Prints the parts of a process: threads, descriptors, and whether a driver is mapped.
 *
 *   census               before any call
 *   census opened        after dlopen("libcuda.so.1"), before any call
 *
 * HAZARD_DRIVER is a part of the driver's file name. */

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int entries(const char *folder)
{
    int count = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static int is_mapped(const char *name)
{
    int found = 0;
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

int main(int count, char **argument)
{
    if (count > 1 && !strcmp(argument[1], "opened") && !dlopen("libcuda.so.1", RTLD_NOW))
        return 90;
    printf("threads %d\n", entries("/proc/self/task"));
    printf("descriptors %d\n", entries("/proc/self/fd"));
    printf("driver %d\n", is_mapped(getenv("HAZARD_DRIVER")));
    return 0;
}
