// Work on independent elements: the access patterns of real programs, with results that a host can
// compute exactly.
#include "../device.cuh"

/// Copies `n` words; the ranges must not overlap.
extern "C" __global__ void wm_copy_u32(u32* dst, const u32* src, u64 n) {
    for (u64 i : wm::share_of(n)) dst[i] = src[i];
}

/// `y[i] = a * x[i] + y[i]`, rounded once.
extern "C" __global__ void wm_saxpy_f32(u64 n, f32 a, const f32* x, f32* y) {
    for (u64 i : wm::share_of(n)) y[i] = wm::multiply_add(a, x[i], y[i]);
}

/// Row `r` of `out` becomes row `index[r]` of `table`; both have `width` columns, `out` has `rows`
/// rows.
extern "C" __global__ void wm_gather_rows_f32(f32* out, const f32* table, const i64* index, u64 rows, u64 width) {
    for (u64 i : wm::share_of(rows * width)) {
        const u64 row = i / width;
        out[i] = table[u64(index[row]) * width + i % width];
    }
}
