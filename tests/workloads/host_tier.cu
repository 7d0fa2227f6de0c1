/* Do operations of kernels work on memory of the host? A block that overflowed lies, in part, in
 * pages of the host that only the device has access to (HOST_NUMA memory of cuMemCreate, mapped
 * without access for the CPU). This program makes such memory itself, needs no library, and tries
 * on it the operations that libraries of kernels rely on: atomics of every width, bulk and tensor
 * copies and reductions, grid barriers, messages by release and acquire.
 *
 *   nvcc -O2 -std=c++17 -arch=sm_90 -o host_tier tests/workloads/host_tier.cu -lcuda
 *   ./host_tier            every check on device memory (the control) and on host memory
 *   ./host_tier host       on host memory only;  ./host_tier host grid   only checks whose name has "grid" in it
 *
 * One line a check: `host atom.add.f32: right, 64 of 64`, `wrong, 3 of 64 differ`, or how it ended
 * otherwise. Each check runs in a process of its own, because a fault ends a context. Every poll is
 * bounded, and a check that hangs is killed. Ends with 0 if all on host memory are right. */

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long u64;

enum { CELLS = 64, BLOCKS = 64, THREADS = 256, EACH = 4, SECONDS = 60 };
/* Cells are this far from each other: some share a line of 128 bytes, none shares a word. */
enum { STRIDE = 32 };
/* Adds that each cell gets: small enough for every type to hold exactly. */
enum { ADDS = BLOCKS * THREADS * EACH / CELLS, FEW = 128 };
static const u64 POLLS = 1ull << 22;
static const size_t BYTES = 64u << 20;

static void die(const char *what, int code)
{
    printf("%s failed: %d\n", what, code);
    fflush(stdout);
    _exit(3);
}

#define DRIVER(call) do { CUresult r_ = (call); if (r_) die(#call, (int)r_); } while (0)
#define RUNTIME(call) do { cudaError_t r_ = (call); if (r_) die(#call, (int)r_); } while (0)

static u64 map(bool on_host)
{
    CUmemAllocationProp property = {};
    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location.type = on_host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
    if (on_host) {
        int node = 0;
        DRIVER(cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0));
        property.location.id = node < 0 ? 0 : node;
    }
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    DRIVER(cuMemCreate(&handle, BYTES, &property, 0));
    DRIVER(cuMemAddressReserve(&address, BYTES, 0, 0, 0));
    DRIVER(cuMemMap(address, BYTES, 0, handle, 0));
    DRIVER(cuMemSetAccess(address, BYTES, &access, 1));
    DRIVER(cuMemsetD8(address, 0, BYTES));
    return address;
}

/* What a check found: so many looked at, so many of them wrong. */
struct Count { u64 all, wrong; };
struct Check { const char *name; Count (*run)(char *memory); };

static std::vector<char> fetch(const char *memory, size_t bytes)
{
    std::vector<char> copy(bytes);
    RUNTIME(cudaGetLastError());
    RUNTIME(cudaDeviceSynchronize());
    RUNTIME(cudaMemcpy(copy.data(), memory, bytes, cudaMemcpyDeviceToHost));
    return copy;
}

/* --- atomics
 * ----------------- */

struct AddU32 { static constexpr const char *name = "atom.add.u32"; typedef unsigned T; static constexpr unsigned adds = ADDS;
    static __device__ void one(char *p) { atomicAdd((unsigned *)p, 1u); }
    static bool right(const char *p) { return *(const unsigned *)p == adds; } };
struct AddU64 { static constexpr const char *name = "atom.add.u64"; static constexpr unsigned adds = ADDS;
    static __device__ void one(char *p) { atomicAdd((u64 *)p, (1ull << 32) + 1); }
    static bool right(const char *p) { return *(const u64 *)p == ((u64)adds << 32) + adds; } };
struct AddF32 { static constexpr const char *name = "atom.add.f32"; static constexpr unsigned adds = ADDS;
    static __device__ void one(char *p) { atomicAdd((float *)p, 1.f); }
    static bool right(const char *p) { return *(const float *)p == (float)adds; } };
