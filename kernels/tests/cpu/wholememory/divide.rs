//! Hazard (wrong result): a row number goes to the wrong island, under a wrong number, or not at
//! all.

use wm_kernels::wholememory::{DivideCount, DivideFew, DivideMove, DividedNumbers};

use super::graph::unpacked;
use super::islands::Islands;
use super::support::{Draws, indices, numbers};
use crate::support::{run, written};

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
    let opening_bytes = draws.of(&[8, 64, 512]) as usize;
    let mut openings = vec![0x77u8; islands.count as usize * opening_bytes];
    let mut told = vec![0u64; islands.count as usize];
    let division = DividedNumbers {
        numbers,
        rows: rows_of,
        own: written(&mut mine),
        sent: written(&mut sent),
        positions: written(&mut positions),
        openings: written(&mut openings),
        told: written(&mut told),
        opening_bytes: opening_bytes as u64,
        row_bytes,
        position_bytes,
    };
    if count <= 1024 && draws.below(2) == 0 {
        run((1, 256), &DivideFew { division });
    } else {
        let counts = written(&mut counts);
        run((blocks, 256), &DivideCount { numbers, rows: rows_of, counts });
        run((blocks, 256), &DivideMove { division, counts, cursors: written(&mut cursors) });
    }

    let mut wanted = vec![Vec::new(); islands.count as usize];
    let is_row = |number: i64| u64::try_from(number).is_ok_and(|number| number < rows);
    let place = |number: i64| is_row(number).then(|| islands.place(number as u64 + first));
    for (at, number) in chosen.iter().enumerate() {
        if let Some((island, row)) = place(*number) {
            wanted[island as usize].push((at as i64, row));
        }
    }
    assert_eq!(told, wanted.iter().map(|rows| rows.len() as u64).collect::<Vec<_>>());
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
        // The first of them are also those that leave with the record.
        let opening = &openings[island * opening_bytes..][..opening_bytes];
        let opened = rows.len().min(opening_bytes / row_bytes as usize);
        let firsts: Vec<_> = found[next..next + opened].iter().map(|(_, row)| *row).collect();
        assert_eq!(unpacked(&opening[..opened * row_bytes as usize], row_bytes), firsts);
        assert!(opening[opened * row_bytes as usize..].iter().all(|byte| *byte == 0x77));
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
