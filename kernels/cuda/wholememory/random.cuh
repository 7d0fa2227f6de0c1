// Random numbers: PCG-XSH-RR, 64 bits of state and 32 of output, the same in `src/random.rs`.
//
// A generator is named by a seed and a subsequence: the subsequence chooses the stream (the
// increment), and the generator starts as many draws into it as the subsequence says.
#pragma once

#include "../device.cuh"

namespace wm {

class Pcg {
    static constexpr u64 MULTIPLIER = 6364136223846793005ull;
    u64 state, increment;

public:
    __device__ __forceinline__ Pcg(u64 seed, u64 subsequence) : state(0), increment(subsequence << 1 | 1) {
        next_u32();
        state += seed;
        next_u32();
        skip(subsequence);
    }

    __device__ __forceinline__ u32 next_u32() {
        const u64 before = state;
        state = before * MULTIPLIER + increment;
        const u32 folded = u32((before >> 18 ^ before) >> 27), turn = u32(before >> 59);
        return folded >> turn | folded << ((0u - turn) & 31);
    }

    // As `draws` calls of `next_u32`, in as many steps as the number has bits.
    __device__ __forceinline__ void skip(u64 draws) {
        u64 factor = 1, sum = 0, step_factor = MULTIPLIER, step_sum = increment;
#pragma unroll 1
        for (; draws != 0; draws >>= 1) {
            if (draws & 1) {
                factor *= step_factor;
                sum = sum * step_factor + step_sum;
            }
            step_sum *= step_factor + 1;
            step_factor *= step_factor;
        }
        state = state * factor + sum;
    }

    // 0 to 2^31 - 1.
    __device__ __forceinline__ u32 positive_i32() { return next_u32() & 0x7fffffff; }

    // The low half is drawn first.
    __device__ __forceinline__ u64 next_u64() {
        const u64 low = next_u32();
        return low | u64(next_u32()) << 32;
    }

    // From 0 to less than 1, a multiple of 2^-24.
    __device__ __forceinline__ f32 next_f32() { return f32(next_u32() >> 8) * (1.0f / (1 << 24)); }

    // The logarithm to base 2 of a number from 0 to 1, which is finer near 0 than `next_f32`: its
    // exponent is the position of the first set bit of as many words as it takes.
    __device__ __forceinline__ f32 log2_of_uniform() {
        const f32 fraction = multiply_add(0.5f, next_f32(), 0.5f);
        u32 zeros = 0;
        u64 word = next_u64();
#pragma unroll 1
        for (; word == 0; word = next_u64()) zeros += 64;
        zeros += u32(leading_zeros(word));
        const f32 scale = zeros < 127 ? f32_of((127 - zeros) << 23) : 0.0f;
        return log1p_of(-fraction * scale) / 0.693147182464599609375f;
    }
};

}  // namespace wm
