// Exclusive prefix sums in two launches: the sums of tiles, then each tile's prefixes from the
// tiles before it.
#include "block.cuh"

namespace wm {

constexpr u64 SCAN_TILE = 4096;

}  // namespace wm

/// `sums[t]` becomes the sum of the values of tile `t`: 4096 values, or the rest in the last tile.
/// Blocks are whole warps.
extern "C" __global__ void wm_scan_tile_sums(const i32* values, u64 n, i64* sums) {
    for (u64 tile = wm::block_in_grid(); tile * wm::SCAN_TILE < n; tile += wm::blocks_in_grid()) {
        const u64 first = tile * wm::SCAN_TILE, end = n - first < wm::SCAN_TILE ? n : first + wm::SCAN_TILE;
        i64 mine = 0;
        for (u64 i = first + wm::thread_in_block(); i < end; i += wm::threads_in_block()) mine += values[i];
        const u64 all = wm::block_sum(u64(mine)).all;
        if (wm::thread_in_block() == 0) sums[tile] = i64(all);
    }
}

/// `output[i]` becomes the sum of the values before `i`, for `i` from 0 to `n`: `output` has one
/// entry more than `values`and may be `values`. `sums` is from `wm_scan_tile_sums`. `total`, if it
/// is not null, gets the sum of all in 64 bits: where that is more than 2^31 - 1, `output` is of no
/// use. Blocks are whole warps.
extern "C" __global__ void wm_scan_exclusive(const i32* values, u64 n, const i64* sums, i32* output, i64* total) {
    const u64 tiles = n / wm::SCAN_TILE + 1;  // the last one has fewer values, maybe none
    const u32 thread = wm::thread_in_block(), threads = wm::threads_in_block();
    for (u64 tile = wm::block_in_grid(); tile < tiles; tile += wm::blocks_in_grid()) {
        i64 earlier = 0;
        for (u64 i = thread; i < tile; i += threads) earlier += sums[i];
        i64 sum = i64(wm::block_sum(u64(earlier)).all);
        for (u64 in_tile = 0; in_tile < wm::SCAN_TILE; in_tile += threads) {
            const u64 i = tile * wm::SCAN_TILE + in_tile + thread;
            const bool is_value = in_tile + thread < wm::SCAN_TILE && i < n;
            const wm::BlockSum prefix = wm::block_sum(is_value ? u64(i64(values[i])) : 0);
            if (is_value) output[i] = i32(sum + i64(prefix.before));
            sum += i64(prefix.all);
        }
        if (tile + 1 == tiles && thread == 0) {
            output[n] = i32(sum);
            if (total != nullptr) *total = sum;
        }
    }
}
