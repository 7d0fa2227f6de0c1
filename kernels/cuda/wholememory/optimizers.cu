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

// What every optimizer gets: the table, the rows to change, and a run of gradients for each.
struct Step {
    u64 table, table_stride;
    u32 table_type;
    u64 rows_in_table;
    const i64* rows;
    u64 count;
    const i64* starts;
    Gradients gradients;
    u64 columns;
    u32 lane_columns;
};

// A state's rows, in bytes from each other.
struct State {
    u64 address, stride;
    __device__ __forceinline__ u64 row(u64 number) const { return address + number * stride; }
};

// How rows divide into words of columns, a row into pieces and the grid's work into batches.
struct Rows {
    const u32 words, pieces;
    const u64 warps;
    const Division division;

    __device__ __forceinline__ explicit Rows(const Step& step)
        : words(u32(step.columns / step.lane_columns)), pieces((words - 1) / WARP + 1),
          warps(blocks_in_grid() * (threads_in_block() / WARP)),
          division(words < WARP ? words : WARP, 4 * step.lane_columns, step.count * pieces, warps, WARP,
                   OPTIMIZER_BATCH) {}
};

// One warp's walk over batches of rows, or of pieces of rows that are longer than a warp. All of a
// batch are the same piece, and the pieces of a row far from each other: different warps add up the
// many gradients that a row may have.
//
// A rule keeps `STATES` values for each weight, and says what becomes of them and of the weight. If
// it has powers, all lanes of a row load them first; where a row is one piece, one of these lanes
// then advances them.
template <class Rule, u32 COLUMNS>
struct OptimizerWalk {
    const Step& step;
    const Rows& rows;
    Rule rule;

    // A row that a lane has found, not in the table where there is none.
    struct Found {
        i64 row;
        GradientRun run;
    };

    // This lane's row of the batch from `first` on; its last gradient is not looked up yet.
    __device__ __forceinline__ Found load_row(u64 first) const {
        const u64 at = first + lane();
        if (lane() >= rows.division.batch || at >= step.count) return {-1, {0, 0, 0}};
        const u32 start = u32(step.starts[at]);
        return {step.rows[at], {start, u32(step.starts[at + 1]) - start, 0}};
    }

    __device__ __forceinline__ static Found of_lane(const Found& found, u32 lane) {
        const int from = int(lane);
        return {__shfl_sync(ALL_LANES, found.row, from),
                {__shfl_sync(ALL_LANES, found.run.start, from), __shfl_sync(ALL_LANES, found.run.count, from),
                 __shfl_sync(ALL_LANES, found.run.last, from)}};
    }

    __device__ __forceinline__ void run() {
        const u64 batches = quotient(step.count + rows.division.batch - 1, rows.division.batch);
        u64 batch = block_in_grid() * (threads_in_block() / WARP) + warp();
#pragma unroll 1
        for (; batch < batches * rows.pieces; batch += rows.warps) {
            const u32 piece = u32(quotient(batch, batches));
            const u64 first = (batch - piece * batches) * rows.division.batch;
            Found found = load_row(first);
            found.run = step.gradients.run(found.run.start, found.run.count);
            const u32 group = lane() / rows.division.lanes;
#pragma unroll 1
            for (u32 at = 0; at < rows.division.batch && first + at < step.count; at += rows.division.groups)
                change_row(of_lane(found, at + group), piece);
        }
    }

    __device__ __forceinline__ void change_row(const Found& found, u32 piece) {
        const u32 in_group = lane() % rows.division.lanes, word = piece * WARP + in_group;
        const bool is_row = found.row >= 0 && u64(found.row) < step.rows_in_table;
        if (is_row && word < rows.words) change_word(u64(found.row), u64(word) * COLUMNS, found.run);
        if constexpr (Rule::HAS_POWERS) {
            __syncwarp();
            if (rows.pieces == 1 && is_row && in_group == 0) rule.advance_powers(u64(found.row));
        }
    }

