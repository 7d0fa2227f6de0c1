// Stack switching. No function here may touch a thread-local variable after a switch: a fiber that
// waits for work between launches may be resumed by another operating-system thread, and compilers
// keep thread-local addresses in registers.
#include "fiber.hpp"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef __x86_64__
#error "a switch of stacks is written for x86-64 only, as the library is"
#endif

// Keeps the registers that a call keeps on the running stack, whose pointer goes to `*from`, and
// goes on on the stack `to`. Signal masks and floating-point modes stay as they are.
extern "C" void wm_cpu_switch(void** from, void* to);

// The first step of a fiber: calls the function in r12 with the argument in r13.
extern "C" void wm_cpu_begin();

asm(R"(
    .text
    .hidden wm_cpu_switch
    .type wm_cpu_switch, @function
wm_cpu_switch:
    .cfi_startproc
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .cfi_endproc
    .size wm_cpu_switch, . - wm_cpu_switch

    .hidden wm_cpu_begin
    .type wm_cpu_begin, @function
wm_cpu_begin:
    .cfi_startproc
    .cfi_undefined rip
    mov %r13, %rdi
    call *%r12
    ud2
    .cfi_endproc
    .size wm_cpu_begin, . - wm_cpu_begin
)");

namespace wm_cpu {
namespace {

// Enough for a kernel's locals and, where no alternate signal stack could be set, for a signal
// frame with AVX-512 state.
constexpr size_t STACK_BYTES = 64 * 1024;

// Stacks lie whole pages apart. If all began at the same place of a page, the parts in use of a
// warp's stacks would share a few sets of the processor's cache, and each switch would miss.
constexpr size_t PLACES = 32, PLACE_BYTES = 192;

// What `wm_cpu_switch` takes from a stack: the registers that a call keeps, and where it returns.
struct Frame {
    uintptr_t r15, r14, r13, r12, rbx, rbp;
    void (*back)();
};

// Lays a frame on the fresh stack that leads to `body`, which never returns.
void prepare(Fiber* fiber, void (*body)(void*), void* argument) {
    // A function begins with its stack 8 bytes off a multiple of 16: `call` comes first.
    const uintptr_t top = (reinterpret_cast<uintptr_t>(fiber->stack) + fiber->bytes) & ~uintptr_t(15);
    Frame* frame = reinterpret_cast<Frame*>(top) - 1;
    *frame = {0, 0, reinterpret_cast<uintptr_t>(argument), reinterpret_cast<uintptr_t>(body), 0, 0, wm_cpu_begin};
    fiber->parked = frame;
    fiber->entered = true;
}

}  // namespace

bool create(Fiber* fiber, size_t number) {
    const size_t guard = size_t(sysconf(_SC_PAGESIZE));
    const size_t bytes = STACK_BYTES + PLACES * PLACE_BYTES;
    void* base = mmap(nullptr, guard + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return false;
    fiber->stack = static_cast<char*>(base) + guard;
    fiber->bytes = STACK_BYTES + number % PLACES * PLACE_BYTES;
    fiber->entered = false;
    if (mprotect(fiber->stack, bytes, PROT_READ | PROT_WRITE) == 0) return true;
    munmap(base, guard + bytes);
    return false;
}

void resume(Fiber* fiber, void** caller, void (*body)(void*), void* argument) {
    if (!fiber->entered) prepare(fiber, body, argument);
    wm_cpu_switch(caller, fiber->parked);
}

void park(Fiber* fiber, void* caller) { wm_cpu_switch(&fiber->parked, caller); }

void pass(Fiber* from, Fiber* to) { wm_cpu_switch(&from->parked, to->parked); }

}  // namespace wm_cpu
