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
    // A row that many numbers name is in L1 after the first; packed rows share lines.
    __device__ __forceinline__ void load(bool live, u64 at, W& word) const { load_again(live, at, word); }
    // A scattered row will be gathered again: it stays in L2 like other memory.
    __device__ __forceinline__ void store(bool live, u64 at, const W& word) const {
        if (FROM_TABLE) {
            store_once(live, at, word);
        } else if (live) {
            *reinterpret_cast<W*>(at) = word;
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
    if (width == 16) return move_ordered_rows(rows, row_bytes / 16, Copy<Word16, OUT_OF_TABLE>());
    if (width >= 4) return move_ordered_rows(rows, row_bytes / 4, Copy<u32, OUT_OF_TABLE>());
    move_ordered_rows(rows, row_bytes, Copy<u8, OUT_OF_TABLE>());
}

}  // namespace wm

/// Copies row `numbers[i]` of the table, `row_bytes` long, to packed row `i`. A number that is
/// negative, or not in the table, leaves its packed row as it is. `width` is a power of two up to
/// 16 that divides every row's address on both sides, both strides and `row_bytes`. Blocks are
/// whole warps, and have 256 threads at most: with this bound the compiler keeps 78 registers
/// instead of 70, and rows of 128 bytes come 1.05 times as fast (H100).
extern "C" __global__ void __launch_bounds__(256, 3) wm_gather_rows(wm::RowSet rows, u64 row_bytes, u32 width) {
    wm::copy_rows<true>(rows, row_bytes, width);
}

/// Copies packed row `i` to row `numbers[i]` of the table. The parameters are those of
/// `wm_gather_rows`. A number that is negative or too large is skipped.
extern "C" __global__ void wm_scatter_rows(wm::RowSet rows, u64 row_bytes, u32 width) {
    wm::copy_rows<false>(rows, row_bytes, width);
}

/// As `wm_gather_rows`, in the order that the rows' `order` has: each number below the count, once.
/// Rows of a table on the host arrive faster in the order of their addresses.
extern "C" __global__ void wm_gather_ordered_rows(wm::RowSet rows, u64 row_bytes, u32 width) {
    wm::copy_ordered_rows<true>(rows, row_bytes, width);
}

/// As `wm_scatter_rows`, in the order that `wm_gather_ordered_rows` has.
extern "C" __global__ void wm_scatter_ordered_rows(wm::RowSet rows, u64 row_bytes, u32 width) {
    wm::copy_ordered_rows<false>(rows, row_bytes, width);
}
