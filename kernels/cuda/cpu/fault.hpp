// A memory fault inside a kernel ends the launch, not the process.
#pragma once

#include <setjmp.h>
#include <signal.h>

#include "engine.hpp"

namespace wm_cpu {

// One launch, as the fault handler sees it.
struct Run {
    jmp_buf way_out;
    Fault fault;
    volatile sig_atomic_t in_kernel;  // 0 while the scheduler's own code runs: its faults are ours, not the kernel's
};

// The state of this operating-system thread before arm().
struct Guard {
    Run* outer;
    bool lent_signal_stack;
};

// Installs the handler (once a process) and makes `run` the launch that this thread's faults end.
void arm(Guard* guard, Run* run);

void disarm(const Guard* guard);

// Ends the launch with `fault`, from anywhere inside it.
[[noreturn]] void leave(Run* run, Fault fault);

}  // namespace wm_cpu
