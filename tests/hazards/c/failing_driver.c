/* A driver library with every function of the driver; all fail except cuInit. */

#define X(index, name) \
    int name(void);    \
    int name(void) { return __builtin_strcmp(#name, "cuInit") ? 999 : 0; }
#include "symbols.h"
