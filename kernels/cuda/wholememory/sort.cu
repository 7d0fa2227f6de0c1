// A stable sort of row numbers with the positions that they came from, and the runs of equal ones.
// It brings the gradients of one row together, in an order that does not depend on the launch, and
// rows of the host into the order of their addresses.
//
// By digits of eight bits, the least significant first, three launches and a scan a digit: count,
// the two of scan.cu over the counts, move. A tile is 4096 numbers; a warp has 512 neighbouring
// ones, 32 at a time, so that numbers get their places in order and equal digits stay in order.
//
// Numbers have 32 bits where all rows can be numbered in 32, else 64: each kernel is told in bytes.
// Those of `limit` or more are left out by the first digit; from the second on there are as many as
// its scan has found.
//
// Blocks are of 256 threads.
#include "table.cuh"

namespace wm {

constexpr u32 SORT_BITS = 8;
constexpr u32 SORT_DIGITS = 1 << SORT_BITS;
constexpr u32 SORT_THREADS = 256;
constexpr u32 SORT_WARPS = SORT_THREADS / WARP;
constexpr u32 SORT_RUN = 16;
constexpr u64 SORT_TILE = SORT_THREADS * SORT_RUN;
static_assert(SORT_DIGITS == SORT_THREADS, "a thread has a digit");
typedef u32 DigitCounts[SORT_DIGITS];
typedef DigitCounts WarpCounts[SORT_WARPS];

// Numbers that are sorted by one digit.
template <class Number>
struct DigitOf {
    const Number* numbers;
    u64 n;
    u32 shift;
    u64 limit;

    // SORT_DIGITS for a number that is left out.
    __device__ __forceinline__ u32 digit(bool is_one, Number number) const {
        return is_one && number < limit ? u32(number >> shift) % SORT_DIGITS : SORT_DIGITS;
    }
};

template <class Number>
__device__ __forceinline__ void count_digits(const DigitOf<Number>& all, u64 tiles, i32* counts,
                                             DigitCounts& of_tile) {
    const u32 thread = thread_in_block();
    for (u64 tile = block_in_grid(); tile < tiles; tile += blocks_in_grid()) {
        of_tile[thread] = 0;
        __syncthreads();
#pragma unroll 4
        for (u32 i = 0; i < SORT_RUN; i++) {
            const u64 at = tile * SORT_TILE + i * SORT_THREADS + thread;
            const u32 digit = at < all.n ? all.digit(true, all.numbers[at]) : SORT_DIGITS;
            if (digit < SORT_DIGITS) atomicAdd(&of_tile[digit], 1u);
        }
        __syncthreads();
        counts[thread * tiles + tile] = i32(of_tile[thread]);
    }
}

template <class Number>
__device__ __forceinline__ void move_by_digit(const DigitOf<Number>& all, u64 tiles, const u32* positions,
                                              const i32* offsets, Number* output_numbers, u32* output_positions,
                                              WarpCounts& of_warps) {
    DigitCounts& counts = of_warps[warp()];
    for (u64 tile = block_in_grid(); tile * SORT_TILE < all.n; tile += blocks_in_grid()) {
        const u64 first = tile * SORT_TILE + warp() * (WARP * SORT_RUN) + lane();
        for (u32 digit = lane(); digit < SORT_DIGITS; digit += WARP) counts[digit] = 0;
        __syncwarp();
        Number number[SORT_RUN];
        u32 digits[SORT_RUN], ranks[SORT_RUN];  // a rank is among the warp's numbers of the same digit
#pragma unroll
        for (u32 i = 0; i < SORT_RUN; i++) {
            const u64 at = first + i * WARP;
            number[i] = at < all.n ? all.numbers[at] : 0;
            digits[i] = all.digit(at < all.n, number[i]);
        }
#pragma unroll
        for (u32 i = 0; i < SORT_RUN; i++) {
            const u32 alike = lanes_alike<SORT_BITS + 1>(digits[i]), before_lane = alike & ((1u << lane()) - 1);
            const bool is_one = digits[i] < SORT_DIGITS;
            const u32 earlier = is_one ? counts[digits[i]] : 0;
            ranks[i] = earlier + ones(before_lane);
            __syncwarp();
            if (is_one && before_lane == 0) counts[digits[i]] = earlier + ones(alike);
            __syncwarp();
        }
        __syncthreads();
        // Counts become places: of this thread's digit, warp after warp.
        const u32 digit = thread_in_block();
        u32 place = u32(offsets[digit * tiles + tile]);
        for (u32 i = 0; i < SORT_WARPS; i++) {
            const u32 own = of_warps[i][digit];
            of_warps[i][digit] = place;
            place += own;
        }
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < SORT_RUN; i++) {
            if (digits[i] == SORT_DIGITS) continue;
            const u32 to = counts[digits[i]] + ranks[i];
            output_numbers[to] = number[i];
            output_positions[to] = positions[first + i * WARP];
        }
        __syncthreads();
    }
}

