/* A driver library with every function of the driver. Each checks that a call's arguments arrived
 * as first_call.c sends them, in registers and on the stack, and answers with its own number. Only
 * addresses and numbers are real here. */

#include "arguments.h"

#define X(index, name)                                   \
    long name(PARAMETERS);                               \
    long name(PARAMETERS) { return AS_SENT ? ANSWER(index) : -1; }
#include "symbols.h"
