// A cache of a table's rows: copies in lines, eight lines a set, spread over parts that all ranks
// of the cache map.
//
// A part has three arrays: the tags of its sets (8 words of 64 bits each), their records (counts),
// and their lines. A part is for its owner's rows; or, where rows are only read through the cache,
// for one of any P rows that are next to each other, of P parts. Which one differs from P rows to
// the next by a hash, and so does the set that a turn of a part's rows begins at: wherever the rows
// that are asked for most lie, all parts and sets have some. Rows of one turn go to all sets, so
// every set has as many rows as the next, and a cache with a line for each row holds all of them.
//
// Ownership: any rank reads tags, lines and records, and counts in records. Only the part's own
// rank changes tags and writes lines, in kernels of any of its streams. No rank waits for another
// one.
//
// A tag is one word: the number of the row that its line has, less FILLING and a version that grows
// with each change.
//   empty      no row
//   valid      row r: the line has r's bytes
//   filling    FILLING, row r: r's bytes are on their way
//   cancelled  FILLING, no row: the bytes are not wanted
// A warp claims a tag without FILLING by compare-and-swap. Only that warp writes the line and
// clears FILLING, so a line has one writer at a time.
//
// Why a reader gets no wrong byte. It reads the tag (1), fence, the line (2), fence, the tag again
// (3); it keeps the bytes if (1) is valid and (3) has its version. The writer changes the tag to
// filling (a), fence, writes the line (b), fence, changes it to valid (c). If (2) sees any word of
// (b), then by the two fences (3) sees (a) or later, which has another version. If (1) sees (c),
// then by the two fences (2) sees all of (b). All are at system scope. A version returns after 2^23
// changes: were a reader held up during just so many of one line, it would take it for unchanged.
//
// Why no line stays older than its row. A kernel that changes a row writes it first and removes it
// from the tags afterwards: it writes the row (d), fence, reads the tags (e), and turns valid into
// empty and filling into cancelled. A kernel that fills a line sets the tag to filling (a), fence,
// reads the row (f). These two fences are in one order (`fence_sc`): if (e) does not see (a), then
// (f) sees (d). And if it does, (c) fails, because it is a compare-and-swap.
// Rows of other islands are read by a gather, before (a). Its rank is the one that fills lines with
// them, has filled them when the gather returns, and removes its lines after it has heard of a
// change: (e) sees (c).
#pragma once

#include "rows.cuh"

namespace wm {

constexpr u32 WAYS = 8;
constexpr u64 TAG_BYTES = 64, RECORD_BYTES = 128;

constexpr u64 ROW_MASK = (1ull << 40) - 1, FILLING = 1ull << 40, VERSION = 1ull << 41;

// A row's name in a tag: its number plus 1; 0 stands for no row.
__device__ __forceinline__ u64 name_of(u64 row) { return row + 1; }
__device__ __forceinline__ u64 named_by(u64 tag) { return tag & ROW_MASK; }
__device__ __forceinline__ u32 version_of(u64 tag) { return u32(tag >> 41); }
__device__ __forceinline__ bool is_valid(u64 tag, u64 name) { return (tag & (ROW_MASK | FILLING)) == name; }
__device__ __forceinline__ u64 next_tag(u64 tag, u64 content) { return (tag & ~(VERSION - 1)) + VERSION + content; }

// A set: where its tags, its record and its lines are.
struct CacheSet {
    u64 tags, record, lines;
};

// A set's counts, which are not exact: readers count with a load and a store, so that no memory has
// to do atomic operations for another GPU.
//   0..63   candidates: rows that were asked for and not found; a row's name, from bit 40 its count
//   64..95  how often each line was asked for, 32 bits each
//   96..99  how often no line was found, since the counts were last halved
// And of the part's first set alone:
//   104..111  the set that is looked at next; 0 before any was
//   112..119  how many lines were taken of late, of all sets of the part; in parts of LATELY
constexpr u32 CANDIDATES = 8, ONCE_BIT = 40, COUNTS_AT = 64, MISSES_AT = 96, CURSOR_AT = 104, LATELY_AT = 112;
constexpr u64 LATELY = 1 << 16;
// Counts stay below; a candidate's has 24 bits.
constexpr u32 MOST = 1u << 20;
// After so many misses a set's counts are halved, so that old lookups count little.
constexpr u32 AGE = 128;

__device__ __forceinline__ u64 candidate_of(u64 name, u32 times) { return name | u64(times) << ONCE_BIT; }
__device__ __forceinline__ u32 times_of(u64 candidate) { return u32(candidate >> ONCE_BIT); }

__device__ __forceinline__ u64 mixed(u64 x) {
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
    return x ^ (x >> 29);
}

// The set of a part's row `at`: one of a turn of `sets` rows, which begins at a set of its own.
__device__ __forceinline__ u64 set_number(u64 at, u64 sets) {
    const u64 turn = quotient(at, sets), number = at - turn * sets + remainder(mixed(turn) >> 32, sets);
    return number < sets ? number : number - sets;
}

/// A cache's parts. Each has the rows that its chunk would have; if the chunks have neither
/// `starts` nor `equal`, rows are spread over the parts.
struct CacheTables {
    Chunks parts;
    const u64* set_starts;  // the number of each part's first set, and the number of all sets
    u64 stride;             // of a line, and of a row of the table; a multiple of 16

