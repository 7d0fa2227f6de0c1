/* The library that counts PyTorch's private pools since 2.10. */

#define POOL "_ZN2at4cuda7MemPool"
#include "pools.h"
