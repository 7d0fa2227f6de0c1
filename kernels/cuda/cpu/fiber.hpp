// A stack of its own for a CUDA thread that has to wait.
//
// A switch is a call that returns on the other stack, so that the processor goes on predicting
// returns. With `_longjmp` it would not: its calls have no returns, and all later ones would miss.
#pragma once

#include <stddef.h>

namespace wm_cpu {

struct Fiber {
    void* parked;   // the stack pointer, below the registers that a call keeps
    void* stack;    // lowest address of the usable part; a guard page lies below
    size_t bytes;   // of the usable part
    bool entered;   // false: the next resume starts `body` anew, whatever the stack held
};

// Maps the stack. False when the system gives no memory. Fibers with different numbers begin at
// different places of a page.
bool create(Fiber* fiber, size_t number);

// Runs `fiber` from where it parked, or from the start of `body`, until it parks; then returns.
// `body` must never return. `caller` holds the way back and must be the one that the fiber parks
// to.
void resume(Fiber* fiber, void** caller, void (*body)(void*), void* argument);

// Suspends the running fiber and returns to its caller. Returns here when the fiber is resumed.
void park(Fiber* fiber, void* caller);

// Suspends the running fiber, `from`, and goes on with `to`, which has parked. Returns when `from`
// is resumed.
void pass(Fiber* from, Fiber* to);

}  // namespace wm_cpu
