// CUDA's words for a C++ compiler: with this header a .cu file compiles for the CPU.
//
// It has only the words that the kernels of this crate use; a new kernel that needs another
// intrinsic adds it here. `__shared__` variables are thread-local: a block runs on one
// operating-system thread, and one block at a time. They are small, because a library that is
// opened late gets little thread-local memory (static TLS); a kernel's large array is
// `WM_SHARED_ARRAY`.
#pragma once

#include <string.h>

#include "engine.hpp"
#include "half.hpp"

#define __global__
#define __launch_bounds__(...)
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __shared__ static thread_local

#define threadIdx (::wm_cpu::current->thread)
#define blockIdx (::wm_cpu::current->block)
#define blockDim (::wm_cpu::current->block_dim)
#define gridDim (::wm_cpu::current->grid_dim)

inline void __syncthreads() { wm_cpu_sync_threads(); }

[[noreturn]] inline void __trap() { wm_cpu_trap(); }

inline void __syncwarp(unsigned mask = 0xffffffffu) { wm_cpu_exchange(mask, 0, wm_cpu::lane()); }

namespace wm_cpu {

// `value` as it is in lane `source`, for any plain type of at most 8 bytes.
template <class T>
inline T value_of_lane(unsigned mask, T value, unsigned source) {
    static_assert(sizeof(T) <= sizeof(unsigned long long), "a shuffle carries at most 8 bytes");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = wm_cpu_exchange(mask, bits, source);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

}  // namespace wm_cpu

// The four shuffles, over whole warps (width 32). A source outside the warp leaves the lane its own
// value, as on a GPU.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source) {
    return wm_cpu::value_of_lane(mask, value, unsigned(source) % 32);
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta) {
    const unsigned lane = wm_cpu::lane();
    return wm_cpu::value_of_lane(mask, value, lane < delta ? lane : lane - delta);
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta) {
    const unsigned lane = wm_cpu::lane();
    return wm_cpu::value_of_lane(mask, value, lane + delta > 31 ? lane : lane + delta);
}

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes) {
    return wm_cpu::value_of_lane(mask, value, (wm_cpu::lane() ^ unsigned(lanes)) % 32);
}

// The lanes that bring the same value.
inline unsigned __match_any_sync(unsigned mask, unsigned value) {
    return unsigned(wm_cpu_exchange(mask, value, wm_cpu::LANES_ALIKE));
}

// Atomic between operating-system threads too: two launches may run at once and share memory.
inline unsigned atomicAdd(unsigned* address, unsigned value) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}

inline unsigned long long atomicAdd(unsigned long long* address, unsigned long long value) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}

inline float atomicAdd(float* address, float value) {
    float before, after;
    __atomic_load(address, &before, __ATOMIC_RELAXED);
    do {
        after = before + value;
    } while (!__atomic_compare_exchange(address, &before, &after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return before;
}

inline unsigned atomicCAS(unsigned* address, unsigned expected, unsigned desired) {
    __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

inline unsigned long long atomicCAS(unsigned long long* address, unsigned long long expected,
                                    unsigned long long desired) {
    __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

template <class T>
inline T atomicMax(T* address, T value) {
    T before = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (before < value &&
           !__atomic_compare_exchange_n(address, &before, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return before;
}

template <class T>
inline T atomicMin(T* address, T value) {
    T before = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (value < before &&
           !__atomic_compare_exchange_n(address, &before, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return before;
}

inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
