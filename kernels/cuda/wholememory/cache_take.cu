// Takes rows that a cache has lines of, before a gather asks the islands for the others.
//
// It reads as a gather through the cache does (cache.cuh says why no byte is wrong): a line whose
// tag has changed meanwhile counts as none, and the gather behind it writes that row again.
#include "arrived.cuh"

namespace wm {

// Copies the lines that the lanes have found (0: none) to the packed rows from place `first` on.
// The whole warp passes.
template <class W>
__device__ __forceinline__ void take_lines(const ArrivedRows& rows, u64 line_of_lane, u64 first) {
    const u64 words = rows.bytes / sizeof(W);
    u32 lanes = 1;
    while (lanes < WARP && lanes < words) lanes *= 2;
    const u32 groups = WARP / lanes;
#pragma unroll 1
    for (u32 turn = 0; turn < lanes; turn++) {
        const u32 in_batch = turn * groups + lane() / lanes;
        const u64 line = __shfl_sync(ALL_LANES, line_of_lane, int(in_batch)), to = rows.packed.row(first + in_batch);
        if (line == 0) continue;
        for (u64 at = lane() % lanes; at < words; at += lanes) {
            W word = {};
            load_relaxed(true, line + at * sizeof(W), word);
            store_once(true, to + at * sizeof(W), word);
        }
    }
}

}  // namespace wm

/// Moves the rows that have a line to their packed places. `missed[i]` becomes -1 for these, and
/// number `i` for the others, of which the rows below `rows_in_table` get their places kept. Blocks
/// are whole warps.
extern "C" __global__ void wm_cache_take(wm::ArrivedRows rows, u64 rows_in_table, wm::CacheTables cache, i64* missed) {
    const u32 warps = wm::threads_in_block() / wm::WARP;
    if (wm::warp() >= warps) return;
    const u64 step = wm::blocks_in_grid() * warps * wm::WARP;
    for (u64 first = (wm::block_in_grid() * warps + wm::warp()) * wm::WARP; first < rows.numbers.count; first += step) {
        const u64 place = first + wm::lane();
        const bool is_mine = place < rows.numbers.count;
        const i64 number = is_mine ? rows.numbers.at(place) : -1;
        const bool is_row = number >= 0 && u64(number) < rows_in_table;
        const wm::Hit hit = wm::look_up(cache, is_row, u64(number));
        bool is_taken = false;
        if (wm::any_lane(hit.tag != 0)) {
            wm::fence_acq_rel();
            __syncwarp();
            if (rows.width == 16) {
                wm::take_lines<wm::Word16>(rows, hit.line, first);
            } else if (rows.width >= 4) {
                wm::take_lines<u32>(rows, hit.line, first);
            } else {
                wm::take_lines<u8>(rows, hit.line, first);
            }
            wm::fence_acq_rel();
            __syncwarp();
            is_taken = hit.tag != 0 && wm::version_of(wm::load_word(hit.tag)) == hit.version;
        }
        if (is_mine) missed[place] = is_taken ? -1 : number;
        if (is_row && !is_taken && rows.slots != nullptr) rows.keep(u64(number), u32(place));
    }
}
