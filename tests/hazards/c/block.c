/* Allocates for a program, as a library of its own: the call's return address lies in this
 * object, which tests compile under several names. */

int cuMemAlloc_v2(unsigned long long *address, unsigned long bytes);
int cuMemAllocAsync(unsigned long long *address, unsigned long bytes, void *stream);

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long flags, int *status);

/* As CUDA's runtime in a library does at its first use. */
int look_up(void)
{
    void *function;
    volatile int found = cuGetProcAddress_v2("cuCtxGetCurrent", &function, 12000, 0, 0);
    return found;
}

int take_block(unsigned long long *address, unsigned long bytes, int ordered)
{
    volatile int taken = ordered ? cuMemAllocAsync(address, bytes, 0) : cuMemAlloc_v2(address, bytes);
    return taken;
}
