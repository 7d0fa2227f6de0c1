// A stable sort of row numbers with the positions that they came from, and the runs of equal ones: what brings the
// gradients of one row together, in an order that does not depend on the launch.
//
// By digits of four bits, the least significant first, three launches and a scan a digit: count, the two of scan.cu
// over the counts, move. A tile is 2048 numbers; a thread has a run of neighbouring ones, so that it counts and moves
// them in order and equal digits stay in order.
//
// Blocks are of 256 threads.
#include "table.cuh"

namespace wm {

constexpr u32 SORT_DIGITS = 16;
constexpr u32 SORT_THREADS = 256;
constexpr u32 SORT_RUN = 8;
constexpr u64 SORT_TILE = SORT_THREADS * SORT_RUN;

__device__ __forceinline__ u32 digit_of(u64 number, u32 shift) { return u32(number >> shift) & (SORT_DIGITS - 1); }

// How many of each digit this thread's run has: one column of `counts`.
__device__ __forceinline__ void count_run(const u64* numbers, u64 n, u64 first, u32 shift,
                                          u32 (&counts)[SORT_DIGITS][SORT_THREADS]) {
    const u32 thread = thread_in_block();
    for (u32 digit = 0; digit < SORT_DIGITS; digit++) counts[digit][thread] = 0;
    for (u64 i = first; i < first + SORT_RUN && i < n; i++) counts[digit_of(numbers[i], shift)][thread]++;
    __syncthreads();
}

}  // namespace wm

/// For the numbers `indices[i]` of `count`: `numbers[i]` becomes its distance from `first_row`, or `rows` where it is
/// not one of the `rows` rows from there on (so that it sorts behind them); `positions[i]` becomes `i`.
extern "C" __global__ void wm_sort_begin(const void* indices, u32 index_bytes, u64 count, i64 first_row, u64 rows,
                                         u64* numbers, i64* positions) {
    for (u64 i : wm::share_of(count)) {
        const i64 index = wm::load_index(indices, index_bytes, i);
        const u64 number = u64(index) - u64(first_row);
        numbers[i] = index >= first_row && number < rows ? number : rows;
        positions[i] = i64(i);
    }
}

/// `counts[digit * tiles + tile]` becomes how many numbers of a tile (of 2048) have the digit of four bits at
/// `shift`; there are 16 times as many counts as tiles. Blocks of 256 threads.
extern "C" __global__ void wm_sort_count(const u64* numbers, u64 n, u32 shift, i32* counts) {
    typedef u32 Counts[wm::SORT_DIGITS][wm::SORT_THREADS];
    Counts& of_thread = wm::shared<Counts, struct OfCounting>();
    const u64 tiles = (n + wm::SORT_TILE - 1) / wm::SORT_TILE;
    const u32 thread = wm::thread_in_block();
    for (u64 tile = wm::block_in_grid(); tile < tiles; tile += wm::blocks_in_grid()) {
        wm::count_run(numbers, n, tile * wm::SORT_TILE + thread * wm::SORT_RUN, shift, of_thread);
        if (thread < wm::SORT_DIGITS) {
            u32 sum = 0;
            for (u32 i = 0; i < wm::SORT_THREADS; i++) sum += of_thread[thread][(i + thread) % wm::SORT_THREADS];
            counts[thread * tiles + tile] = i32(sum);
        }
        __syncthreads();
    }
}

/// Moves each number and position to where its digit has it: `offsets` are the exclusive sums of `wm_sort_count`'s
/// counts. Inputs and outputs are different arrays. Blocks of 256 threads.
extern "C" __global__ void wm_sort_move(const u64* numbers, const i64* positions, u64 n, u32 shift, const i32* offsets,
                                        u64* output_numbers, i64* output_positions) {
    typedef u32 Counts[wm::SORT_DIGITS][wm::SORT_THREADS];
    Counts& of_thread = wm::shared<Counts, struct OfMoving>();
    const u64 tiles = (n + wm::SORT_TILE - 1) / wm::SORT_TILE;
    const u32 thread = wm::thread_in_block();
    for (u64 tile = wm::block_in_grid(); tile < tiles; tile += wm::blocks_in_grid()) {
        const u64 first = tile * wm::SORT_TILE + thread * wm::SORT_RUN;
        wm::count_run(numbers, n, first, shift, of_thread);
        // A warp has two digits, one after the other: each lane sums up eight threads, then the lanes before it.
        for (u32 digit = wm::warp(); digit < wm::SORT_DIGITS; digit += wm::SORT_THREADS / wm::WARP) {
            u32* row = of_thread[digit] + wm::lane() * (wm::SORT_THREADS / wm::WARP);
            u32 mine = 0;
            for (u32 i = 0; i < wm::SORT_THREADS / wm::WARP; i++) mine += row[i];
            u32 up_to_here = mine;
            for (u32 distance = 1; distance < wm::WARP; distance *= 2) {
                const u32 other = __shfl_up_sync(wm::ALL_LANES, up_to_here, distance);
                if (wm::lane() >= distance) up_to_here += other;
            }
            u32 before = up_to_here - mine;
            for (u32 i = 0; i < wm::SORT_THREADS / wm::WARP; i++) {
                const u32 own = row[i];
                row[i] = before;
                before += own;
            }
        }
        __syncthreads();
        for (u64 i = first; i < first + wm::SORT_RUN && i < n; i++) {
            const u32 digit = wm::digit_of(numbers[i], shift);
            const u64 to = u64(i64(offsets[digit * tiles + tile])) + of_thread[digit][thread]++;
            output_numbers[to] = numbers[i];
            output_positions[to] = positions[i];
        }
        __syncthreads();
    }
}

/// `marks[i]` becomes 1 where a run of equal numbers begins, 0 elsewhere and for numbers of `rows` or more.
extern "C" __global__ void wm_runs_mark(const u64* numbers, u64 n, u64 rows, i32* marks) {
    for (u64 i : wm::share_of(n)) marks[i] = numbers[i] < rows && (i == 0 || numbers[i - 1] != numbers[i]);
}

/// Writes each run's number to `runs` and where it begins to `starts`, and behind the last run where it ends. `marks`
/// are the exclusive sums of `wm_runs_mark`'s; the last of its `n` + 1 entries is how many runs there are.
extern "C" __global__ void wm_runs_collect(const u64* numbers, u64 n, u64 rows, const i32* marks, i64* runs,
                                           i64* starts) {
    for (u64 i : wm::share_of(n)) {
        if (numbers[i] >= rows) continue;
        if (marks[i + 1] != marks[i]) {
            runs[marks[i]] = i64(numbers[i]);
            starts[marks[i]] = i64(i);
        }
        if (i + 1 == n || numbers[i + 1] >= rows) starts[marks[n]] = i64(i) + 1;
    }
}
