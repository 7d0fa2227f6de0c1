// Runs a kernel's grid on the calling thread: the interface of the CPU build.
//
// Blocks run one after another. Inside a block each CUDA thread runs until it ends or must wait at
// a barrier or in a shuffle; only then does it keep its stack (a fiber) and another thread runs. So
// barriers and shuffles are real, and a kernel that has neither is a plain loop over its threads,
// on one stack.
//
// A GPU promises progress of a thread that waits for a sibling in a loop of its own; this engine
// does not. Here a kernel may wait at barriers, in shuffles and for other operating-system threads.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace wm_cpu {

struct Index3 {
    uint32_t x, y, z;
};

// The built-in variables of a running CUDA thread.
struct Context {
    Index3 thread, block, block_dim, grid_dim;
    uint32_t linear_thread;
    uint64_t started;  // nanoseconds: when the grid began
    unsigned char* shared;  // SHARED_BYTES for the block's large shared array
};

// As much shared memory as a kernel declares on every GPU.
constexpr size_t SHARED_BYTES = 48 * 1024;

// A source for `wm_cpu_exchange`: the answer is which lanes brought the same value.
constexpr uint32_t LANES_ALIKE = 0xffff;

// The context of the kernel that runs on this operating-system thread. Initial-exec: kernels read
// it all the time, and in a shared library any other model is a call.
extern __thread Context* current __attribute__((tls_model("initial-exec")));

inline uint32_t lane() { return current->linear_thread % 32; }

uint64_t nanoseconds();

void yield_processor();

// Why a launch ended early. Values are shared with src/cpu.rs.
enum FaultKind : uint32_t { NO_FAULT = 0, ILLEGAL_ADDRESS = 1, DIVERGENCE = 2, OUT_OF_MEMORY = 3, TRAP = 4 };

struct Fault {
    uint32_t kind;
    uint64_t address;
};

struct Launch {
    Index3 grid, block;
    const void* const* arguments;
};

// Unpacks the arguments and calls the kernel, once per CUDA thread.
using Thunk = void (*)(const void* const* arguments);

}  // namespace wm_cpu

extern "C" {

// Runs the whole grid. src/cpu.rs has checked the launch against CUDA's limits.
wm_cpu::Fault wm_cpu_run(wm_cpu::Thunk thunk, const wm_cpu::Launch* launch);

// For kernels: waits for all threads of the block that have not ended.
void wm_cpu_sync_threads();

// For kernels: ends the launch with TRAP.
[[noreturn]] void wm_cpu_trap();

// For kernels: waits for the lanes in `mask`, then returns the `value` that lane `source` brought,
// or the caller's own where that lane is not among them; with `LANES_ALIKE` the lanes that brought
// `value`, a bit each.
unsigned long long wm_cpu_exchange(uint32_t mask, unsigned long long value, uint32_t source);
}
