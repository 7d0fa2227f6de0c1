// Rows of any island that have come to a gather's packed memory, from where a cache's lines get
// them: no address leads to the rows of another island.
#pragma once

#include "cache.cuh"

namespace wm {

constexpr u32 NO_PLACE = 0xffffffffu;

/// Rows in packed memory, of a gather of fewer than 2^31 numbers: packed row `i` is row
/// `numbers[i]`. A hash table (open addressing, linear probing) has the places of rows that lines
/// lacked; a slot without one is 0xffffffff.
struct ArrivedRows {
    Numbers numbers;
    Strided packed;
    u32* slots;    // or null: no places are kept
    u64 capacity;  // a power of two, more than there are numbers
    u64 bytes;     // of a row
    u32 width;     // of the widest words that a packed row can be accessed in

    __device__ __forceinline__ u64 first_slot(u64 row) const { return mixed(mixed(row) + row) & (capacity - 1); }

    // Keeps the place of a row, if it has none.
    __device__ __forceinline__ void keep(u64 row, u32 place) const {
        for (u64 slot = first_slot(row), tries = 0; tries < capacity; tries++, slot = (slot + 1) & (capacity - 1)) {
            u32 found = slots[slot];
            if (found == NO_PLACE) found = atomicCAS(slots + slot, NO_PLACE, place);
            if (found == NO_PLACE || u64(numbers.at(found)) == row) return;
        }
    }

    // The address of a row whose place an earlier launch has kept; else 0.
    __device__ __forceinline__ u64 row(i64 number) const {
        for (u64 slot = first_slot(u64(number)), tries = 0; tries < capacity; tries++, slot = (slot + 1) & (capacity - 1)) {
            const u32 found = slots[slot];
            if (found == NO_PLACE) return 0;
            if (numbers.at(found) == number) return packed.row(found);
        }
        return 0;
    }

    // Four bytes of a row, of which those behind its end are 0.
    __device__ __forceinline__ u32 word(u64 row, u64 at) const {
        u32 word = 0;
        if (width >= 4 && at + 4 <= bytes) {
            load_once(true, row + at, word);
            return word;
        }
        for (u32 i = 0; i < 4 && at + i < bytes; i++) {
            u8 byte = 0;
            load_once(true, row + at + i, byte);
            word |= u32(byte) << i * 8;
        }
        return word;
    }

};

// One of these rows.
struct ArrivedRow {
    const ArrivedRows& rows;
    u64 address;

    // Writes it to a line. The whole warp passes.
    __device__ __forceinline__ void copy(u64 line) const {
        for (u64 at = lane() * 4; at < rows.bytes; at += WARP * 4) store_relaxed(line + at, rows.word(address, at));
    }
};

}  // namespace wm
