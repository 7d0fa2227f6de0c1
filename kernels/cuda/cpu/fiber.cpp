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

// makecontext passes ints only.
void enter_halves(uint32_t body_high, uint32_t body_low, uint32_t argument_high, uint32_t argument_low) {
    const auto body = reinterpret_cast<void (*)(void*)>(uintptr_t(body_high) << 32 | body_low);
    body(reinterpret_cast<void*>(uintptr_t(argument_high) << 32 | argument_low));
}

[[noreturn]] void enter(Fiber* fiber, void (*body)(void*), void* argument) {
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber->stack;
    context.uc_stack.ss_size = STACK_BYTES;
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

bool create(Fiber* fiber) {
    const size_t guard = size_t(sysconf(_SC_PAGESIZE));
    void* base = mmap(nullptr, guard + STACK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return false;
    fiber->stack = static_cast<char*>(base) + guard;
    fiber->entered = false;
    if (mprotect(fiber->stack, STACK_BYTES, PROT_READ | PROT_WRITE) == 0) return true;
    munmap(base, guard + STACK_BYTES);
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

}  // namespace wm_cpu
