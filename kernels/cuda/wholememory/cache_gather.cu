// Gather through a cache: rows that have a line come from there, the others from the table.
//
// It is the walk of rows.cuh with lines for rows (cache.cuh says why no byte is wrong). A warp looks the next batch's
// rows up before the one fence of a batch, which therefore orders both: that lookup before the lines' bytes, and this
// batch's bytes before the second look at its tags. Rows whose line has changed meanwhile are moved again, from the
// table. There are walks for words of 16, 4 and 1 bytes: an image has room for no more.
#include "cache.cuh"

namespace wm {

// A batch of a walk through a cache is larger: it has a fence.
constexpr u64 CACHED_BATCH_BYTES = 32768;

template <class W>
struct OrderedCopy {
    typedef W Word;
    static constexpr bool FROM_TABLE = true, HAS_SETS = sizeof(W) == 16;
    static constexpr u32 table_bytes = sizeof(W), from_bytes = sizeof(W), to_bytes = sizeof(W);
    __device__ __forceinline__ void load(bool live, u64 at, W& word) const { load_relaxed(live, at, word); }
    __device__ __forceinline__ void store(bool live, u64 at, const W& word) const { store_once(live, at, word); }
};

template <class Mover, u32 SETS>
struct CachedWalk {
    const Walk<Mover, SETS> walk;
    const Cache& cache;

    // The rows of a batch that this lane has found: their numbers, where they come from, and what has to stay as it is.
    struct Batch {
        i64 numbers[SETS];
        u64 rows[SETS];
        Hit hits[SETS];
        bool has_hits;
    };

    __device__ __forceinline__ void look_up_batch(u64 first, Batch& batch) const {
        walk.load_numbers(first, batch.numbers);
        batch.has_hits = false;
#pragma unroll
        for (u32 set = 0; set < SETS; set++) {
            const i64 number = batch.numbers[set];
            batch.rows[set] = walk.all.table.row(number);
            batch.hits[set] = {0, 0, 0};
            if (batch.rows[set] != 0) batch.hits[set] = look_up(cache, u64(number));
            if (batch.hits[set].tag != 0) {
                batch.rows[set] = batch.hits[set].line;
                batch.has_hits = true;
            }
        }
    }

    // Whose line has changed gets the table's row, the others none. Nothing is left to look at again.
    __device__ __forceinline__ bool find_changed(Batch& batch) const {
        bool any = false;
#pragma unroll
        for (u32 set = 0; set < SETS; set++) {
            const Hit& hit = batch.hits[set];
            const bool changed = hit.tag != 0 && load_word(hit.tag) != hit.seen;
            batch.rows[set] = changed ? walk.all.table.row(batch.numbers[set]) : 0;
            batch.hits[set].tag = 0;
            any |= changed;
        }
        batch.has_hits = false;
        return any;
    }

    // The first batch is one of no rows, so that code for each step stands here once.
    __device__ __forceinline__ void run() const {
        const u64 step = walk.warps * walk.division.batch;
        u64 first = 0, upcoming = (block_in_grid() * (threads_in_block() / WARP) + warp()) * walk.division.batch;
        Batch batch, next;
#pragma unroll
        for (u32 set = 0; set < SETS; set++) batch.numbers[set] = -1, batch.rows[set] = 0, batch.hits[set] = {0, 0, 0};
        batch.has_hits = false;
        bool is_again = false;
#pragma unroll 1
        while (true) {
            walk.move_batch(first, batch.rows);
            if (!is_again) look_up_batch(upcoming, next);
            is_again = false;
            if (any_lane(batch.has_hits || next.has_hits)) {
                fence_acq_rel();
                __syncwarp();
                is_again = any_lane(find_changed(batch));
            }
            if (is_again) continue;
            if (upcoming >= walk.all.count) return;
            first = upcoming, upcoming += step;
            batch = next;
        }
    }
};

template <class Mover>
__device__ __forceinline__ void move_cached_rows(const RowSet& rows, u64 row_words, const Cache& cache) {
    const u32 words = u32(row_words);
    if (words == 0 || warp() >= threads_in_block() / WARP) return;
    const Mover mover = Mover();
    const u64 bytes = CACHED_BATCH_BYTES;
    if constexpr (Mover::HAS_SETS) {
        if (words == 1) return CachedWalk<Mover, 4>{{rows, words, mover, bytes}, cache}.run();
        if (words == 2) return CachedWalk<Mover, 2>{{rows, words, mover, bytes}, cache}.run();
    }
    CachedWalk<Mover, 1>{{rows, words, mover, bytes}, cache}.run();
}

__device__ __forceinline__ void gather_cached(const RowSet& rows, u64 row_bytes, u32 width, const Cache& cache) {
    if (width == 16) return move_cached_rows<OrderedCopy<Word16>>(rows, row_bytes / 16, cache);
    if (width >= 4) return move_cached_rows<OrderedCopy<u32>>(rows, row_bytes / 4, cache);
    move_cached_rows<OrderedCopy<u8>>(rows, row_bytes, cache);
}

}  // namespace wm

/// As `wm_gather_rows`, through a cache of `parts` parts at `cache_bases`, whose row and set numbers begin at
/// `row_starts` (or are `rows_equal` rows each) and `set_starts`. Rows begin at multiples of 16 bytes, in the table
/// and in lines; `stride` is that of both.
extern "C" __global__ void wm_cache_gather(u64 base, const u64* bases, const u64* starts, u32 chunks, u64 equal,
                                           u64 rows_in_table, u64 stride, u64 row_bytes, const void* indices,
                                           u32 index_bytes, u64 count, void* output, u64 output_stride, u32 width,
                                           const u64* cache_bases, const u64* row_starts, u32 parts, u64 rows_equal,
                                           const u64* set_starts) {
    const wm::Table table(base, bases, starts, chunks, equal, rows_in_table, stride, 0);
    const wm::Cache cache(cache_bases, row_starts, parts, rows_equal, set_starts, stride);
    const wm::Packed packed = {reinterpret_cast<u64>(output), output_stride};
    wm::gather_cached({table, indices, index_bytes, count, packed}, row_bytes, width, cache);
}
