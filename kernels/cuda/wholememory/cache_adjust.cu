// The replacement policy of the cache: lookups are counted, lines are filled and evicted.
//
// Least frequently used, with age: a row that no line has becomes a candidate of its set; a
// candidate that was asked for more often than the coldest line takes that line. Counts are halved
// each time a set has missed often enough. Only a part's own rank adjusts it; all ranks count.
#include "arrived.cuh"

namespace wm {

// A part learns while more lines were taken of late than one of every so many sets.
constexpr u64 LEARNS_ABOVE = 8;

__device__ __forceinline__ u32 one_more(u32 count) { return count < MOST ? count + 1 : count; }

// Counts one lookup of a row.
__device__ __forceinline__ void count_lookup(const CacheTables& cache, u64 row) {
    const CacheSet set = cache.set_of(row);
    const u64 name = name_of(row);
    const SetWords tags(set.tags);
    for (u32 way = 0; way < WAYS; way++) {
        const u64 at = set.record + COUNTS_AT + way * 4;
        if (named_by(tags.word[way]) == name) return store_relaxed(at, one_more(load_count(at)));
    }
    const u64 misses = set.record + MISSES_AT;
    store_relaxed(misses, one_more(load_count(misses)));
    const SetWords candidates(set.record);
    // Rows that come at the same time look for a free place from different places on.
    u32 free = CANDIDATES, least = 0;
    for (u32 i = 0; i < CANDIDATES; i++) {
        const u32 place = (i + u32(mixed(row))) % CANDIDATES;
        const u64 other = candidates.word[place];
        if (named_by(other) == name)
            return store_word(set.record + place * 8, candidate_of(name, one_more(times_of(other))));
        if (times_of(other) == 0 && free == CANDIDATES) free = place;
        if (times_of(other) < times_of(candidates.word[least])) least = place;
    }
    if (free != CANDIDATES) return store_word(set.record + free * 8, candidate_of(name, 1));
    // It wears down the one that is asked for least, until it is that one's turn to go.
    const u64 other = candidates.word[least];
    const bool stays = times_of(other) > 1;
    store_word(set.record + least * 8, stays ? candidate_of(named_by(other), times_of(other) - 1) : candidate_of(name, 1));
}

// How hard it is to take a line: nothing for an empty one, as often as it was asked for, or never.
__device__ __forceinline__ u64 hardness(u64 tag, u32 count) {
    if ((tag & FILLING) != 0) return ~0ull >> 8;
    return named_by(tag) == 0 ? 0 : count + 1ull;
}

__device__ __forceinline__ void age(u64 record) {
    store_relaxed(record + MISSES_AT, u32(0));
    for (u32 i = 0; i < CANDIDATES; i++) {
        const u64 candidate = load_word(record + i * 8), half = times_of(candidate) / 2;
        if (candidate != 0) store_word(record + i * 8, half == 0 ? 0 : candidate_of(named_by(candidate), u32(half)));
    }
    for (u32 way = 0; way < WAYS; way++) {
        const u64 at = record + COUNTS_AT + way * 4;
        store_relaxed(at, load_count(at) / 2);
    }
}

// Has a set a candidate that would take a line? One lane looks.
__device__ __forceinline__ bool wants_change(const CacheSet& set) {
    if (load_count(set.record + MISSES_AT) >= AGE) age(set.record);
    const SetWords candidates(set.record);
    u32 best = 0;
    for (u32 i = 0; i < CANDIDATES; i++) best = times_of(candidates.word[i]) > best ? times_of(candidates.word[i]) : best;
    if (best == 0) return false;
    const SetWords tags(set.tags);
    u64 coldest = ~0ull;
    for (u32 way = 0; way < WAYS; way++) {
        const u64 hard = hardness(tags.word[way], load_count(set.record + COUNTS_AT + way * 4));
        coldest = hard < coldest ? hard : coldest;
    }
    return best >= coldest;
}

__device__ __forceinline__ u64 largest_of_lanes(u64 value) {
#pragma unroll
    for (i32 lanes = WARP / 2; lanes > 0; lanes /= 2) {
        const u64 other = __shfl_xor_sync(ALL_LANES, value, lanes);
        value = other > value ? other : value;
    }
    return value;
}

// Where lines get their rows: from the table, or from a gather's packed memory.
struct HomeRows {
    const Table& table;
    u64 bytes;

    __device__ __forceinline__ u64 find(u64 row) const { return table.row(i64(row)); }
    __device__ __forceinline__ HomeRow at(u64 address) const { return {address, bytes}; }
};
struct GatheredRows {
    const ArrivedRows& rows;

