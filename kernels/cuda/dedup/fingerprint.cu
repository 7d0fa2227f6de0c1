// Chunks of 2 MiB: 128 bits that tell them apart, and whether two hold the same bytes.
//
// Launch: any number of blocks of 1 to 1024 threads gives the same result. The kernels are tuned
// for 256 threads, and for one block a chunk up to a few thousand blocks. No dynamic shared memory.
// Addresses are multiples of 16. The array of addresses and the chunks must be readable by the
// device and must not be written while the kernel runs. Results need no initial value.
//
// The fingerprint. A chunk is 128 rows of 1024 words of 16 bytes. Column c, word c of each row from
// the first row on, has a state of 128 bits of its own, (a, b), which begins with a number of the
// column and absorbs a word (x, y) by
//
//     a = fold((a ^ x ^ rotate(b, 23)) * M0),  b = fold((b ^ y ^ a) * M1),  fold(v) = v ^ v >> 32
//
// modulo 2^64. For a given word this is a bijection of states, and for a given state one of words:
// chunks that differ in one column, by a single word of it, always have different fingerprints.
// Every bit of a word reaches both halves, and a half's difference is multiplied before the next
// word could undo it. After the last row each column absorbs the chunk's length and its number
// again, and one constant, so that sums of columns tell nothing of their words; the fingerprint is
// the sum of the columns' states, each half for itself: the order of adding does not matter. It is
// not a cryptographic hash: a process compares all bytes of a chunk before it shares the chunk.
//
// wm_dedup::fingerprint is the same function in Rust; the meaning of each constant is there.
#include "../device.cuh"

namespace wm {

constexpr u64 CHUNK_BYTES = 2ull << 20;
constexpr u32 COLUMNS = 1024, ROWS = u32(CHUNK_BYTES / sizeof(Word16) / COLUMNS);
constexpr u64 ROW_BYTES = COLUMNS * sizeof(Word16);
// Columns that a thread has under way at a time. The CPU reads that much of each row in order: it
// would wait for each line of memory if a thread had four columns there.
#ifdef __CUDACC__
constexpr u32 AT_ONCE = 4;
#else
constexpr u32 AT_ONCE = 64;
#endif
constexpr u32 GROUPS = COLUMNS / AT_ONCE;

constexpr u64 M0 = 0x9e3779b97f4a7c15ull, M1 = 0xd6e8feb86659fd93ull;
constexpr u64 SEED_A = 0x243f6a8885a308d3ull, SEED_B = 0x13198a2e03707344ull;
constexpr u64 END_A = 0xa4093822299f31d0ull, END_B = 0x082efa98ec4e6c89ull;

// Two words of 64 bits: a state, or a word of a chunk.
struct alignas(16) Halves {
    u64 a, b;
};
typedef Halves HalvesOfGroups[GROUPS];

__device__ __forceinline__ u64 fold(u64 v) { return v ^ (v >> 32); }

__device__ __forceinline__ void absorb(Halves& state, u64 x, u64 y) {
    state.a = fold((state.a ^ x ^ (state.b << 23 | state.b >> 41)) * M0);
    state.b = fold((state.b ^ y ^ state.a) * M1);
}

__device__ __forceinline__ void absorb(Halves& state, const Word16& word) {
    absorb(state, u64(word.y) << 32 | word.x, u64(word.w) << 32 | word.z);
}

__device__ __forceinline__ Halves beginning(u32 column) {
    return {SEED_A + (column + 1) * M1, SEED_B ^ (column + 1) * M0};
}

__device__ __forceinline__ void finish(Halves& state, u32 column) {
    absorb(state, CHUNK_BYTES, column);
    absorb(state, END_A, END_B);
}

// One of the columns of a group. On a GPU neighbouring threads load neighbouring words; on the CPU
// a thread loads whole cache lines.
__device__ __forceinline__ u32 column_of(u32 group, u32 which) {
#ifdef __CUDACC__
    return group + which * GROUPS;
#else
    return group * AT_ONCE + which;
#endif
}

// The summand of a group's columns in the fingerprint of the chunk at `chunk`.
__device__ __forceinline__ Halves sum_of_group(u64 chunk, u32 group) {
    Halves state[AT_ONCE], sum = {0, 0};
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) state[i] = beginning(column_of(group, i));
#pragma unroll 2
    for (u32 row = 0; row < ROWS; row++) {
        Word16 word[AT_ONCE];
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            load_once(true, chunk + row * ROW_BYTES + column_of(group, i) * sizeof(Word16), word[i]);
        }
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) absorb(state[i], word[i]);
    }
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
        finish(state[i], column_of(group, i));
        sum.a += state[i].a, sum.b += state[i].b;
    }
    return sum;
}

