// A table: rows of memory spread over chunks, one a rank; and arrays of row numbers into one.
//
// Structures that a `///` comment stands above are parameters of kernels. The host fills them, in
// Rust: the build script generates the same structure there (docs/dev/kernels.md).
#pragma once

#include "../device.cuh"

namespace wm {

// Row or element numbers of 4 or 8 bytes, signed.
__device__ __forceinline__ i64 load_index(const void* indices, u32 index_bytes, u64 at) {
    return index_bytes == 8 ? static_cast<const i64*>(indices)[at] : static_cast<const i32*>(indices)[at];
}

__device__ __forceinline__ void store_index(void* indices, u32 index_bytes, u64 at, i64 value) {
    if (index_bytes == 8) {
        static_cast<i64*>(indices)[at] = value;
    } else {
        static_cast<i32*>(indices)[at] = i32(value);
    }
}

// Both in 32 bits where they fit: a GPU divides 64 bits in many more steps.
__device__ __forceinline__ u64 quotient(u64 x, u64 y) {
    return ((x | y) >> 32) == 0 ? u64(u32(x) / u32(y)) : x / y;
}

__device__ __forceinline__ u64 remainder(u64 x, u64 y) { return x - quotient(x, y) * y; }

/// An array of row or node numbers, signed.
struct Numbers {
    const void* address;
    u64 count;
    u32 bytes;  // of a number: 4 or 8

    __device__ __forceinline__ i64 at(u64 i) const { return load_index(address, bytes, i); }
};

/// Rows at the same distance from each other: row `i` is at `address + i * stride`.
struct Strided {
    u64 address;
    u64 stride;  // in bytes

    __device__ __forceinline__ u64 row(u64 number) const { return address + number * stride; }
};

/// The chunks of a table, one a rank. A chunk without rows has the start of the next one.
struct Chunks {
    const u64* bases;   // the address of each chunk's first row
    const u64* starts;  // the number of that row in the whole table, and the number of all rows
    u64 equal;          // the rows of each chunk but the last, which then need no search; else 0
    u32 count;

    // The last chunk that starts at or before the row. It is never an empty one, because the next
    // one starts there too.
    __device__ __forceinline__ u32 chunk_of(u64 row) const {
        if (equal != 0) {
            const u64 chunk = quotient(row, equal);
            return chunk < count ? u32(chunk) : count - 1;
        }
        u32 low = 0, high = count;
#pragma unroll 1
        while (high - low > 1) {
            const u32 middle = low + (high - low) / 2;
            if (starts[middle] <= row) {
                low = middle;
            } else {
                high = middle;
            }
        }
        return low;
    }

    __device__ __forceinline__ u64 start_of(u32 chunk) const { return equal != 0 ? chunk * equal : starts[chunk]; }
};

/// A table. It may be part of another one: then its first row is `first` rows and `offset` bytes
/// behind the first row of the chunks.
struct Table {
    Chunks chunks;
    u64 base;    // the address of the first row where there is one chunk, whose arrays are not read
    u64 rows;    // a row number is below it
    u64 stride;  // from a row to the next, in bytes
    u64 offset;  // below `stride` where there are several chunks
    u64 first;   // 0 where there is one chunk

    // The address of a row; 0 for a number that is negative or not in the table.
    __device__ __forceinline__ u64 row(i64 number) const {
        if (number < 0 || u64(number) >= rows) return 0;
        if (chunks.count == 1) return base + u64(number) * stride + offset;
        const u64 row = u64(number) + first;
        const u32 chunk = chunks.chunk_of(row);
        return chunks.bases[chunk] + (row - chunks.start_of(chunk)) * stride + offset;
    }
};

}  // namespace wm
