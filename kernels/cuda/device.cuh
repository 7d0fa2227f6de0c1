// Types and functions for every kernel of this crate, on a GPU and on the CPU.
//
// A kernel includes this header, and those of its own image's folder. On a GPU it is compiled by
// NVRTC, which has neither the header `stdint.h` nor a C library. On the CPU the same text is
// compiled as C++, and `cpu/cuda.hpp` supplies the CUDA words. Inline PTX stands only here, behind
// a function that also has a C++ body, so that the kernels themselves have one text.
//
// Rules for kernels: barriers and shuffles only where the whole block, or the whole warp, passes;
// indices are 64 bits wide.
#pragma once

#ifndef __CUDACC__
#include "cpu/cuda.hpp"
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;

namespace wm {

constexpr u32 WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;

// Positions are counted over all three dimensions: a two-dimensional launch must not do the same
// work twice.
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

// Whether `value` holds in any lane; the whole warp passes.
__device__ __forceinline__ bool any_lane(bool value) {
#ifdef __CUDACC__
    return __any_sync(ALL_LANES, value);
#else
    u32 any = value;
    for (i32 lanes = 1; lanes < i32(WARP); lanes *= 2) any |= __shfl_xor_sync(ALL_LANES, any, lanes);
    return any != 0;
#endif
}

// The lanes whose `value`, of BITS bits, is this lane's; the whole warp passes.
template <u32 BITS>
__device__ __forceinline__ u32 lanes_alike(u32 value) {
#ifdef __CUDACC__
    u32 alike = ALL_LANES;
#pragma unroll
    for (u32 bit = 0; bit < BITS; bit++) {
        const bool is_set = (value >> bit & 1) != 0;
        const u32 others = __ballot_sync(ALL_LANES, is_set);
        alike &= is_set ? others : ~others;
    }
    return alike;
#else
    return __match_any_sync(ALL_LANES, value % (1u << BITS));
#endif
}

// The same for a `value` of 64 bits.
__device__ __forceinline__ u32 lanes_alike(u64 value) {
    const u32 low = __match_any_sync(ALL_LANES, u32(value)), high = __match_any_sync(ALL_LANES, u32(value >> 32));
    return low & high;
}

__device__ __forceinline__ u32 ones(u32 x) {
#ifdef __CUDACC__
    return u32(__popc(x));
#else
    return u32(__builtin_popcount(x));
#endif
}

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
// On a GPU neighbouring threads take neighbouring indices (a grid-stride loop: coalesced). On the
// CPU threads run one after another, so each has one contiguous run, for the sake of the caches.
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

// x * y, rounded: never a part of a sum that is rounded once.
__device__ __forceinline__ f32 product(f32 x, f32 y) {
#ifdef __CUDACC__
    return __fmul_rn(x, y);
#else
    return x * y;
#endif
}

__device__ __forceinline__ f32 square_root(f32 x) {
#ifdef __CUDACC__
    return __fsqrt_rn(x);
#else
    return __builtin_sqrtf(x);
#endif
}

// A block's large array of type `T` in shared memory, as `T& name`: one a kernel. On the CPU it is
// the engine's.
#ifdef __CUDACC__
#define WM_SHARED_ARRAY(T, name) __shared__ T name
#else
template <class T>
inline T& shared_array() {
    static_assert(sizeof(T) <= wm_cpu::SHARED_BYTES, "more than a kernel may declare");
    return *reinterpret_cast<T*>(wm_cpu::current->shared);
}
#define WM_SHARED_ARRAY(T, name) T& name = ::wm::shared_array<T>()
#endif

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

// When this thread started. On the CPU threads run one after another but stand for threads side by
// side: all of them started when their grid did, so a grid of waiting threads lasts as long as one
// of them.
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
// A texture of the simulated driver, to which its texture objects point: rows of texels of one
// 32-bit word, `pitch` bytes apart.
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

// Texel (`x`, `y`) of a texture of rows of 32-bit words: unfiltered, addressed by element, clamped
// at the rims.
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

// Bits of a value, and the value of bits.
#ifdef __CUDACC__
__device__ __forceinline__ u32 bits_of(f32 x) { return __float_as_uint(x); }
__device__ __forceinline__ u64 bits_of(f64 x) { return u64(__double_as_longlong(x)); }
__device__ __forceinline__ f32 f32_of(u32 bits) { return __uint_as_float(bits); }
__device__ __forceinline__ f64 f64_of(u64 bits) { return __longlong_as_double(i64(bits)); }
#else
inline u32 bits_of(f32 x) { return __builtin_bit_cast(u32, x); }
inline u64 bits_of(f64 x) { return __builtin_bit_cast(u64, x); }
inline f32 f32_of(u32 bits) { return __builtin_bit_cast(f32, bits); }
inline f64 f64_of(u64 bits) { return __builtin_bit_cast(f64, bits); }
#endif

// The widest word that one thread loads or stores.
struct alignas(16) Word16 {
    u32 x, y, z, w;
};

// Loads and stores of large tables. A word of `load_once` is used once, so it takes no line of L1;
// one of `load_again`, or its neighbour in the line, is likely to be loaded again soon, so it takes
// one. A word of `store_once` leaves L2 before others. Nothing happens where `live` is false: the
// condition stands inside the instruction, so that several loads are under way before the first
// one's value is used. The loads are for memory that no thread of the same launch writes. An
// address that is no multiple of the word's size is a fault, on a GPU and on the CPU.
#ifdef __CUDACC__
#define WM_IF "{\n\t.reg .pred live;\n\tsetp.ne.u32 live, %"
#define WM_LOADS(NAME, LOAD)                                                                        \
    __device__ __forceinline__ void NAME(bool live, u64 at, Word16& v) {                            \
        asm volatile(WM_IF "5" LOAD ".v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"                          \
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at), "r"(u32(live)));       \
    }                                                                                               \
    __device__ __forceinline__ void NAME(bool live, u64 at, u64& v) {                               \
        asm volatile(WM_IF "2" LOAD ".u64 %0, [%1];\n\t}" : "=l"(v) : "l"(at), "r"(u32(live)));     \
    }                                                                                               \
    __device__ __forceinline__ void NAME(bool live, u64 at, u32& v) {                               \
        asm volatile(WM_IF "2" LOAD ".u32 %0, [%1];\n\t}" : "=r"(v) : "l"(at), "r"(u32(live)));     \
    }                                                                                               \
    __device__ __forceinline__ void NAME(bool live, u64 at, u16& v) {                               \
        asm volatile(WM_IF "2" LOAD ".u16 %0, [%1];\n\t}" : "=h"(v) : "l"(at), "r"(u32(live)));     \
    }                                                                                               \
    __device__ __forceinline__ void NAME(bool live, u64 at, u8& v) {                                \
        u32 wide;                                                                                   \
        asm volatile(WM_IF "2" LOAD ".u8 %0, [%1];\n\t}" : "=r"(wide) : "l"(at), "r"(u32(live)));   \
        v = u8(wide);                                                                               \
    }
