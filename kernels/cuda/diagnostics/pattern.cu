// Known contents for memory: written by one launch, checked by another.
#include "../device.cuh"

// SplitMix64's finaliser over a seeded counter. `pattern` in src/lib.rs computes the same for the
// host.
__device__ __forceinline__ u64 mix(u64 seed, u64 index) {
    u64 z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/// Sets `n` words to `value`.
extern "C" __global__ void wm_fill_u32(u32* dst, u64 n, u32 value) {
    for (u64 i : wm::share_of(n)) dst[i] = value;
}

/// Sets word `i` of `n` to `pattern(seed, i)`.
extern "C" __global__ void wm_fill_pattern_u64(u64* dst, u64 n, u64 seed) {
    for (u64 i : wm::share_of(n)) dst[i] = mix(seed, i);
}

/// Adds to `*mismatches` the number of words that are not `pattern(seed, i)`.
extern "C" __global__ void wm_verify_pattern_u64(const u64* src, u64 n, u64 seed, u64* mismatches) {
    u64 wrong = 0;
    for (u64 i : wm::share_of(n)) wrong += src[i] != mix(seed, i);
    if (wrong != 0) atomicAdd(mismatches, wrong);
}
