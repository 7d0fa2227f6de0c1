// Sparse optimizers: they change the rows of an embedding that a step touched, each row once.
//
// How it is fast: a warp takes a batch of rows at a time, and each lane finds one of them and its
// gradients; shuffles hand it to the lanes that change the row. These are a group that covers it:
// each lane has four columns (or one, where the memory does not allow it), so that a warp has
// several short rows. Weights, states and the last gradient, which of most rows is the only one,
// are loaded together.
//
// All states are f32; the embedding is f32, f16 or bf16 and is computed in f32. Each sum of a
// product is one rounding (`multiply_add`), or a product is rounded by itself (`product`), so that
// a GPU and the CPU give the same bits. Blocks are whole warps, of 256 threads at most: their
// registers are bounded for three such blocks a multiprocessor.
//
// Rules: `rows` names no row twice (gradients of a row are one run). A row that is negative or not
// in the table is skipped. The whole warp passes every shuffle.
#include "gradients.cuh"
#include "rows.cuh"

namespace wm {

// Bytes of a batch that is large enough: mostly as many rows as lanes.
constexpr u64 OPTIMIZER_BATCH = 32768;

/// The rows that a step changes: `*count` numbers, none of them twice. A number that is negative,
/// or `rows_in_table` or more, is skipped.
struct RowNames {
    const i64* rows;
    const i64* count;
    u64 rows_in_table;
};

/// A step of an optimizer: the table, the rows that it changes, and a run of gradients for each.
struct Step {
    Strided table;
    RowNames names;
    const i64* starts;  // where each row's run begins, and where the last one ends; below 2^32
    Gradients gradients;
    u64 columns;
    u32 table_type;    // FLOAT, HALF or BF16
    u32 lane_columns;  // 4 if 4 divides `columns` and 4 are one aligned word in all rows; else 1
};

// How rows divide into words of columns, a row into pieces and the grid's work into batches.
struct Rows {
    const u64 count;
    const u32 words, pieces;
    const u64 warps;
    const Division division;

    __device__ __forceinline__ Rows(const Step& step, u64 count)
        : count(count), words(u32(step.columns / step.lane_columns)), pieces((words - 1) / WARP + 1),
          warps(blocks_in_grid() * (threads_in_block() / WARP)),
          division(words < WARP ? words : WARP, 4 * step.lane_columns, count * pieces, warps, WARP,
                   OPTIMIZER_BATCH) {}
};

// One warp's walk over batches of rows, or of pieces of rows that are longer than a warp. All of a
// batch are the same piece, and the pieces of a row far from each other: different warps add up the
// many gradients that a row may have.
//
// A rule has `STATES` values for each weight, and computes their next values and the weight's. If
// it has powers, all lanes of a row load them first; if a row is one piece, one of these lanes then
// advances them.
template <class Rule, u32 COLUMNS>
struct OptimizerWalk {
    const Step& step;
    const Rows& rows;
    const Rule& rule;
    f32 powers[2];  // of the row that is changed, before the step

    // A row that a lane has found, not in the table where there is none.
    struct Found {
        i64 row;
        GradientRun run;
    };

    // This lane's row of the batch from `first` on; its last gradient is not looked up yet.
    __device__ __forceinline__ Found load_row(u64 first) const {
        const u64 at = first + lane();
        if (lane() >= rows.division.batch || at >= rows.count) return {-1, {0, 0, 0}};
        const u32 start = u32(step.starts[at]);
        return {step.names.rows[at], {start, u32(step.starts[at + 1]) - start, 0}};
    }

    __device__ __forceinline__ static Found of_lane(const Found& found, u32 lane) {
        const int from = int(lane);
        return {__shfl_sync(ALL_LANES, found.row, from),
                {__shfl_sync(ALL_LANES, found.run.start, from), __shfl_sync(ALL_LANES, found.run.count, from),
                 __shfl_sync(ALL_LANES, found.run.last, from)}};
    }

    __device__ __forceinline__ void run() {
        const u64 batches = quotient(rows.count + rows.division.batch - 1, rows.division.batch);
        u64 batch = block_in_grid() * (threads_in_block() / WARP) + warp();
#pragma unroll 1
        for (; batch < batches * rows.pieces; batch += rows.warps) {
            const u32 piece = u32(quotient(batch, batches));
            const u64 first = (batch - piece * batches) * rows.division.batch;
            Found found = load_row(first);
            found.run = step.gradients.run(found.run.start, found.run.count);
            const u32 group = lane() / rows.division.lanes;
#pragma unroll 1
            for (u32 at = 0; at < rows.division.batch && first + at < rows.count; at += rows.division.groups)
                change_row(of_lane(found, at + group), piece);
        }
    }

