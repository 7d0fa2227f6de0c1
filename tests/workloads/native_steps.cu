/* A C++ program that repeats a step until SIGTERM, for pauses.py: waves on a grid, in integers, so that each number is exact. It uses
 * the runtime as such programs do: cudaMalloc, cudaMallocAsync, two streams with events, a graph, and Thrust.
 *
 *   nvcc -O2 -std=c++17 -arch=native -o native_steps tests/workloads/native_steps.cu && ./native_steps
 *
 * SCALE (1): 4 GiB at most. A line a step, then RESULT with JSON, as outgrow.py prints them. */

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <chrono>
#include <cuda_runtime.h>
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>

#define CHECK(call) do { cudaError_t r_ = (call); if (r_) { fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(r_)); exit(3); } } while (0)

static volatile sig_atomic_t over;

static void end(int) { over = 1; }

__global__ void wave(const unsigned *now, const unsigned *before, unsigned *next, int side)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= side)
        return;
    int left = x ? x - 1 : side - 1, right = x + 1 < side ? x + 1 : 0, up = y ? y - 1 : side - 1, down = y + 1 < side ? y + 1 : 0;
    unsigned around = now[y * (size_t)side + left] + now[y * (size_t)side + right] + now[up * (size_t)side + x] + now[down * (size_t)side + x];
    next[y * (size_t)side + x] = around / 2 - before[y * (size_t)side + x] + 1;
}

__global__ void fill(unsigned *at, size_t count, unsigned seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x)
        at[i] = (unsigned)(i * 2654435761u) ^ seed;
}

int main()
{
    signal(SIGTERM, end);
    double scale = getenv("SCALE") ? atof(getenv("SCALE")) : 1;
    int side = 1024 * (scale >= 1 ? 16 : scale >= 0.2 ? 8 : 1);
    size_t cells = (size_t)side * side;
    cudaStream_t waves, sums;
    CHECK(cudaStreamCreate(&waves));
    CHECK(cudaStreamCreate(&sums));
    cudaEvent_t moved;
    CHECK(cudaEventCreateWithFlags(&moved, cudaEventDisableTiming));
    unsigned *grid[3];
    for (int i = 0; i < 3; i++) {
        CHECK(cudaMalloc(&grid[i], cells * 4));
        fill<<<1024, 256, 0, waves>>>(grid[i], cells, i);
    }
    /* Twelve waves, after which each grid has its place again. */
    dim3 blocks((side + 255) / 256, side);
    cudaGraph_t graph;
    cudaGraphExec_t steps;
    CHECK(cudaStreamBeginCapture(waves, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 12; i++)
        wave<<<blocks, 256, 0, waves>>>(grid[(i + 1) % 3], grid[i % 3], grid[(i + 2) % 3], side);
    CHECK(cudaStreamEndCapture(waves, &graph));
    CHECK(cudaGraphInstantiate(&steps, graph, 0));
    std::vector<double> seconds;
    std::vector<unsigned> values;
    while (!over) {
        auto begin = std::chrono::steady_clock::now();
        CHECK(cudaGraphLaunch(steps, waves));
        CHECK(cudaEventRecord(moved, waves));
        CHECK(cudaStreamWaitEvent(sums, moved, 0));
        size_t part = cells / 8;
        unsigned *copy;
        CHECK(cudaMallocAsync(&copy, part * 4, sums));
        CHECK(cudaMemcpyAsync(copy, grid[values.size() % 3] + part * (values.size() % 8), part * 4, cudaMemcpyDeviceToDevice, sums));
        thrust::device_ptr<unsigned> first(copy);
        thrust::sort(thrust::cuda::par.on(sums), first, first + part);
        unsigned middle = 0;
        CHECK(cudaMemcpyAsync(&middle, copy + part / 2, 4, cudaMemcpyDeviceToHost, sums));
        CHECK(cudaStreamSynchronize(sums));
        unsigned sum = thrust::reduce(thrust::cuda::par.on(sums), first, first + part, 0u);
        CHECK(cudaFreeAsync(copy, sums));
        CHECK(cudaDeviceSynchronize());
        values.push_back(middle ^ sum);
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        printf("native %zu: %.4f s, %u\n", values.size(), seconds.back(), values.back());
        fflush(stdout);
    }
    std::string all;
    for (unsigned value : values)
        all += (all.empty() ? "" : ", ") + std::to_string(value);
    printf("RESULT {\"name\": \"native\", \"value\": %u, \"values\": [%s]}\n", values.empty() ? 0 : values.back(), all.c_str());
    return values.empty();
}