struct AddF64 { static constexpr const char *name = "atom.add.f64"; static constexpr unsigned adds = ADDS;
    static __device__ void one(char *p) { atomicAdd((double *)p, 1.); }
    static bool right(const char *p) { return *(const double *)p == (double)adds; } };
struct AddF16x2 { static constexpr const char *name = "atom.add.f16x2"; static constexpr unsigned adds = ADDS;
    static __device__ void one(char *p) { atomicAdd((__half2 *)p, __half2half2(__float2half(1.f))); }
    static bool right(const char *p) { const __half *h = (const __half *)p; return __half2float(h[0]) == adds && __half2float(h[1]) == adds; } };
struct AddF16 { static constexpr const char *name = "atom.add.f16"; static constexpr unsigned adds = ADDS;
    static __device__ void one(char *p) { atomicAdd((__half *)p, __float2half(1.f)); }
    static bool right(const char *p) { return __half2float(*(const __half *)p) == adds; } };
struct AddBf16x2 { static constexpr const char *name = "atom.add.bf16x2"; static constexpr unsigned adds = FEW;
    static __device__ void one(char *p) { atomicAdd((__nv_bfloat162 *)p, __bfloat162bfloat162(__float2bfloat16(1.f))); }
    static bool right(const char *p) { const __nv_bfloat16 *h = (const __nv_bfloat16 *)p; return __bfloat162float(h[0]) == adds && __bfloat162float(h[1]) == adds; } };
struct AddBf16 { static constexpr const char *name = "atom.add.bf16"; static constexpr unsigned adds = FEW;
    static __device__ void one(char *p) { atomicAdd((__nv_bfloat16 *)p, __float2bfloat16(1.f)); }
    static bool right(const char *p) { return __bfloat162float(*(const __nv_bfloat16 *)p) == adds; } };
struct SystemU32 { static constexpr const char *name = "atom.sys.add.u32"; static constexpr unsigned adds = ADDS;
    static __device__ void one(char *p) { atomicAdd_system((unsigned *)p, 1u); }
    static bool right(const char *p) { return *(const unsigned *)p == adds; } };
struct SystemF32 { static constexpr const char *name = "atom.sys.add.f32"; static constexpr unsigned adds = ADDS;
    static __device__ void one(char *p) { atomicAdd_system((float *)p, 1.f); }
    static bool right(const char *p) { return *(const float *)p == (float)adds; } };
struct IncU32 { static constexpr const char *name = "atom.inc.u32"; static constexpr unsigned adds = ADDS;
    static __device__ void one(char *p) { atomicInc((unsigned *)p, 0xffffffffu); }
    static bool right(const char *p) { return *(const unsigned *)p == adds; } };
struct RedV2F32 { static constexpr const char *name = "red.v2.f32"; static constexpr unsigned adds = ADDS;
    static __device__ void one(char *p) { asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(p), "f"(1.f), "f"(2.f) : "memory"); }
    static bool right(const char *p) { const float *f = (const float *)p; return f[0] == adds && f[1] == 2.f * adds; } };
struct RedV4F32 { static constexpr const char *name = "red.v4.f32"; static constexpr unsigned adds = ADDS;
    static __device__ void one(char *p) { asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(1.f), "f"(2.f), "f"(3.f), "f"(4.f) : "memory"); }
    static bool right(const char *p) { const float *f = (const float *)p; return f[0] == adds && f[1] == 2.f * adds && f[2] == 3.f * adds && f[3] == 4.f * adds; } };
struct RedV4F16x2 { static constexpr const char *name = "red.v4.f16x2"; static constexpr unsigned adds = ADDS;
    static __device__ void one(char *p) { unsigned one = 0x3c003c00u; asm volatile("red.global.add.noftz.v4.f16x2 [%0], {%1, %1, %1, %1};" ::"l"(p), "r"(one) : "memory"); }
    static bool right(const char *p) { const __half *h = (const __half *)p; for (int i = 0; i < 8; i++) if (__half2float(h[i]) != adds) return false; return true; } };
