// Gather through a cache: rows that have a line come from there, the others from the table.
//
// It is the walk of rows.cuh with lines for rows (cache.cuh says why no byte is wrong). A warp
// looks the next batch's rows up before the one fence of a batch, which therefore orders both: that
// lookup before the lines' bytes, and this batch's bytes before the second look at its tags. Rows
// whose line has changed meanwhile are moved again, from the table. There are walks for words of
// 16, 4 and 1 bytes: an image has room for no more. Left alone, the compiler takes so many
// registers that a multiprocessor has two blocks at work instead of three.
#include "cache.cuh"

namespace wm {

// A batch of a walk through a cache is larger: it has a fence.
constexpr u64 CACHED_BATCH_BYTES = 32768;

template <class W>
struct RelaxedCopy {
    typedef W Word;
    static constexpr bool FROM_TABLE = true;
    static constexpr u32 table_bytes = sizeof(W), from_bytes = sizeof(W), to_bytes = sizeof(W);
    __device__ __forceinline__ void load(bool live, u64 at, W& word) const { load_relaxed(live, at, word); }
    __device__ __forceinline__ void store(bool live, u64 at, const W& word) const { store_once(live, at, word); }
};

template <class Mover>
struct CachedWalk {
    const Walk<Mover, 1, true> walk;
    const CacheTables& cache;

    // The row of a batch that this lane has found: where it comes from, where it goes to, the tag
    // that has to stay as it is (0 for none), and that one's version, which each change changes.
    struct Found {
        u64 row[1], place[1];
        u64 tag;
        u32 version;
    };

    __device__ __forceinline__ Found look_up_batch(u64 first) const {
        const RowSet& all = walk.all;
        u64 place = first + lane();
        const bool is_mine = lane() < walk.division.batch && place < all.numbers.count;
        if (is_mine && all.order != nullptr) place = all.order[place];
        const i64 number = is_mine ? all.numbers.at(place) : -1;
        const u64 home = all.table.row(number);
        const Hit hit = look_up(cache, home != 0, u64(number));
        return {{hit.tag != 0 ? hit.line : home}, {place}, hit.tag, hit.version};
    }

    // Where the line has changed, the table's row is next; else none. Nothing is left to look at
    // again.
    __device__ __forceinline__ bool find_changed(Found& found) const {
        const bool changed = found.tag != 0 && version_of(load_word(found.tag)) != found.version;
        found.row[0] = changed ? walk.all.table.row(walk.all.numbers.at(found.place[0])) : 0;
        found.tag = 0;
        return changed;
    }

    // The first batch is one of no rows, so that code for each step stands here once.
    __device__ __forceinline__ void run() const {
        const u64 step = walk.warps * walk.division.batch;
        u64 first = (block_in_grid() * (threads_in_block() / WARP) + warp()) * walk.division.batch - step;
        Found found = {{0}, {0}, 0, 0};
#pragma unroll 1
        while (true) {
            walk.move_batch(first, found.row, found.place);
            const Found next = look_up_batch(first + step);
            if (any_lane((found.tag | next.tag) != 0)) {
                // If the cache has one part, the writer of its lines is on this GPU.
                if (cache.parts.count == 1) {
                    fence_acq_rel_of_gpu();
                } else {
                    fence_acq_rel();
                }
                __syncwarp();
                if (any_lane(find_changed(found))) continue;
            }
            first += step;
            if (first >= walk.all.numbers.count) return;
            found = next;
        }
    }
};

template <class Mover>
__device__ __forceinline__ void move_cached_rows(const RowSet& rows, u64 row_words, const CacheTables& cache) {
    const u32 words = u32(row_words);
    if (words == 0 || warp() >= threads_in_block() / WARP) return;
    CachedWalk<Mover>{{rows, words, Mover(), CACHED_BATCH_BYTES}, cache}.run();
}

__device__ __forceinline__ void gather_cached(const RowSet& rows, u64 row_bytes, u32 width, const CacheTables& cache) {
    if (width == 16) return move_cached_rows<RelaxedCopy<Word16>>(rows, row_bytes / 16, cache);
    if (width >= 4) return move_cached_rows<RelaxedCopy<u32>>(rows, row_bytes / 4, cache);
    move_cached_rows<RelaxedCopy<u8>>(rows, row_bytes, cache);
}

}  // namespace wm

/// As `wm_gather_rows`, through a cache, in the order of the rows' `order` where it is not null.
/// The table's rows begin at multiples of 16 bytes. Blocks have 256 threads at most.
extern "C" __global__ void __launch_bounds__(256, 3)
    wm_cache_gather(wm::RowSet rows, u64 row_bytes, u32 width, wm::CacheTables cache) {
    wm::gather_cached(rows, row_bytes, width, cache);
}
