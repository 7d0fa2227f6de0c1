/* Asks a hundred times for more memory than the machine has. Prints how often it was refused. */

#include "driver.h"

int main(void)
{
    CUdeviceptr address;
    int refusals = 0;
    begin();
    for (int i = 0; i < 100; i++)
        refusals += cuMemAlloc_v2(&address, (size_t)1 << 40) == 2;
    printf("%d\n", refusals);
    return 0;
}