/// Row numbers that are sorted, and the positions that they came from.
struct SortKeys {
    void* numbers;
    u32* positions;
    u64 n;
    const i64* kept;  // how many numbers there still are; null where all `n` are there
    u32 bytes;        // of a number: 4 or 8

    __device__ __forceinline__ u64 left() const { return kept == nullptr ? n : u64(*kept); }
    __device__ __forceinline__ u64 tiles() const { return (n + SORT_TILE - 1) / SORT_TILE; }
    __device__ __forceinline__ u64 number(u64 at) const {
        return bytes == 8 ? static_cast<const u64*>(numbers)[at] : static_cast<const u32*>(numbers)[at];
    }
    // The numbers as an array of their type, to be sorted by one digit.
    template <class Number>
    __device__ __forceinline__ DigitOf<Number> digits(u32 shift, u64 limit) const {
        return {static_cast<const Number*>(numbers), left(), shift, limit};
    }
};

}  // namespace wm

/// For the row numbers `rows[i]`: number `i` becomes its distance from `first_row`, or
/// `rows_in_part` where it is not one of the `rows_in_part` rows from there on. Position `i`
/// becomes `i`.
extern "C" __global__ void wm_sort_begin(wm::Numbers rows, i64 first_row, u64 rows_in_part, wm::SortKeys keys) {
    for (u64 i : wm::share_of(rows.count)) {
        const i64 row = rows.at(i);
        const u64 distance = u64(row) - u64(first_row);
        const bool is_in_part = row >= first_row && distance < rows_in_part;
        wm::store_index(keys.numbers, keys.bytes, i, i64(is_in_part ? distance : rows_in_part));
        keys.positions[i] = u32(i);
    }
}

/// `counts[digit * tiles + tile]` becomes how many numbers below `limit` of a tile (4096 of the
/// `n`) have the digit of eight bits at `shift`; there are 256 times as many counts as tiles. The
/// keys' `kept` is null for the first digit, then the total of its scan. Blocks of 256 threads.
extern "C" __global__ void wm_sort_count(wm::SortKeys keys, u64 limit, u32 shift, i32* counts) {
    WM_SHARED_ARRAY(wm::DigitCounts, of_tile);
    if (keys.bytes == 8) {
        wm::count_digits(keys.digits<u64>(shift, limit), keys.tiles(), counts, of_tile);
    } else {
        wm::count_digits(keys.digits<u32>(shift, limit), keys.tiles(), counts, of_tile);
    }
}

/// Moves each number below `limit`, and its position, to its digit's place: `offsets` are the
/// exclusive sums of `wm_sort_count`'s counts. Inputs and outputs are different arrays. Blocks of
/// 256 threads.
extern "C" __global__ void wm_sort_move(wm::SortKeys keys, u64 limit, u32 shift, const i32* offsets,
                                        void* output_numbers, u32* output_positions) {
    WM_SHARED_ARRAY(wm::WarpCounts, of_warps);
    if (keys.bytes == 8) {
        wm::move_by_digit(keys.digits<u64>(shift, limit), keys.tiles(), keys.positions, offsets,
                          static_cast<u64*>(output_numbers), output_positions, of_warps);
    } else {
        wm::move_by_digit(keys.digits<u32>(shift, limit), keys.tiles(), keys.positions, offsets,
                          static_cast<u32*>(output_numbers), output_positions, of_warps);
    }
}

/// `marks[i]` becomes 1 where a run of equal numbers begins, 0 elsewhere and from `*kept` on.
extern "C" __global__ void wm_runs_mark(wm::SortKeys keys, i32* marks) {
    const u64 left = keys.left();
    for (u64 i : wm::share_of(keys.n)) marks[i] = i < left && (i == 0 || keys.number(i - 1) != keys.number(i));
}

/// Writes each run's number to `runs` and the position of its begin to `starts`, and behind the
/// last run the position of its end. `marks` are the exclusive sums of `wm_runs_mark`'s; the last
/// of its `n` + 1 entries is the number of runs.
extern "C" __global__ void wm_runs_collect(wm::SortKeys keys, const i32* marks, i64* runs, i64* starts) {
    const u64 left = keys.left();
    for (u64 i : wm::share_of(left)) {
        if (marks[i + 1] != marks[i]) {
            runs[marks[i]] = i64(keys.number(i));
            starts[marks[i]] = i64(i);
        }
        if (i + 1 == left) starts[marks[keys.n]] = i64(left);
    }
}