    __device__ __forceinline__ void change_word(u64 row, u64 column, const GradientRun& run) {
        typedef typename ColumnWords<COLUMNS>::Floats StateWord;
        constexpr u32 STATES = Rule::STATES;
        f32 gradient[COLUMNS] = {};
        step.gradients.add_all_but_last(run, column, gradient);
        const u64 place = step.table + row * step.table_stride + column * (step.table_type == FLOAT ? 4 : 2);
        const AnyColumns<COLUMNS> last = step.gradients.template last<COLUMNS>(run, column);
        const AnyColumns<COLUMNS> old = load_columns<COLUMNS>(place, step.table_type);
        StateWord kept[STATES + 1];
#pragma unroll
        for (u32 i = 0; i < STATES; i++) kept[i] = at_address<StateWord>(rule.state(i).row(row) + column * 4);
        if constexpr (Rule::HAS_POWERS) rule.load_powers(row);
        f32 weight[COLUMNS], addend[COLUMNS], state[STATES + 1][COLUMNS];
        last.values(step.gradients.type, addend);
        old.values(step.table_type, weight);
#pragma unroll
        for (u32 i = 0; i < COLUMNS; i++) {
            if (run.count != 0) gradient[i] += addend[i];
            f32 of_column[STATES + 1];
#pragma unroll
            for (u32 of = 0; of < STATES; of++) of_column[of] = column_of(kept[of], i, FLOAT);
            weight[i] = rule.change(weight[i], gradient[i], of_column);
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
    if (warp() >= threads_in_block() / WARP || step.columns == 0 || step.count == 0) return;
    const Rows rows(step);
    if (step.lane_columns == 4) {
        OptimizerWalk<Rule, 4>{step, rows, rule}.run();
    } else {
        OptimizerWalk<Rule, 1>{step, rows, rule}.run();
    }
}

struct Sgd {
    static constexpr u32 STATES = 0;
    static constexpr bool HAS_POWERS = false;
    f32 rate, decay;

    __device__ __forceinline__ State state(u32) const { return {0, 0}; }
    __device__ __forceinline__ f32 change(f32 weight, f32 gradient, f32*) const {
        return multiply_add(-rate, multiply_add(decay, weight, gradient), weight);
    }
};

// Powers of the betas, two f32 for each row.
struct Powers {
    State rows;
    f32 beta1, beta2;

    __device__ __forceinline__ f32* of_row(u64 row) const { return reinterpret_cast<f32*>(rows.row(row)); }
    // Those of the step after `power1` and `power2`.
    __device__ __forceinline__ void advance(u64 row, f32 power1, f32 power2) const {
        of_row(row)[0] = product(power1, beta1);
        of_row(row)[1] = product(power2, beta2);
    }
};

struct LazyAdam {
    static constexpr u32 STATES = 2;
    static constexpr bool HAS_POWERS = true;
    State m, v;
    Powers powers;
    f32 rate, decay, epsilon;
    u32 adam_w;
    f32 power1, power2;  // of this row, before the step

    __device__ __forceinline__ State state(u32 i) const { return i == 0 ? m : v; }
    __device__ __forceinline__ void load_powers(u64 row) {
        power1 = powers.of_row(row)[0];
        power2 = powers.of_row(row)[1];
    }
    __device__ __forceinline__ void advance_powers(u64 row) const { powers.advance(row, power1, power2); }
    __device__ __forceinline__ f32 change(f32 weight, f32 gradient, f32* state) const {
        const f32 beta1 = powers.beta1, beta2 = powers.beta2;
        if (adam_w) {
            weight = multiply_add(-(rate * decay), weight, weight);
        } else {
            gradient = multiply_add(decay, weight, gradient);
        }
        f32 &first = state[0], &second = state[1];
        first = multiply_add(beta1, first, (1.0f - beta1) * gradient);
        second = multiply_add(beta2, second, (1.0f - beta2) * gradient * gradient);
        const f32 mean = first / (1.0f - product(power1, beta1)), square = second / (1.0f - product(power2, beta2));
        return multiply_add(-rate, mean / (square_root(square) + epsilon), weight);
    }
};

struct RmsProp {
    static constexpr u32 STATES = 1;
    static constexpr bool HAS_POWERS = false;
    State v;
    f32 rate, decay, epsilon, alpha;

    __device__ __forceinline__ State state(u32) const { return v; }
    __device__ __forceinline__ f32 change(f32 weight, f32 gradient, f32* state) const {
        gradient = multiply_add(decay, weight, gradient);
        f32& second = state[0];
        second = multiply_add(alpha, second, (1.0f - alpha) * gradient * gradient);
        return multiply_add(-rate, gradient / (square_root(second) + epsilon), weight);
    }
};

struct AdaGrad {
    static constexpr u32 STATES = 1;
    static constexpr bool HAS_POWERS = false;
    State sums;
    f32 rate, decay, epsilon;

    __device__ __forceinline__ State state(u32) const { return sums; }
    __device__ __forceinline__ f32 change(f32 weight, f32 gradient, f32* state) const {
        gradient = multiply_add(decay, weight, gradient);
        state[0] = multiply_add(gradient, gradient, state[0]);
        return multiply_add(-rate, gradient / (square_root(state[0]) + epsilon), weight);
    }
};

}  // namespace wm

/// SGD on the `*count` rows of the table that `rows` names: `table` is the address of row 0,
/// `table_stride` the bytes between rows, `table_type` FLOAT, HALF or BF16. The gradient of row
/// `rows[i]` is the sum of the rows `order[starts[i]]` to `order[starts[i + 1] - 1]` of
/// `gradients`, added in f32 in this order, whatever the launch; `gradient_type` is FLOAT, HALF or
/// BF16, `gradient_stride` in bytes. `starts` are below 2^32. No row is named twice; one that is
/// negative, or `rows_in_table` or more, is skipped. `lane_columns` is 4 where so many divide
/// `columns` and are one aligned word in each row of the table, the gradients and states; else 1.
extern "C" __global__ void __launch_bounds__(256, 3)
    wm_optimize_sgd(u64 table, u64 table_stride, u32 table_type, u64 rows_in_table, const i64* rows, const i64* count,
                    const void* gradients, u32 gradient_type, u64 gradient_stride, u64 columns, const u32* order,
                    const i64* starts, u32 lane_columns, f32 learning_rate, f32 weight_decay) {
    const wm::Gradients all = {reinterpret_cast<u64>(gradients), u32(gradient_stride), gradient_type, order};
    const wm::Step step = {table, table_stride, table_type, rows_in_table, rows,
                           u64(*count), starts, all, columns, lane_columns};
    wm::optimize(step, wm::Sgd{learning_rate, weight_decay});
}

/// Lazy Adam on the rows that `rows` names, as `wm_optimize_sgd` has them. States `m` and `v` have
/// the table's shape in f32, `powers` two f32 a row that begin as 1; each is an address with the
/// bytes between its rows. `adam_w` is 0 or 1. If rows are longer than a warp (32 times
/// `lane_columns`), `wm_advance_powers` of the same rows follows.
extern "C" __global__ void __launch_bounds__(256, 3)
    wm_optimize_lazy_adam(u64 table, u64 table_stride, u32 table_type, u64 rows_in_table, const i64* rows,
                          const i64* count, const void* gradients, u32 gradient_type, u64 gradient_stride, u64 columns,
                          const u32* order, const i64* starts, u32 lane_columns, f32 learning_rate, f32 weight_decay,
                          u64 m, u64 m_stride, u64 v, u64 v_stride, u64 powers, u64 powers_stride, f32 epsilon,
                          f32 beta1, f32 beta2, u32 adam_w) {
    const wm::Gradients all = {reinterpret_cast<u64>(gradients), u32(gradient_stride), gradient_type, order};
    const wm::Step step = {table, table_stride, table_type, rows_in_table, rows,
                           u64(*count), starts, all, columns, lane_columns};
    const wm::Powers of_betas = {{powers, powers_stride}, beta1, beta2};
    wm::optimize(step, wm::LazyAdam{{m, m_stride}, {v, v_stride}, of_betas, learning_rate, weight_decay, epsilon,
                                    adam_w, 0, 0});
}

/// Multiplies the powers of the betas of the rows that `rows` names, as `wm_optimize_lazy_adam` has
/// them, where it does not do so. Any blocks.
extern "C" __global__ void wm_advance_powers(const i64* rows, const i64* count, u64 rows_in_table, u64 powers,
                                             u64 powers_stride, f32 beta1, f32 beta2) {
    const wm::Powers all = {{powers, powers_stride}, beta1, beta2};
    for (u64 i : wm::share_of(u64(*count))) {
        if (rows[i] < 0 || u64(rows[i]) >= rows_in_table) continue;
        const f32* of_row = all.of_row(u64(rows[i]));
        all.advance(u64(rows[i]), of_row[0], of_row[1]);
    }
}

/// RMSprop on the rows that `rows` names, as `wm_optimize_sgd` has them. State `v` has the table's
/// shape in f32.
extern "C" __global__ void __launch_bounds__(256, 3)
    wm_optimize_rmsprop(u64 table, u64 table_stride, u32 table_type, u64 rows_in_table, const i64* rows,
                        const i64* count, const void* gradients, u32 gradient_type, u64 gradient_stride, u64 columns,
                        const u32* order, const i64* starts, u32 lane_columns, f32 learning_rate, f32 weight_decay,
                        u64 v, u64 v_stride, f32 epsilon, f32 alpha) {
    const wm::Gradients all = {reinterpret_cast<u64>(gradients), u32(gradient_stride), gradient_type, order};
    const wm::Step step = {table, table_stride, table_type, rows_in_table, rows,
                           u64(*count), starts, all, columns, lane_columns};
    wm::optimize(step, wm::RmsProp{{v, v_stride}, learning_rate, weight_decay, epsilon, alpha});
}

/// Adagrad on the rows that `rows` names, as `wm_optimize_sgd` has them. State `sums` has the
/// table's shape in f32.
extern "C" __global__ void __launch_bounds__(256, 3)
    wm_optimize_adagrad(u64 table, u64 table_stride, u32 table_type, u64 rows_in_table, const i64* rows,
                        const i64* count, const void* gradients, u32 gradient_type, u64 gradient_stride, u64 columns,
                        const u32* order, const i64* starts, u32 lane_columns, f32 learning_rate, f32 weight_decay,
                        u64 sums, u64 sums_stride, f32 epsilon) {
    const wm::Gradients all = {reinterpret_cast<u64>(gradients), u32(gradient_stride), gradient_type, order};
    const wm::Step step = {table, table_stride, table_type, rows_in_table, rows,
                           u64(*count), starts, all, columns, lane_columns};
    wm::optimize(step, wm::AdaGrad{{sums, sums_stride}, learning_rate, weight_decay, epsilon});
}
