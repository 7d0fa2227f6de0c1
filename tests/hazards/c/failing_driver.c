/* A driver library with every function there is, of which all fail but cuInit. */

#define X(index, name) \
    int name(void);    \
    int name(void) { return __builtin_strcmp(#name, "cuInit") ? 999 : 0; }
#include "symbols.h"
