// Gradients of the same row, added up.
#include "convert.cuh"

/// Row `i` of `output` (f32, `count` rows of `columns`) becomes the sum of the rows `order[starts[i]]` to
/// `order[starts[i + 1] - 1]` of `gradients`, added in f32 in this order, whatever the launch. `gradient_type` is
/// FLOAT, HALF or BF16; strides are in bytes. A warp has a row; blocks are whole warps.
extern "C" __global__ void wm_sum_gradients(const void* gradients, u32 gradient_type, u64 gradient_stride, u64 columns,
                                            const i64* order, const i64* starts, u64 count, f32* output,
                                            u64 output_stride) {
    const u32 warps = wm::threads_in_block() / wm::WARP;
    if (wm::warp() >= warps) return;
    const u64 element = gradient_type == wm::FLOAT ? 4 : 2;
    for (u64 i = wm::block_in_grid() * warps + wm::warp(); i < count; i += wm::blocks_in_grid() * warps) {
        for (u64 column = wm::lane(); column < columns; column += wm::WARP) {
            const u64 at = reinterpret_cast<u64>(gradients) + column * element;
            f32 sum = 0;
            for (i64 j = starts[i]; j < starts[i + 1]; j++)
                sum += wm::load_f32(at + u64(order[j]) * gradient_stride, gradient_type);
            wm::at_address<f32>(reinterpret_cast<u64>(output) + i * output_stride + column * 4) = sum;
        }
    }
}
