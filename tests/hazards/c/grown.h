/* The allocator of grown.c. */

#ifndef GROWN_H
#define GROWN_H

#include "driver.h"

/* Memory for a tensor of a stream; 0: PyTorch raises its error. */
CUdeviceptr grown_malloc(int stream, size_t bytes);
void grown_free(CUdeviceptr at);
void grown_empty_cache(void);

#endif
