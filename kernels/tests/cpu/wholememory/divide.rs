//! Hazard (wrong result): a row number goes to the wrong island, under a wrong number, or not at
//! all.

use wm_kernels::wholememory::{Chunks, DivideCount, DivideMove, IslandRows};

use super::graph::unpacked;
use super::support::{Draws, indices, numbers};
use crate::support::{read, run, written};

/// Ranks with rows, dealt to islands.
struct Islands {
    starts: Vec<u64>,
    islands: Vec<u64>,
    firsts: Vec<u64>,
    count: u64,
    equal: u64,
}

impl Islands {
    fn draw(draws: &mut Draws) -> Self {
        let (ranks, count) = (1 + draws.below(7) as usize, 1 + draws.below(5));
        let each = 1 + draws.below(60);
        let equal = if draws.below(2) == 0 { each } else { 0 };
        let (mut starts, mut firsts, mut islands) = (vec![0], Vec::new(), Vec::new());
        let mut ends = vec![0; count as usize];
        for _ in 0..ranks {
            let rows = if equal == 0 { draws.below(3).min(1) * draws.below(60) } else { each };
            let island = draws.below(count);
            firsts.push(ends[island as usize]);
            ends[island as usize] += rows;
            islands.push(island);
            starts.push(starts[starts.len() - 1] + rows);
        }
        Self { starts, islands, firsts, count, equal }
    }

    fn rows(&self) -> u64 {
        self.starts[self.islands.len()]
    }

    /// Island and number there of a row.
    fn place(&self, row: u64) -> (u64, i64) {
        let rank = (0..self.islands.len()).find(|rank| row < self.starts[rank + 1]).expect("a rank");
        (self.islands[rank], (row - self.starts[rank] + self.firsts[rank]) as i64)
    }

    fn table(&self, first: u64, rows: u64, own: u32) -> IslandRows {
        let (ranks, equal) = (self.islands.len() as u32, self.equal);
        IslandRows {
            chunks: Chunks { bases: 16, starts: read(&self.starts), equal, count: ranks },
            islands: read(&self.islands),
            firsts: read(&self.firsts),
            rows,
            first,
            own,
            count: self.count as u32,
        }
    }
}

/// Draws numbers, divides them, and compares with a plain search.
fn check(seed: u64, blocks: u32, most: u64) {
    let draws = &mut Draws::new(seed);
    let islands = Islands::draw(draws);
    let first = draws.below(islands.rows() + 1);
    let (rows, own) = (draws.below(islands.rows() - first + 1), draws.below(islands.count));
    let (count, bytes) = (draws.below(most) as usize, draws.of(&[4, 8]));
    let (chosen, array) = indices(draws, count, rows.max(1), bytes);
    let (row_bytes, position_bytes) = (draws.of(&[4, 8]), draws.of(&[4, 8]));

    let (mut counts, mut cursors) = (vec![0u64; islands.count as usize], vec![0u64; islands.count as usize]);
    let lists = |bytes: u32| vec![0x77u8; count * bytes as usize];
    let (mut mine, mut sent, mut positions) = (lists(row_bytes), lists(row_bytes), lists(position_bytes));
    let (numbers, rows_of) = (numbers(&array, bytes), islands.table(first, rows, own as u32));
    run((blocks, 256), &DivideCount { numbers, rows: rows_of, counts: written(&mut counts) });
    let moving = DivideMove {
        numbers,
        rows: rows_of,
        counts: read(&counts),
        cursors: written(&mut cursors),
        own: written(&mut mine),
        sent: written(&mut sent),
        row_bytes,
        positions: written(&mut positions),
        position_bytes,
    };
    run((blocks, 256), &moving);

    let mut wanted = vec![Vec::new(); islands.count as usize];
    let is_row = |number: i64| u64::try_from(number).is_ok_and(|number| number < rows);
    let place = |number: i64| is_row(number).then(|| islands.place(number as u64 + first));
    for (at, number) in chosen.iter().enumerate() {
        if let Some((island, row)) = place(*number) {
            wanted[island as usize].push((at as i64, row));
        }
    }
    assert_eq!(counts, wanted.iter().map(|rows| rows.len() as u64).collect::<Vec<_>>());
    let own_rows = chosen.iter().map(|number| match place(*number) {
        Some((island, row)) if island == own => row,
        _ => -1,
    });
    assert_eq!(unpacked(&mine, row_bytes), own_rows.collect::<Vec<_>>());
    let found: Vec<_> =
        unpacked(&positions, position_bytes).into_iter().zip(unpacked(&sent, row_bytes)).collect();
    let mut next = 0;
    for (island, rows) in wanted.iter().enumerate().filter(|(island, _)| *island as u64 != own) {
        let mut of_island = found[next..next + rows.len()].to_vec();
        of_island.sort_unstable();
        assert_eq!(of_island, *rows, "island {island}, seed {seed}");
        next += rows.len();
    }
    assert!(sent[next * row_bytes as usize..].iter().all(|byte| *byte == 0x77), "more is sent than there is");
}

#[test]
fn each_number_goes_to_its_island_once() {
    for seed in 0..300 {
        check(seed, 1 + (seed % 4) as u32, 300);
    }
}

#[test]
fn many_numbers_over_few_blocks() {
    for seed in 0..6 {
        check(1000 + seed, 1 + seed as u32, 6000);
    }
}
