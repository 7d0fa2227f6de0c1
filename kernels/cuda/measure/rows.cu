// Kernels of `bench wholememory` besides those of the library that it measures: known contents for
// a table, a check of rows that came from it, and plain gather and scatter, which measure the
// bandwidth of the links for a kernel.
//
// A table here has the same number of rows at every rank; a row is a power of two of words of 16
// bytes.
#include "../device.cuh"

namespace wm {

// Word `index` of a table. Neighbours and salts differ in all bits.
__device__ __forceinline__ u64 content(u64 salt, u64 index) {
    const u64 mixed = (index + 1) * 0x9e3779b97f4a7c15ull ^ salt * 0xd6e8feb86659fd93ull;
    return mixed ^ (mixed >> 29);
}

constexpr u32 UNDER_WAY = 4;

// Moves words of rows between a table and packed memory. Each thread has four loads under way.
template <bool FROM_TABLE>
__device__ __forceinline__ void move_words(u64 packed, const u64* bases, u32 rows_each, const i64* numbers, u64 count,
                                           u32 shift) {
    const u64 words = count << shift, mask = (1ull << shift) - 1;
    const u64 threads = blocks_in_grid() * threads_in_block();
    const u64 thread = block_in_grid() * threads_in_block() + thread_in_block();
    for (u64 first = thread; first < words; first += UNDER_WAY * threads) {
        Word16 word[UNDER_WAY];
        u64 to[UNDER_WAY];
        bool live[UNDER_WAY];
#pragma unroll
        for (u32 i = 0; i < UNDER_WAY; i++) {
            const u64 at = first + i * threads;
            live[i] = at < words;
            const u32 row = u32(live[i] ? numbers[at >> shift] : 0), rank = row / rows_each;
            const u64 in_table = bases[rank] + ((u64(row - rank * rows_each) << shift) + (at & mask)) * sizeof(Word16);
            const u64 in_packed = packed + at * sizeof(Word16);
            to[i] = FROM_TABLE ? in_packed : in_table;
            load_once(live[i], FROM_TABLE ? in_table : in_packed, word[i]);
        }
#pragma unroll
        for (u32 i = 0; i < UNDER_WAY; i++) store_once(live[i], to[i], word[i]);
    }
}

}  // namespace wm

/// Sets `words` words to those of a table from its word `first` on.
extern "C" __global__ void wm_write_table(u64* memory, u64 words, u64 first, u64 salt) {
    for (u64 i : wm::share_of(words)) memory[i] = wm::content(salt, first + i);
}

/// Adds to `*wrong` the number of words, of `count` rows of `row_words`, that are not those of the
/// rows named.
extern "C" __global__ void wm_check_rows(const u64* rows, const i64* numbers, u64 count, u64 row_words, u64 salt,
                                         u64* wrong) {
    u64 found = 0;
    for (u64 i : wm::share_of(count * row_words)) {
        const u64 row = u64(numbers[i / row_words]);
        found += rows[i] != wm::content(salt, row * row_words + i % row_words);
    }
    if (found != 0) atomicAdd(wrong, found);
}

/// Copies row `numbers[i]` of a table to row `i` of `output`, for `count` rows of 16 << `shift`
/// bytes. Rank r's rows, of which it has `rows_each`, begin at `bases[r]`.
extern "C" __global__ void wm_plain_gather(void* output, const u64* bases, u32 rows_each, const i64* numbers, u64 count,
                                           u32 shift) {
    wm::move_words<true>(reinterpret_cast<u64>(output), bases, rows_each, numbers, count, shift);
}

/// Copies row `i` of `input` to row `numbers[i]` of a table; as above.
extern "C" __global__ void wm_plain_scatter(const void* input, const u64* bases, u32 rows_each, const i64* numbers,
                                            u64 count, u32 shift) {
    wm::move_words<false>(reinterpret_cast<u64>(input), bases, rows_each, numbers, count, shift);
}
