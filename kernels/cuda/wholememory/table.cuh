// A table: rows of memory spread over chunks, one a rank; and an array of row numbers into one.
//
// `bases[c]` is the address of chunk c's first row, `starts[c]` that row's number in the whole
// table; `starts` has one entry more than there are chunks. An empty chunk has the start of the
// next. With one chunk the arrays are not read: `base` is the table's address. Where all chunks but
// the last have the same number of rows, `equal` is that number, and a row's chunk is a quotient;
// else `equal` is 0 and it is searched.
//
// `offset` is in bytes from the table's first row: to a column, and where it is more than a row,
// over whole rows too, so that part of a table is a table.
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

struct Table {
    u64 base;
    const u64* bases;
    const u64* starts;
    u32 chunks;
    u64 equal;
    u64 rows;  // that may be asked for, from `offset` on
    u64 stride;
    u64 offset, first;  // bytes inside a row, whole rows before it

    __device__ __forceinline__ Table(u64 base, const u64* bases, const u64* starts, u32 chunks, u64 equal, u64 rows,
                                     u64 stride, u64 offset)
        : base(base), bases(bases), starts(starts), chunks(chunks), equal(equal), rows(rows), stride(stride),
          offset(offset), first(0) {
        if (chunks == 1 || stride == 0 || offset < stride) return;
        first = offset / stride;
        this->offset = offset % stride;
    }

    // The last chunk that starts at or before the row: never an empty one, because the next starts
    // there too.
    __device__ __forceinline__ u32 chunk_of(u64 row) const {
        if (equal != 0) {
            const u64 chunk = quotient(row, equal);
            return chunk < chunks ? u32(chunk) : chunks - 1;
        }
        u32 low = 0, high = chunks;
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

    // The address of a row at `offset`; 0 for a number that is negative or not in the table.
    __device__ __forceinline__ u64 row(i64 number) const {
        if (number < 0 || u64(number) >= rows) return 0;
        if (chunks == 1) return base + u64(number) * stride + offset;
        const u64 row = u64(number) + first;
        const u32 chunk = chunk_of(row);
        const u64 start = equal != 0 ? chunk * equal : starts[chunk];
        return bases[chunk] + (row - start) * stride + offset;
    }
};

}  // namespace wm
