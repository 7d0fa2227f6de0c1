// Keyed fingerprints of chunks of 2 MiB. Two chunks with the same fingerprint count as equal, and
// no byte is compared.
//
// Launch: any number of blocks of 1 to 1024 threads gives the same result. The kernel is written
// for 32 threads, and a block for each section of a chunk: one multiprocessor alone takes longer
// for a chunk than the link. No dynamic shared memory. Addresses are multiples of 16.
// The arrays, the key and the chunks must be readable by the device and must not be written while
// the kernel runs. Results need no initial value.
//
// The fingerprint. A chunk is 128 rows of 1024 words of 16 bytes; a word is two numbers (x, y) of
// 64 bits. The fingerprint is two halves, which have independent keys. A half has the key words
// (k_r, l_r) of each row r and (m_c0, m_c1, m_c2) of each column c, and is
//
//     N_c = sum over rows r of ((x_rc + k_r) mod 2^64) * ((y_rc + l_r) mod 2^64)   mod 2^128
//     half = sum over columns c and i in 0..2 of (m_ci mod 2^61) * limb_i(N_c)     mod 2^61 - 1
//
// N is NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, CRYPTO 1999) of words of 64 bits. The
// limbs of N_c are its bits 0..43, 43..86 and 86..128: numbers below 2^43, so different values of
// N_c differ in a limb modulo 2^61 - 1. Key words are uniform and independent.
//
// The bound. Two different chunks, chosen without the key, have the same fingerprint with a
// probability below 2^-119:
//
// * They differ in a word (x, y), (x', y') of a column, row r. Say x and x' differ; else exchange
//   the factors. Fix all key words but l_r. Let a = x + k_r and a' = x' + k_r, modulo 2^64:
//   they differ. Let u = y + l_r modulo 2^64, which is uniform, and u' = u + y' - y modulo 2^64.
//   N_c is the same for both only if a * u - a' * u' is one certain number modulo 2^128. Where
//   the sum u' wraps around, and where it does not, u' is u plus a constant, so (a - a') * u is
//   one certain number modulo 2^128. Two such u would differ by a d with 0 < |d| < 2^64, and
//   0 < |(a - a') * d| < 2^128 would be a multiple of 2^128. So at most two u of 2^64 fit: 2^-63.
// * Else a limb of N_c differs. Fix all other key words: one residue of its m_ci makes the halves
//   equal. A residue has at most two of the 2^61 values: 2^-60.
// * Together a half is the same with at most 2^-60 + 2^-63 < 2^-59.8, and two with its square.
//
// Among n comparisons one is wrong with a probability below n * 2^-119.
#include "../device.cuh"

namespace wm {

constexpr u64 CHUNK_BYTES = 2ull << 20;
constexpr u32 COLUMNS = 1024, ROWS = u32(CHUNK_BYTES / sizeof(Word16) / COLUMNS);
constexpr u64 ROW_BYTES = COLUMNS * sizeof(Word16);
constexpr u32 HALVES = 2, LIMBS = 3, LIMB_BITS = 43;
// Columns that a thread has under way at a time.
constexpr u32 AT_ONCE = 2, GROUPS = COLUMNS / AT_ONCE;
// Parts of the sum, each of neighbouring columns.
constexpr u32 SECTIONS = 16, SECTION_GROUPS = GROUPS / SECTIONS;

constexpr u64 PRIME = (1ull << 61) - 1, LIMB = (1ull << LIMB_BITS) - 1;

// The key: (k, l) of each half in row 0, in row 1 and so on, then the m of each half in column 0,
// in column 1 and so on.
constexpr u64 ROW_KEYS = HALVES * 2, COLUMN_KEYS = HALVES * LIMBS;

// A number of 128 bits.
struct Wide {
    u64 low, high;
};

// A fingerprint, or a summand of one.
struct TwoHalves {
    u64 half[HALVES];
};
constexpr u32 SUMMED = 256;
typedef TwoHalves HalvesOfThreads[SUMMED];

__device__ __forceinline__ Wide wide_product(u64 x, u64 y) {
#ifdef __CUDACC__
    return {x * y, __umul64hi(x, y)};
#else
    const unsigned __int128 product = static_cast<unsigned __int128>(x) * y;
    return {u64(product), u64(product >> 64)};
#endif
}

__device__ __forceinline__ void add(Wide& sum, Wide more) {
    sum.low += more.low;
    sum.high += more.high + (sum.low < more.low ? 1 : 0);
}

// Of two numbers below the prime.
__device__ __forceinline__ u64 sum_modulo(u64 x, u64 y) {
    const u64 sum = x + y;
    return sum < PRIME ? sum : sum - PRIME;
}

// Of a number up to 2^61 and a limb.
__device__ __forceinline__ u64 product_modulo(u64 x, u64 limb) {
    const Wide product = wide_product(x, limb);
    // 2^61 is 1 modulo the prime.
    const u64 sum = (product.low & PRIME) + (product.low >> 61 | product.high << 3);
    const u64 folded = (sum & PRIME) + (sum >> 61);
    return folded < PRIME ? folded : folded - PRIME;
}

// The summand of a column in a half.
__device__ __forceinline__ u64 summand(const Wide& n, const u64* key) {
    const u64 limbs[LIMBS] = {n.low & LIMB, (n.low >> LIMB_BITS | n.high << (64 - LIMB_BITS)) & LIMB,
                              n.high >> (2 * LIMB_BITS - 64)};
    u64 sum = 0;
#pragma unroll
    for (u32 i = 0; i < LIMBS; i++) sum = sum_modulo(sum, product_modulo(key[i] & PRIME, limbs[i]));
    return sum;
}

// One of the columns of a group. On a GPU neighbouring threads load neighbouring words; on the CPU
// a thread loads whole cache lines.
__device__ __forceinline__ u32 column_of(u32 group, u32 which) {
#ifdef __CUDACC__
    return group + which * GROUPS;
#else
    return group * AT_ONCE + which;
#endif
}

// The summand of a group's columns in the fingerprint of the chunk at `chunk`.
__device__ __forceinline__ TwoHalves sum_of_group(u64 chunk, const u64* key, u32 group) {
    Wide state[AT_ONCE][HALVES] = {};
#pragma unroll 4
    for (u32 row = 0; row < ROWS; row++) {
        Word16 word[AT_ONCE];
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            load_once(true, chunk + row * ROW_BYTES + column_of(group, i) * sizeof(Word16), word[i]);
        }
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            const u64 x = u64(word[i].y) << 32 | word[i].x, y = u64(word[i].w) << 32 | word[i].z;
#pragma unroll
            for (u32 half = 0; half < HALVES; half++) {
                const u64* of_row = key + row * ROW_KEYS + half * 2;
                add(state[i][half], wide_product(x + of_row[0], y + of_row[1]));
            }
        }
    }
    TwoHalves sum = {};
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
        const u64* of_column = key + ROWS * ROW_KEYS + column_of(group, i) * COLUMN_KEYS;
