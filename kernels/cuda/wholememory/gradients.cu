// Gradients of the same row, added up.
//
// A warp has 32 columns of a row. The additions are in the named order, but the loads of several are under way at a
// time: a row that many gradients go to (in graphs there is always one) must not take a memory's latency for each.
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
    __device__ __forceinline__ f32 add(f32 sum, i64 number, u32 n) const {
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

}  // namespace wm

/// Row `i` of `output` (f32, `count` rows of `columns`) becomes the sum of the rows `order[starts[i]]` to
/// `order[starts[i + 1] - 1]` of `gradients`, added in f32 in this order, whatever the launch. `gradient_type` is
/// FLOAT, HALF or BF16; strides are in bytes. Blocks are whole warps.
extern "C" __global__ void wm_sum_gradients(const void* gradients, u32 gradient_type, u64 gradient_stride, u64 columns,
                                            const i64* order, const i64* starts, u64 count, f32* output,
                                            u64 output_stride) {
    const u32 warps = wm::threads_in_block() / wm::WARP;
    if (wm::warp() >= warps || columns == 0) return;
    const u64 element = gradient_type == wm::FLOAT ? 4 : 2, parts = (columns - 1) / wm::WARP + 1;
    for (u64 i = wm::block_in_grid() * warps + wm::warp(); i < count * parts; i += wm::blocks_in_grid() * warps) {
        const u64 row = wm::quotient(i, parts), column = (i - row * parts) * wm::WARP + wm::lane();
        const wm::Gradients addends = {reinterpret_cast<u64>(gradients) + column * element, gradient_stride,
                                       gradient_type, column < columns};
        const i64 end = starts[row + 1];
        f32 sum = 0;
        for (i64 j = starts[row]; j < end; j += wm::WARP) {
            const u32 n = end - j < wm::WARP ? u32(end - j) : wm::WARP;
            sum = addends.add(sum, wm::lane() < n ? order[j + wm::lane()] : 0, n);
        }
        if (column < columns)
            wm::at_address<f32>(reinterpret_cast<u64>(output) + row * output_stride + column * 4) = sum;
    }
}
