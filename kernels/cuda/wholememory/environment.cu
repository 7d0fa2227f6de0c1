// The operation by which a program tests that its allocation callbacks and streams work.
#include "elements.cuh"
#include "table.cuh"

namespace wm {

// `i` as a number of the type, added as numbers of the type are; f16 and bf16 are added in f32 and
// rounded.
__device__ __forceinline__ void add_number(u64 input, u64 output, u32 type, u64 number) {
    switch (type) {
        case DOUBLE:
            at_address<f64>(output) = at_address<const f64>(input) + f64(number);
            return;
        case INT64:
            at_address<u64>(output) = at_address<const u64>(input) + number;
            return;
        case INT:
            at_address<u32>(output) = at_address<const u32>(input) + u32(number);
            return;
        case INT16:
            at_address<u16>(output) = u16(at_address<const u16>(input) + number);
            return;
        case INT8:
            at_address<u8>(output) = u8(at_address<const u8>(input) + number);
            return;
        default:
            store_floats(output, type, Elements<f32, 1>{{load_f32(input, type) + f32(number)}});
    }
}

}  // namespace wm

/// `output[i][j]` becomes `input[j]` + `i` for `rows` rows of `columns` elements of `element_type`
/// (wholememory_dtype_t). The stride is in elements. Nothing happens for a type that there is not.
extern "C" __global__ void wm_env_test(const void* input, void* output, u32 element_type, u64 rows, u64 columns,
                                       u64 output_stride) {
    const u64 from = reinterpret_cast<u64>(input), to = reinterpret_cast<u64>(output);
    const u64 bytes = wm::bytes_of_type(element_type);
    if (bytes == 0 || columns == 0) return;
    for (u64 i : wm::share_of(rows * columns)) {
        const u64 row = wm::quotient(i, columns), column = i - row * columns;
        wm::add_number(from + column * bytes, to + (row * output_stride + column) * bytes, element_type, row);
    }
}