struct Cas16 { static constexpr const char *name = "atom.cas.b16"; static constexpr unsigned adds = FEW;
    static __device__ void one(char *p) { unsigned short *w = (unsigned short *)p, old = 0; for (u64 i = 0; i < POLLS; i++) { unsigned short was = atomicCAS(w, old, (unsigned short)(old + 1)); if (was == old) return; old = was; } }
    static bool right(const char *p) { return *(const unsigned short *)p == adds; } };
struct Cas32 { static constexpr const char *name = "atom.cas.b32"; static constexpr unsigned adds = FEW;
    static __device__ void one(char *p) { unsigned *w = (unsigned *)p, old = 0; for (u64 i = 0; i < POLLS; i++) { unsigned was = atomicCAS(w, old, old + 1); if (was == old) return; old = was; } }
    static bool right(const char *p) { return *(const unsigned *)p == adds; } };
struct Cas64 { static constexpr const char *name = "atom.cas.b64"; static constexpr unsigned adds = FEW;
    static __device__ void one(char *p) { u64 *w = (u64 *)p, old = 0; for (u64 i = 0; i < POLLS; i++) { u64 was = atomicCAS(w, old, old + (1ull << 33) + 1); if (was == old) return; old = was; } }
    static bool right(const char *p) { return *(const u64 *)p == ((u64)adds << 33) + adds; } };

__device__ void cas128(u64 *p, u64 e0, u64 e1, u64 d0, u64 d1, u64 &o0, u64 &o1)
{
    asm volatile("{ .reg .b128 e, d, o; mov.b128 e, {%2, %3}; mov.b128 d, {%4, %5};\n\t"
                 "atom.global.cas.b128 o, [%6], e, d; mov.b128 {%0, %1}, o; }"
                 : "=l"(o0), "=l"(o1) : "l"(e0), "l"(e1), "l"(d0), "l"(d1), "l"(p) : "memory");
}
struct Cas128 { static constexpr const char *name = "atom.cas.b128"; static constexpr unsigned adds = FEW;
    static __device__ void one(char *p) { u64 a = 0, b = 0, x, y; for (u64 i = 0; i < POLLS; i++) { cas128((u64 *)p, a, b, a + 1, b + 3, x, y); if (x == a && y == b) return; a = x; b = y; } }
    static bool right(const char *p) { return ((const u64 *)p)[0] == adds && ((const u64 *)p)[1] == 3ull * adds; } };

/* Each thread adds to cells in turn; a cell gets `adds` in all. */
template <class Op> __global__ void add(char *memory)
{
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned i = thread; i < CELLS * Op::adds; i += gridDim.x * blockDim.x)
        Op::one(memory + (size_t)(i % CELLS) * STRIDE);
}

template <class Op> static Count added(char *memory)
{
    add<Op><<<BLOCKS, THREADS>>>(memory);
    std::vector<char> cells = fetch(memory, CELLS * STRIDE);
    Count count = { CELLS, 0 };
    for (int i = 0; i < CELLS; i++)
        count.wrong += !Op::right(&cells[(size_t)i * STRIDE]);
    return count;
}

/* Every value that was put in comes out once, or is there at the end: the sums say so. Both halves
 * belong together. */
__global__ void swap64(char *memory, u64 *out)
{
    u64 mine = blockIdx.x * blockDim.x + threadIdx.x + 1;
    out[mine - 1] = atomicExch((u64 *)(memory + mine % CELLS * STRIDE), mine);
}

__global__ void swap128(char *memory, u64 *out)
{
    u64 mine = blockIdx.x * blockDim.x + threadIdx.x + 1, a, b;
    asm volatile("{ .reg .b128 n, o; mov.b128 n, {%2, %3}; atom.global.exch.b128 o, [%4], n; mov.b128 {%0, %1}, o; }"
                 : "=l"(a), "=l"(b) : "l"(mine), "l"(mine * 7), "l"(memory + mine % CELLS * STRIDE) : "memory");
    out[mine - 1] = b == a * 7 ? a : ~0ull >> 1;
}

