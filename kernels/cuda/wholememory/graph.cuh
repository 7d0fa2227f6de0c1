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

/// Arrays of samples. Each of the three outputs may be null.
struct Samples {
    Table col;           // the neighbours, whose stride is that of `destinations` too: 4 or 8
    void* destinations;  // nodes
    i32* centers;        // each sample's center, as its place among the centers
    i64* edges;

    // The sample at `at` is the edge `edge` of the center number `center`.
    __device__ __forceinline__ void put(u64 at, u64 center, i64 edge) const {
        if (destinations != nullptr) {
            const u32 bytes = u32(col.stride);
            const u64 address = col.row(edge);
            const i64 node = address == 0 ? -1 : load_index(reinterpret_cast<const void*>(address), bytes, 0);
            store_index(destinations, bytes, at, node);
        }
        if (centers != nullptr) centers[at] = i32(center);
        if (edges != nullptr) edges[at] = edge;
    }
};

/// A sampling of neighbours: of each of the `nodes`, `most` at most if that is more than 0. The
/// samples of node `i` are stored from place `offsets[i]` on.
struct Sampling {
    Table row_ptr;  // i64
    Numbers nodes;
    Samples samples;
    const i32* offsets;  // exclusive sums of `wm_count_samples`
    u64 seed;
    i32 most;

    __device__ __forceinline__ Neighbors neighbors(u64 i) const { return neighbors_of(row_ptr, nodes.at(i)); }
    __device__ __forceinline__ u64 place(u64 i) const { return u64(i64(offsets[i])); }
};

}  // namespace wm
