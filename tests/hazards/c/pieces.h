/* Physical memory that a program makes itself, as NVIDIA declares it, and the library that makes it
 * for the program: see piece.c. */

#ifndef PIECES_H
#define PIECES_H

#include "driver.h"

enum { DEVICE = 1, DESCRIPTOR = 1, READWRITE = 3 };

struct location { int type, id; };
struct flags { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; };
struct property { int type, handle_types; struct location location; void *metadata; struct flags flags; };
struct access { struct location location; int flags; };

CUresult make_piece(unsigned long long *handle, size_t bytes, const struct property *property);
CUresult export_piece(int *descriptor, unsigned long long handle, int type);
CUresult import_piece(unsigned long long *handle, int descriptor, int type);
CUresult cuMemRelease(unsigned long long handle);
CUresult cuMemAddressReserve(CUdeviceptr *base, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr base, size_t bytes);
CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr at, size_t bytes);
CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const struct access *access, size_t count);
CUresult cuMemGetAllocationPropertiesFromHandle(struct property *property, unsigned long long handle);
CUresult cuMemRetainAllocationHandle(unsigned long long *handle, void *address);
char *wmshim_stats_json(void);

#endif
