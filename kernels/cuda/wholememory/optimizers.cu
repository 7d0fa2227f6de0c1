// Sparse optimizers: they change the rows of an embedding that a step touched, each row once.
//
// A warp has 32 columns of a row. All states are f32; the embedding is f32, f16 or bf16 and is computed in f32. Each
// sum of a product is one rounding (`multiply_add`), so that a GPU and the CPU give the same bits. Blocks are whole
// warps.
//
// Rules: `rows` names no row twice (gradients of a row are one run). A row that is negative or not in the table is
// skipped.
#include "gradients.cuh"

namespace wm {

// What every optimizer gets: the table, the rows to change, and a run of gradients for each.
struct Step {
    u64 table, table_stride;
    u32 table_type;
    u64 rows_in_table;
    const i64* rows;
    u64 count;
    GradientRuns gradients;
    u64 columns;
};

// A state's rows, in bytes from each other.
struct State {
    u64 address, stride;
    __device__ __forceinline__ f32* row(u64 number) const {
        return reinterpret_cast<f32*>(address + number * stride);
    }
};

// Calls `change(row, column, weight, gradient)` for each element of each row, after `begin(row)`; what it returns is
// the new weight.
template <class Rule>
__device__ __forceinline__ void for_each_element(const Step& step, Rule rule) {
    const u32 warps = threads_in_block() / WARP;
    if (warp() >= warps || step.columns == 0) return;
    const u64 element = step.table_type == FLOAT ? 4 : 2, parts = (step.columns - 1) / WARP + 1;
    for (u64 i = block_in_grid() * warps + warp(); i < step.count * parts; i += blocks_in_grid() * warps) {
        const u64 run = quotient(i, parts), column = (i - run * parts) * WARP + lane();
        const i64 number = step.rows[run];
        if (number < 0 || u64(number) >= step.rows_in_table) continue;
        const bool is_column = column < step.columns;
        const f32 gradient = step.gradients.sum(run, column, is_column);
        if (is_column) {
            rule.begin(u64(number));
            const u64 at = step.table + u64(number) * step.table_stride + column * element;
            const f32 weight = load_f32(at, step.table_type);
            store_float(at, step.table_type, rule.change(u64(number), column, weight, gradient));
        }
    }
}

struct Sgd {
    f32 rate, decay;
    __device__ __forceinline__ void begin(u64) {}
    __device__ __forceinline__ f32 change(u64, u64, f32 weight, f32 gradient) const {
        return multiply_add(-rate, multiply_add(decay, weight, gradient), weight);
    }
};

struct LazyAdam {
    State m, v, powers;
    f32 rate, decay, epsilon, beta1, beta2;
    u32 adam_w;
    f32 power1, power2;  // of the betas, for this row and step

    // They are written when all columns are done: by `wm_advance_powers`.
    __device__ __forceinline__ void begin(u64 row) {
        power1 = powers.row(row)[0] * beta1;
        power2 = powers.row(row)[1] * beta2;
    }
    __device__ __forceinline__ f32 change(u64 row, u64 column, f32 weight, f32 gradient) const {
        if (adam_w) {
            weight = multiply_add(-(rate * decay), weight, weight);
        } else {
            gradient = multiply_add(decay, weight, gradient);
        }
        f32 &first = m.row(row)[column], &second = v.row(row)[column];
        first = multiply_add(beta1, first, (1.0f - beta1) * gradient);
        second = multiply_add(beta2, second, (1.0f - beta2) * gradient * gradient);
        const f32 mean = first / (1.0f - power1), square = second / (1.0f - power2);
        return multiply_add(-rate, mean / (square_root(square) + epsilon), weight);
    }
};

struct RmsProp {
    State v;
    f32 rate, decay, epsilon, alpha;
    __device__ __forceinline__ void begin(u64) {}
    __device__ __forceinline__ f32 change(u64 row, u64 column, f32 weight, f32 gradient) const {
        gradient = multiply_add(decay, weight, gradient);
        f32& second = v.row(row)[column];
        second = multiply_add(alpha, second, (1.0f - alpha) * gradient * gradient);
        return multiply_add(-rate, gradient / (square_root(second) + epsilon), weight);
    }
};

struct AdaGrad {
    State sums;
    f32 rate, decay, epsilon;
    __device__ __forceinline__ void begin(u64) {}
    __device__ __forceinline__ f32 change(u64 row, u64 column, f32 weight, f32 gradient) const {
        gradient = multiply_add(decay, weight, gradient);
        f32& sum = sums.row(row)[column];
        sum = multiply_add(gradient, gradient, sum);
        return multiply_add(-rate, gradient / (square_root(sum) + epsilon), weight);
    }
};

}  // namespace wm

