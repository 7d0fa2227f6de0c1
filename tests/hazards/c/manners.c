/* Uses the loader for libraries other than the driver, and checks each answer. */

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CHECK(what)                                       \
    do {                                                  \
        if (!(what)) {                                    \
            fprintf(stderr, "%d: %s\n", __LINE__, #what); \
            return 1;                                     \
        }                                                 \
    } while (0)

int main(void)
{
    void *self = dlopen(NULL, RTLD_NOW);
    CHECK(self && dlsym(self, "printf"));
    CHECK(!dlopen("libno-such-library.so.1", RTLD_NOW));
    const char *message = dlerror();
    CHECK(message && strstr(message, "libno-such-library.so.1"));
    CHECK(!dlerror());
    CHECK(!dlopen("libcuda.so.1.txt", RTLD_NOW));
    CHECK(!dlopen("libcudart-of-nobody.so", RTLD_NOW));
    void *math = dlopen("libm.so.6", RTLD_NOW);
    CHECK(math && dlsym(math, "cos") && !dlclose(math));
    errno = 77;
    CHECK(dlopen("libcuda.so.1", RTLD_NOW) && errno == 77);
    void *apart = dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW);
    CHECK(apart && dlsym(apart, "cos") != dlsym(RTLD_DEFAULT, "cos"));
    /* A name that is not the driver's must not be found in the shim's place either. */
    CHECK(!dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuNoSuchFunction"));
    return 0;
}
