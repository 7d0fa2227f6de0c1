/* PyTorch's counts of the private pools that it has made, where its libraries export them. While a
 * pool is in use, PyTorch's allocator does not ask again for what it was refused. One is in use if
 * PRIVATE_POOL is set. */

#include <stdlib.h>

#ifdef POOLS /* since 2.10: in a library of their own, pools.c */

int pools_in_use(void);

#else /* 2.5 to 2.9 */

#ifndef POOL
#define POOL "_ZN3c104cuda7MemPool"
#endif

volatile unsigned long made_by_program __asm__(POOL "4uid_E") = 1;
volatile unsigned long made_by_graphs __asm__(POOL "5uuid_E") = 1;

int pools_in_use(void)
{
    if (getenv("PRIVATE_POOL") && made_by_graphs == 1)
        made_by_graphs++;
    return made_by_graphs > 1;
}

#endif
