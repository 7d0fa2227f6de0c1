// The hash of the tables that are made for one operation.
#pragma once

#include "../device.cuh"

namespace wm {

// Numbers that differ give words that look random.
__device__ __forceinline__ u64 hash_of(u64 number) {
    u64 z = number + 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

}  // namespace wm
