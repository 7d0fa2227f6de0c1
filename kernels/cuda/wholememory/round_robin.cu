// Places of rows in a table that is dealt to the ranks in turn.
#include "table.cuh"

/// `places[i]` becomes the place of row `numbers[i]` in a table of `rows` rows that are dealt to
/// `ranks` ranks in turn, `turn` rows at a time; each rank has `rows_of_rank` rows of memory. It
/// becomes -1 for a number that is negative or not below `rows`. None of `turn` and `ranks` is 0.
extern "C" __global__ void wm_round_robin_places(wm::Numbers numbers, u64 rows, u64 turn, u64 ranks,
                                                 u64 rows_of_rank, i64* places) {
    for (u64 i : wm::share_of(numbers.count)) {
        const i64 row = numbers.at(i);
        const u64 number = wm::quotient(u64(row), turn), round = wm::quotient(number, ranks);
        const u64 place = (number - round * ranks) * rows_of_rank + round * turn + (u64(row) - number * turn);
        places[i] = row < 0 || u64(row) >= rows ? -1 : i64(place);
    }
}
