// The random numbers of random.cuh as an array.
#include "random.cuh"

/// Skips `skipped` draws of the generator of `seed` and `subsequence`, then writes `count` numbers
/// to `output`. `kind` is 0 for u32, 1 for i32 from 0 on, 2 for u64, 3 for f32 below 1, 4 for
/// logarithms (f32). One thread draws.
extern "C" __global__ void wm_draw_random(u64 seed, u64 subsequence, u64 skipped, u32 kind, void* output, u64 count) {
    if (wm::block_in_grid() != 0 || wm::thread_in_block() != 0) return;
    wm::Pcg generator(seed, subsequence);
    generator.skip(skipped);
    for (u64 i = 0; i < count; i++) {
        if (kind == 0) static_cast<u32*>(output)[i] = generator.next_u32();
        if (kind == 1) static_cast<u32*>(output)[i] = generator.positive_i32();
        if (kind == 2) static_cast<u64*>(output)[i] = generator.next_u64();
        if (kind == 3) static_cast<f32*>(output)[i] = generator.next_f32();
        if (kind == 4) static_cast<f32*>(output)[i] = generator.log2_of_uniform();
    }
}
