// Moves rows between a table, at the numbers that an array names, and packed memory.
//
// How it is fast: a warp takes a batch of rows at a time. Each lane finds the address of one row
// (or of four, where rows are a word), and shuffles hand it to the lanes that move the row. These
// are a group of the smallest power of two that covers a row, so a warp moves several short rows
// side by side; of a long row a group moves one piece after another. Rows and pieces are one
// sequence of steps, and four steps' loads are under way before the first store. The next batch's
// row numbers are loaded before this batch moves.
//
// The batches of a table of several chunks are taken from eight parts of the numbers in turn: of
// sorted numbers a GPU then asks several chunks at once, instead of one after the other.
//
// Rules: blocks are whole warps (the rest of a block has no work); the whole warp passes every
// shuffle.
#pragma once

#include "table.cuh"

namespace wm {

constexpr u32 IN_FLIGHT = 4;

// Bytes of a batch that is large enough: small batches spread evenly over the warps of the grid.
constexpr u64 BATCH_BYTES = 8192;

// Parts of the numbers from which batches are taken in turn.
constexpr u64 PARTS = 8;

// How a warp divides into groups, and how many rows it takes at a time. A row has fewer than 2^32
// words.
struct Division {
    u32 lanes;   // of a group: a power of two
    u32 groups;  // of a warp
    u32 pieces;  // of a row: more than one only for groups of 32 lanes
    u32 batch;   // rows that a warp takes at a time, a multiple of `groups`

    // For rows of `words` words (not 0), `word_bytes` long; `most` rows a batch at most.
    __device__ __forceinline__ Division(u32 words, u32 word_bytes, u64 count, u64 warps, u32 most,
                                        u64 batch_bytes = BATCH_BYTES)
        : lanes(1), pieces(1) {
        while (lanes < WARP && lanes < words) lanes *= 2;
        groups = WARP / lanes;
        if (lanes == WARP) pieces = (words - 1) / WARP + 1;
        const u64 share = quotient(count + warps - 1, warps), enough = quotient(batch_bytes, u64(words) * word_bytes);
        const u64 wanted = share < enough ? share : enough;
        batch = wanted >= most ? most : (u32(wanted) + groups - 1) / groups * groups;
        if (batch == 0) batch = groups;
    }
};

/// Rows that are copied between a table and packed memory: row `numbers[i]` of the table, and
/// packed row `i`.
struct RowSet {
    Table table;
    Numbers numbers;
    Strided packed;
    const u32* order;  // the values of `i` in the order in which an ordered walk has them; or null
};

// One warp's walk. `Mover` moves words out of the table (`FROM_TABLE`) or into it. It has a type
// `Word` for a loaded word, and the bytes of a word where it is loaded from, where it is stored to,
// and in the table. With `SETS` 1 a lane has one row number a batch; with 4 and 2 sets a row is one
// word or two. `HAS_SETS` says whether such rows are worth code of their own.
template <class Mover, u32 SETS, bool ORDERED = false>
struct Walk {
    const RowSet& all;
    const u32 words;
    const Mover mover;
    const u64 warps;
    const Division division;

    __device__ __forceinline__ Walk(const RowSet& rows, u32 words, Mover mover, u64 batch_bytes = BATCH_BYTES)
        : all(rows), words(words), mover(mover), warps(blocks_in_grid() * (threads_in_block() / WARP)),
          division(words, mover.table_bytes, rows.numbers.count, warps, WARP * SETS, batch_bytes) {}

    // A batch's row numbers, and in an ordered walk where they are in `indices`. Of equal ones in
    // turn an ordered scatter has the last one alone.
    __device__ __forceinline__ void load_numbers(u64 first, i64 (&numbers)[SETS], u64* places = nullptr) const {
        for (u32 set = 0; set < SETS; set++) {
            const u32 in_batch = set * WARP + lane();
            const bool is_mine = in_batch < division.batch && first + in_batch < all.numbers.count;
            u64 at = first + in_batch;
            if constexpr (ORDERED) at = places[set] = is_mine ? all.order[at] : 0;
            numbers[set] = is_mine ? all.numbers.at(at) : -1;
            if constexpr (ORDERED && !Mover::FROM_TABLE) {
                const bool has_next = is_mine && first + in_batch + 1 < all.numbers.count;
                if (has_next && all.numbers.at(all.order[first + in_batch + 1]) == numbers[set]) numbers[set] = -1;
            }
        }
    }

