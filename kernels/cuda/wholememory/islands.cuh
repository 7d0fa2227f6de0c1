// Which island has a row: an island is the ranks that map each other's memory.
//
// A row is named by its number among the rows of its island: the island's ranks, one after the
// other.
#pragma once

#include "table.cuh"

namespace wm {

constexpr u32 ISLAND_BITS = 10;
constexpr u32 MOST_ISLANDS = 1 << ISLAND_BITS;
constexpr u32 NO_ISLAND = MOST_ISLANDS;

/// Which island has which rows of a table, whose chunks are those of all ranks. The chunks' bases
/// are not read.
struct IslandRows {
    Chunks chunks;
    const u64* islands;  // of each chunk
    const u64* firsts;   // the number of each chunk's first row among the rows of its island
    u64 rows;            // a row number is below it
    u64 first;           // the row of the chunks that is number 0
    u32 own;             // this rank's island
    u32 count;           // 1024 islands at most

    // The row's number in its island, which is `NO_ISLAND` for a number that is negative or not in
    // the table.
    __device__ __forceinline__ u64 find(i64 number, u32& island) const {
        island = NO_ISLAND;
        if (number < 0 || u64(number) >= rows) return 0;
        const u64 row = u64(number) + first;
        const u32 chunk = chunks.chunk_of(row);
        island = u32(islands[chunk]);
        return row - chunks.start_of(chunk) + firsts[chunk];
    }
};

}  // namespace wm
