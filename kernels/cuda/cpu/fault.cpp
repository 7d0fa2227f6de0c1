// SIGSEGV and SIGBUS: the handler, its chain, and the stack that it runs on.
//
// If no kernel runs on the faulting thread, the signal goes to the handler that was installed
// before this one.
#include "fault.hpp"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

namespace wm_cpu {
namespace {

// Initial-exec, because the handler reads it in every thread: other models may allocate at a
// thread's first access, and the fault may be malloc's own.
__thread Run* armed __attribute__((tls_model("initial-exec"))) = nullptr;

// For a thread that has no alternate signal stack: an overflow of a fiber's stack must be handled
// somewhere.
constexpr size_t SIGNAL_STACK_BYTES = 64 * 1024;
pthread_once_t installed = PTHREAD_ONCE_INIT;
struct sigaction previous_segv, previous_bus;

// The default action, taken by letting the fault (or the sent signal) happen again.
void take_default(int signal, const siginfo_t* info) {
    struct sigaction standard = {};
    standard.sa_handler = SIG_DFL;
    sigaction(signal, &standard, nullptr);
    if (info->si_code <= 0) raise(signal);
}

void chain(int signal, siginfo_t* info, void* context) {
    const struct sigaction& previous = signal == SIGBUS ? previous_bus : previous_segv;
    if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(signal, info, context);
    if (previous.sa_handler == SIG_DFL) return take_default(signal, info);
    if (previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
    if (info->si_code > 0) take_default(signal, info);  // a real fault cannot be ignored: it would repeat for ever
}

// A positive code means the processor raised it, not kill().
void on_fault(int signal, siginfo_t* info, void* context) {
    Run* run = armed;
    if (info->si_code > 0 && run != nullptr && run->in_kernel)
        leave(run, {ILLEGAL_ADDRESS, reinterpret_cast<uintptr_t>(info->si_addr)});
    chain(signal, info, context);
}

// SA_NODEFER, because leaving by _longjmp would otherwise keep the signal blocked.
void install() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous_segv);
    sigaction(SIGBUS, &action, &previous_bus);
}

bool lend_signal_stack() {
    stack_t present;
    if (sigaltstack(nullptr, &present) != 0 || !(present.ss_flags & SS_DISABLE)) return false;
    void* base = mmap(nullptr, SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return false;
    stack_t lent = {};
    lent.ss_sp = base;
    lent.ss_size = SIGNAL_STACK_BYTES;
    return sigaltstack(&lent, nullptr) == 0;
}

void take_signal_stack_back() {
    stack_t lent, none = {};
    none.ss_flags = SS_DISABLE;
    if (sigaltstack(&none, &lent) == 0) munmap(lent.ss_sp, SIGNAL_STACK_BYTES);
}

}  // namespace

void arm(Guard* guard, Run* run) {
    pthread_once(&installed, install);
    guard->outer = armed;
    guard->lent_signal_stack = lend_signal_stack();
    run->in_kernel = 0;
    armed = run;
}

void disarm(const Guard* guard) {
    armed = guard->outer;
    if (guard->lent_signal_stack) take_signal_stack_back();
}

void leave(Run* run, Fault fault) {
    run->in_kernel = 0;
    run->fault = fault;
    _longjmp(run->way_out, 1);
}

}  // namespace wm_cpu
