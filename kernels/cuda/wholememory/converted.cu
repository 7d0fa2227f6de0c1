// Gather and scatter between types: a table of one type, packed rows of another of the same family.
//
// A lane moves one element at a time; rows, chunks and row numbers are as in gather.cu. There is
// one walk for each size of a source's element; which types they are is asked at each store, alike
// for all threads, because a walk for each of the 32 pairs would make the image five times as
// large. Two types of different families (or an unknown one) move nothing: the caller has refused
// them.
#include "convert.cuh"
#include "rows.cuh"

namespace wm {

// Elements of type `source`, which are `Word`s, stored as `target`.
template <class W, bool OUT_OF_TABLE>
struct Convert {
    typedef W Word;
    static constexpr bool FROM_TABLE = OUT_OF_TABLE, HAS_SETS = false;
    static constexpr u32 from_bytes = sizeof(W);
    const u32 source, target, to_bytes;
    const u32 table_bytes = OUT_OF_TABLE ? from_bytes : to_bytes;

    __device__ __forceinline__ Convert(u32 source, u32 target)
        : source(source), target(target), to_bytes(bytes_of_type(target)) {}

    __device__ __forceinline__ void load(bool live, u64 at, Word& word) const { load_once(live, at, word); }

    __device__ __forceinline__ void store(bool live, u64 at, Word word) const {
        if (!live) return;
        if (is_integer(source)) {
            store_integer(at, target, integer_of(word));
        } else if (source == DOUBLE || target == DOUBLE) {
            store_float(at, target, value<f64>(word));
        } else {
            store_float(at, target, value<f32>(word));
        }
    }

    template <class T>
    __device__ __forceinline__ T value(Word word) const {
        if constexpr (sizeof(W) == 8) return T(f64_of(word));
        if constexpr (sizeof(W) == 4) return T(f32_of(word));
        return T(source == HALF ? from_f16(u16(word)) : from_bf16(u16(word)));
    }
};

template <bool OUT_OF_TABLE>
__device__ __forceinline__ void convert_rows(u32 source, u32 target, const RowSet& rows, u64 columns) {
    if (bytes_of_type(source) == 0 || bytes_of_type(target) == 0 || is_integer(source) != is_integer(target)) return;
    switch (bytes_of_type(source)) {
        case 8:
            return move_rows(rows, columns, Convert<u64, OUT_OF_TABLE>(source, target));
        case 4:
            return move_rows(rows, columns, Convert<u32, OUT_OF_TABLE>(source, target));
        case 2:
            return move_rows(rows, columns, Convert<u16, OUT_OF_TABLE>(source, target));
        default:
            return move_rows(rows, columns, Convert<u8, OUT_OF_TABLE>(source, target));
    }
}

}  // namespace wm

/// As `wm_gather_rows`, with rows of `columns` elements that are converted from `table_type` to
/// `packed_type` (wholememory_dtype_t, both of the same family). Every address and stride is a
/// multiple of its side's element.
extern "C" __global__ void wm_gather_converted(wm::RowSet rows, u64 columns, u32 table_type, u32 packed_type) {
    wm::convert_rows<true>(table_type, packed_type, rows, columns);
}

/// As `wm_scatter_rows`, with rows of `columns` elements that are converted from `packed_type` to
/// `table_type`.
extern "C" __global__ void wm_scatter_converted(wm::RowSet rows, u64 columns, u32 table_type, u32 packed_type) {
    wm::convert_rows<false>(packed_type, table_type, rows, columns);
}