// Which bits of a group's columns differ between two chunks.
__device__ __forceinline__ u32 difference_of_group(u64 one, u64 other, u32 group) {
    u32 difference = 0;
#pragma unroll 2
    for (u32 row = 0; row < ROWS; row++) {
        Word16 first[AT_ONCE], second[AT_ONCE];
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            const u64 at = row * ROW_BYTES + column_of(group, i) * sizeof(Word16);
            load_once(true, one + at, first[i]);
            load_once(true, other + at, second[i]);
        }
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            difference |= (first[i].x ^ second[i].x) | (first[i].y ^ second[i].y) | (first[i].z ^ second[i].z) |
                          (first[i].w ^ second[i].w);
        }
    }
    return difference;
}

// The sum of the values of a block's threads, in its first thread; the whole block passes. Threads
// beyond the groups have the value 0.
__device__ __forceinline__ Halves sum_of_block(Halves mine) {
    WM_SHARED_ARRAY(HalvesOfGroups, of_thread);
    const u32 thread = thread_in_block(), all = threads_in_block(), threads = all < GROUPS ? all : GROUPS;
    if (thread < threads) of_thread[thread] = mine;
    __syncthreads();
    if (thread < WARP && thread < threads) {
        for (u32 other = thread + WARP; other < threads; other += WARP) {
            mine.a += of_thread[other].a, mine.b += of_thread[other].b;
        }
        of_thread[thread] = mine;
    }
    __syncthreads();
    for (u32 other = 1; thread == 0 && other < WARP && other < threads; other++) {
        mine.a += of_thread[other].a, mine.b += of_thread[other].b;
    }
    __syncthreads();
    return mine;
}

}  // namespace wm

/// Writes the fingerprint of chunk `i` to words 2 `i` (its low half) and 2 `i` + 1 of
/// `fingerprints`, for `count` chunks at the addresses in `chunks`.
extern "C" __global__ void __launch_bounds__(1024) wm_fingerprint_chunks(const u64* chunks, u64 count, u64* fingerprints) {
    for (u64 chunk = wm::block_in_grid(); chunk < count; chunk += wm::blocks_in_grid()) {
        wm::Halves sum = {0, 0};
        for (u32 group = wm::thread_in_block(); group < wm::GROUPS; group += wm::threads_in_block()) {
            const wm::Halves more = wm::sum_of_group(chunks[chunk], group);
            sum.a += more.a, sum.b += more.b;
        }
        sum = wm::sum_of_block(sum);
        if (wm::thread_in_block() == 0) {
            fingerprints[2 * chunk] = sum.a;
            fingerprints[2 * chunk + 1] = sum.b;
        }
    }
}

/// Writes 1 to word `i` of `equal` if the chunks at words 2 `i` and 2 `i` + 1 of `pairs` have the
/// same bytes, else 0; for `count` pairs.
extern "C" __global__ void __launch_bounds__(1024) wm_compare_chunks(const u64* pairs, u64 count, u32* equal) {
    for (u64 pair = wm::block_in_grid(); pair < count; pair += wm::blocks_in_grid()) {
        u32 difference = 0;
        for (u32 group = wm::thread_in_block(); group < wm::GROUPS; group += wm::threads_in_block()) {
            difference |= wm::difference_of_group(pairs[2 * pair], pairs[2 * pair + 1], group);
        }
        const wm::Halves different = wm::sum_of_block({difference != 0, 0});
        if (wm::thread_in_block() == 0) equal[pair] = different.a == 0;
    }
}