/// SGD on the `count` rows of the table that `rows` names: `table` is the address of row 0, `table_stride` the bytes
/// between rows, `table_type` FLOAT, HALF or BF16. The gradient of row `rows[i]` is the sum of the rows
/// `order[starts[i]]` to `order[starts[i + 1] - 1]` of `gradients`, added in f32 in this order, whatever the launch;
/// `gradient_type` is FLOAT, HALF or BF16, `gradient_stride` in bytes. No row is named twice; one that is negative, or
/// `rows_in_table` or more, is skipped.
extern "C" __global__ void wm_optimize_sgd(u64 table, u64 table_stride, u32 table_type, u64 rows_in_table,
                                           const i64* rows, u64 count, const void* gradients, u32 gradient_type,
                                           u64 gradient_stride, u64 columns, const u32* order, const i64* starts,
                                           f32 learning_rate, f32 weight_decay) {
    const wm::GradientRuns runs = {reinterpret_cast<u64>(gradients), gradient_stride, gradient_type, order, starts};
    const wm::Step step = {table, table_stride, table_type, rows_in_table, rows, count, runs, columns};
    wm::for_each_element(step, wm::Sgd{learning_rate, weight_decay});
}

/// Lazy Adam on the rows that `rows` names, as `wm_optimize_sgd` has them. States `m` and `v` have the table's shape
/// in f32, `powers` two f32 a row that begin as 1; each is an address with the bytes between its rows. `adam_w` is 0
/// or 1. `wm_advance_powers` of the same rows follows.
extern "C" __global__ void wm_optimize_lazy_adam(u64 table, u64 table_stride, u32 table_type, u64 rows_in_table,
                                                 const i64* rows, u64 count, const void* gradients,
                                                 u32 gradient_type, u64 gradient_stride, u64 columns,
                                                 const u32* order, const i64* starts, f32 learning_rate,
                                                 f32 weight_decay, u64 m, u64 m_stride, u64 v, u64 v_stride,
                                                 u64 powers, u64 powers_stride, f32 epsilon, f32 beta1, f32 beta2,
                                                 u32 adam_w) {
    const wm::GradientRuns runs = {reinterpret_cast<u64>(gradients), gradient_stride, gradient_type, order, starts};
    const wm::Step step = {table, table_stride, table_type, rows_in_table, rows, count, runs, columns};
    wm::for_each_element(step, wm::LazyAdam{{m, m_stride}, {v, v_stride}, {powers, powers_stride}, learning_rate,
                                            weight_decay, epsilon, beta1, beta2, adam_w, 0, 0});
}

/// Multiplies the powers of the betas of the rows that `rows` names, as `wm_optimize_lazy_adam` has them: its step is
/// done. Any blocks.
extern "C" __global__ void wm_advance_powers(const i64* rows, u64 count, u64 rows_in_table, u64 powers,
                                             u64 powers_stride, f32 beta1, f32 beta2) {
    const wm::State state = {powers, powers_stride};
    for (u64 i : wm::share_of(count)) {
        if (rows[i] < 0 || u64(rows[i]) >= rows_in_table) continue;
        f32* of_row = state.row(u64(rows[i]));
        of_row[0] *= beta1;
        of_row[1] *= beta2;
    }
}

/// RMSprop on the rows that `rows` names, as `wm_optimize_sgd` has them. State `v` has the table's shape in f32.
extern "C" __global__ void wm_optimize_rmsprop(u64 table, u64 table_stride, u32 table_type, u64 rows_in_table,
                                               const i64* rows, u64 count, const void* gradients,
                                               u32 gradient_type, u64 gradient_stride, u64 columns,
                                               const u32* order, const i64* starts, f32 learning_rate,
                                               f32 weight_decay, u64 v, u64 v_stride, f32 epsilon, f32 alpha) {
    const wm::GradientRuns runs = {reinterpret_cast<u64>(gradients), gradient_stride, gradient_type, order, starts};
    const wm::Step step = {table, table_stride, table_type, rows_in_table, rows, count, runs, columns};
    wm::for_each_element(step, wm::RmsProp{{v, v_stride}, learning_rate, weight_decay, epsilon, alpha});
}

/// Adagrad on the rows that `rows` names, as `wm_optimize_sgd` has them. State `sums` has the table's shape in f32.
extern "C" __global__ void wm_optimize_adagrad(u64 table, u64 table_stride, u32 table_type, u64 rows_in_table,
                                               const i64* rows, u64 count, const void* gradients,
                                               u32 gradient_type, u64 gradient_stride, u64 columns,
                                               const u32* order, const i64* starts, f32 learning_rate,
                                               f32 weight_decay, u64 sums, u64 sums_stride, f32 epsilon) {
    const wm::GradientRuns runs = {reinterpret_cast<u64>(gradients), gradient_stride, gradient_type, order, starts};
    const wm::Step step = {table, table_stride, table_type, rows_in_table, rows, count, runs, columns};
    wm::for_each_element(step, wm::AdaGrad{{sums, sums_stride}, learning_rate, weight_decay, epsilon});
}