template <void (*KERNEL)(char *, u64 *)> static Count swapped(char *memory)
{
    const size_t threads = BLOCKS * THREADS;
    u64 *out;
    RUNTIME(cudaMalloc(&out, threads * 8));
    KERNEL<<<BLOCKS, THREADS>>>(memory, out);
    std::vector<char> cells = fetch(memory, CELLS * STRIDE), outs = fetch((char *)out, threads * 8);
    std::vector<char> seen(threads + 1);
    Count count = { threads, 0 };
    auto see = [&](u64 value) {
        if (value > threads || (value && seen[value]++))
            count.wrong++;
    };
    for (size_t i = 0; i < threads; i++)
        see(((u64 *)outs.data())[i]);
    for (int i = 0; i < CELLS; i++)
        see(*(u64 *)&cells[(size_t)i * STRIDE]);
    for (size_t i = 1; i <= threads; i++)
        count.wrong += !seen[i];
    return count;
}

__global__ void bits(char *memory)
{
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned *cell = (unsigned *)(memory + thread % CELLS * STRIDE);
    atomicMax(cell, thread);
    atomicOr(cell + 1, 1u << (thread / CELLS % 32));
    atomicXor(cell + 2, thread);
    atomicMax((u64 *)(cell + 4), (u64)thread << 32);
}

static Count all_bits(char *memory)
{
    bits<<<BLOCKS, THREADS>>>(memory);
    std::vector<char> cells = fetch(memory, CELLS * STRIDE);
    Count count = { CELLS * 4, 0 };
    for (unsigned i = 0; i < CELLS; i++) {
        const unsigned *cell = (const unsigned *)&cells[(size_t)i * STRIDE];
        unsigned last = BLOCKS * THREADS - CELLS + i, all = 0;
        for (unsigned thread = i; thread < BLOCKS * THREADS; thread += CELLS)
            all ^= thread;
        count.wrong += (cell[0] != last) + (cell[1] != ~0u) + (cell[2] != all) + (*(const u64 *)(cell + 4) != (u64)last << 32);
    }
    return count;
}

/* --- bulk copies and reductions
 * ----------------------------------------------------------------------------------- */

enum { TILE = 4096, TILES = 16, ROUNDS = 32 };

__device__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void bulk_end()
{
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}

__device__ void bulk_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

struct BulkF32 { static constexpr const char *name = "cp.reduce.async.bulk.add.f32"; typedef float T;
    static __host__ __device__ T value(unsigned i) { return (float)(i % 3 + 1); }
    static __device__ void reduce(void *to, unsigned from) { asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(TILE) : "memory"); }
    static double number(T t) { return t; } };
struct BulkU32 { static constexpr const char *name = "cp.reduce.async.bulk.add.u32"; typedef unsigned T;
    static __host__ __device__ T value(unsigned i) { return i % 3 + 1; }
    static __device__ void reduce(void *to, unsigned from) { asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(TILE) : "memory"); }
    static double number(T t) { return t; } };
struct BulkU64 { static constexpr const char *name = "cp.reduce.async.bulk.add.u64"; typedef u64 T;
    static __host__ __device__ T value(unsigned i) { return i % 3 + 1; }
    static __device__ void reduce(void *to, unsigned from) { asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u64 [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(TILE) : "memory"); }
    static double number(T t) { return (double)t; } };
struct BulkF64 { static constexpr const char *name = "cp.reduce.async.bulk.add.f64"; typedef double T;
    static __host__ __device__ T value(unsigned i) { return i % 3 + 1; }
    static __device__ void reduce(void *to, unsigned from) { asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f64 [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(TILE) : "memory"); }
    static double number(T t) { return t; } };
