// Ownership stamps. A block of memory is stamped when it is handed out and checked before it is
// given back: a stamp that is not the owner's means that two owners had the memory at once, or that
// stream order was broken.
#include "../device.cuh"

/// Writes `stamp` into all `n` words.
extern "C" __global__ void wm_stamp_u64(u64* dst, u64 n, u64 stamp) {
    for (u64 i : wm::share_of(n)) dst[i] = stamp;
}

/// Adds to `*errors` the number of words that do not hold `stamp`.
extern "C" __global__ void wm_check_stamp_u64(const u64* src, u64 n, u64 stamp, u64* errors) {
    u64 wrong = 0;
    for (u64 i : wm::share_of(n)) wrong += src[i] != stamp;
    if (wrong != 0) atomicAdd(errors, wrong);
}