    __device__ __forceinline__ u64 find(u64 row) const { return rows.row(i64(row)); }
    __device__ __forceinline__ ArrivedRow at(u64 address) const { return {rows, address}; }
};

// Gives candidates of a set the lines of rows that are asked for less; how many. A candidate whose
// row is not there stays one. The whole warp passes; lane w has way w and candidate w.
template <class Rows>
__device__ __forceinline__ u32 adjust_set(const CacheTables& cache, const Rows& rows, const CacheSet& set) {
    const bool has_way = lane() < WAYS;
    u64 tag = has_way ? load_word(set.tags + lane() * 8) : FILLING;
    u32 count = has_way ? load_count(set.record + COUNTS_AT + lane() * 4) : 0;
    u64 candidate = has_way ? load_word(set.record + lane() * 8) : 0;
    u32 taken = 0;
#pragma unroll 1
    for (u32 i = 0; i < CANDIDATES; i++) {
        const u64 best = largest_of_lanes(candidate), name = named_by(best);
        if (times_of(best) == 0 || name == 0) return taken;
        // The largest of these is the coldest line's; its way is in the low bits.
        const u64 order = ~(hardness(tag, count) << 3 | (lane() & (WAYS - 1)));
        const u64 coldest = ~largest_of_lanes(order);
        const bool has_line = any_lane(named_by(tag) == name);
        if (!has_line && times_of(best) < coldest >> 3) return taken;
        const u64 row = has_line ? 0 : rows.find(name - 1);
        if (candidate == best) {
            if (has_line || row != 0) store_word(set.record + lane() * 8, 0);
            candidate = 0;
        }
        if (row == 0) continue;
        const u32 way = u32(coldest) & (WAYS - 1);
        const u64 was = __shfl_sync(ALL_LANES, tag, int(way)), claimed = next_tag(was, FILLING + name);
        u64 found = 0;
        if (lane() == 0) found = exchange_word(set.tags + way * 8, was, claimed);
        // Another stream of this rank is at this set.
        if (__shfl_sync(ALL_LANES, found, 0) != was) return taken;
        fill_line(set.tags + way * 8, claimed, set.lines + way * cache.stride, rows.at(row));
        taken++;
        if (lane() == way) {
            tag = name;
            count = times_of(best);
            store_relaxed(set.record + COUNTS_AT + way * 4, count);
        }
        __syncwarp();
    }
    return taken;
}

// Adds the lines that a turn of 32 sets has filled to the recent fills. These decay with each turn
// by the turn's share of all sets. Launches at the same time may let them decay too much: then the
// number is below 0 for a while.
__device__ __forceinline__ void note_taken(u64 lately, u64 sets, u32 taken) {
    const i64 before = i64(load_word(lately)), turns = i64((sets + WARP - 1) / WARP);
    const i64 change = i64(taken * LATELY) - before / turns;
    if (change != 0) atomicAdd(reinterpret_cast<u64*>(lately), u64(change));
}

// Does a part still learn? Then few lookups are not enough to tell its rows from each other.
__device__ __forceinline__ bool is_learning(u64 first_record, u64 sets) {
    const i64 lately = i64(load_word(first_record + LATELY_AT));
    return load_word(first_record + CURSOR_AT) == 0 || lately >= i64(sets * (LATELY / LEARNS_ABOVE));
}

// Adjusts sets of a part from the cursor on.
template <class Rows>
__device__ __forceinline__ void adjust_sets(const CacheTables& cache, const Rows& rows, u32 part, u64 turns) {
    const u64 sets = cache.sets_of(part);
    const u32 warps = threads_in_block() / WARP;
    if (sets == 0 || warp() >= warps) return;
    const u64 first_record = cache.set(part, sets, 0).record;
    u64* cursor = reinterpret_cast<u64*>(first_record + CURSOR_AT);
    for (u64 i = block_in_grid() * warps + warp(); i < turns; i += blocks_in_grid() * warps) {
        u64 first = 0;
        if (lane() == 0) first = atomicAdd(cursor, u64(WARP));
        first = __shfl_sync(ALL_LANES, first, 0);
        const bool is_mine = lane() < sets;
        const u64 number = (first + lane()) % sets;
        const bool wants = is_mine && wants_change(cache.set(part, sets, number));
        u32 taken = 0;
#pragma unroll 1
        for (u32 lane_of_set = 0; lane_of_set < WARP; lane_of_set++) {
            if (__shfl_sync(ALL_LANES, u32(wants), int(lane_of_set)) == 0) continue;
            const u64 wanting = __shfl_sync(ALL_LANES, number, int(lane_of_set));
            taken += adjust_set(cache, rows, cache.set(part, sets, wanting));
        }
        if (lane() == 0) note_taken(first_record + LATELY_AT, sets, taken);
    }
}

// Takes a row out of a tag, or has its bytes brought anew (`home` is not 0). Lane 0 changes the
// tag, the whole warp passes.
__device__ __forceinline__ void renew_tag(u64 tag, u64 name, u64 line, u64 home, u64 bytes) {
    u64 claimed = 0;
    if (lane() == 0) {
        for (u64 seen = load_word(tag); named_by(seen) == name;) {
            const bool is_filling = (seen & FILLING) != 0;
            // The warp that fills the line finds its tag cancelled.
            const u64 content = is_filling ? FILLING : home != 0 ? FILLING + name : 0, next = next_tag(seen, content);
            const u64 now = exchange_word(tag, seen, next);
            if (now == seen) {
                if (named_by(next) == name) claimed = next;
                break;
            }
            seen = now;
        }
    }
    claimed = __shfl_sync(ALL_LANES, claimed, 0);
    if (claimed != 0) fill_line(tag, claimed, line, HomeRow{home, bytes});
}

}  // namespace wm

