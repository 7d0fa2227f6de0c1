// Whole blocks of memory, to the last byte, that contain their owner's number. The stress test
// writes an owner into each block that it gets and looks for it later: another owner's mark means
// that two had the memory at once, or that the order of streams was broken.
#include "../device.cuh"

// The owner in a block's last, incomplete word: its first bytes.
__device__ __forceinline__ unsigned char byte_of(u64 owner, u64 index) { return (unsigned char)(owner >> (8 * index)); }

__device__ __forceinline__ bool is_first_thread() {
    return wm::block_in_grid() == 0 && wm::thread_in_block() == 0;
}

/// Writes `owner` into the `bytes` bytes of a block that starts at a multiple of 8.
extern "C" __global__ void wm_own_block(u64* block, u64 bytes, u64 owner) {
    for (u64 i : wm::share_of(bytes / 8)) block[i] = owner;
    if (!is_first_thread()) return;
    unsigned char* rest = reinterpret_cast<unsigned char*>(block + bytes / 8);
    for (u64 i = 0; i < bytes % 8; i++) rest[i] = byte_of(owner, i);
}

/// Looks for `owner` in a block as `wm_own_block` leaves it. `ledger` has six words: bytes looked
/// at, words found wrong (both are added to), and of the first one that was wrong its address, the
/// block's address, the owner and the word found.
extern "C" __global__ void wm_check_block(const u64* block, u64 bytes, u64 owner, u64* ledger) {
    u64 wrong = 0, at = 0, found = 0;
    for (u64 i : wm::share_of(bytes / 8)) {
        if (block[i] == owner) continue;
        if (wrong++ == 0) at = i, found = block[i];
    }
    if (is_first_thread()) {
        const unsigned char* rest = reinterpret_cast<const unsigned char*>(block + bytes / 8);
        for (u64 i = 0; i < bytes % 8; i++) {
            if (rest[i] == byte_of(owner, i)) continue;
            if (wrong++ == 0) at = bytes / 8, found = rest[i];
        }
        atomicAdd(ledger, bytes);
    }
    if (wrong == 0 || atomicAdd(ledger + 1, wrong) != 0) return;
    ledger[2] = reinterpret_cast<u64>(block + at);
    ledger[3] = reinterpret_cast<u64>(block);
    ledger[4] = owner;
    ledger[5] = found;
}
