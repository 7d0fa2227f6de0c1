// Kernels of `bench wholememory` besides those of the library that it measures: known contents for
// a table, a check of rows that came from it, and plain gather and scatter, which measure the
// bandwidth of the links for a kernel.
//
// A table here has the same number of rows at every rank. A row that the plain kernels move is a
// power of two of words of 16 bytes.
#include "../device.cuh"

namespace wm {

// wholememory_dtype_t.
enum Kind : u32 { FLOAT = 1, HALF = 2, DOUBLE = 3, BF16 = 4, INT = 5, INT64 = 6, INT16 = 7, INT8 = 8 };

// The value of element `index` of a table, of `bits` bits. Neighbours and salts differ in all bits.
__device__ __forceinline__ u32 content(u64 salt, u64 index, u32 bits) {
    const u64 mixed = (index + 1) * 0x9e3779b97f4a7c15ull ^ salt * 0xd6e8feb86659fd93ull;
    return u32((mixed ^ (mixed >> 29)) >> 29) >> (32 - bits);
}

// The bits of the value as an element of a type, which has it exactly.
__device__ __forceinline__ u64 element(u32 value, u32 kind) {
    switch (kind) {
        case FLOAT:
            return bits_of(f32(value));
        case HALF:
            return f16_from(f32(value));
        case DOUBLE:
            return bits_of(f64(value));
        case BF16:
            return bf16_from(f32(value));
        default:
            return value;
    }
}

// Elements of a kind, which are `W`s.
template <class W>
__device__ __forceinline__ void write_elements(void* memory, u64 count, u64 first, u64 salt, u32 kind, u32 bits) {
    for (u64 i : share_of(count)) static_cast<W*>(memory)[i] = W(element(content(salt, first + i, bits), kind));
}

template <class W>
__device__ __forceinline__ u64 wrong_elements(const void* rows, const i64* numbers, u64 count, u64 columns, u64 salt,
                                              u32 kind, u32 bits) {
    u64 wrong = 0;
    for (u64 i : share_of(count * columns)) {
        const u64 place = u64(numbers[i / columns]) * columns + i % columns;
        wrong += static_cast<const W*>(rows)[i] != W(element(content(salt, place, bits), kind));
    }
    return wrong;
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
            load_again(live[i], FROM_TABLE ? in_table : in_packed, word[i]);
        }
#pragma unroll
        for (u32 i = 0; i < UNDER_WAY; i++) store_once(live[i], to[i], word[i]);
    }
}

}  // namespace wm

/// Sets `count` elements of a type (wholememory_dtype_t) to those of a table from its element
/// `first` on. Their values are whole numbers of `bits` bits (1 to 32), which the type has exactly.
extern "C" __global__ void wm_write_table(void* memory, u64 count, u64 first, u64 salt, u32 kind, u32 bits) {
    switch (kind) {
        case wm::DOUBLE:
        case wm::INT64:
            return wm::write_elements<u64>(memory, count, first, salt, kind, bits);
        case wm::FLOAT:
        case wm::INT:
            return wm::write_elements<u32>(memory, count, first, salt, kind, bits);
        case wm::INT8:
            return wm::write_elements<u8>(memory, count, first, salt, kind, bits);
        default:
            return wm::write_elements<u16>(memory, count, first, salt, kind, bits);
    }
}

/// Adds to `*wrong` the number of elements of a type, of `count` rows of `columns`, whose values
/// are not those of the rows named.
extern "C" __global__ void wm_check_rows(const void* rows, const i64* numbers, u64 count, u64 columns, u64 salt,
                                         u32 kind, u32 bits, u64* wrong) {
    u64 found = 0;
    switch (kind) {
        case wm::DOUBLE:
        case wm::INT64:
            found = wm::wrong_elements<u64>(rows, numbers, count, columns, salt, kind, bits);
            break;
        case wm::FLOAT:
        case wm::INT:
            found = wm::wrong_elements<u32>(rows, numbers, count, columns, salt, kind, bits);
            break;
        case wm::INT8:
            found = wm::wrong_elements<u8>(rows, numbers, count, columns, salt, kind, bits);
            break;
        default:
            found = wm::wrong_elements<u16>(rows, numbers, count, columns, salt, kind, bits);
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