/// Counts lookups: one of each 2^`shift` row numbers, which `seed` chooses; and all of them while
/// this rank's part, number `part`, takes many lines.
extern "C" __global__ void wm_cache_count(wm::Numbers numbers, u32 shift, u64 seed, u64 rows_in_table,
                                          wm::CacheTables cache, u32 part) {
    const u64 sets = cache.sets_of(part);
    if (wm::is_learning(cache.set(part, sets, 0).record, sets)) shift = 0;
    for (u64 i : wm::share_of(numbers.count >> shift)) {
        const u64 of_run = wm::mixed(i + seed) & ((1ull << shift) - 1);
        const i64 row = numbers.at((i << shift) + of_run);
        if (row >= 0 && u64(row) < rows_in_table) wm::count_lookup(cache, u64(row));
    }
}

/// Adjusts sets of part `part`, which is this rank's own: as many as `turns` times 32, from where
/// the last launch ended. Blocks are whole warps.
extern "C" __global__ void wm_cache_adjust(wm::Table table, wm::CacheTables cache, u32 part, u64 turns) {
    wm::adjust_sets(cache, wm::HomeRows{table, cache.stride}, part, turns);
}

/// As `wm_cache_adjust`, with the rows of a gather, which are in their packed places.
extern "C" __global__ void wm_cache_adjust_arrived(wm::ArrivedRows rows, wm::CacheTables cache, u32 part, u64 turns) {
    wm::adjust_sets(cache, wm::GatheredRows{rows}, part, turns);
}

/// Fills lines of this rank's own part again: those of the `*count` rows that `rows` names as
/// distances from the part's first row, and that earlier kernels have changed at `own_rows`.
/// `first_row` is the number of the part's first row, `rows_in_part` the number of its rows;
/// numbers beyond are skipped. Blocks are whole warps.
extern "C" __global__ void wm_cache_renew(const i64* rows, const i64* count, u64 own_rows, u64 first_row,
                                          u64 rows_in_part, wm::CacheTables cache, u32 part) {
    const u64 sets = cache.sets_of(part);
    const u32 warps = wm::threads_in_block() / wm::WARP;
    if (sets == 0 || wm::warp() >= warps) return;
    const u64 all = u64(*count);
    for (u64 i = wm::block_in_grid() * warps + wm::warp(); i < all; i += wm::blocks_in_grid() * warps) {
        const i64 row = rows[i];
        if (row < 0 || u64(row) >= rows_in_part) continue;
        const wm::CacheSet set = cache.set(part, sets, wm::set_number(u64(row), sets));
        const u64 name = wm::name_of(first_row + u64(row));
        // The row was written before; the tags are read after.
        wm::fence_sc();
        const u64 tag = wm::lane() < wm::WAYS ? wm::load_word(set.tags + wm::lane() * 8) : 0;
#pragma unroll 1
        for (u32 way = 0; way < wm::WAYS; way++)
            if (wm::named_by(__shfl_sync(wm::ALL_LANES, tag, int(way))) == name)
                wm::renew_tag(set.tags + way * 8, name, set.lines + way * cache.stride,
                              own_rows + u64(row) * cache.stride, cache.stride);
    }
}

/// Empties all `tags` tags of this rank's own part.
extern "C" __global__ void wm_cache_drop(u64 own_tags, u64 tags) {
    // The rows that the program has written before this launch have no line afterwards.
    wm::fence_sc();
    for (u64 i : wm::share_of(tags)) {
        const u64 at = own_tags + i * 8;
        for (u64 seen = wm::load_word(at); wm::named_by(seen) != 0;) {
            const u64 now = wm::exchange_word(at, seen, wm::next_tag(seen, seen & wm::FILLING));
            if (now == seen) break;
            seen = now;
        }
    }
}
