/* A library that allocates through another one, as libraries do that are linked with CUDA's
 * runtime. */

int take_block(unsigned long long *address, unsigned long bytes, int ordered);

int ask_block(unsigned long long *address, unsigned long bytes, int ordered)
{
    volatile int taken = take_block(address, bytes, ordered);
    return taken;
}