struct BulkF16 { static constexpr const char *name = "cp.reduce.async.bulk.add.f16"; typedef __half T;
    static __host__ __device__ T value(unsigned i) { return __float2half((float)(i % 3 + 1)); }
    static __device__ void reduce(void *to, unsigned from) { asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(TILE) : "memory"); }
    static double number(T t) { return __half2float(t); } };
struct BulkBf16 { static constexpr const char *name = "cp.reduce.async.bulk.add.bf16"; typedef __nv_bfloat16 T;
    static __host__ __device__ T value(unsigned) { return __float2bfloat16(1.f / 4); }
    static __device__ void reduce(void *to, unsigned from) { asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(TILE) : "memory"); }
    static double number(T t) { return __bfloat162float(t); } };

/* ROUNDS blocks add one tile to each of TILES tiles. */
template <class Op> __global__ void bulk_add(char *memory)
{
    __shared__ alignas(128) typename Op::T tile[TILE / sizeof(typename Op::T)];
    for (unsigned i = threadIdx.x; i < TILE / sizeof(typename Op::T); i += blockDim.x)
        tile[i] = Op::value(i);
    bulk_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        Op::reduce(memory + blockIdx.x % TILES * TILE, shared_address(tile));
        bulk_end();
    }
}

template <class Op> static Count bulk_added(char *memory)
{
    typedef typename Op::T T;
    bulk_add<Op><<<TILES * ROUNDS, 128>>>(memory);
    std::vector<char> tiles = fetch(memory, TILES * TILE);
    Count count = { TILES * TILE / sizeof(T), 0 };
    for (size_t i = 0; i < count.all; i++) {
        T wanted = Op::value((unsigned)(i % (TILE / sizeof(T))));
        count.wrong += Op::number(((T *)tiles.data())[i]) != Op::number(wanted) * ROUNDS;
    }
    return count;
}

/* Out of one tile by a bulk load, with a barrier that counts bytes, and into another by a bulk
 * store. */
__global__ void bulk_move(char *memory, unsigned *late)
{
    __shared__ alignas(128) char tile[TILE];
    __shared__ alignas(8) u64 barrier;
    unsigned address = shared_address(&barrier), done = 0;
    char *from = memory + (size_t)blockIdx.x * TILE, *to = from + (BYTES / 2);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        bulk_fence();
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(TILE) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     ::"r"(shared_address(tile)), "l"(from), "r"(TILE), "r"(address) : "memory");
        for (u64 i = 0; i < POLLS && !done; i++)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(address) : "memory");
        if (!done) {
            atomicAdd(late, 1u);
            return;
        }
        bulk_fence();
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(tile)), "r"(TILE) : "memory");
        bulk_end();
    }
}

static Count bulk_moved(char *memory)
{
    const size_t bytes = 256 * TILE;
    std::vector<unsigned> words(bytes / 4);
    for (size_t i = 0; i < words.size(); i++)
        words[i] = (unsigned)i * 2654435761u;
    unsigned *late, count_late;
    RUNTIME(cudaMalloc(&late, 4));
    RUNTIME(cudaMemset(late, 0, 4));
    RUNTIME(cudaMemcpy(memory, words.data(), bytes, cudaMemcpyHostToDevice));
    bulk_move<<<256, 32>>>(memory, late);
    std::vector<char> moved = fetch(memory + BYTES / 2, bytes);
    RUNTIME(cudaMemcpy(&count_late, late, 4, cudaMemcpyDeviceToHost));
    Count count = { words.size(), count_late };
    for (size_t i = 0; i < words.size(); i++)
        count.wrong += ((unsigned *)moved.data())[i] != words[i];
    return count;
}

/* --- tensor copies, and copies of single threads
 * --------------------------------------------------------------------- */

enum { EDGE = 32, SIDE = 4 * EDGE };

