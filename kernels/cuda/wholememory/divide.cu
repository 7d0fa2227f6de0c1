// Divides row numbers by the island that has the row: ranks that map each other's memory. Numbers
// of this rank's island stay in their places, to be gathered or scattered at once. The others are
// brought together by island, with the positions that they came from, to be sent there.
//
// A row is named by its number among the rows of its island: the island's ranks, one after the
// other.
//
// In two launches: count the numbers of each island; move each to a free place among those of its
// island. The numbers of one tile take one launch. The order within an island is any one, and may
// differ from launch to launch.
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

/// Numbers, and where they go when they are divided.
struct DividedNumbers {
    Numbers numbers;
    IslandRows rows;
    void* own;           // number `i`'s row in this rank's island, or -1 if it is another island's or no row
    void* sent;          // rows of the other islands, those of one island behind those of the islands before it
    void* positions;     // where each of them was
    void* openings;      // the first rows of each other island, too
    u64* told;           // how many rows each island has
    u64 opening_bytes;   // of an island's first rows
    u32 row_bytes;       // of a number in `own`, `sent` and `openings`
    u32 position_bytes;  // of a number in `positions`
};

// What a thread has of a tile.
struct DividedShare {
    u64 found[DIVIDE_RUN];
    u32 islands[DIVIDE_RUN];
    u32 places[DIVIDE_RUN];
};

// Finds the rows of a thread's numbers, and the places of those in the tile. The whole block
// passes.
__device__ __forceinline__ void find_share(const DividedNumbers& division, u64 first, IslandCounts& counts,
                                           DividedShare& share) {
#pragma unroll
    for (u32 i = 0; i < DIVIDE_RUN; i++) {
        const u64 at = first + i * DIVIDE_THREADS;
        const i64 number = at < division.numbers.count ? division.numbers.at(at) : -1;
        share.found[i] = division.rows.find(number, share.islands[i]);
        share.places[i] = place_in_tile(counts, share.islands[i] != NO_ISLAND, share.islands[i]);
        const bool is_own = share.islands[i] == division.rows.own;
        if (at < division.numbers.count) {
            store_index(division.own, division.row_bytes, at, is_own ? i64(share.found[i]) : -1);
        }
        if (is_own) share.islands[i] = NO_ISLAND;
    }
}

// Moves a thread's numbers of other islands to their places.
__device__ __forceinline__ void move_share(const DividedNumbers& division, u64 first, const DividedTile& tile,
                                           const DividedShare& share) {
#pragma unroll
    for (u32 i = 0; i < DIVIDE_RUN; i++) {
        const u32 island = share.islands[i];
        if (island == NO_ISLAND) continue;
        const i64 row = i64(share.found[i]);
        const u64 place = tile.taken[island] + share.places[i];
        if (place < division.opening_bytes / division.row_bytes) {
            u8* const opening = static_cast<u8*>(division.openings) + island * division.opening_bytes;
            store_index(opening, division.row_bytes, place, row);
        }
        const u64 to = tile.places[island] + place;
        store_index(division.sent, division.row_bytes, to, row);
        store_index(division.positions, division.position_bytes, to, i64(first + i * DIVIDE_THREADS));
    }
}

// Finds the first place of each island's numbers, of which there are so many. The whole block
// passes.
template <typename Counts>
__device__ __forceinline__ void place_islands(const DividedNumbers& division, const Counts& counts, DividedTile& tile) {
    const IslandRows& rows = division.rows;
    u64 behind = 0;  // the places of the islands before
    for (u32 first = 0; first < rows.count; first += DIVIDE_THREADS) {
        const u32 island = first + thread_in_block();
        const bool is_sent = island < rows.count && island != rows.own;
        const BlockSum sum = block_sum(is_sent ? u64(counts[island]) : 0);
        if (island < rows.count) tile.places[island] = behind + sum.before;
        if (island < rows.count && block_in_grid() == 0) division.told[island] = counts[island];
        behind += sum.all;
    }
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

/// Divides numbers of which each island has so many, as `wm_divide_count` found. `cursors`, one an
/// island, begin with 0. Blocks of 256 threads.
extern "C" __global__ void wm_divide_move(wm::DividedNumbers division, const u64* counts, u64* cursors) {
    WM_SHARED_ARRAY(wm::DividedTile, shared);
    const u32 thread = wm::thread_in_block();
    wm::place_islands(division, counts, shared);
    for (u64 tile = wm::block_in_grid(); tile * wm::DIVIDE_TILE < division.numbers.count; tile += wm::blocks_in_grid()) {
        for (u32 i = thread; i < division.rows.count; i += wm::DIVIDE_THREADS) shared.counts[i] = 0;
        __syncthreads();
        const u64 first = tile * wm::DIVIDE_TILE + thread;
        wm::DividedShare share;
        wm::find_share(division, first, shared.counts, share);
        __syncthreads();
        // A block takes places for all its numbers of an island at once.
        for (u32 i = thread; i < division.rows.count; i += wm::DIVIDE_THREADS) {
            const u32 count = shared.counts[i];
            if (count != 0) shared.taken[i] = atomicAdd(cursors + i, u64(count));
        }
        __syncthreads();
        wm::move_share(division, first, shared, share);
        __syncthreads();
    }
}

/// Divides the numbers of one tile. One block of 256 threads.
extern "C" __global__ void wm_divide_few(wm::DividedNumbers division) {
    WM_SHARED_ARRAY(wm::DividedTile, shared);
    const u32 thread = wm::thread_in_block();
    for (u32 i = thread; i < division.rows.count; i += wm::DIVIDE_THREADS) {
        shared.counts[i] = 0;
        shared.taken[i] = 0;
    }
    __syncthreads();
    wm::DividedShare share;
    wm::find_share(division, thread, shared.counts, share);
    __syncthreads();
    wm::place_islands(division, shared.counts, shared);
    __syncthreads();
    wm::move_share(division, thread, shared, share);
}
