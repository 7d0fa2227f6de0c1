/* The context of a program, and a kernel that fills a stretch of memory with one word:
 * `wm_fill_u32` of the image that is loaded. */

#include <stdint.h>

#include "driver.h"

typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;

CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **parameters, void **extra);

static CUcontext context;
static CUfunction fill;

static CUmodule load_image(const char *path)
{
    static char image[1 << 20];
    CUmodule module;
    FILE *file = fopen(path, "rb");
    if (!file || fread(image, 1, sizeof image - 1, file) == 0)
        exit(83);
    fclose(file);
    MUST(cuModuleLoadData(&module, image));
    return module;
}

static void load(const char *path)
{
    context = begin();
    MUST(cuModuleGetFunction(&fill, load_image(path), "wm_fill_u32"));
}

static CUresult fill_by_kernel(CUdeviceptr address, size_t bytes, unsigned word, CUstream stream)
{
    uint64_t words = bytes / 4;
    void *parameters[] = {&address, &words, &word};
    return cuLaunchKernel(fill, 4, 1, 1, 64, 1, 1, 0, stream, parameters, NULL);
}