/* The memory's first half as a square of floats, for the tensor engine. */
static CUtensorMap tensor(char *memory)
{
    CUtensorMap map;
    cuuint64_t size[] = { SIDE, SIDE }, stride[] = { SIDE * 4 };
    cuuint32_t box[] = { EDGE, EDGE }, steps[] = { 1, 1 };
    DRIVER(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, memory, size, stride, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    return map;
}

/* ROUNDS times, each of 16 tiles gets its own values added. */
__global__ void tensor_add(const __grid_constant__ CUtensorMap map)
{
    __shared__ alignas(128) float tile[EDGE * EDGE];
    unsigned x = blockIdx.x % 4 * EDGE, y = blockIdx.x / 4 % 4 * EDGE;
    for (unsigned i = threadIdx.x; i < EDGE * EDGE; i += blockDim.x)
        tile[i] = (float)((y + i / EDGE) * 3 + (x + i % EDGE));
    bulk_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];"
                     ::"l"(&map), "r"(x), "r"(y), "r"(shared_address(tile)) : "memory");
        bulk_end();
    }
}

/* Tiles out of the tensor, and in rows to plain memory. */
__global__ void tensor_load(const __grid_constant__ CUtensorMap map, float *out, unsigned *late)
{
    __shared__ alignas(128) float tile[EDGE * EDGE];
    __shared__ alignas(8) u64 barrier;
    unsigned x = blockIdx.x % 4 * EDGE, y = blockIdx.x / 4 % 4 * EDGE, address = shared_address(&barrier), done = 0;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        bulk_fence();
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(EDGE * EDGE * 4) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                     ::"r"(shared_address(tile)), "l"(&map), "r"(x), "r"(y), "r"(address) : "memory");
    }
    __syncthreads();
    for (u64 i = 0; i < POLLS && !done; i++)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(address) : "memory");
    if (!done) {
        atomicAdd(late, 1u);
        return;
    }
    for (unsigned i = threadIdx.x; i < EDGE * EDGE; i += blockDim.x)
        out[(y + i / EDGE) * SIDE + x + i % EDGE] = tile[i];
}

static Count tensors(char *memory)
{
    CUtensorMap map = tensor(memory);
    float *out;
    unsigned *late, count_late;
    RUNTIME(cudaMalloc(&out, SIDE * SIDE * 4));
    RUNTIME(cudaMalloc(&late, 4));
    RUNTIME(cudaMemset(late, 0, 4));
    tensor_add<<<16 * ROUNDS, 128>>>(map);
    tensor_load<<<16, 128>>>(map, out, late);
    std::vector<char> loaded = fetch((char *)out, SIDE * SIDE * 4), there = fetch(memory, SIDE * SIDE * 4);
    RUNTIME(cudaMemcpy(&count_late, late, 4, cudaMemcpyDeviceToHost));
    Count count = { 2 * SIDE * SIDE, count_late };
    for (size_t i = 0; i < SIDE * SIDE; i++) {
        float wanted = ROUNDS * (float)(i / SIDE * 3 + i % SIDE);
        count.wrong += (((float *)loaded.data())[i] != wanted) + (((float *)there.data())[i] != wanted);
    }
    return count;
}

/* Every thread takes 16 bytes into shared memory and stores what came. */
__global__ void thread_copy(char *memory)
{
    __shared__ alignas(128) uint4 tile[256];
    size_t at = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) * 16;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&tile[threadIdx.x])), "l"(memory + at) : "memory");
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    uint4 value = tile[threadIdx.x ^ 1];
    *(uint4 *)(memory + BYTES / 2 + at) = value;
}

static Count thread_copied(char *memory)
{
    const size_t bytes = 1024 * 256 * 16;
    std::vector<unsigned> words(bytes / 4);
    for (size_t i = 0; i < words.size(); i++)
        words[i] = (unsigned)i * 2654435761u;
    RUNTIME(cudaMemcpy(memory, words.data(), bytes, cudaMemcpyHostToDevice));
    thread_copy<<<1024, 256>>>(memory);
    std::vector<char> moved = fetch(memory + BYTES / 2, bytes);
    Count count = { words.size(), 0 };
    for (size_t i = 0; i < words.size(); i++)
        count.wrong += ((unsigned *)moved.data())[i] != words[i ^ 4];
    return count;
}

