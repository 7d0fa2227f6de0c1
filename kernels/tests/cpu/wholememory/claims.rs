//! Hazard (wrong result): a row that ranks of an island want is asked for twice or not at all, or a
//! rank borrows another row. Ranks claim at the same moment.

use std::collections::BTreeMap;

use wm_kernels::wholememory::{
    ArrivingRows, ChooseArrived, ClaimMap, ClaimRows, IslandRows, LocateClaims, Numbers, PlaceClaims,
    ReleaseClaims,
};

use super::graph::unpacked;
use super::islands::Islands;
use super::support::{Draws, indices, numbers, packed};
use crate::support::{read, run, written};

const CHUNK_ROWS: u64 = 7;
const TURNS: u64 = 4;
/// Buffers of a rank: one partner.
const BUFFERS: u64 = TURNS;
/// Of a place.
const CHUNK_BIT: u32 = 40;

/// What a rank of the island wants, and what is found.
struct Member {
    number: u64,
    chosen: Vec<i64>,
    bytes: u32,
    array: Vec<u8>,
    asked: Vec<u8>,
    slots: Vec<u8>,
    /// Positions of the rows that it asks for.
    positions: Vec<u8>,
    places: Vec<i64>,
}

impl Member {
    fn new(draws: &mut Draws, number: u64, span: u64, most: u64) -> Self {
        let (count, bytes) = (draws.below(most) as usize, draws.of(&[4, 8]));
        let (chosen, _) = indices(draws, count, span, bytes);
        let array = packed(&chosen, bytes);
        let (asked, slots) = (vec![0x77; array.len()], vec![0x77; 4 * count]);
        Self { number, chosen, bytes, array, asked, slots, positions: vec![], places: vec![0x77; count] }
    }

    fn claim(&mut self, rows: IslandRows, map: ClaimMap) {
        let asked = written(&mut self.asked);
        let slots = written(&mut self.slots);
        run((2, 64), &ClaimRows { numbers: numbers(&self.array, self.bytes), rows, map, asked, slots });
    }

    fn asked(&self) -> Vec<i64> {
        unpacked(&self.asked, self.bytes)
    }

    fn positions(&self) -> Numbers {
        numbers(&self.positions, 8)
    }

    /// Its rows of other islands arrive in the order of their positions.
    fn place(&mut self, crosses: impl Fn(i64) -> bool, map: ClaimMap) {
        let asked = self.asked().into_iter().enumerate().filter(|(_, number)| crosses(*number));
        let positions: Vec<_> = asked.map(|(at, _)| at as i64).collect();
        self.positions = packed(&positions, 8);
        let buffer = self.number * BUFFERS;
        let arriving = ArrivingRows { chunk_rows: CHUNK_ROWS, buffer, apart: 1, turns: TURNS };
        let slots = read(&self.slots);
        run((1, 32), &PlaceClaims { positions: self.positions(), slots, map, arriving });
    }

    fn locate(&mut self, map: ClaimMap) {
        let (asked, slots) = (numbers(&self.asked, self.bytes), read(&self.slots));
        run((3, 32), &LocateClaims { asked, slots, map, places: written(&mut self.places) });
    }

    /// The rows of a chunk, as they are chosen.
    fn choose(&self, chunk: u64) -> Vec<i64> {
        let mut rows = vec![0x77i64; self.places.len()];
        let (places, count) = (read(&self.places), self.places.len() as u64);
        run((2, 32), &ChooseArrived { places, count, chunk, rows: written(&mut rows) });
        rows
    }
}

