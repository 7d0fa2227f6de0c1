// Kernels that run for a known time, or until the host sets a flag. Tests of stream order hold a
// stream with these instead of sleeping.
#include "../device.cuh"

/// Lasts `duration` nanoseconds.
extern "C" __global__ void wm_spin(u64 duration) {
    const u64 start = wm::thread_start();
    while (wm::nanoseconds() - start < duration) wm::pause();
}

/// Lasts until `*flag` is `value`, `limit` nanoseconds at most; adds 1 to `*expired` for each
/// thread that the limit ended. `flag` may lie in memory that the host writes while the kernel
/// runs.
extern "C" __global__ void wm_spin_until(const u32* flag, u32 value, u64 limit, u32* expired) {
    const u64 start = wm::thread_start();
    while (*static_cast<const volatile u32*>(flag) != value) {
        if (wm::nanoseconds() - start >= limit) {
            atomicAdd(expired, 1u);
            return;
        }
        wm::pause();
    }
    __threadfence_system();
}
