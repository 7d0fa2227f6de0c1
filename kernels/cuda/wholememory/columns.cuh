// The columns of a row that a lane has: 4 neighbouring ones or 1, as one word of memory and as f32.
//
// A word is loaded by one instruction. It is converted where its values are used and not before: a
// conversion waits for its load, and so would all that stands behind it.
#pragma once

#include "convert.cuh"

namespace wm {

// Words of so many columns, of 32 and of 16 bits.
template <u32 COLUMNS>
struct ColumnWords;
template <>
struct ColumnWords<4> {
    typedef Word16 Floats;
    typedef u64 Halves;
};
template <>
struct ColumnWords<1> {
    typedef u32 Floats;
    typedef u16 Halves;
};

// Column `i` of a word; `type` tells HALF from BF16.
__device__ __forceinline__ f32 column_of(const Word16& word, u32 i, u32) {
    return f32_of(i == 0 ? word.x : i == 1 ? word.y : i == 2 ? word.z : word.w);
}
__device__ __forceinline__ f32 column_of(u32 word, u32, u32) { return f32_of(word); }
__device__ __forceinline__ f32 column_of(u16 word, u32, u32 type) {
    return type == HALF ? from_f16(word) : from_bf16(word);
}
__device__ __forceinline__ f32 column_of(u64 word, u32 i, u32 type) {
    return column_of(u16(word >> (16 * i)), 0, type);
}

// A word of columns, rounded to its type.
__device__ __forceinline__ void set_columns(Word16& word, const f32 (&x)[4], u32) {
    word = {bits_of(x[0]), bits_of(x[1]), bits_of(x[2]), bits_of(x[3])};
}
__device__ __forceinline__ void set_columns(u32& word, const f32 (&x)[1], u32) { word = bits_of(x[0]); }
__device__ __forceinline__ void set_columns(u16& word, const f32 (&x)[1], u32 type) {
    word = type == HALF ? f16_from(x[0]) : bf16_from(x[0]);
}
__device__ __forceinline__ void set_columns(u64& word, const f32 (&x)[4], u32 type) {
    word = 0;
    for (u32 i = 0; i < 4; i++) word |= u64(type == HALF ? f16_from(x[i]) : bf16_from(x[i])) << (16 * i);
}

// Columns of a type that is only known at run time: one of the two words has them.
template <u32 COLUMNS>
struct AnyColumns {
    typename ColumnWords<COLUMNS>::Floats floats;
    typename ColumnWords<COLUMNS>::Halves halves;

    __device__ __forceinline__ void values(u32 type, f32 (&x)[COLUMNS]) const {
        if (type == FLOAT) {
            for (u32 i = 0; i < COLUMNS; i++) x[i] = column_of(floats, i, type);
        } else {
            for (u32 i = 0; i < COLUMNS; i++) x[i] = column_of(halves, i, type);
        }
    }
};

// Columns in memory.
template <u32 COLUMNS>
__device__ __forceinline__ AnyColumns<COLUMNS> load_columns(u64 at, u32 type) {
    AnyColumns<COLUMNS> columns = {};
    if (type == FLOAT) {
        columns.floats = at_address<typename ColumnWords<COLUMNS>::Floats>(at);
    } else {
        columns.halves = at_address<typename ColumnWords<COLUMNS>::Halves>(at);
    }
    return columns;
}

template <u32 COLUMNS>
__device__ __forceinline__ void store_columns(u64 at, u32 type, const f32 (&x)[COLUMNS]) {
    if (type == FLOAT) {
        set_columns(at_address<typename ColumnWords<COLUMNS>::Floats>(at), x, type);
    } else {
        typename ColumnWords<COLUMNS>::Halves word;
        set_columns(word, x, type);
        at_address<typename ColumnWords<COLUMNS>::Halves>(at) = word;
    }
}

}  // namespace wm
