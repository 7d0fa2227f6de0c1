// The 16-bit floating-point formats by their bits: a GPU's conversion instructions in plain C++.
//
// Rounded to nearest, ties to even; a NaN becomes 0x7fff.
#pragma once

#include <stdint.h>

namespace wm_cpu {

// `value` without its last `shift` bits, rounded. `shift` is 1 to 31.
inline uint32_t shifted_to_even(uint32_t value, uint32_t shift) {
    const uint32_t kept = value >> shift, rest = value & ((1u << shift) - 1), half = 1u << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1)));
}

inline uint16_t f16_from(uint32_t bits) {
    const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return 0x7fff;
    if (size >= 0x47800000) return uint16_t(sign | 0x7c00);  // 65536 and more
    // A carry out of the fraction goes into the exponent, up to infinity: that is how the format is
    // made.
    if (size >= 0x38800000) return uint16_t(sign | shifted_to_even(size - 0x38000000, 13));
    const uint32_t exponent = size >> 23;
    if (exponent < 102) return uint16_t(sign);  // less than half of the smallest subnormal
    return uint16_t(sign | shifted_to_even((size & 0x7fffff) | 0x800000, 126 - exponent));
}

inline uint16_t bf16_from(uint32_t bits) {
    const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return 0x7fff;
    return uint16_t(sign | shifted_to_even(size, 16));
}

// The bits of the f32 of the same value.
inline uint32_t from_f16(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ff;
    if (exponent == 31) return fraction == 0 ? sign | 0x7f800000 : 0x7fffffff;
    if (exponent != 0) return sign | (exponent + 112) << 23 | fraction << 13;
    if (fraction == 0) return sign;
    const uint32_t top = 31 - uint32_t(__builtin_clz(fraction));  // the value is fraction / 2^24
    return sign | (top + 103) << 23 | (fraction ^ 1u << top) << (23 - top);
}

}  // namespace wm_cpu