/// A call of an island's ranks, with so many slots for each number. Returns how many rows were
/// asked for more than once.
fn play(seed: u64, most: u64, slots: &mut [u64]) -> usize {
    let draws = &mut Draws::new(seed);
    let islands = Islands::draw(draws);
    let first = draws.below(islands.rows() + 1);
    let (rows, own) = (draws.below(islands.rows() - first + 1), draws.below(islands.count));
    let span = (rows.max(1) >> draws.below(8)).max(1);
    let mut members: Vec<_> =
        (0..1 + draws.below(4)).map(|number| Member::new(draws, number, span, most)).collect();
    let map = ClaimMap { capacity: slots.len() as u64 / 2, slots: written(slots) };
    let table = || islands.table(first, rows, own as u32);
    let crosses = |number: i64| {
        let is_row = u64::try_from(number).is_ok_and(|number| number < rows);
        is_row && islands.place(number as u64 + first).0 != own
    };
    std::thread::scope(|scope| {
        for member in &mut members {
            scope.spawn(|| member.claim(table(), map));
        }
    });
    members.iter_mut().for_each(|member| member.place(crosses, map));
    members.iter_mut().for_each(|member| member.locate(map));
    // What arrives: a row of each rank's list, by buffer and place there.
    let mut asked: BTreeMap<i64, usize> = BTreeMap::new();
    for member in &members {
        for (number, asked_for) in member.chosen.iter().zip(member.asked()) {
            assert!(asked_for == *number || (asked_for == -1 && crosses(*number)), "seed {seed}: {number}");
            *asked.entry(*number).or_default() += usize::from(asked_for == *number && crosses(*number));
        }
    }
    let row_at = |place: i64| {
        let (chunk, at) = (place as u64 >> CHUNK_BIT, place as u64 & ((1 << CHUNK_BIT) - 1));
        let (buffer, within) = (at / CHUNK_ROWS, at % CHUNK_ROWS);
        assert_eq!(buffer % BUFFERS, chunk % TURNS);
        let member = &members[(buffer / BUFFERS) as usize];
        let positions = unpacked(&member.positions, 8);
        member.chosen[positions[(chunk * CHUNK_ROWS + within) as usize] as usize]
    };
    for member in &members {
        for ((number, asked), place) in member.chosen.iter().zip(member.asked()).zip(&member.places) {
            let is_borrowed = crosses(*number) && asked == -1;
            assert_eq!(*place >= 0, is_borrowed, "seed {seed}: row {number}");
            assert!(!is_borrowed || row_at(*place) == *number, "seed {seed}: another row than {number}");
        }
        let chunks = member.places.iter().map(|place| place >> CHUNK_BIT).max().unwrap_or(-1);
        let mut left = member.places.clone();
        for chunk in 0..=chunks {
            for ((row, place), left) in member.choose(chunk as u64).iter().zip(&member.places).zip(&mut left)
            {
                let is_chosen = *place >= 0 && place >> CHUNK_BIT == chunk;
                assert_eq!(*row, if is_chosen { place & ((1 << CHUNK_BIT) - 1) } else { -1 });
                *left = if is_chosen { -1 } else { *left };
            }
        }
        assert!(left.iter().all(|place| *place < 0), "rows that are in no chunk");
    }
    for member in &members {
        run((1, 32), &ReleaseClaims { positions: member.positions(), slots: read(&member.slots), map });
    }
    asked.values().filter(|times| **times > 1).count()
}

fn all_are_free(slots: &[u64]) {
    assert!(slots.iter().step_by(2).all(|key| *key == 0), "a slot that is not given back");
}

/// Slots are enough: the next call finds all of them free again.
#[test]
fn each_row_is_asked_for_once_in_an_island() {
    let mut slots = vec![0; 2 * 4096];
    for seed in 0..200 {
        assert_eq!(play(seed, 300, &mut slots), 0, "seed {seed}: rows that are asked for twice");
        all_are_free(&slots);
    }
}

/// A row without a slot is asked for at each position.
#[test]
fn slots_that_are_too_few() {
    let twice: usize = (0..100)
        .map(|seed| {
            let mut slots = vec![0; 2 * 24];
            let twice = play(seed, 300, &mut slots);
            all_are_free(&slots);
            twice
        })
        .sum();
    assert!(twice > 0, "slots were enough: nothing was tried");
}