/* --- barriers and messages
 * ---------------------------------------------------------------------------------------- */

/* All blocks write, meet, read what another block wrote, and meet again. `state` is the counter and
 * the number of the block that gave up. */
__global__ void meet(char *memory, u64 *found)
{
    unsigned *counter = (unsigned *)memory, *data = (unsigned *)(memory + 4096);
    for (unsigned turn = 0; turn < 500; turn++) {
        data[blockIdx.x * blockDim.x + threadIdx.x] = turn * 77 + blockIdx.x;
        for (unsigned half = 0; half < 2; half++) {
            __syncthreads();
            bool late = false;
            if (threadIdx.x == 0) {
                __threadfence();
                unsigned wanted = (turn * 2 + half + 1) * gridDim.x;
                atomicAdd(counter, 1u);
                u64 polls = 0;
                while (*(volatile unsigned *)counter < wanted && polls < POLLS)
                    polls++;
                __threadfence();
                late = polls == POLLS;
            }
            if (__syncthreads_or(late)) {
                if (threadIdx.x == 0)
                    atomicAdd(found, 1ull);
                return;
            }
            unsigned other = (blockIdx.x + 1 + turn) % gridDim.x;
            if (half == 0 && *(volatile unsigned *)&data[other * blockDim.x + threadIdx.x] != turn * 77 + other)
                atomicAdd(found, 1ull);
        }
    }
}

static Count met(char *memory)
{
    u64 *found, wrong;
    RUNTIME(cudaMalloc(&found, 8));
    RUNTIME(cudaMemset(found, 0, 8));
    meet<<<BLOCKS, 128>>>(memory, found);
    RUNTIME(cudaGetLastError());
    RUNTIME(cudaDeviceSynchronize());
    RUNTIME(cudaMemcpy(&wrong, found, 8, cudaMemcpyDeviceToHost));
    return { 500ull * BLOCKS * 128, wrong };
}

/* Block 2k tells block 2k+1: data, then a flag with release; the other waits with acquire and reads
 * the data. */
__global__ void tell(char *memory, volatile unsigned *heard, u64 *found)
{
    unsigned pair = blockIdx.x / 2;
    u64 *data = (u64 *)(memory + 1024 * pair);
    unsigned *flag = (unsigned *)(memory + (1 << 20) + 4 * pair), seen;
    for (unsigned turn = 1; turn <= 2000; turn++) {
        u64 polls = 0;
        if (blockIdx.x % 2 == 0) {
            while (heard[pair] != turn - 1 && polls < POLLS)
                polls++;
            for (unsigned i = 0; i < 16; i++)
                data[i] = (u64)turn * 131 + i;
            asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(turn) : "memory");
        } else {
            do
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
            while (seen != turn && ++polls < POLLS);
            for (unsigned i = 0; i < 16; i++)
                if (data[i] != (u64)turn * 131 + i)
                    atomicAdd(found, 1ull);
            __threadfence();
            heard[pair] = turn;
        }
        if (polls == POLLS) {
            atomicAdd(found, 1ull);
            return;
        }
    }
}

static Count told(char *memory)
{
    unsigned *heard;
    u64 *found, wrong;
    RUNTIME(cudaMalloc(&heard, BLOCKS * 4));
    RUNTIME(cudaMemset(heard, 0, BLOCKS * 4));
    RUNTIME(cudaMalloc(&found, 8));
    RUNTIME(cudaMemset(found, 0, 8));
    tell<<<BLOCKS, 1>>>(memory, heard, found);
    RUNTIME(cudaGetLastError());
    RUNTIME(cudaDeviceSynchronize());
    RUNTIME(cudaMemcpy(&wrong, found, 8, cudaMemcpyDeviceToHost));
    return { 2000ull * BLOCKS / 2 * 16, wrong };
}