#pragma unroll
        for (u32 half = 0; half < HALVES; half++) {
            sum.half[half] = sum_modulo(sum.half[half], summand(state[i][half], of_column + half * LIMBS));
        }
    }
    return sum;
}

__device__ __forceinline__ void add_modulo(TwoHalves& sum, const TwoHalves& more) {
#pragma unroll
    for (u32 half = 0; half < HALVES; half++) sum.half[half] = sum_modulo(sum.half[half], more.half[half]);
}

// The sum of the values of a block's first SUMMED threads, in its first thread; the whole block
// passes. Other threads have the value 0.
__device__ __forceinline__ TwoHalves sum_of_block(TwoHalves mine) {
    WM_SHARED_ARRAY(HalvesOfThreads, of_thread);
    const u32 thread = thread_in_block(), all = threads_in_block(), threads = all < SUMMED ? all : SUMMED;
    if (thread < threads) of_thread[thread] = mine;
    __syncthreads();
    if (thread < WARP && thread < threads) {
        for (u32 other = thread + WARP; other < threads; other += WARP) add_modulo(mine, of_thread[other]);
        of_thread[thread] = mine;
    }
    __syncthreads();
    for (u32 other = 1; thread == 0 && other < WARP && other < threads; other++) {
        add_modulo(mine, of_thread[other]);
    }
    __syncthreads();
    return mine;
}

}  // namespace wm

/// Writes 16 summands of the keyed fingerprint of chunk `i` to the words 32 `i` to 32 `i` + 31 of
/// `fingerprints`, two words each, for `count` chunks at the addresses in `chunks`. Their sums
/// modulo 2^61 - 1, of first and of second words, are the fingerprint. The key has 6656 words.
extern "C" __global__ void __launch_bounds__(1024) wm_fingerprint_keyed(const u64* chunks, u64 count, const u64* key, u64* fingerprints) {
    const u32 thread = wm::thread_in_block(), threads = wm::threads_in_block();
    const u32 step = threads < wm::SUMMED ? threads : wm::SUMMED;
    for (u64 section = wm::block_in_grid(); section < count * wm::SECTIONS; section += wm::blocks_in_grid()) {
        const u64 chunk = chunks[section / wm::SECTIONS];
        const u32 begin = u32(section % wm::SECTIONS) * wm::SECTION_GROUPS, end = begin + wm::SECTION_GROUPS;
        wm::TwoHalves sum = {};
        for (u32 group = begin + thread; thread < step && group < end; group += step) {
            wm::add_modulo(sum, wm::sum_of_group(chunk, key, group));
        }
        sum = wm::sum_of_block(sum);
        if (thread == 0) {
            fingerprints[2 * section] = sum.half[0];
            fingerprints[2 * section + 1] = sum.half[1];
        }
    }
}
