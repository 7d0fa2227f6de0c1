/* Opens a library for itself alone, as Python does, and has it report: `reported LIBRARY`. */

#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    if (argc != 2)
        return 64;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    void (*report_all)(void) = library ? (void (*)(void))dlsym(library, "report_all") : NULL;
    if (!report_all) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    report_all();
    return 0;
}
