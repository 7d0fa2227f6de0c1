// Finds the row numbers that repeat, among those whose row another island has: such a row crosses
// the network once, and is copied from there to the other positions that name it.
//
// A hash table in device memory (open addressing, linear probing) has a position of each number. It
// does not have the number itself, which is read at the position: so a slot is one word, and one
// exchange takes it. A slot that was taken keeps its position.
//
// One launch. Of the positions of a number any one may be the first to come, and may be another one
// from launch to launch.
#include "islands.cuh"
#include "hash.cuh"

namespace wm {

constexpr u32 FREE_SLOT = 0xffffffffu;

/// A hash table of `capacity` slots, a power of two, of which a part stays free: in each the
/// position of a number. Free slots have all bits set.
struct PositionMap {
    u32* slots;
    u64 capacity;

    // The position of a number that came first; this one, if no other has come.
    __device__ __forceinline__ u32 first_of(const Numbers& numbers, i64 number, u32 position) const {
        for (u64 slot = hash_of(u64(number)) & (capacity - 1);; slot = (slot + 1) & (capacity - 1)) {
            u32 found;
            // Past L1, which might have the slot as it was before, again and again.
            load_relaxed(true, u64(slots + slot), found);
            if (found == FREE_SLOT) found = atomicCAS(slots + slot, FREE_SLOT, position);
            if (found == FREE_SLOT) return position;
            if (numbers.at(found) == number) return found;
        }
    }
};

}  // namespace wm

/// Of each number whose row another island has: at one position `asked[i]` becomes the number and
/// `sources[i]` -1; at all others of the same number `asked[i]` becomes -1 and `sources[i]` that
/// one position. Every other number is in `asked` as it is, with -1 in `sources`. `asked` has
/// numbers of the same size. There are fewer than 2^31; the table begins with free slots.
extern "C" __global__ void wm_find_repeats(wm::Numbers numbers, wm::IslandRows rows, wm::PositionMap map,
                                           void* asked, i32* sources) {
    for (u64 i : wm::share_of(numbers.count)) {
        const i64 number = numbers.at(i);
        u32 island;
        rows.find(number, island);
        const bool crosses = island != wm::NO_ISLAND && island != rows.own;
        const u32 first = crosses ? map.first_of(numbers, number, u32(i)) : u32(i);
        const bool repeats = first != u32(i);
        wm::store_index(asked, numbers.bytes, i, repeats ? -1 : number);
        sources[i] = repeats ? i32(first) : -1;
    }
}
