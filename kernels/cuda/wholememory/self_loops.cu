// A graph with an edge from each node to itself.
#include "../device.cuh"

/// Writes the graph of `rows` rows with one more entry before each row's: the row's own number.
/// `output_row_ptr` has `rows` + 1 entries, `output_col` `rows` more than `col`. A warp has a row;
/// blocks are whole warps.
extern "C" __global__ void wm_add_self_loops(const i32* row_ptr, const i32* col, u64 rows, i32* output_row_ptr,
                                             i32* output_col) {
    const u32 warps = wm::threads_in_block() / wm::WARP;
    if (wm::warp() >= warps) return;
    if (rows == 0 && wm::block_in_grid() == 0 && wm::thread_in_block() == 0) output_row_ptr[0] = row_ptr[0];
    for (u64 row = wm::block_in_grid() * warps + wm::warp(); row < rows; row += wm::blocks_in_grid() * warps) {
        const i64 first = row_ptr[row], last = row_ptr[row + 1], shift = i64(row) + 1;
        if (wm::lane() == 0) {
            output_row_ptr[row] = i32(first + i64(row));
            output_col[first + i64(row)] = i32(row);
            if (row + 1 == rows) output_row_ptr[rows] = i32(last + i64(rows));
        }
        for (i64 i = first + wm::lane(); i < last; i += wm::WARP) output_col[i + shift] = col[i];
    }
}
