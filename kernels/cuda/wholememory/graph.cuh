// A graph in compressed sparse rows, whose arrays are tables: the neighbours of node n are the
// entries row_ptr[n] to row_ptr[n + 1] - 1 of `col`, and an edge's number is its place there.
#pragma once

#include "table.cuh"

namespace wm {

// The neighbours of one node.
struct Neighbors {
    i64 first;
    u64 count;
};

// A node that the graph does not have, has none; so has one whose row ends before it begins.
__device__ __forceinline__ Neighbors neighbors_of(const Table& row_ptr, i64 node) {
    const u64 first = row_ptr.row(node), last = node < 0 ? 0 : row_ptr.row(node + 1);
    if (first == 0 || last == 0) return {0, 0};
    const i64 begin = *reinterpret_cast<const i64*>(first), end = *reinterpret_cast<const i64*>(last);
    return {begin, end > begin ? u64(end - begin) : 0};
}

// Where samples go; each array may be null.
struct Samples {
    const Table& col;
    u32 col_bytes;
    void* destinations;
    i32* centers;
    i64* edges;

    // The sample at `at` is the edge `edge` of the center number `center`.
    __device__ __forceinline__ void put(u64 at, u64 center, i64 edge) const {
        if (destinations != nullptr) {
            const u64 address = col.row(edge);
            const i64 node = address == 0 ? -1 : load_index(reinterpret_cast<const void*>(address), col_bytes, 0);
            store_index(destinations, col_bytes, at, node);
        }
        if (centers != nullptr) centers[at] = i32(center);
        if (edges != nullptr) edges[at] = edge;
    }
};

}  // namespace wm
