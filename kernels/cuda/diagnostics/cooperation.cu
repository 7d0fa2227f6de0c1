// Threads that need each other: barriers, shared memory and shuffles. Right results here mean that
// these are real.
#include "../device.cuh"

// Adds up the warp's values; lane 0 has the sum. A partial warp must not read lanes that do not
// exist.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
    const u32 mask = wm::warp_mask(), lanes = wm::lanes_in_warp();
    for (u32 distance = wm::WARP / 2; distance > 0; distance /= 2) {
        const T other = __shfl_down_sync(mask, value, distance);
        if (wm::lane() + distance < lanes) value += other;
    }
    return value;
}

// Inclusive prefix sums within the warp.
template <class T>
__device__ __forceinline__ T warp_scan(T value) {
    const u32 mask = wm::warp_mask();
    for (u32 distance = 1; distance < wm::WARP; distance *= 2) {
        const T other = __shfl_up_sync(mask, value, distance);
        if (wm::lane() >= distance) value += other;
    }
    return value;
}

/// Adds the sum of `n` values to `*out`, one atomic addition a block. The order of additions, and
/// so the last bits, vary.
extern "C" __global__ void wm_reduce_sum_f32(const f32* x, u64 n, f32* out) {
    __shared__ f32 partial[wm::WARP];
    f32 mine = 0;
    for (u64 i : wm::share_of(n)) mine += x[i];
    mine = warp_sum(mine);
    if (wm::lane() == 0) partial[wm::warp()] = mine;
    __syncthreads();
    if (wm::warp() != 0) return;
    const f32 total = warp_sum(wm::lane() < wm::warps_in_block() ? partial[wm::lane()] : 0.0f);
    if (wm::lane() == 0) atomicAdd(out, total);
}

/// Inclusive prefix sums (modulo 2^32) within tiles of one block's size each: `out[i]` is the sum
/// of `x` from the start of `i`'s tile to `i`. Every thread passes three barriers a tile, and
/// shared memory is used again for each tile.
extern "C" __global__ void wm_scan_tiles_u32(u32* out, const u32* x, u64 n) {
    __shared__ u32 before[wm::WARP];
    const u32 tile_size = wm::threads_in_block(), thread = wm::thread_in_block();
    for (u64 tile = wm::block_in_grid(); tile * tile_size < n; tile += wm::blocks_in_grid()) {
        const u64 i = tile * tile_size + thread;
        const u32 sum = warp_scan(i < n ? x[i] : 0u);
        if (wm::lane() + 1 == wm::lanes_in_warp()) before[wm::warp()] = sum;
        __syncthreads();
        if (wm::warp() == 0) {
            const u32 own = wm::lane() < wm::warps_in_block() ? before[wm::lane()] : 0u;
            const u32 inclusive = warp_scan(own);
            if (wm::lane() < wm::warps_in_block()) before[wm::lane()] = inclusive - own;
        }
        __syncthreads();
        if (i < n) out[i] = sum + before[wm::warp()];
        __syncthreads();
    }
}

/// Each thread `t` of the grid writes to `out[t]` its result of a shuffle of `x`. `operation` is 0
/// for the lane `operand`, 1 for up by `operand`, 2 for down, 3 for exclusive or. `x` and `out`
/// have one word a thread; blocks are whole warps.
extern "C" __global__ void wm_shuffle_u32(u32* out, const u32* x, u32 operation, u32 operand) {
    const u64 i = wm::block_in_grid() * wm::threads_in_block() + wm::thread_in_block();
    u32 value = x[i];
    if (operation == 0) value = __shfl_sync(wm::ALL_LANES, value, int(operand));
    if (operation == 1) value = __shfl_up_sync(wm::ALL_LANES, value, operand);
    if (operation == 2) value = __shfl_down_sync(wm::ALL_LANES, value, operand);
    if (operation == 3) value = __shfl_xor_sync(wm::ALL_LANES, value, int(operand));
    out[i] = value;
}
