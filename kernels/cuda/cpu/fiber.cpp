// Stack switching. No function here may touch a thread-local variable after a switch: a fiber that
// waits for work between launches may be resumed by another operating-system thread, and compilers
// keep thread-local addresses in registers.
#include "fiber.hpp"

#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

namespace wm_cpu {
namespace {

// Enough for a kernel's locals and, where no alternate signal stack could be set, for a signal
// frame with AVX-512 state.
constexpr size_t STACK_BYTES = 64 * 1024;

// Stacks lie whole pages apart. If all began at the same place of a page, the parts in use of a
// warp's stacks would share a few sets of the processor's cache, and each switch would miss.
constexpr size_t PLACES = 32, PLACE_BYTES = 192;

// makecontext passes ints only.
void enter_halves(uint32_t body_high, uint32_t body_low, uint32_t argument_high, uint32_t argument_low) {
    const auto body = reinterpret_cast<void (*)(void*)>(uintptr_t(body_high) << 32 | body_low);
    body(reinterpret_cast<void*>(uintptr_t(argument_high) << 32 | argument_low));
}

[[noreturn]] void enter(Fiber* fiber, void (*body)(void*), void* argument) {
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber->stack;
    context.uc_stack.ss_size = fiber->bytes;
    context.uc_link = nullptr;
    const auto code = reinterpret_cast<uintptr_t>(body);
    const auto data = reinterpret_cast<uintptr_t>(argument);
    makecontext(&context, reinterpret_cast<void (*)()>(enter_halves), 4, uint32_t(code >> 32), uint32_t(code),
                uint32_t(data >> 32), uint32_t(data));
    fiber->entered = true;
    setcontext(&context);
    __builtin_unreachable();
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

void resume(Fiber* fiber, jmp_buf caller, void (*body)(void*), void* argument) {
    if (_setjmp(caller) != 0) return;
    if (fiber->entered) _longjmp(fiber->parked, 1);
    enter(fiber, body, argument);
}

void park(Fiber* fiber, jmp_buf caller) {
    if (_setjmp(fiber->parked) == 0) _longjmp(caller, 1);
}

void pass(Fiber* from, Fiber* to) {
    if (_setjmp(from->parked) == 0) _longjmp(to->parked, 1);
}

}  // namespace wm_cpu
