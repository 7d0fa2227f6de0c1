// Neighbouring elements of one type, which are loaded and stored in words.
#pragma once

#include "convert.cuh"

namespace wm {

// The word of so many bytes.
template <u32 BYTES>
struct WordOf;
template <>
struct WordOf<1> {
    typedef u8 Type;
};
template <>
struct WordOf<2> {
    typedef u16 Type;
};
template <>
struct WordOf<4> {
    typedef u32 Type;
};
template <>
struct WordOf<8> {
    typedef u64 Type;
};
template <>
struct WordOf<16> {
    typedef Word16 Type;
};

// Neighbouring elements.
template <class T, u32 COUNT>
struct Elements {
    T all[COUNT];

    // Each of them by a function.
    template <class X, class Function>
    __device__ __forceinline__ Elements<X, COUNT> as(Function function) const {
        Elements<X, COUNT> converted;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) converted.all[i] = X(function(all[i]));
        return converted;
    }

    // In words of up to 16 bytes, of which the address is a multiple.
    __device__ __forceinline__ void store(u64 at) const {
        constexpr u32 BYTES = sizeof(T) * COUNT < 16 ? sizeof(T) * COUNT : 16, EACH = BYTES / sizeof(T);
        typedef typename WordOf<BYTES>::Type Word;
#pragma unroll
        for (u32 i = 0; i < COUNT; i += EACH) {
            union {
                T part[EACH];
                Word word;
            };
#pragma unroll
            for (u32 j = 0; j < EACH; j++) part[j] = all[i + j];
            at_address<Word>(at + i * sizeof(T)) = word;
        }
    }
};

template <class T, u32 COUNT, class Word>
__device__ __forceinline__ Elements<T, COUNT> elements_of(const Word& word) {
    static_assert(sizeof(Word) == sizeof(T) * COUNT, "a word of other elements");
    union {
        Word from;
        Elements<T, COUNT> elements;
    };
    from = word;
    return elements;
}

template <u32 COUNT>
__device__ __forceinline__ void store_integers(u64 at, u32 type, const Elements<i64, COUNT>& x) {
    if (type == INT64) x.store(at);
    if (type == INT) x.template as<i32>([](i64 x) { return i32(x); }).store(at);
    if (type == INT16) x.template as<i16>([](i64 x) { return i16(x); }).store(at);
    if (type == INT8) x.template as<i8>([](i64 x) { return i8(x); }).store(at);
}

// Each `x` is f32 or f64, in which the value is exact.
template <class T, u32 COUNT>
__device__ __forceinline__ void store_floats(u64 at, u32 type, const Elements<T, COUNT>& x) {
    if (type == FLOAT) x.template as<f32>([](T x) { return f32(x); }).store(at);
    if (type == DOUBLE) x.template as<f64>([](T x) { return f64(x); }).store(at);
    if (type == HALF) x.template as<u16>([](T x) { return f16_from(x); }).store(at);
    if (type == BF16) x.template as<u16>([](T x) { return bf16_from(x); }).store(at);
}

}  // namespace wm
