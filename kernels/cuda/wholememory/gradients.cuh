// Gradients of the same row, added up where an optimizer needs the sum.
//
// The additions are in the named order, but the loads of several gradients are under way at a time:
// a row that many gradients go to (in graphs there is always one) must not take a memory's latency
// for each. Lanes need nothing from each other here, so lanes of a warp may have runs of different
// lengths.
#pragma once

#include "columns.cuh"

namespace wm {

constexpr u32 GRADIENTS_IN_FLIGHT = 4;

// A row's gradients: the `count` that `order[start]`, `order[start + 1]`, ... number; `last` is the
// last such number.
struct GradientRun {
    u32 start, count, last;
};

/// The gradients of a step, in rows at the same distance from each other.
struct Gradients {
    u64 address;
    const u32* order;  // the number of each run's gradients, run by run
    u32 stride;        // in bytes
    u32 kind;          // FLOAT, HALF or BF16

    // The run of `count` from `start` on, which may be empty.
    __device__ __forceinline__ GradientRun run(u32 start, u32 count) const {
        return {start, count, count == 0 ? 0 : order[u64(start) + count - 1]};
    }

    // Adds all gradients of a run but the last to `sum`, for the columns from `column` on: in f32
    // and in their order.
    template <u32 COLUMNS>
    __device__ __forceinline__ void add_all_but_last(const GradientRun& run, u64 column, f32 (&sum)[COLUMNS]) const {
        if (run.count <= 1) return;
        typedef ColumnWords<COLUMNS> Words;
        if (kind == FLOAT) {
            add_words<typename Words::Floats>(run, address + column * 4, sum);
        } else {
            add_words<typename Words::Halves>(run, address + column * 2, sum);
        }
    }

    template <class Word, u32 COLUMNS>
    __device__ __forceinline__ void add_words(const GradientRun& run, u64 at, f32 (&sum)[COLUMNS]) const {
        const u32 count = run.count - 1;
        const u32* numbers = order + run.start;
#pragma unroll 1
        for (u32 done = 0; done < count; done += GRADIENTS_IN_FLIGHT) {
            u32 number[GRADIENTS_IN_FLIGHT];
            Word word[GRADIENTS_IN_FLIGHT];
            // All numbers first, with no branch between them.
#pragma unroll
            for (u32 i = 0; i < GRADIENTS_IN_FLIGHT; i++)
                number[i] = numbers[done + i < count ? done + i : count];
#pragma unroll
            for (u32 i = 0; i < GRADIENTS_IN_FLIGHT; i++)
                load_once(done + i < count, at + u64(number[i]) * stride, word[i]);
#pragma unroll
            for (u32 i = 0; i < GRADIENTS_IN_FLIGHT; i++)
#pragma unroll
                for (u32 of = 0; of < COLUMNS; of++)
                    if (done + i < count) sum[of] += column_of(word[i], of, kind);
        }
    }

    // The last gradient of a run, as it lies in memory.
    template <u32 COLUMNS>
    __device__ __forceinline__ AnyColumns<COLUMNS> last(const GradientRun& run, u64 column) const {
        const u64 at = address + u64(run.last) * stride;
        AnyColumns<COLUMNS> columns = {};
        load_once(run.count != 0 && kind == FLOAT, at + column * 4, columns.floats);
        load_once(run.count != 0 && kind != FLOAT, at + column * 2, columns.halves);
        return columns;
    }
};

}  // namespace wm
