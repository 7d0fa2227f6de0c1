// Gather and scatter of rows as bytes: the table and the packed side have the same type.
//
// Neither reads or writes beyond the table: a row number that is negative or too large leaves its
// packed row (gather) or the table (scatter) as it was. Where a scatter names a row twice, each of
// its words is that of one of the two.
#include "rows.cuh"

namespace wm {

// Words of one type, moved as they are.
template <class W, bool OUT_OF_TABLE>
struct Copy {
    typedef W Word;
    static constexpr bool FROM_TABLE = OUT_OF_TABLE;
    static constexpr bool HAS_SETS = sizeof(W) >= 4;
    static constexpr u32 table_bytes = sizeof(W), from_bytes = sizeof(W), to_bytes = sizeof(W);
    __device__ __forceinline__ void load(bool live, u64 at, W& word) const { load_once(live, at, word); }
    // What is scattered will be gathered again: it stays in L2 as anything else does.
    __device__ __forceinline__ void store(bool live, u64 at, const W& word) const {
        if (FROM_TABLE) {
            store_once(live, at, word);
        } else if (live) {
            *reinterpret_cast<W*>(at) = word;
        }
    }
};

// The same in an order that makes equal rows neighbours: what is loaded for the first is in L1 for
// the others.
template <class W, bool OUT_OF_TABLE>
struct SortedCopy : Copy<W, OUT_OF_TABLE> {
    __device__ __forceinline__ void load(bool live, u64 at, W& word) const {
        if (OUT_OF_TABLE) {
            load_again(live, at, word);
        } else {
            load_once(live, at, word);
        }
    }
};

template <bool OUT_OF_TABLE>
__device__ __forceinline__ void copy_rows(const RowSet& rows, u64 row_bytes, u32 width) {
    switch (width) {
        case 16:
            return move_rows(rows, row_bytes / 16, Copy<Word16, OUT_OF_TABLE>());
        case 8:
            return move_rows(rows, row_bytes / 8, Copy<u64, OUT_OF_TABLE>());
        case 4:
            return move_rows(rows, row_bytes / 4, Copy<u32, OUT_OF_TABLE>());
        case 2:
            return move_rows(rows, row_bytes / 2, Copy<u16, OUT_OF_TABLE>());
        default:
            return move_rows(rows, row_bytes, Copy<u8, OUT_OF_TABLE>());
    }
}

// There are walks for words of 16, 4 and 1 bytes: an image has room for no more.
template <bool OUT_OF_TABLE>
__device__ __forceinline__ void copy_ordered_rows(const RowSet& rows, u64 row_bytes, u32 width) {
    if (width == 16) return move_ordered_rows(rows, row_bytes / 16, SortedCopy<Word16, OUT_OF_TABLE>());
    if (width >= 4) return move_ordered_rows(rows, row_bytes / 4, SortedCopy<u32, OUT_OF_TABLE>());
    move_ordered_rows(rows, row_bytes, SortedCopy<u8, OUT_OF_TABLE>());
}

}  // namespace wm

/// Copies row `indices[i]` of the table, `row_bytes` long, to row `i` of `output`, for `count`
/// rows. The rows are `stride` and `output_stride` bytes apart. `index_bytes` is 4 or 8. A number
/// that is negative, or `rows_in_table` or more, leaves its output row as it is. `width` is a power
/// of two up to 16 that divides every row's address on both sides, both strides and `row_bytes`.
/// Blocks are whole warps.
extern "C" __global__ void wm_gather_rows(u64 base, const u64* bases, const u64* starts, u32 chunks, u64 equal,
                                          u64 rows_in_table, u64 stride, u64 offset, u64 row_bytes,
                                          const void* indices, u32 index_bytes, u64 count, void* output,
                                          u64 output_stride, u32 width) {
    const wm::Table table(base, bases, starts, chunks, equal, rows_in_table, stride, offset);
    const wm::Packed packed = {reinterpret_cast<u64>(output), output_stride};
    wm::copy_rows<true>({table, indices, index_bytes, count, packed}, row_bytes, width);
}

/// Copies row `i` of `input` to row `indices[i]` of the table, for `count` rows; what
/// `wm_gather_rows` says of its parameters holds. A number that is negative or too large is
/// skipped.
extern "C" __global__ void wm_scatter_rows(u64 base, const u64* bases, const u64* starts, u32 chunks, u64 equal,
                                           u64 rows_in_table, u64 stride, u64 offset, u64 row_bytes,
                                           const void* indices, u32 index_bytes, u64 count, const void* input,
                                           u64 input_stride, u32 width) {
    const wm::Table table(base, bases, starts, chunks, equal, rows_in_table, stride, offset);
    const wm::Packed packed = {reinterpret_cast<u64>(input), input_stride};
    wm::copy_rows<false>({table, indices, index_bytes, count, packed}, row_bytes, width);
}

/// As `wm_gather_rows`, row `order[0]` of `output` first, then row `order[1]`, and so on: `order`
/// has each number below `count` once. Rows of a table on the host arrive faster in the order of
/// their addresses.
extern "C" __global__ void wm_gather_ordered_rows(u64 base, const u64* bases, const u64* starts, u32 chunks, u64 equal,
                                                  u64 rows_in_table, u64 stride, u64 offset, u64 row_bytes,
                                                  const void* indices, u32 index_bytes, u64 count, void* output,
                                                  u64 output_stride, u32 width, const u32* order) {
    const wm::Table table(base, bases, starts, chunks, equal, rows_in_table, stride, offset);
    const wm::Packed packed = {reinterpret_cast<u64>(output), output_stride};
    wm::copy_ordered_rows<true>({table, indices, index_bytes, count, packed, order}, row_bytes, width);
}

/// As `wm_scatter_rows`, in the order that `wm_gather_ordered_rows` has.
extern "C" __global__ void wm_scatter_ordered_rows(u64 base, const u64* bases, const u64* starts, u32 chunks, u64 equal,
                                                   u64 rows_in_table, u64 stride, u64 offset, u64 row_bytes,
                                                   const void* indices, u32 index_bytes, u64 count, const void* input,
                                                   u64 input_stride, u32 width, const u32* order) {
    const wm::Table table(base, bases, starts, chunks, equal, rows_in_table, stride, offset);
    const wm::Packed packed = {reinterpret_cast<u64>(input), input_stride};
    wm::copy_ordered_rows<false>({table, indices, index_bytes, count, packed, order}, row_bytes, width);
}
