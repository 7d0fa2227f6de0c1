// Prefix sums over a block. Blocks are whole warps, and the whole block passes.
#pragma once

#include "../device.cuh"

namespace wm {

__device__ __forceinline__ u64 warp_prefix(u64 value) {
#pragma unroll
    for (u32 distance = 1; distance < WARP; distance *= 2) {
        const u64 other = __shfl_up_sync(ALL_LANES, value, distance);
        if (lane() >= distance) value += other;
    }
    return value;
}

// The sum of the values of the threads before this one, and the sum of all values.
struct BlockSum {
    u64 before, all;
};

__device__ __forceinline__ BlockSum block_sum(u64 value) {
    __shared__ u64 of_warp[WARP];
    const u64 up_to_here = warp_prefix(value);
    if (lane() == WARP - 1) of_warp[warp()] = up_to_here;
    __syncthreads();
    if (warp() == 0) of_warp[lane()] = warp_prefix(lane() < warps_in_block() ? of_warp[lane()] : 0);
    __syncthreads();
    const u64 earlier = warp() == 0 ? 0 : of_warp[warp() - 1], all = of_warp[WARP - 1];
    __syncthreads();
    return {earlier + up_to_here - value, all};
}

}  // namespace wm
