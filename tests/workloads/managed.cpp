// An allocator of managed memory for PyTorch: cudaMallocManaged behind a cache by size and stream,
// as programs use it that go beyond their GPU's memory without a library like this one. For
// comparison only.
//
// Invariant: it never holds more memory than the device had free at its first call, less 4 GiB:
// managed memory beyond that may hang a GPU.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

namespace {

constexpr size_t SPARED = size_t(4) << 30;
constexpr size_t SMALL = 1 << 20, LARGE_STEP = 2 << 20, SMALL_STEP = 512;

using Key = std::pair<size_t, cudaStream_t>;

std::mutex lock;
std::map<Key, std::vector<void *>> idle;
size_t held, live, peak_held, peak_live, most;

size_t rounded(size_t bytes)
{
    size_t step = bytes < SMALL ? SMALL_STEP : LARGE_STEP;
    return (bytes + step - 1) / step * step;
}

void empty_cache()
{
    cudaDeviceSynchronize();
    for (auto &[key, blocks] : idle) {
        for (void *block : blocks)
            cudaFree(block);
        held -= key.first * blocks.size();
    }
    idle.clear();
}

void *make(size_t bytes)
{
    size_t free = 0, total = 0;
    if (!most && cudaMemGetInfo(&free, &total) == cudaSuccess)
        most = free > SPARED ? free - SPARED : 1;
    if (held + bytes > most)
        empty_cache();
    void *block = nullptr;
    if (held + bytes > most || cudaMallocManaged(&block, bytes) != cudaSuccess)
        return nullptr;
    held += bytes;
    peak_held = held > peak_held ? held : peak_held;
    return block;
}

} // namespace

extern "C" void *managed_malloc(size_t size, int, cudaStream_t stream)
{
    std::lock_guard<std::mutex> guard(lock);
    size_t bytes = rounded(size);
    auto &blocks = idle[{bytes, stream}];
    void *block = nullptr;
    if (blocks.empty()) {
        block = make(bytes);
    } else {
        block = blocks.back();
        blocks.pop_back();
    }
    live += block ? bytes : 0;
    peak_live = live > peak_live ? live : peak_live;
    return block;
}

extern "C" void managed_free(void *block, size_t size, int, cudaStream_t stream)
{
    std::lock_guard<std::mutex> guard(lock);
    size_t bytes = rounded(size);
    idle[{bytes, stream}].push_back(block);
    live -= bytes;
}

extern "C" size_t managed_peak_held() { return peak_held; }
extern "C" size_t managed_peak_live() { return peak_live; }
