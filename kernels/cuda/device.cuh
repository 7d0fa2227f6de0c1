// What every kernel of this crate may use, on a GPU and on the CPU.
//
// This is the only header a kernel includes. On a GPU it is compiled by NVRTC, which has no <stdint.h> and no
// C library. On the CPU the same text is compiled as C++ and `cpu/cuda.hpp` supplies the CUDA words. Whatever
// needs inline PTX stands here, behind a function that also has a C++ body, so that the kernels themselves
// have one text.
//
// Rules for kernels: barriers and shuffles only where the whole block, or the whole warp, passes; indices are
// 64 bits wide.
#pragma once

#ifndef __CUDACC__
#include "cpu/cuda.hpp"
#endif

typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;

namespace wm {

constexpr u32 WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;

// Positions are counted over all three dimensions: a two-dimensional launch must not do the same work twice.
__device__ __forceinline__ u32 threads_in_block() { return blockDim.x * blockDim.y * blockDim.z; }

__device__ __forceinline__ u32 thread_in_block() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

__device__ __forceinline__ u64 blocks_in_grid() { return u64(gridDim.x) * gridDim.y * gridDim.z; }

__device__ __forceinline__ u64 block_in_grid() {
    return blockIdx.x + u64(gridDim.x) * (blockIdx.y + u64(gridDim.y) * blockIdx.z);
}

__device__ __forceinline__ u32 lane() { return thread_in_block() % WARP; }

__device__ __forceinline__ u32 warp() { return thread_in_block() / WARP; }

__device__ __forceinline__ u32 warps_in_block() { return (threads_in_block() + WARP - 1) / WARP; }

// Lanes that exist in this warp: the last warp of a block of, say, 40 threads has 8.
__device__ __forceinline__ u32 lanes_in_warp() {
    const u32 left = threads_in_block() - warp() * WARP;
    return left < WARP ? left : WARP;
}

__device__ __forceinline__ u32 warp_mask() { return ALL_LANES >> (WARP - lanes_in_warp()); }

// The indices of one thread, for `for (u64 i : wm::share_of(n))`.
struct Indices {
    struct Iterator {
        u64 at, step;
        __device__ __forceinline__ u64 operator*() const { return at; }
        __device__ __forceinline__ void operator++() { at += step; }
        __device__ __forceinline__ bool operator!=(const Iterator& end) const { return at < end.at; }
    };
    u64 first, last, step;
    __device__ __forceinline__ Iterator begin() const { return {first, step}; }
    __device__ __forceinline__ Iterator end() const { return {last, step}; }
};

// This thread's share of 0..n; the threads of the grid together cover each index once.
//
// On a GPU neighbouring threads take neighbouring indices (a grid-stride loop: coalesced). On the CPU threads
// run one after another, so each takes one contiguous run: that is what its caches want.
__device__ __forceinline__ Indices share_of(u64 n) {
    const u64 threads = blocks_in_grid() * threads_in_block();
    const u64 thread = block_in_grid() * threads_in_block() + thread_in_block();
#ifdef __CUDACC__
    return {thread, n, threads};
#else
    const u64 run = n / threads + (n % threads != 0);
    const u64 first = thread * run;
    return {first, first + run < n ? first + run : n, 1};
#endif
}

// x * y + z, rounded once: the same bits on a GPU and on the CPU.
__device__ __forceinline__ f32 multiply_add(f32 x, f32 y, f32 z) {
#ifdef __CUDACC__
    return __fmaf_rn(x, y, z);
#else
    return __builtin_fmaf(x, y, z);
#endif
}

// A clock that all threads of the device share.
__device__ __forceinline__ u64 nanoseconds() {
#ifdef __CUDACC__
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#else
    return wm_cpu::nanoseconds();
#endif
}

// When this thread started. On the CPU threads run one after another but stand for threads side by side: all
// of them started when their grid did, so a grid of waiting threads lasts as long as one of them.
__device__ __forceinline__ u64 thread_start() {
#ifdef __CUDACC__
    return nanoseconds();
#else
    return wm_cpu::current->started;
#endif
}

// Lets others run; for the body of a loop that waits.
__device__ __forceinline__ void pause() {
#ifdef __CUDACC__
    __nanosleep(200);
#else
    wm_cpu::yield_processor();
#endif
}

#ifndef __CUDACC__
// What the simulated driver's texture objects point to: rows of texels of one 32-bit word, `pitch` bytes apart.
struct Texture {
    const unsigned char* base;
    u64 pitch, width, height;
    u32 at(i64 x, i64 y) const { return reinterpret_cast<const u32*>(base + u64(y) * pitch)[x]; }
};
#endif

// Texel `x` of a linear texture of 32-bit words; beyond its end 0.
__device__ __forceinline__ u32 texel(u64 texture, i32 x) {
#ifdef __CUDACC__
    u32 word, y, z, w;
    asm volatile("tex.1d.v4.u32.s32 {%0, %1, %2, %3}, [%4, {%5}];"
                 : "=r"(word), "=r"(y), "=r"(z), "=r"(w) : "l"(texture), "r"(x));
    return word;
#else
    const Texture& t = *reinterpret_cast<const Texture*>(texture);
    return x >= 0 && u64(x) < t.width ? t.at(x, 0) : 0;
#endif
}

// Texel (`x`, `y`) of a texture of rows of 32-bit words: unfiltered, addressed by element, clamped at the rims.
__device__ __forceinline__ u32 texel(u64 texture, i32 x, i32 y) {
#ifdef __CUDACC__
    u32 word, z, w, v;
    asm volatile("tex.2d.v4.u32.f32 {%0, %1, %2, %3}, [%4, {%5, %6}];"
                 : "=r"(word), "=r"(z), "=r"(w), "=r"(v) : "l"(texture), "f"(x + 0.5f), "f"(y + 0.5f));
    return word;
#else
    const Texture& t = *reinterpret_cast<const Texture*>(texture);
    const auto clamp = [](i64 at, u64 size) { return at < 0 ? 0 : u64(at) < size ? at : i64(size) - 1; };
    return t.at(clamp(x, t.width), clamp(y, t.height));
#endif
}

}  // namespace wm
