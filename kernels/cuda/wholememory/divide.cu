// Divides row numbers by the island that has the row: ranks that map each other's memory. Numbers
// of this rank's island stay in their places, to be gathered or scattered at once. The others are
// brought together by island, with the positions that they came from, to be sent there.
//
// A row is named by its number among the rows of its island: the island's ranks, one after the
// other.
//
// In two launches: count the numbers of each island; move each to a free place among those of its
// island. The order within an island is any one, and may differ from launch to launch.
//
// Blocks are of 256 threads. A tile is 1024 numbers.
#include "block.cuh"
#include "islands.cuh"

namespace wm {

constexpr u32 DIVIDE_THREADS = 256;
constexpr u32 DIVIDE_RUN = 4;
constexpr u64 DIVIDE_TILE = DIVIDE_THREADS * DIVIDE_RUN;
typedef u32 IslandCounts[MOST_ISLANDS];

// How many numbers of each island a tile has; the first place of each island's numbers, and how
// many of these places were taken before the tile.
struct DividedTile {
    IslandCounts counts;
    u64 places[MOST_ISLANDS];
    u64 taken[MOST_ISLANDS];
};

// This number's place among those of its island in the tile, from 0. The whole warp passes.
__device__ __forceinline__ u32 place_in_tile(IslandCounts& counts, bool is_sent, u32 island) {
    const u32 alike = lanes_alike<ISLAND_BITS + 1>(is_sent ? island : NO_ISLAND);
    const u32 before = alike & ((1u << lane()) - 1);
    u32 first = 0;
    if (is_sent && before == 0) first = atomicAdd(&counts[island], ones(alike));
    u32 leader = 0;
    while ((alike >> leader & 1) == 0) leader++;
    return __shfl_sync(ALL_LANES, first, int(leader)) + ones(before);
}

}  // namespace wm

/// Adds to `counts[island]` how many numbers have a row of that island; of this rank's own, too.
/// Blocks of 256 threads.
extern "C" __global__ void wm_divide_count(wm::Numbers numbers, wm::IslandRows rows, u64* counts) {
    WM_SHARED_ARRAY(wm::IslandCounts, of_block);
    for (u32 i = wm::thread_in_block(); i < rows.count; i += wm::threads_in_block()) of_block[i] = 0;
    __syncthreads();
    for (u64 tile = wm::block_in_grid(); tile * wm::DIVIDE_TILE < numbers.count; tile += wm::blocks_in_grid()) {
#pragma unroll 1
        for (u32 i = 0; i < wm::DIVIDE_RUN; i++) {
            const u64 at = tile * wm::DIVIDE_TILE + i * wm::DIVIDE_THREADS + wm::thread_in_block();
            u32 island;
            rows.find(at < numbers.count ? numbers.at(at) : -1, island);
            wm::place_in_tile(of_block, island != wm::NO_ISLAND, island);
        }
    }
    __syncthreads();
    for (u32 i = wm::thread_in_block(); i < rows.count; i += wm::threads_in_block()) {
        if (of_block[i] != 0) atomicAdd(counts + i, u64(of_block[i]));
    }
}

/// `own[i]` becomes number `i`'s row in this rank's island, or -1 if it is another island's or no
/// row. The rows of the other islands are written to `sent`, those of one island behind those of
/// the islands before it, and to `positions` where each was. `counts` are those of
/// `wm_divide_count`; `cursors`, one an island, begin with 0. `own` and `sent` have numbers of
/// `row_bytes` bytes, `positions` of `position_bytes`. Blocks of 256 threads.
extern "C" __global__ void wm_divide_move(wm::Numbers numbers, wm::IslandRows rows, const u64* counts, u64* cursors,
                                          void* own, void* sent, u32 row_bytes, void* positions, u32 position_bytes) {
    WM_SHARED_ARRAY(wm::DividedTile, shared);
    const u32 thread = wm::thread_in_block();
    u64 behind = 0;  // the places of the islands before
    for (u32 first = 0; first < rows.count; first += wm::DIVIDE_THREADS) {
        const u32 island = first + thread;
        const bool is_sent = island < rows.count && island != rows.own;
        const wm::BlockSum sum = wm::block_sum(is_sent ? counts[island] : 0);
        if (island < rows.count) shared.places[island] = behind + sum.before;
        behind += sum.all;
    }
    for (u64 tile = wm::block_in_grid(); tile * wm::DIVIDE_TILE < numbers.count; tile += wm::blocks_in_grid()) {
        for (u32 i = thread; i < rows.count; i += wm::DIVIDE_THREADS) shared.counts[i] = 0;
        __syncthreads();
        u64 found[wm::DIVIDE_RUN];
        u32 islands[wm::DIVIDE_RUN], places[wm::DIVIDE_RUN];
        const u64 first = tile * wm::DIVIDE_TILE + thread;
#pragma unroll
        for (u32 i = 0; i < wm::DIVIDE_RUN; i++) {
            const u64 at = first + i * wm::DIVIDE_THREADS;
            found[i] = rows.find(at < numbers.count ? numbers.at(at) : -1, islands[i]);
            const bool is_sent = islands[i] != wm::NO_ISLAND && islands[i] != rows.own;
            places[i] = wm::place_in_tile(shared.counts, is_sent, islands[i]);
            const i64 mine = islands[i] == rows.own ? i64(found[i]) : -1;
            if (at < numbers.count) wm::store_index(own, row_bytes, at, mine);
            if (!is_sent) islands[i] = wm::NO_ISLAND;
        }
        __syncthreads();
        // A block takes places for all its numbers of an island at once.
        for (u32 i = thread; i < rows.count; i += wm::DIVIDE_THREADS) {
            const u32 count = shared.counts[i];
            if (count != 0) shared.taken[i] = atomicAdd(cursors + i, u64(count));
        }
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < wm::DIVIDE_RUN; i++) {
            if (islands[i] == wm::NO_ISLAND) continue;
            const u64 to = shared.places[islands[i]] + shared.taken[islands[i]] + places[i];
            wm::store_index(sent, row_bytes, to, i64(found[i]));
            wm::store_index(positions, position_bytes, to, i64(first + i * wm::DIVIDE_THREADS));
        }
        __syncthreads();
    }
}
