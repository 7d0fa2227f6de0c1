/* Makes, exports and imports physical memory for a program, as a library of its own: the call's
 * return address lies in this object, under any name that it is compiled to. A refused request is
 * made once more, as by PyTorch, which empties its cache before. */

#include "pools.h"

enum { OUT_OF_MEMORY = 2 };

struct property;

int cuMemCreate(unsigned long long *handle, unsigned long bytes, const struct property *property, unsigned long long flags);
int cuMemExportToShareableHandle(void *shared, unsigned long long handle, int type, unsigned long long flags);
int cuMemImportFromShareableHandle(unsigned long long *handle, void *shared, int type);

int make_piece(unsigned long long *handle, unsigned long bytes, const struct property *property)
{
    volatile int made = cuMemCreate(handle, bytes, property, 0);
    if (made == OUT_OF_MEMORY)
        made = cuMemCreate(handle, bytes, property, 0);
    return made;
}

int export_piece(int *descriptor, unsigned long long handle, int type)
{
    volatile int exported = cuMemExportToShareableHandle(descriptor, handle, type, 0);
    return exported;
}

int import_piece(unsigned long long *handle, int descriptor, int type)
{
    volatile int imported = cuMemImportFromShareableHandle(handle, (void *)(long)descriptor, type);
    return imported;
}