    __device__ __forceinline__ void change_row(const Found& found, u32 piece) {
        const u32 in_group = lane() % rows.division.lanes, word = piece * WARP + in_group;
        const bool is_row = found.row >= 0 && u64(found.row) < step.names.rows_in_table;
        if (is_row && word < rows.words) change_word(u64(found.row), u64(word) * COLUMNS, found.run);
        if constexpr (Rule::HAS_POWERS) {
            __syncwarp();
            if (rows.pieces == 1 && is_row && in_group == 0) rule.powers.advance(u64(found.row), powers[0], powers[1]);
        }
    }

    __device__ __forceinline__ void change_word(u64 row, u64 column, const GradientRun& run) {
        typedef typename ColumnWords<COLUMNS>::Floats StateWord;
        constexpr u32 STATES = Rule::STATES;
        f32 gradient[COLUMNS] = {};
        step.gradients.add_all_but_last(run, column, gradient);
        const u64 place = step.table.row(row) + column * (step.table_type == FLOAT ? 4 : 2);
        const AnyColumns<COLUMNS> last = step.gradients.template last<COLUMNS>(run, column);
        const AnyColumns<COLUMNS> old = load_columns<COLUMNS>(place, step.table_type);
        StateWord kept[STATES + 1];
#pragma unroll
        for (u32 i = 0; i < STATES; i++) kept[i] = at_address<StateWord>(rule.state(i).row(row) + column * 4);
        if constexpr (Rule::HAS_POWERS) {
            powers[0] = rule.powers.of_row(row)[0];
            powers[1] = rule.powers.of_row(row)[1];
        }
        f32 weight[COLUMNS], addend[COLUMNS], state[STATES + 1][COLUMNS];
        last.values(step.gradients.kind, addend);
        old.values(step.table_type, weight);
#pragma unroll
        for (u32 i = 0; i < COLUMNS; i++) {
            if (run.count != 0) gradient[i] += addend[i];
            f32 of_column[STATES + 1];
#pragma unroll
            for (u32 of = 0; of < STATES; of++) of_column[of] = column_of(kept[of], i, FLOAT);
            weight[i] = rule.change(weight[i], gradient[i], of_column, powers);
#pragma unroll
            for (u32 of = 0; of < STATES; of++) state[of][i] = of_column[of];
        }
#pragma unroll
        for (u32 i = 0; i < STATES; i++) {
            set_columns(kept[i], state[i], FLOAT);
            at_address<StateWord>(rule.state(i).row(row) + column * 4) = kept[i];
        }
        store_columns(place, step.table_type, weight);
    }
};

template <class Rule>
__device__ __forceinline__ void optimize(const Step& step, const Rule& rule) {
    if (warp() >= threads_in_block() / WARP || step.columns == 0) return;
    const u64 count = u64(*step.names.count);
    if (count == 0) return;
    const Rows rows(step, count);
    if (step.lane_columns == 4) {
        OptimizerWalk<Rule, 4>{step, rows, rule, {}}.run();
    } else {
        OptimizerWalk<Rule, 1>{step, rows, rule, {}}.run();
    }
}

/// The rule of SGD.
struct Sgd {
    f32 rate;
    f32 decay;

    static constexpr u32 STATES = 0;
    static constexpr bool HAS_POWERS = false;
    __device__ __forceinline__ Strided state(u32) const { return {0, 0}; }
    __device__ __forceinline__ f32 change(f32 weight, f32 gradient, f32*, const f32*) const {
        return multiply_add(-rate, multiply_add(decay, weight, gradient), weight);
    }
};

/// Powers of the betas, two f32 for each row that begin as 1.
struct Powers {
    Strided rows;
    f32 beta1;
    f32 beta2;

    __device__ __forceinline__ f32* of_row(u64 row) const { return reinterpret_cast<f32*>(rows.row(row)); }
    // Those of the step after `power1` and `power2`.
    __device__ __forceinline__ void advance(u64 row, f32 power1, f32 power2) const {
        of_row(row)[0] = product(power1, beta1);
        of_row(row)[1] = product(power2, beta2);
    }
};

/// The rule of lazy Adam. The states `m` and `v` have the table's shape in f32.
struct LazyAdam {
    Strided m;
    Strided v;
    Powers powers;
    f32 rate;
    f32 decay;
    f32 epsilon;
    u32 adam_w;  // 0 or 1

