// Rows of other islands that several ranks of an island want: one of the ranks asks for each, and
// the others read it where it has arrived.
//
// The ranks share a hash table (open addressing, linear probing) in memory that all of them map,
// with a slot of two words for each row: the row, and the place where it arrives. A rank that takes
// a row's slot by compare-and-swap asks for the row; one that finds the slot taken borrows it, also
// from itself. No slot is given back while any rank takes some, so all ranks find the same slot.
// Where none is free near a row's hash the row has none, and each rank asks for it.
//
// The launches, in order: `claim`; when all ranks have claimed, `place` at the ranks that ask; when
// all have placed, `locate` at those that borrow, and `choose` for each chunk of rows that has
// arrived; when all have located, `release`.
#include "hash.cuh"
#include "islands.cuh"

namespace wm {

constexpr i32 NO_SLOT = -1;
// Slots that are looked at for a row.
constexpr u32 PROBES = 64;
// A place is the number of a chunk of rows, and below it a row of the table of arriving rows.
constexpr u32 CHUNK_BIT = 40;

/// The slots of an island: fewer than 2^31, of 16 bytes. Free ones begin with a word of 0.
struct ClaimMap {
    u64 slots;
    u64 capacity;

    __device__ __forceinline__ u64 key_at(u64 slot) const { return slots + slot * 16; }
    __device__ __forceinline__ u64 place_at(u64 slot) const { return slots + slot * 16 + 8; }

    // The slot of a row, and whether it was taken by this.
    __device__ __forceinline__ i32 claim(u64 row, bool& is_taken) const {
        is_taken = false;
        u64 slot = (hash_of(row) >> 32) * capacity >> 32;
        const u32 probes = capacity < PROBES ? u32(capacity) : PROBES;
#pragma unroll 1
        for (u32 probe = 0; probe < probes; probe++) {
            u64 found = load_word(key_at(slot));
            if (found == 0) {
                found = exchange_word(key_at(slot), 0, row + 1);
                is_taken = found == 0;
            }
            if (is_taken || found == row + 1) return i32(slot);
            slot = slot + 1 == capacity ? 0 : slot + 1;
        }
        return NO_SLOT;
    }
};

/// Where a rank's rows of another island arrive: in chunks of so many rows, of which each takes the
/// next of the pair's buffers in turn. The buffers of all ranks are one table, with as many rows
/// each.
struct ArrivingRows {
    u64 chunk_rows;
    u64 buffer;  // the first of the pair's, by its number in the table
    u64 apart;   // from one of the pair's buffers to the next
    u64 turns;   // buffers of a pair

    // The place of a row of the pair.
    __device__ __forceinline__ u64 place(u64 row) const {
        const u64 chunk = quotient(row, chunk_rows);
        const u64 at = (buffer + remainder(chunk, turns) * apart) * chunk_rows + row - chunk * chunk_rows;
        return chunk << CHUNK_BIT | at;
    }
};

}  // namespace wm

/// Claims each row of another island. At one position of one rank `asked[i]` becomes the number, at
/// all others of that row -1; `slots[i]` is its slot for all. A row without a slot is asked for
/// at each position. Every other number is in `asked` as it is. `slots[i]` is -1 for both.
extern "C" __global__ void wm_claim_rows(wm::Numbers numbers, wm::IslandRows rows, wm::ClaimMap map, void* asked,
                                         i32* slots) {
    for (u64 i : wm::share_of(numbers.count)) {
        const i64 number = numbers.at(i);
        u32 island;
        rows.find(number, island);
        i32 slot = wm::NO_SLOT;
        bool is_asked = true;
        if (island != wm::NO_ISLAND && island != rows.own) {
            slot = map.claim(u64(number) + rows.first, is_asked);
            is_asked |= slot == wm::NO_SLOT;
        }
        wm::store_index(asked, numbers.bytes, i, is_asked ? number : -1);
        slots[i] = slot;
    }
}

/// Says in their slots where the rows arrive that one rank asks another one for: `positions[i]` is
/// the position of row `i` of the pair.
extern "C" __global__ void wm_place_claims(wm::Numbers positions, const i32* slots, wm::ClaimMap map,
                                           wm::ArrivingRows arriving) {
    for (u64 i : wm::share_of(positions.count)) {
        const i32 slot = slots[positions.at(i)];
        if (slot != wm::NO_SLOT) wm::store_word(map.place_at(u64(slot)), arriving.place(i));
    }
}

/// Finds the place of each row that is borrowed; -1 for every other number.
extern "C" __global__ void wm_locate_claims(wm::Numbers asked, const i32* slots, wm::ClaimMap map, i64* places) {
    for (u64 i : wm::share_of(asked.count)) {
        const i32 slot = slots[i];
        const bool is_borrowed = slot != wm::NO_SLOT && asked.at(i) < 0;
        places[i] = is_borrowed ? i64(wm::load_word(map.place_at(u64(slot)))) : -1;
    }
}

/// Chooses the rows of one chunk among some places: their rows in the table of arriving rows, and
/// -1 for every other one.
extern "C" __global__ void wm_choose_arrived(const i64* places, u64 count, u64 chunk, i64* rows) {
    for (u64 i : wm::share_of(count)) {
        const i64 place = places[i];
        const bool is_chosen = place >= 0 && u64(place) >> wm::CHUNK_BIT == chunk;
        rows[i] = is_chosen ? i64(u64(place) & ((1ull << wm::CHUNK_BIT) - 1)) : -1;
    }
}

/// Gives back the slots of the rows that this rank has asked for, at these positions.
extern "C" __global__ void wm_release_claims(wm::Numbers positions, const i32* slots, wm::ClaimMap map) {
    for (u64 i : wm::share_of(positions.count)) {
        const i32 slot = slots[positions.at(i)];
        if (slot != wm::NO_SLOT) wm::store_word(map.key_at(u64(slot)), 0);
    }
}
