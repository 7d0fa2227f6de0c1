// Element types of tables, by their numbers in the C API, and conversions between them.
//
// Inside the floating-point types: rounded once, to nearest, ties to even; NaN and infinities stay
// NaN and infinities. Inside the integers: as C casts, the low bits. There is no conversion between
// the two families.
#pragma once

#include "../device.cuh"

namespace wm {

// wholememory_dtype_t.
enum Type : u32 { FLOAT = 1, HALF = 2, DOUBLE = 3, BF16 = 4, INT = 5, INT64 = 6, INT16 = 7, INT8 = 8 };

__device__ __forceinline__ bool is_integer(u32 type) { return type >= INT; }

// 0 for a type that there is not.
__device__ __forceinline__ u32 bytes_of_type(u32 type) {
    switch (type) {
        case DOUBLE:
        case INT64:
            return 8;
        case FLOAT:
        case INT:
            return 4;
        case HALF:
        case BF16:
        case INT16:
            return 2;
        default:
            return type == INT8 ? 1 : 0;
    }
}

// An integer of the word's size, with its sign.
__device__ __forceinline__ i64 integer_of(u8 word) { return i8(word); }
__device__ __forceinline__ i64 integer_of(u16 word) { return i16(word); }
__device__ __forceinline__ i64 integer_of(u32 word) { return i32(word); }
__device__ __forceinline__ i64 integer_of(u64 word) { return i64(word); }

// The 16-bit formats from f64 too: f64 to f32 rounds to odd first, so that it is rounded once after
// all.
__device__ __forceinline__ u16 f16_from(f64 x) { return f16_from(rounded_to_odd(x)); }
__device__ __forceinline__ u16 bf16_from(f64 x) { return bf16_from(rounded_to_odd(x)); }

template <class T>
__device__ __forceinline__ T& at_address(u64 address) {
    return *reinterpret_cast<T*>(address);
}

// An element of type FLOAT, HALF or BF16.
__device__ __forceinline__ f32 load_f32(u64 at, u32 type) {
    if (type == FLOAT) return at_address<const f32>(at);
    const u16 word = at_address<const u16>(at);
    return type == HALF ? from_f16(word) : from_bf16(word);
}

}  // namespace wm