    static constexpr u32 STATES = 2;
    static constexpr bool HAS_POWERS = true;
    __device__ __forceinline__ Strided state(u32 i) const { return i == 0 ? m : v; }
    __device__ __forceinline__ f32 change(f32 weight, f32 gradient, f32* state, const f32* power) const {
        const f32 beta1 = powers.beta1, beta2 = powers.beta2;
        if (adam_w) {
            weight = multiply_add(-(rate * decay), weight, weight);
        } else {
            gradient = multiply_add(decay, weight, gradient);
        }
        f32 &first = state[0], &second = state[1];
        first = multiply_add(beta1, first, (1.0f - beta1) * gradient);
        second = multiply_add(beta2, second, (1.0f - beta2) * gradient * gradient);
        const f32 mean = first / (1.0f - product(power[0], beta1));
        const f32 square = second / (1.0f - product(power[1], beta2));
        return multiply_add(-rate, mean / (square_root(square) + epsilon), weight);
    }
};

/// The rule of RMSprop. The state `v` has the table's shape in f32.
struct RmsProp {
    Strided v;
    f32 rate;
    f32 decay;
    f32 epsilon;
    f32 alpha;

    static constexpr u32 STATES = 1;
    static constexpr bool HAS_POWERS = false;
    __device__ __forceinline__ Strided state(u32) const { return v; }
    __device__ __forceinline__ f32 change(f32 weight, f32 gradient, f32* state, const f32*) const {
        gradient = multiply_add(decay, weight, gradient);
        f32& second = state[0];
        second = multiply_add(alpha, second, (1.0f - alpha) * gradient * gradient);
        return multiply_add(-rate, gradient / (square_root(second) + epsilon), weight);
    }
};

/// The rule of Adagrad. The state `sums` has the table's shape in f32.
struct AdaGrad {
    Strided sums;
    f32 rate;
    f32 decay;
    f32 epsilon;

    static constexpr u32 STATES = 1;
    static constexpr bool HAS_POWERS = false;
    __device__ __forceinline__ Strided state(u32) const { return sums; }
    __device__ __forceinline__ f32 change(f32 weight, f32 gradient, f32* state, const f32*) const {
        gradient = multiply_add(decay, weight, gradient);
        state[0] = multiply_add(gradient, gradient, state[0]);
        return multiply_add(-rate, gradient / (square_root(state[0]) + epsilon), weight);
    }
};

}  // namespace wm

/// SGD on the rows that the step names. The gradient of a row is the sum of its run, added in f32
/// in the run's order, with any launch shape.
extern "C" __global__ void __launch_bounds__(256, 3) wm_optimize_sgd(wm::Step step, wm::Sgd rule) {
    wm::optimize(step, rule);
}

/// Lazy Adam on the rows that the step names. If rows are longer than a warp (32 times
/// `lane_columns`), `wm_advance_powers` of the same rows follows.
extern "C" __global__ void __launch_bounds__(256, 3) wm_optimize_lazy_adam(wm::Step step, wm::LazyAdam rule) {
    wm::optimize(step, rule);
}

/// Multiplies the powers of the betas of the rows that a step names, if `wm_optimize_lazy_adam`
/// does not do so. Any blocks.
extern "C" __global__ void wm_advance_powers(wm::RowNames names, wm::Powers powers) {
    for (u64 i : wm::share_of(u64(*names.count))) {
        const i64 row = names.rows[i];
        if (row < 0 || u64(row) >= names.rows_in_table) continue;
        const f32* of_row = powers.of_row(u64(row));
        powers.advance(u64(row), of_row[0], of_row[1]);
    }
}

/// RMSprop on the rows that the step names.
extern "C" __global__ void __launch_bounds__(256, 3) wm_optimize_rmsprop(wm::Step step, wm::RmsProp rule) {
    wm::optimize(step, rule);
}

/// Adagrad on the rows that the step names.
extern "C" __global__ void __launch_bounds__(256, 3) wm_optimize_adagrad(wm::Step step, wm::AdaGrad rule) {
    wm::optimize(step, rule);
}
