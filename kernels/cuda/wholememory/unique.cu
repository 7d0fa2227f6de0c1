// Appends to a list of target nodes the neighbours that are not in it, each once, in the order in
// which they first come; and says of each neighbour where in the list it is.
//
// Targets and neighbours are one sequence of positions, the targets first. A hash table in device
// memory (open addressing, linear probing) has each node with its first position. A neighbour that
// is at its node's first position is new; its number is the targets' count plus how many new ones
// come before it. So the result does not depend on the order in which threads run.
//
// In launches: clear; insert targets; insert neighbours; mark; the two of scan.cu over the marks;
// number.
//
// Rules: `capacity` is a power of two, more than there are targets and neighbours (twice as many is
// a good size), and those are fewer than 2^31. No node is -2^63.
#include "hash.cuh"
#include "table.cuh"

namespace wm {

constexpr u64 NO_NODE = 1ull << 63;
constexpr u32 NO_POSITION = 0xffffffffu;

/// A hash table of nodes, of `capacity` slots: in each a node, and its first position.
struct NodeMap {
    u64* nodes;
    u32* positions;
    u64 capacity;

    __device__ __forceinline__ u64 first_slot(u64 node) const {
        return hash_of(node) & (capacity - 1);
    }

    __device__ __forceinline__ void insert(u64 node, u32 position) const {
        for (u64 slot = first_slot(node), tries = 0; tries < capacity; tries++, slot = (slot + 1) & (capacity - 1)) {
            u64 found = nodes[slot];
            if (found == NO_NODE) found = atomicCAS(nodes + slot, NO_NODE, node);
            if (found != NO_NODE && found != node) continue;
            atomicMin(positions + slot, position);
            return;
        }
    }

    // Of a node that was inserted by an earlier launch.
    __device__ __forceinline__ u32 position_of(u64 node) const {
        u64 slot = first_slot(node);
        for (u64 tries = 0; tries < capacity && nodes[slot] != node; tries++) slot = (slot + 1) & (capacity - 1);
        return positions[slot];
    }
};

}  // namespace wm

/// Empties a hash table.
extern "C" __global__ void wm_unique_clear(wm::NodeMap map) {
    for (u64 slot : wm::share_of(map.capacity)) {
        map.nodes[slot] = wm::NO_NODE;
        map.positions[slot] = wm::NO_POSITION;
    }
}

/// Inserts nodes, at the positions `first_position` on: 0 for the targets, their number for the
/// neighbours.
extern "C" __global__ void wm_unique_insert(wm::NodeMap map, wm::Numbers nodes, u64 first_position) {
    for (u64 i : wm::share_of(nodes.count)) map.insert(u64(nodes.at(i)), u32(first_position + i));
}

/// `marks[i]` becomes 1 where neighbour `i` is the first of its node and none of the `targets`
/// targets, else 0.
extern "C" __global__ void wm_unique_mark(wm::NodeMap map, wm::Numbers neighbors, u64 targets, i32* marks) {
    for (u64 i : wm::share_of(neighbors.count)) marks[i] = map.position_of(u64(neighbors.at(i))) == targets + i;
}

/// Writes the list to `unique`: the targets, then each new neighbour; and to `mapping`, if it is
/// not null, the place in the list of each neighbour. `sums` are the exclusive sums of
/// `wm_unique_mark`'s marks; the last one, one more than there are neighbours, is the number of new
/// ones. Targets, neighbours and list have numbers of the same size.
extern "C" __global__ void wm_unique_number(wm::NodeMap map, wm::Numbers targets, wm::Numbers neighbors,
                                            const i32* sums, void* unique, i32* mapping) {
    for (u64 i : wm::share_of(targets.count)) wm::store_index(unique, neighbors.bytes, i, targets.at(i));
    for (u64 i : wm::share_of(neighbors.count)) {
        const i64 node = neighbors.at(i);
        const u64 position = map.position_of(u64(node));
        const u64 place = position < targets.count ? position : targets.count + u64(sums[position - targets.count]);
        if (position == targets.count + i) wm::store_index(unique, neighbors.bytes, place, node);
        if (mapping != nullptr) mapping[i] = i32(place);
    }
}