/* The last block to arrive sums what all wrote: split-K and reductions do this. */
__global__ void last_sums(char *memory, unsigned turn, u64 *out)
{
    __shared__ bool last;
    u64 *parts = (u64 *)(memory + 4096);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = (u64)turn * 1000 + blockIdx.x;
        __threadfence();
        last = atomicInc((unsigned *)memory, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        __threadfence();
        u64 sum = 0;
        for (unsigned i = 0; i < gridDim.x; i++)
            sum += ((volatile u64 *)parts)[i];
        out[turn] = sum;
    }
}

static Count summed(char *memory)
{
    const unsigned turns = 500, blocks = 512;
    u64 *out;
    RUNTIME(cudaMalloc(&out, turns * 8));
    RUNTIME(cudaMemset(out, 0, turns * 8));
    for (unsigned turn = 0; turn < turns; turn++)
        last_sums<<<blocks, 32>>>(memory, turn, out);
    std::vector<char> sums = fetch((char *)out, turns * 8);
    Count count = { turns, 0 };
    for (unsigned turn = 0; turn < turns; turn++)
        count.wrong += ((u64 *)sums.data())[turn] != (u64)turn * 1000 * blocks + (u64)blocks * (blocks - 1) / 2;
    return count;
}

/* --- the checks
 * ----------------- */

#define ADD(Op) { Op::name, added<Op> }
#define BULK(Op) { Op::name, bulk_added<Op> }
static const Check CHECKS[] = {
    ADD(AddU32), ADD(AddU64), ADD(AddF32), ADD(AddF64), ADD(AddF16), ADD(AddF16x2), ADD(AddBf16), ADD(AddBf16x2),
    ADD(SystemU32), ADD(SystemF32), ADD(IncU32), ADD(RedV2F32), ADD(RedV4F32), ADD(RedV4F16x2),
    ADD(Cas16), ADD(Cas32), ADD(Cas64), ADD(Cas128),
    { "atom.exch.b64", swapped<swap64> }, { "atom.exch.b128", swapped<swap128> }, { "atom.max, or, xor, max.u64", all_bits },
    BULK(BulkF32), BULK(BulkU32), BULK(BulkU64), BULK(BulkF64), BULK(BulkF16), BULK(BulkBf16),
    { "cp.async.bulk in and out", bulk_moved }, { "tensor reduction and load (TMA)", tensors }, { "cp.async of threads", thread_copied },
    { "grid barrier", met }, { "release and acquire", told }, { "last block sums", summed },
};
enum { COUNT = sizeof CHECKS / sizeof *CHECKS };

/* The check's process: says how it came out, in one line. */
static int run(const Check &check, bool on_host)
{
    alarm(SECONDS);
    RUNTIME(cudaSetDevice(0));
    RUNTIME(cudaFree(0));
    Count count = check.run((char *)map(on_host));
    if (count.wrong)
        printf("wrong, %llu of %llu differ\n", count.wrong, count.all);
    else
        printf("right, %llu of %llu\n", count.all, count.all);
    fflush(stdout);
    _exit(count.wrong != 0);
}

/* Before the fork, nothing here may touch the driver. */
static bool passes(const Check &check, bool on_host)
{
    printf("%s %s: ", on_host ? "host" : "device", check.name);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        run(check, on_host);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("ended by signal %d%s\n", WTERMSIG(status), WTERMSIG(status) == 14 ? " (hung)" : "");
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int arguments, char **argument)
{
    std::string where = arguments > 1 ? argument[1] : "", which = arguments > 2 ? argument[2] : "";
    int bad = 0, ran = 0;
    for (int on_host = 0; on_host < 2; on_host++)
        for (int i = 0; i < COUNT; i++) {
            bool wanted = (where.empty() || where == (on_host ? "host" : "device")) && strstr(CHECKS[i].name, which.c_str());
            if (!wanted)
                continue;
            bool passed = passes(CHECKS[i], on_host);
            ran++;
            bad += !passed && on_host;
        }
    printf("%d checks ran; on host memory %d failed\n", ran, bad);
    return bad != 0;
}
