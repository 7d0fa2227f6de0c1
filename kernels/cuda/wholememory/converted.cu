// Gather and scatter between types: a table of one type, packed rows of another of the same family.
//
// A lane moves a run of elements at a time, or one in kernels for sides that are not aligned for
// runs; rows, chunks and row numbers are as in gather.cu. A kernel has one walk for each size of a
// source's element; which types they are is asked at each store, alike for all threads, because a
// walk for each of the 32 pairs would make the image several times as large. Two types of different
// families (or an unknown one) move nothing: the caller has refused them.
#include "elements.cuh"
#include "rows.cuh"

namespace wm {

// COUNT elements, which are `S`s, stored as type `target`.
template <class S, u32 COUNT, bool OUT_OF_TABLE>
struct Convert {
    typedef typename WordOf<COUNT * sizeof(S)>::Type Word;
    static constexpr bool FROM_TABLE = OUT_OF_TABLE, HAS_SETS = false;
    static constexpr u32 from_bytes = sizeof(Word);
    const u32 source, target, to_bytes;
    const u32 table_bytes = OUT_OF_TABLE ? from_bytes : to_bytes;

    __device__ __forceinline__ Convert(u32 source, u32 target)
        : source(source), target(target), to_bytes(COUNT * bytes_of_type(target)) {}

    __device__ __forceinline__ void load(bool live, u64 at, Word& word) const { load_again(live, at, word); }

    __device__ __forceinline__ void store(bool live, u64 at, const Word& word) const {
        if (!live) return;
        const Elements<S, COUNT> from = elements_of<S, COUNT>(word);
        if (is_integer(source)) {
            store_integers(at, target, from.template as<i64>([](S x) { return integer_of(x); }));
        } else if constexpr (sizeof(S) == 8) {
            store_floats(at, target, from.template as<f64>([](S x) { return f64_of(x); }));
        } else if constexpr (sizeof(S) == 4) {
            store_floats(at, target, from.template as<f32>([](S x) { return f32_of(x); }));
        } else if constexpr (sizeof(S) == 2) {
            const bool is_half = source == HALF;
            store_floats(at, target, from.template as<f32>([=](S x) { return is_half ? from_f16(x) : from_bf16(x); }));
        }
    }
};

template <class S, u32 COUNT, bool OUT_OF_TABLE>
__device__ __forceinline__ void convert_runs_of(u32 source, u32 target, const RowSet& rows, u64 columns) {
    move_rows(rows, columns / COUNT, Convert<S, COUNT, OUT_OF_TABLE>(source, target));
}

__device__ __forceinline__ bool is_conversion(u32 source, u32 target) {
    return bytes_of_type(source) != 0 && bytes_of_type(target) != 0 && is_integer(source) == is_integer(target);
}

// All rows, an element at a time.
template <bool OUT_OF_TABLE>
__device__ __forceinline__ void convert_elements(u32 source, u32 target, const RowSet& rows, u64 columns) {
    if (!is_conversion(source, target)) return;
    switch (bytes_of_type(source)) {
        case 8:
            return convert_runs_of<u64, 1, OUT_OF_TABLE>(source, target, rows, columns);
        case 4:
            return convert_runs_of<u32, 1, OUT_OF_TABLE>(source, target, rows, columns);
        case 2:
            return convert_runs_of<u16, 1, OUT_OF_TABLE>(source, target, rows, columns);
        default:
            return convert_runs_of<u8, 1, OUT_OF_TABLE>(source, target, rows, columns);
    }
}

// All rows, in runs that the kernels below describe. Runs of two came out of a table 0.6 to 0.97
// times as fast as those of four (H100). Into the memory of another GPU runs of four went 0.63
// times as fast as those of two from f32 to f64, 0.69 times from f16 to f32, and 1.1 times from i32
// to i8.
template <bool OUT_OF_TABLE>
__device__ __forceinline__ void convert_runs(u32 source, u32 target, const RowSet& rows, u64 columns) {
    if (!is_conversion(source, target)) return;
    const bool is_long = OUT_OF_TABLE || bytes_of_type(target) <= 2;
    switch (bytes_of_type(source)) {
        case 8:
            return convert_runs_of<u64, 2, OUT_OF_TABLE>(source, target, rows, columns);
        case 4:
            if (is_long) return convert_runs_of<u32, 4, OUT_OF_TABLE>(source, target, rows, columns);
            return convert_runs_of<u32, 2, OUT_OF_TABLE>(source, target, rows, columns);
        case 2:
            if (is_long) return convert_runs_of<u16, 4, OUT_OF_TABLE>(source, target, rows, columns);
            return convert_runs_of<u16, 2, OUT_OF_TABLE>(source, target, rows, columns);
        default:
            if (is_long) return convert_runs_of<u8, 4, OUT_OF_TABLE>(source, target, rows, columns);
            return convert_runs_of<u8, 2, OUT_OF_TABLE>(source, target, rows, columns);
    }
}

}  // namespace wm

/// As `wm_gather_rows`, with rows of `columns` elements that are converted from `table_type` to
/// `packed_type` (wholememory_dtype_t, both of the same family). Every address and stride is a
/// multiple of its side's element.
extern "C" __global__ void wm_gather_converted(wm::RowSet rows, u64 columns, u32 table_type, u32 packed_type) {
    wm::convert_elements<true>(table_type, packed_type, rows, columns);
}

/// As `wm_scatter_rows`, with rows of `columns` elements that are converted from `packed_type` to
/// `table_type`.
extern "C" __global__ void wm_scatter_converted(wm::RowSet rows, u64 columns, u32 table_type, u32 packed_type) {
    wm::convert_elements<false>(packed_type, table_type, rows, columns);
}

/// As `wm_gather_converted`, in runs: of two elements where those of the table have 8 bytes, else
/// of four. `columns` is a multiple of so many, and every address and stride a multiple of their
/// bytes on its side, or of 16. Blocks have 256 threads at most: with this bound a multiprocessor
/// has four of them at work.
extern "C" __global__ void __launch_bounds__(256, 4)
    wm_gather_converted_runs(wm::RowSet rows, u64 columns, u32 table_type, u32 packed_type) {
    wm::convert_runs<true>(table_type, packed_type, rows, columns);
}

/// As `wm_scatter_converted`, in runs: of four elements where those of the table have 1 or 2 bytes
/// and the packed ones fewer than 8, else of two. `columns`, addresses and strides are as for
/// `wm_gather_converted_runs`.
extern "C" __global__ void __launch_bounds__(256, 4)
    wm_scatter_converted_runs(wm::RowSet rows, u64 columns, u32 table_type, u32 packed_type) {
    wm::convert_runs<false>(packed_type, table_type, rows, columns);
}