    __device__ __forceinline__ u64 sets_of(u32 part) const { return set_starts[part + 1] - set_starts[part]; }

    __device__ __forceinline__ CacheSet set(u32 part, u64 sets, u64 number) const {
        const u64 base = parts.bases[part], records = base + sets * TAG_BYTES, lines = records + sets * RECORD_BYTES;
        return {base + number * TAG_BYTES, records + number * RECORD_BYTES, lines + number * WAYS * stride};
    }

    // The set of a row of the table.
    __device__ __forceinline__ CacheSet set_of(u64 row) const {
        u32 part;
        u64 at;
        if (parts.equal == 0 && parts.starts == nullptr) {
            at = quotient(row, parts.count);
            part = u32(remainder(row - at * parts.count + (mixed(at) >> 33), parts.count));
        } else {
            part = parts.chunk_of(row);
            at = row - parts.start_of(part);
        }
        const u64 sets = sets_of(part);
        return set(part, sets, set_number(at, sets));
    }
};

// All eight words of a set's tags or candidates.
struct SetWords {
    u64 word[WAYS];
    __device__ __forceinline__ explicit SetWords(u64 at) {
#pragma unroll
        for (u32 way = 0; way < WAYS; way += 2) load_words(at + way * 8, word[way], word[way + 1]);
    }
};

__device__ __forceinline__ u32 load_count(u64 at) {
    u32 count = 0;
    load_relaxed(true, at, count);
    return count;
}

// A line with a row's bytes, or none: `tag` is the address of its tag, 0 for no line, `version` the
// tag's version.
struct Hit {
    u64 line, tag;
    u32 version;
};

// Looks up a row for each lane that has one (`wanted`); the whole warp passes. Four lanes read a
// set's tags in one access: on another GPU each one counts.
__device__ __forceinline__ Hit look_up(const CacheTables& cache, bool wanted, u64 row) {
    constexpr u32 READERS = 4, AT_ONCE = WARP / READERS;
    CacheSet set = {0, 0, 0};
    if (wanted) set = cache.set_of(row);
    u64 tags[READERS][2];
#pragma unroll
    for (u32 turn = 0; turn < READERS; turn++) {
        const u64 at = __shfl_sync(ALL_LANES, set.tags, int(turn * AT_ONCE + lane() / READERS));
        tags[turn][0] = tags[turn][1] = 0;
        if (at != 0) load_words(at + lane() % READERS * 16, tags[turn][0], tags[turn][1]);
    }
    const u64 name = wanted ? name_of(row) : 0;
    u32 found = 0;  // its version, way and 1
#pragma unroll
    for (u32 turn = 0; turn < READERS; turn++) {
        const u64 sought = __shfl_sync(ALL_LANES, name, int(turn * AT_ONCE + lane() / READERS));
        u32 seen = 0;
#pragma unroll
        for (u32 i = 0; i < 2; i++)
            if (sought != 0 && is_valid(tags[turn][i], sought))
                seen = version_of(tags[turn][i]) << 4 | (lane() % READERS * 2 + i + 1);
        for (i32 lanes = 1; lanes < i32(READERS); lanes *= 2) {
            const u32 other = __shfl_xor_sync(ALL_LANES, seen, lanes);
            seen = other > seen ? other : seen;
        }
        const u32 of_lane = __shfl_sync(ALL_LANES, seen, int(lane() % AT_ONCE * READERS));
        if (lane() / AT_ONCE == turn) found = of_lane;
    }
    if (found == 0) return {0, 0, 0};
    const u32 way = (found & 15) - 1;
    return {set.lines + way * cache.stride, set.tags + way * 8, found >> 4};
}

// A row where the table has it, `bytes` bytes: a multiple of 16.
struct HomeRow {
    u64 address, bytes;

    // Writes it to a line. The whole warp passes.
    __device__ __forceinline__ void copy(u64 line) const {
        for (u64 at = lane() * sizeof(Word16); at < bytes; at += WARP * sizeof(Word16)) {
            Word16 word = {0, 0, 0, 0};
            load_relaxed(true, address + at, word);
            store_relaxed(line + at, word);
        }
    }
};

// Brings a row to a line whose tag this warp has made `claimed` (lane 0 did). The whole warp
// passes.
template <class Row>
__device__ __forceinline__ void fill_line(u64 tag, u64 claimed, u64 line, const Row& row) {
    fence_sc();
    __syncwarp();
    row.copy(line);
    fence_acq_rel();
    __syncwarp();
    if (lane() == 0) {
        fence_acq_rel();
        const u64 now = exchange_word(tag, claimed, next_tag(claimed, named_by(claimed)));
        // Cancelled: it is this warp's to end it.
        if (now != claimed) store_word(tag, next_tag(now, 0));
    }
    __syncwarp();
}

}  // namespace wm
