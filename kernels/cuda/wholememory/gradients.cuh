// Gradients of the same row, added up where an optimizer needs the sum.
//
// A warp has 32 columns of a row. The additions are in the named order, but the loads of several are under way at a
// time: a row that many gradients go to (in graphs there is always one) must not take a memory's latency for each.
#pragma once

#include "convert.cuh"
#include "table.cuh"

namespace wm {

constexpr u32 GRADIENTS_IN_FLIGHT = 8;

struct Gradients {
    u64 address;  // of this lane's column in row 0
    u64 stride;
    u32 type;
    bool is_column;  // the last columns are fewer than lanes

    // `sum` with the first `n` of the warp's row numbers, at most 32, added.
    __device__ __forceinline__ f32 add(f32 sum, u32 number, u32 n) const {
        for (u32 first = 0; first < n; first += GRADIENTS_IN_FLIGHT) {
            f32 value[GRADIENTS_IN_FLIGHT];
#pragma unroll
            for (u32 i = 0; i < GRADIENTS_IN_FLIGHT; i++) {
                const u64 row = u64(__shfl_sync(ALL_LANES, number, int(first + i)));
                value[i] = is_column && first + i < n ? load_f32(address + row * stride, type) : 0.0f;
            }
#pragma unroll
            for (u32 i = 0; i < GRADIENTS_IN_FLIGHT; i++)
                if (first + i < n) sum += value[i];
        }
        return sum;
    }
};

// The gradients of a step: those of row i are the rows `order[starts[i]]` to `order[starts[i + 1] - 1]` at `address`.
struct GradientRuns {
    u64 address, stride;
    u32 type;
    const u32* order;
    const i64* starts;

    // The sum for one column of a row, in f32 and in this order, whatever the launch. The whole warp passes.
    __device__ __forceinline__ f32 sum(u64 row, u64 column, bool is_column) const {
        const u64 element = type == FLOAT ? 4 : 2;
        const Gradients addends = {address + column * element, stride, type, is_column};
        const i64 end = starts[row + 1];
        f32 sum = 0;
        for (i64 j = starts[row]; j < end; j += WARP) {
            const u32 n = end - j < WARP ? u32(end - j) : WARP;
            sum = addends.add(sum, lane() < n ? order[j + lane()] : 0, n);
        }
        return sum;
    }
};

}  // namespace wm
