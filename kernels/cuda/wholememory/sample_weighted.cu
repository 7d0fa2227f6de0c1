// Weighted sampling of neighbours without replacement (A-Res): each neighbour gets a key, the
// logarithm of a random number divided by its weight, and the largest keys are taken.
//
// Which neighbours a seed gives is part of the interface. A block of T threads has a center i;
// thread j is generator j of the subsequence i * T + j and draws for the neighbours j, j + T, ... .
// So the samples depend on T: it is 128 for up to 256 samples and 256 for more, to draw as others
// do. With N up to M neighbours, and with M 0 or less, all are samples. Samples are in the order of
// their edges; of equal keys the first neighbours' are taken.
//
// The M-th largest key is found by its digits, most significant first. Keys of many neighbours are
// computed again for each digit: three of eight are enough as a rule.
#include "block.cuh"
#include "convert.cuh"
#include "graph.cuh"
#include "random.cuh"

namespace wm {

/// The weights of edges, f32 or f64 as the table's stride says: of edge `e` in row `e`. If `places`
/// is not null, the table has weights of some nodes alone, those of node `i` from row `places[i]`
/// on.
struct Weights {
    Table table;
    const i64* places;
    u64 edges;  // an edge's number is below it

    // The address of an edge's weight, whose row is `ahead` of the edge's number; 0 for an edge
    // that is negative or not in the graph.
    __device__ __forceinline__ u64 of(i64 edge, i64 ahead) const {
        return u64(edge) < edges ? table.row(edge + ahead) : 0;
    }
};

constexpr u64 KEPT_KEYS = 2048;
constexpr u32 DIGIT_BITS = 8;
constexpr u32 DIGITS = 1 << DIGIT_BITS;

// The shared memory of a block.
struct BlockKeys {
    u64 kept[KEPT_KEYS];
    u32 counts[DIGITS];  // of keys, by one digit
};

// In the order of the numbers.
__device__ __forceinline__ u64 sortable(f64 key) {
    const u64 bits = bits_of(key);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

// The keys of one center's neighbours, as each thread draws its own.
struct Keys {
    const Weights& weights;
    Neighbors neighbors;
    i64 ahead;  // of an edge's number is the row of its weight
    u64 seed, subsequence;
    BlockKeys& block;

    __device__ __forceinline__ u64 draw(Pcg& generator, u64 neighbor) const {
        const u64 weight = weights.of(neighbors.first + i64(neighbor), ahead);
        const f32 logarithm = generator.log2_of_uniform();
        if (weight == 0) return 0;
        if (weights.table.stride == 8) return sortable(1.0 / at_address<const f64>(weight) * logarithm);
        return sortable(f64(1.0f / at_address<const f32>(weight) * logarithm));
    }

    __device__ __forceinline__ bool are_kept() const { return neighbors.count <= KEPT_KEYS; }

    __device__ __forceinline__ void draw_all() const {
        Pcg generator(seed, subsequence);
        for (u64 i = thread_in_block(); i < neighbors.count; i += threads_in_block()) block.kept[i] = draw(generator, i);
    }

    // The key of `neighbor`, one of this thread's; they are asked for in order.
    __device__ __forceinline__ u64 next(Pcg& generator, u64 neighbor) const {
        return are_kept() ? block.kept[neighbor] : draw(generator, neighbor);
    }
};

// Keys above `floor` are taken, and of those that equal it the first `equal`.
struct Threshold {
    u64 floor, equal;
};

// One digit of the M-th largest key: those with the digits `prefix` above it are counted by it.
__device__ __forceinline__ void count_digits(const Keys& keys, u64 prefix, u32 shift, u32* counts) {
    for (u32 digit = thread_in_block(); digit < DIGITS; digit += threads_in_block()) counts[digit] = 0;
    __syncthreads();
    Pcg generator(keys.seed, keys.subsequence);
    for (u64 i = thread_in_block(); i < keys.neighbors.count; i += threads_in_block()) {
        const u64 key = keys.next(generator, i);
        const bool is_candidate = shift + DIGIT_BITS == 64 || key >> (shift + DIGIT_BITS) == prefix;
        if (is_candidate) atomicAdd(counts + (key >> shift & (DIGITS - 1)), 1u);
    }
    __syncthreads();
}

__device__ __forceinline__ Threshold find_threshold(const Keys& keys, u32 samples) {
    u32* counts = keys.block.counts;
    u64 prefix = 0;
    u32 wanted = samples, shift = 64;
    while (shift != 0) {
        shift -= DIGIT_BITS;
        count_digits(keys, prefix, shift, counts);
        u32 digit = DIGITS - 1;
        for (; counts[digit] < wanted; digit--) wanted -= counts[digit];
        prefix = prefix << DIGIT_BITS | digit;
        const bool is_whole = counts[digit] == wanted;
        __syncthreads();
        if (is_whole && prefix != 0) return {(prefix << shift) - 1, 0};
    }
    return {prefix, wanted};
}

__device__ __forceinline__ void take_largest(const Keys& keys, Threshold threshold, u64 out, u64 center,
                                             const Samples& samples) {
    Pcg generator(keys.seed, keys.subsequence);
    u64 above_before = 0, equal_before = 0;
    for (u64 first = 0; first < keys.neighbors.count; first += threads_in_block()) {
        const u64 i = first + thread_in_block();
        const u64 key = i < keys.neighbors.count ? keys.next(generator, i) : 0;
        const u64 above = key > threshold.floor, equal = i < keys.neighbors.count && key == threshold.floor;
        const BlockSum sum = block_sum(equal << 32 | above);
        const u64 ties = equal_before + (sum.before >> 32), taken = ties < threshold.equal ? ties : threshold.equal;
        const u64 at = out + above_before + u32(sum.before) + taken;
        if (above || (equal && ties < threshold.equal)) samples.put(at, center, keys.neighbors.first + i64(i));
        above_before += u32(sum.all);
        equal_before += sum.all >> 32;
    }
}

}  // namespace wm

/// As `wm_sample_uniform`, with a weight for each edge. None of the outputs is needed by itself.
/// Blocks of 128 threads where `most` is up to 256, else of 256.
extern "C" __global__ void wm_sample_weighted(wm::Sampling all, wm::Weights weights) {
    WM_SHARED_ARRAY(wm::BlockKeys, block);
    const u32 thread = wm::thread_in_block(), threads = wm::threads_in_block();
    for (u64 i = wm::block_in_grid(); i < all.nodes.count; i += wm::blocks_in_grid()) {
        const wm::Neighbors neighbors = all.neighbors(i);
        const u64 out = all.place(i);
        if (all.most <= 0 || neighbors.count <= u64(all.most)) {
            for (u64 j = thread; j < neighbors.count; j += threads)
                all.samples.put(out + j, i, neighbors.first + i64(j));
            continue;
        }
        const i64 ahead = weights.places == nullptr ? 0 : weights.places[i] - neighbors.first;
        const wm::Keys keys = {weights, neighbors, ahead, all.seed, i * threads + thread, block};
        if (keys.are_kept()) keys.draw_all();
        const wm::Threshold threshold = wm::find_threshold(keys, u32(all.most));
        wm::take_largest(keys, threshold, out, i, all.samples);
    }
}
