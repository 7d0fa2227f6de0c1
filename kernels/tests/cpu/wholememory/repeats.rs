//! Hazard (wrong result): a row is asked for twice or not at all, or a position gets the row of
//! another number.

use wm_kernels::wholememory::{FindRepeats, PositionMap};

use super::graph::unpacked;
use super::islands::Islands;
use super::support::{Draws, indices, numbers, packed};
use crate::support::{run, written};

/// Numbers of which many are equal, and what is found of them.
struct Call {
    islands: Islands,
    rows: u64,
    first: u64,
    own: u64,
    chosen: Vec<i64>,
    bytes: u32,
}

impl Call {
    fn draw(seed: u64, most: u64) -> Self {
        let draws = &mut Draws::new(seed);
        let islands = Islands::draw(draws);
        let first = draws.below(islands.rows() + 1);
        let (rows, own) = (draws.below(islands.rows() - first + 1), draws.below(islands.count));
        let (count, bytes) = (draws.below(most) as usize, draws.of(&[4, 8]));
        // From all of the table to one row.
        let span = (rows.max(1) >> draws.below(8)).max(1);
        let (mut chosen, _) = indices(draws, count, span, bytes);
        if draws.below(4) == 0 {
            chosen.sort_unstable();
        }
        Self { islands, rows, first, own, chosen, bytes }
    }

    /// `asked` and `sources`, with a table that may have been used by an equal call.
    fn find(&self, blocks: u32, map: PositionMap) -> (Vec<i64>, Vec<i64>) {
        let (array, count) = (packed(&self.chosen, self.bytes), self.chosen.len());
        let (mut asked, mut sources) = (vec![0x77u8; array.len()], vec![0x77u8; 4 * count]);
        let finding = FindRepeats {
            numbers: numbers(&array, self.bytes),
            rows: self.islands.table(self.first, self.rows, self.own as u32),
            map,
            asked: written(&mut asked),
            sources: written(&mut sources),
        };
        run((blocks, 256), &finding);
        (unpacked(&asked, self.bytes), unpacked(&sources, 4))
    }

    fn crosses(&self, number: i64) -> bool {
        let is_row = u64::try_from(number).is_ok_and(|number| number < self.rows);
        is_row && self.islands.place(number as u64 + self.first).0 != self.own
    }

    fn check(&self, (asked, sources): &(Vec<i64>, Vec<i64>)) {
        let all = self.chosen.iter().zip(asked).zip(sources).enumerate();
        for (at, ((number, asked), source)) in all.clone() {
            match source {
                -1 => assert_eq!(asked, number, "number {at}"),
                _ => {
                    assert_eq!((*asked, self.chosen[*source as usize]), (-1, *number), "number {at}");
                    assert_eq!(
                        sources[*source as usize], -1,
                        "number {at} comes from one that comes from elsewhere"
                    );
                    assert!(self.crosses(*number), "a copy of row {number}, which does not cross");
                }
            }
        }
        let mut crossing: Vec<_> = all
            .filter(|(_, ((number, _), source))| **source == -1 && self.crosses(**number))
            .map(|(_, ((number, _), _))| *number)
            .collect();
        crossing.sort_unstable();
        assert!(crossing.windows(2).all(|pair| pair[0] != pair[1]), "a row crosses twice");
    }
}

/// Slots for so many numbers, all free: at most half of them are taken, as a call has them.
fn slots(count: usize) -> Vec<u32> {
    vec![u32::MAX; (2 * count).max(2).next_power_of_two()]
}

fn map(slots: &mut [u32]) -> PositionMap {
    PositionMap { capacity: slots.len() as u64, slots: written(slots) }
}

#[test]
fn each_row_of_another_island_is_asked_for_once() {
    for seed in 0..300 {
        let call = Call::draw(seed, 400);
        call.check(&call.find(1 + (seed % 4) as u32, map(&mut slots(call.chosen.len()))));
    }
}

/// Slots are few, so probes go past those of other numbers and around the end.
#[test]
fn a_table_that_is_nearly_full() {
    for seed in 0..100 {
        let call = Call::draw(seed, 400);
        let mut slots = vec![u32::MAX; (call.chosen.len() + 1).next_power_of_two()];
        call.check(&call.find(2, map(&mut slots)));
    }
}

/// Threads that take slots at the same moment agree on the position of each number.
#[test]
fn threads_that_take_slots_at_once() {
    for seed in 0..40 {
        let call = Call::draw(seed, 4000);
        let mut slots = slots(call.chosen.len());
        let map = map(&mut slots);
        let found = std::thread::scope(|scope| {
            let finding = [(); 3].map(|()| scope.spawn(|| call.find(1, map)));
            finding.map(|thread| thread.join().expect("a launch"))
        });
        call.check(&found[0]);
        assert!(found[0] == found[1] && found[1] == found[2], "seed {seed}");
    }
}
