// The host's time for a kernel launch: the median and the mean of many, in nanoseconds, with three
// pointers into blocks of 4 MiB among the parameters.
//
//     nvcc -O2 -o launch_cost tests/workloads/launch_cost.cu
//     ./launch_cost
//     LD_PRELOAD=dist/lib/libwmshim.so ./launch_cost
//     WMSHIM_MIGRATE=on LD_PRELOAD=dist/lib/libwmshim.so ./launch_cost
//
// Launches come in batches that fit the driver's queue, and a batch begins when the one before
// has ended, so no launch waits for the GPU.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include <cuda_runtime.h>

static const int BATCH = 256, BATCHES = 800;

__global__ void add(const float *a, const float *b, float *sum, int count) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) sum[index] = a[index] + b[index];
}

static long nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

int main() {
    float *blocks[3];
    for (float *&block : blocks)
        if (cudaMalloc(&block, 4 << 20) != cudaSuccess) return 1;
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    std::vector<long> times;
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int launch = 0; launch < BATCH; launch++) {
            long begin = nanoseconds();
            add<<<1, 32, 0, stream>>>(blocks[0], blocks[1], blocks[2], 32);
            long end = nanoseconds();
            if (batch >= BATCHES / 8) times.push_back(end - begin);
        }
        if (cudaStreamSynchronize(stream) != cudaSuccess) return 1;
    }
    std::sort(times.begin(), times.end());
    double sum = 0;
    for (long time : times) sum += time;
    printf("launch: p50 %ld ns, p10 %ld ns, mean %.0f ns, %zu launches\n", times[times.size() / 2], times[times.size() / 10], sum / times.size(), times.size());
    return 0;
}
