// Uniform sampling of neighbours without replacement.
//
// Which neighbours a seed gives is part of the interface; it does not depend on the launch. For at
// most M samples, with N > M neighbours of center i:
//
// * M up to 1024: there are T generators (`generators_for`), number j of the subsequence i * T + j.
//   Step s of M takes the next draw of generator s % T, modulo N - s, as the place in a list of the
//   neighbours that are left: it removes the neighbour there and moves the list's last entry to
//   that place. Samples are in the order of the steps.
// * More: slot s of M begins with neighbour s. Generator j of 32, of the subsequence i * 32 + j,
//   draws for the neighbours M + j, M + j + 32, ...: a draw modulo (the neighbour's number + 1)
//   below M is a slot, and of the neighbours that get one slot the last one keeps it.
//
// With N up to M, and with M 0 or less, all neighbours are samples, in their order.
//
// A warp has a center. Blocks are whole warps, of 256 threads at most.
#include "graph.cuh"
#include "random.cuh"

namespace wm {

constexpr u32 MOST_STEPS = 1024;
constexpr u32 SAMPLING_WARPS = 8;
typedef u32 Places[SAMPLING_WARPS][MOST_STEPS];

__device__ __forceinline__ u32 generators_for(u32 samples) {
    const u32 size = (samples - 1) / 32;
    return size < 3 ? 32 : size < 6 ? 64 : size < 12 ? 128 : 256;
}

// `draw` is below 2^31.
__device__ __forceinline__ u32 modulo(u32 draw, u64 limit) { return limit >> 31 != 0 ? draw : draw % u32(limit); }

// The list's entry at the place that step `step` chose. `places` has the places of all steps. The
// entry that a step moved into a place came from the end of the list as it was then, where an
// earlier step may have put another, and so on.
__device__ __forceinline__ u64 picked(const u32* places, u32 step, u64 neighbors) {
    u64 place = places[step];
    for (u32 i = step; i-- > 0;)
        if (places[i] == place) place = neighbors - i - 1;
    return place;
}

struct UniformSampling {
    u64 center, seed;
    u32 most;
    Neighbors neighbors;
    u64 out;
    const Samples& samples;

    __device__ __forceinline__ void take_all() const {
        for (u64 i = lane(); i < neighbors.count; i += WARP) samples.put(out + i, center, neighbors.first + i64(i));
    }

    __device__ __forceinline__ void pick(u32* places) const {
        const u32 generators = generators_for(most);
        for (u32 j = lane(); j < generators && j < most; j += WARP) {
            Pcg generator(seed, center * generators + j);
            for (u32 step = j; step < most; step += generators)
                places[step] = modulo(generator.positive_i32(), neighbors.count - step);
        }
        __syncwarp();
        for (u32 step = lane(); step < most; step += WARP)
            samples.put(out + step, center, neighbors.first + i64(picked(places, step, neighbors.count)));
        __syncwarp();  // before the next center's places
    }

    __device__ __forceinline__ void fill_reservoir() const {
        i64* slots = samples.edges + out;
        for (u32 slot = lane(); slot < most; slot += WARP) slots[slot] = slot;
        __syncwarp();
        Pcg generator(seed, center * WARP + lane());
        for (u64 i = most + lane(); i < neighbors.count; i += WARP) {
            const u32 slot = modulo(generator.positive_i32(), i + 1);
            if (slot < most) atomicMax(slots + slot, i64(i));
        }
        __syncwarp();
        for (u32 slot = lane(); slot < most; slot += WARP)
            samples.put(out + slot, center, neighbors.first + slots[slot]);
    }
};

}  // namespace wm

/// `counts[i]` becomes the number of samples of node `nodes[i]`: its neighbours, `most` at most if
/// that is more than 0. The graph's row pointers are i64. A node that is negative or not in the
/// graph has none.
extern "C" __global__ void wm_count_samples(wm::Table row_ptr, wm::Numbers nodes, i32 most, i32* counts) {
    for (u64 i : wm::share_of(nodes.count)) {
        const u64 neighbors = wm::neighbors_of(row_ptr, nodes.at(i)).count;
        counts[i] = most > 0 && neighbors > u64(most) ? most : i32(neighbors);
    }
}

/// Samples neighbours. The output `edges` is not null where `most` is more than 1024. Blocks are
/// whole warps, of 256 threads at most.
extern "C" __global__ void wm_sample_uniform(wm::Sampling all) {
    WM_SHARED_ARRAY(wm::Places, places);
    const u32 warps = wm::threads_in_block() / wm::WARP;
    if (wm::warp() >= warps || warps > wm::SAMPLING_WARPS) return;
    const u32 most = all.most > 0 ? u32(all.most) : 0;
    for (u64 i = wm::block_in_grid() * warps + wm::warp(); i < all.nodes.count; i += wm::blocks_in_grid() * warps) {
        const wm::Neighbors neighbors = all.neighbors(i);
        const wm::UniformSampling sampling = {i, all.seed, most, neighbors, all.place(i), all.samples};
        if (most == 0 || neighbors.count <= most) {
            sampling.take_all();
        } else if (most <= wm::MOST_STEPS) {
            sampling.pick(places[wm::warp()]);
        } else {
            sampling.fill_reservoir();
        }
    }
}