WM_LOADS(load_once, ", 0;\n\t@live ld.global.nc.L1::no_allocate")
WM_LOADS(load_again, ", 0;\n\t@live ld.global.nc")
#undef WM_LOADS
#define WM_STORE ", 0;\n\t@live st.global.cs"
__device__ __forceinline__ void store_once(bool live, u64 at, const Word16& v) {
    asm volatile(WM_IF "5" WM_STORE ".v4.u32 [%4], {%0, %1, %2, %3};\n\t}"
                 :: "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "l"(at), "r"(u32(live)) : "memory");
}
__device__ __forceinline__ void store_once(bool live, u64 at, u64 v) {
    asm volatile(WM_IF "2" WM_STORE ".u64 [%1], %0;\n\t}" :: "l"(v), "l"(at), "r"(u32(live)) : "memory");
}
__device__ __forceinline__ void store_once(bool live, u64 at, u32 v) {
    asm volatile(WM_IF "2" WM_STORE ".u32 [%1], %0;\n\t}" :: "r"(v), "l"(at), "r"(u32(live)) : "memory");
}
__device__ __forceinline__ void store_once(bool live, u64 at, u16 v) {
    asm volatile(WM_IF "2" WM_STORE ".u16 [%1], %0;\n\t}" :: "h"(v), "l"(at), "r"(u32(live)) : "memory");
}
__device__ __forceinline__ void store_once(bool live, u64 at, u8 v) {
    asm volatile(WM_IF "2" WM_STORE ".u8 [%1], %0;\n\t}" :: "r"(u32(v)), "l"(at), "r"(u32(live)) : "memory");
}
#undef WM_STORE
#undef WM_IF
#else
template <class T>
inline T* aligned(u64 at) {
    return reinterpret_cast<T*>(at % sizeof(T) == 0 ? at : ~0ull << 12);  // no process has that address
}
template <class T>
inline void load_once(bool live, u64 at, T& v) {
    if (live) v = *aligned<T>(at);
}
template <class T>
inline void load_again(bool live, u64 at, T& v) {
    load_once(live, at, v);
}
template <class T>
inline void store_once(bool live, u64 at, const T& v) {
    if (live) *aligned<T>(at) = v;
}
#endif

// Memory that one thread may write while others read it, on this GPU or another one: accesses
// without an order of their own (relaxed) at system scope, and fences that give them one. Both
// sides access it in words of 32 bits, or both in words of 64: of a wider access each word stands
// for itself, and a narrower one is a part of its word. On the CPU the same holds between
// operating-system threads and processes.
#ifdef __CUDACC__
#define WM_IF "{\n\t.reg .pred live;\n\tsetp.ne.u32 live, %"
__device__ __forceinline__ void load_relaxed(bool live, u64 at, Word16& v) {
    asm volatile(WM_IF "5, 0;\n\t@live ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at), "r"(u32(live)) : "memory");
}
__device__ __forceinline__ void load_relaxed(bool live, u64 at, u32& v) {
    asm volatile(WM_IF "2, 0;\n\t@live ld.relaxed.sys.global.u32 %0, [%1];\n\t}"
                 : "=r"(v) : "l"(at), "r"(u32(live)) : "memory");
}
__device__ __forceinline__ void store_relaxed(u64 at, const Word16& v) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%4], {%0, %1, %2, %3};"
                 :: "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "l"(at) : "memory");
}
__device__ __forceinline__ void store_relaxed(u64 at, u32 v) {
    asm volatile("st.relaxed.sys.global.u32 [%1], %0;" :: "r"(v), "l"(at) : "memory");
}
// One word of 64 bits.
__device__ __forceinline__ u64 load_word(u64 at) {
    u64 v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
    return v;
}
// Two words of 64 bits.
__device__ __forceinline__ void load_words(u64 at, u64& first, u64& second) {
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(at) : "memory");
}
__device__ __forceinline__ void store_word(u64 at, u64 v) {
    asm volatile("st.relaxed.sys.global.u64 [%1], %0;" :: "l"(v), "l"(at) : "memory");
}
// Replaces the word if it is `expected`; returns the word before.
__device__ __forceinline__ u64 exchange_word(u64 at, u64 expected, u64 desired) {
    u64 was;
    asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(was) : "l"(at), "l"(expected), "l"(desired) : "memory");
    return was;
}
__device__ __forceinline__ void fence_acq_rel() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
// Between threads of this GPU alone.
__device__ __forceinline__ void fence_acq_rel_of_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// All of these are in one order.
__device__ __forceinline__ void fence_sc() { asm volatile("fence.sc.sys;" ::: "memory"); }
#undef WM_IF
#else
inline void load_relaxed(bool live, u64 at, u32& v) {
    if (live) v = __atomic_load_n(aligned<u32>(at), __ATOMIC_RELAXED);
}
inline void load_relaxed(bool live, u64 at, Word16& v) {
    load_relaxed(live, u64(aligned<Word16>(at)), v.x), load_relaxed(live, at + 4, v.y);
    load_relaxed(live, at + 8, v.z), load_relaxed(live, at + 12, v.w);
}
inline void store_relaxed(u64 at, u32 v) { __atomic_store_n(aligned<u32>(at), v, __ATOMIC_RELAXED); }
inline void store_relaxed(u64 at, const Word16& v) {
    store_relaxed(u64(aligned<Word16>(at)), v.x), store_relaxed(at + 4, v.y);
    store_relaxed(at + 8, v.z), store_relaxed(at + 12, v.w);
}
inline u64 load_word(u64 at) { return __atomic_load_n(aligned<u64>(at), __ATOMIC_RELAXED); }
inline void load_words(u64 at, u64& first, u64& second) { first = load_word(at), second = load_word(at + 8); }
inline void store_word(u64 at, u64 v) { __atomic_store_n(aligned<u64>(at), v, __ATOMIC_RELAXED); }
inline u64 exchange_word(u64 at, u64 expected, u64 desired) {
    __atomic_compare_exchange_n(aligned<u64>(at), &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
inline void fence_acq_rel() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
inline void fence_acq_rel_of_gpu() { fence_acq_rel(); }
inline void fence_sc() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#endif
// Part of a word of 32 bits.
__device__ __forceinline__ void load_relaxed(bool live, u64 at, u8& v) {
    u32 word = 0;
    load_relaxed(live, at & ~3ull, word);
    v = u8(word >> (at & 3) * 8);
}

// Conversions between f32 and the two 16-bit formats, rounded to nearest, ties to even. A NaN
// becomes 0x7fff, as the hardware has it; infinities stay, and a number that is too large becomes
// one.
__device__ __forceinline__ u16 f16_from(f32 x) {
#ifdef __CUDACC__
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
#else
    return wm_cpu::f16_from(bits_of(x));
#endif
}

__device__ __forceinline__ u16 bf16_from(f32 x) {
#ifdef __CUDACC__
    u16 brain;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(brain) : "f"(x));
    return brain;
#else
    return wm_cpu::bf16_from(bits_of(x));
#endif
}

__device__ __forceinline__ f32 from_f16(u16 half) {
#ifdef __CUDACC__
    f32 x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
#else
    return f32_of(wm_cpu::from_f16(half));
#endif
}

__device__ __forceinline__ f32 from_bf16(u16 brain) { return f32_of(u32(brain) << 16); }

// An f32 from which a conversion to 16 bits rounds as from `x` itself: inexact values get an odd
// last bit, so that no tie comes from rounding twice.
__device__ __forceinline__ f32 rounded_to_odd(f64 x) {
    const f32 near = f32(x);
    if (f64(near) == x || x != x) return near;
    u32 bits = bits_of(near);
    if ((bits_of(f64(near)) & ~(1ull << 63)) > (bits_of(x) & ~(1ull << 63))) bits--;
    return f32_of(bits | 1);
}

// The natural logarithm of 1 + x. The last bit may differ between a GPU and the CPU.
__device__ __forceinline__ f32 log1p_of(f32 x) {
#ifdef __CUDACC__
    return log1pf(x);
#else
    return __builtin_log1pf(x);
#endif
}

__device__ __forceinline__ i32 leading_zeros(u64 x) {
#ifdef __CUDACC__
    return __clzll(i64(x));
#else
    return x == 0 ? 64 : __builtin_clzll(x);
#endif
}

}  // namespace wm
