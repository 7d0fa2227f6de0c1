// Reads through texture objects, which hold the addresses that they were made over.
#include "../device.cuh"

/// Copies `n` texels of a linear texture of 32-bit words to `out`.
extern "C" __global__ void wm_texels_u32(u32* out, u64 texture, u64 n) {
    for (u64 i : wm::share_of(n)) out[i] = wm::texel(texture, i32(i));
}

/// Copies the texels of a texture of `height` rows of `width` 32-bit words to `out`, row by row.
extern "C" __global__ void wm_texels_2d_u32(u32* out, u64 texture, u64 width, u64 height) {
    for (u64 i : wm::share_of(width * height)) out[i] = wm::texel(texture, i32(i % width), i32(i / width));
}
