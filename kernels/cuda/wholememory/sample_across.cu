// Arrays of a graph over memory that spans islands: the rows of them that a sampling needs are
// listed, and gathered into memory of this rank, where the kernels of sampling find them.
#include "block.cuh"
#include "graph.cuh"

namespace wm {

// How many weights a sampling reads of a node: none where all its neighbours are samples.
__device__ __forceinline__ u64 weights_for(const Neighbors& neighbors, i32 most) {
    return most > 0 && neighbors.count > u64(most) ? neighbors.count : 0;
}

}  // namespace wm

/// Lists the row pointers of each of the `nodes`, in a graph that has `count` of them: entries
/// `2 * i` and `2 * i + 1` of `numbers` become the number of node `i` and the next one, or -1 for a
/// node that is negative or not in the graph. The same entries of `ends` become 0, so that such a
/// node has no neighbours. In `ends`, when the row pointers are there, node `i` is `places[i]`.
extern "C" __global__ void wm_list_row_ends(wm::Numbers nodes, u64 count, i64* numbers, i64* ends, i64* places) {
    for (u64 i : wm::share_of(nodes.count)) {
        const i64 node = nodes.at(i);
        const bool is_node = node >= 0 && u64(node) + 1 < count;
        numbers[2 * i] = is_node ? node : -1;
        numbers[2 * i + 1] = is_node ? node + 1 : -1;
        ends[2 * i] = ends[2 * i + 1] = 0;
        places[i] = i64(2 * i);
    }
}

/// Gives the weights of each node that has more than `most` neighbours a place in one array:
/// `places[i]` becomes that of node `i`'s first one. `total` begins with 0 and becomes the length
/// of the array. Which node comes first is any. Blocks are whole warps.
extern "C" __global__ void wm_place_weights(wm::Table row_ptr, wm::Numbers nodes, i32 most, i64* places, u64* total) {
    __shared__ u64 first_of_block;
    const u32 thread = wm::thread_in_block(), threads = wm::threads_in_block();
    for (u64 first = wm::block_in_grid() * threads; first < nodes.count; first += wm::blocks_in_grid() * threads) {
        const u64 i = first + thread;
        const bool is_node = i < nodes.count;
        const u64 mine = is_node ? wm::weights_for(wm::neighbors_of(row_ptr, nodes.at(i)), most) : 0;
        const wm::BlockSum sum = wm::block_sum(mine);
        if (thread == 0) first_of_block = atomicAdd(total, sum.all);
        __syncthreads();
        if (is_node) places[i] = i64(first_of_block + sum.before);
        __syncthreads();  // before the next nodes' place
    }
}

/// Lists the edges whose weights have a place of `wm_place_weights`: `edges` gets their numbers.
/// Blocks are whole warps.
extern "C" __global__ void wm_list_weights(wm::Table row_ptr, wm::Numbers nodes, i32 most, const i64* places,
                                           i64* edges) {
    const u64 warps = wm::warps_in_block();
    for (u64 i = wm::block_in_grid() * warps + wm::warp(); i < nodes.count; i += wm::blocks_in_grid() * warps) {
        const wm::Neighbors neighbors = wm::neighbors_of(row_ptr, nodes.at(i));
        const u64 count = wm::weights_for(neighbors, most);
        for (u64 j = wm::lane(); j < count; j += wm::WARP) edges[places[i] + i64(j)] = neighbors.first + i64(j);
    }
}
