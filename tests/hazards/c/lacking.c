/* Makes calls that a driver may lack, and prints each answer. Twice: the second time must be like
 * the first. */

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int (*function_t)(void *, void *, long, long, void *);

static const char *const names[] = {
    "cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuMemAlloc_v2", "cuGetProcAddress_v2",
};

int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int first[sizeof names / sizeof *names], word[4];
    if (!library)
        return 90;
    for (int again = 0; again < 2; again++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            function_t function = (function_t)dlsym(library, names[i]);
            if (!function)
                return 91;
            int result = function(i ? (void *)word : NULL, word, 0, 0, word);
            if (again && result != first[i])
                return 92;
            first[i] = result;
        }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        printf("%s %d\n", names[i], first[i]);
    if (first[0]) {
        int (*name_of)(int, const char **) = (int (*)(int, const char **))dlsym(library, "cuGetErrorName");
        const char *name = "", *none = "";
        if (!name_of)
            return 93;
        int known = name_of(first[0], &name), unknown = name_of(-5, &none);
        printf("%s %d %d\n", known ? "-" : name, known, unknown);
    }
    return 0;
}