    // The first number of the batch that is taken at a turn. Each part has a batch more or less
    // than another one.
    __device__ __forceinline__ u64 first_of(u64 turn, u64 batches) const {
        if (ORDERED || all.table.chunks.count == 1) return turn * division.batch;
        const u64 part = turn % PARTS, longer = batches % PARTS;
        return (part * (batches / PARTS) + (part < longer ? part : longer) + turn / PARTS) * division.batch;
    }

    // Of a batch's rows that go to the same place only the last one is moved: writes to one place
    // wait for each other.
    __device__ __forceinline__ void keep_last(u64& row) const {
        if (lanes_alike(row) >> lane() != 1) row = 0;
    }

    __device__ __forceinline__ void run() const {
        const u64 batches = quotient(all.numbers.count + division.batch - 1, division.batch);
        u64 turn = block_in_grid() * (threads_in_block() / WARP) + warp();
        u64 first = first_of(turn, batches);
        i64 numbers[SETS];
        u64 next_places[SETS];
        load_numbers(first, numbers, next_places);
#pragma unroll 1
        while (turn < batches) {
            u64 rows[SETS], places[SETS];
            for (u32 set = 0; set < SETS; set++) {
                rows[set] = all.table.row(numbers[set]);
                if constexpr (ORDERED) places[set] = next_places[set];
            }
            if constexpr (!Mover::FROM_TABLE && SETS == 1) keep_last(rows[0]);
            turn += warps;
            const u64 next = first_of(turn, batches);
            load_numbers(next, numbers, next_places);
            move_batch(first, rows, places);
            first = next;
        }
    }

    __device__ __forceinline__ void move_batch(u64 first, const u64 (&rows)[SETS],
                                               const u64* places = nullptr) const {
        const u32 group = lane() / division.lanes, in_group = lane() % division.lanes;
        const u32 turns = SETS == 1 ? division.batch / division.groups : IN_FLIGHT / SETS;
        // The row that each group is at, of its turns, and the piece of it. With several sets all
        // are one step.
        u32 turn = 0, piece = 0;
#pragma unroll 1
        while (turn < turns) {
            typename Mover::Word word[IN_FLIGHT];
            u64 to[IN_FLIGHT];
            bool live[IN_FLIGHT];
#pragma unroll
            for (u32 i = 0; i < IN_FLIGHT; i++) {
                const u32 set = i / (IN_FLIGHT / SETS);
                if (SETS > 1) turn = i % (IN_FLIGHT / SETS);
                const u32 in_set = turn * division.groups + group;
                const u64 row = __shfl_sync(ALL_LANES, rows[set], int(in_set % WARP));
                const u32 at = piece * division.lanes + in_group;
                u64 place = first + set * WARP + in_set;
                if constexpr (ORDERED) place = __shfl_sync(ALL_LANES, places[set], int(in_set % WARP));
                const u64 in_packed = all.packed.row(place);
                live[i] = turn < turns && row != 0 && at < words;
                to[i] = (Mover::FROM_TABLE ? in_packed : row) + u64(at) * mover.to_bytes;
                mover.load(live[i], (Mover::FROM_TABLE ? row : in_packed) + u64(at) * mover.from_bytes, word[i]);
                if (SETS == 1 && ++piece == division.pieces) piece = 0, turn++;
            }
#pragma unroll
            for (u32 i = 0; i < IN_FLIGHT; i++) mover.store(live[i], to[i], word[i]);
            if (SETS > 1) return;
        }
    }
};

// All rows. Where a row is a word or two, a lane has several rows' numbers, so that it has as many
// loads under way.
template <class Mover>
__device__ __forceinline__ void move_rows(const RowSet& rows, u64 row_words, Mover mover) {
    const u32 words = u32(row_words);
    if (words == 0 || warp() >= threads_in_block() / WARP) return;
    if constexpr (Mover::HAS_SETS) {
        if (words == 1) return Walk<Mover, 4>(rows, words, mover).run();
        if (words == 2) return Walk<Mover, 2>(rows, words, mover).run();
    }
    Walk<Mover, 1>(rows, words, mover).run();
}

// All rows in their order. Rows of a word or two have no code of their own.
template <class Mover>
__device__ __forceinline__ void move_ordered_rows(const RowSet& rows, u64 row_words, Mover mover) {
    const u32 words = u32(row_words);
    if (words == 0 || warp() >= threads_in_block() / WARP) return;
    Walk<Mover, 1, true>(rows, words, mover).run();
}

}  // namespace wm
