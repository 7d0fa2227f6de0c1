//! Hazard: gradients that are added to another row's, or in an order that changes from run to run.

use wm_kernels::wholememory::{RunsCollect, RunsMark, SortBegin, SortCount, SortMove};

use super::graph::scan_in_place;
use super::support::{Draws, indices};
use crate::support::{read, run, written};

/// Numbers and positions, sorted by the kernels digit by digit.
fn sorted(mut numbers: Vec<u64>, mut positions: Vec<i64>, bits: u32, blocks: u32) -> (Vec<u64>, Vec<i64>) {
    let n = numbers.len();
    for shift in (0..bits).step_by(4) {
        let mut counts = vec![-1i32; n.div_ceil(2048) * 16 + 1];
        let pointer = written(&mut counts);
        run((blocks, 256), &SortCount { numbers: read(&numbers), n: n as u64, shift, counts: pointer });
        assert_eq!(scan_in_place(&mut counts, (1, 64)), n as i64);
        let (mut moved_numbers, mut moved_positions) = (vec![0; n], vec![0; n]);
        let arguments = SortMove {
            numbers: read(&numbers),
            positions: read(&positions),
            n: n as u64,
            shift,
            offsets: read(&counts),
            output_numbers: written(&mut moved_numbers),
            output_positions: written(&mut moved_positions),
        };
        run((blocks, 256), &arguments);
        (numbers, positions) = (moved_numbers, moved_positions);
    }
    (numbers, positions)
}

fn check(seed: u64, count: usize, first_row: i64, rows: u64, blocks: u32) {
    let draws = &mut Draws::new(seed);
    let index_bytes = draws.of(&[4, 8]);
    let (drawn, array) = indices(draws, count, first_row as u64 + rows + 3, index_bytes);
    let (mut numbers, mut positions) = (vec![0u64; count], vec![0i64; count]);
    let begin = SortBegin {
        indices: read(&array),
        index_bytes,
        count: count as u64,
        first_row,
        rows,
        numbers: written(&mut numbers),
        positions: written(&mut positions),
    };
    run((2, 100), &begin);
    let number = |index: &i64| {
        let number = index.checked_sub(first_row).filter(|number| (0..rows as i64).contains(number));
        number.map_or(rows, |number| number as u64)
    };
    let mut expected: Vec<(u64, i64)> = drawn.iter().map(number).zip(0..).collect();
    expected.sort();
    let (numbers, positions) = sorted(numbers, positions, 64 - rows.leading_zeros(), blocks);
    let found: Vec<(u64, i64)> = numbers.iter().copied().zip(positions).collect();
    assert_eq!(found, expected);
    let mut runs: Vec<(i64, i64)> = Vec::new();
    let inside = expected.iter().filter(|(number, _)| *number < rows);
    let inside: Vec<i64> = inside.map(|(number, _)| *number as i64).collect();
    for (i, number) in inside.iter().enumerate() {
        if runs.last().is_none_or(|(last, _)| last != number) {
            runs.push((*number, i as i64));
        }
    }
    let mut marks = vec![-1i32; count + 1];
    run((3, 50), &RunsMark { numbers: read(&numbers), n: count as u64, rows, marks: written(&mut marks) });
    assert_eq!(scan_in_place(&mut marks, (1, 32)), runs.len() as i64);
    let (mut found_runs, mut starts) = (vec![0i64; runs.len()], vec![0i64; runs.len() + 1]);
    let collect = RunsCollect {
        numbers: read(&numbers),
        n: count as u64,
        rows,
        marks: read(&marks),
        runs: written(&mut found_runs),
        starts: written(&mut starts),
    };
    run((2, 70), &collect);
    assert_eq!(starts.pop(), Some(inside.len() as i64));
    assert_eq!(found_runs.into_iter().zip(starts).collect::<Vec<_>>(), runs);
}

#[test]
fn numbers_are_sorted_with_equal_ones_in_their_order() {
    for (seed, count) in [0, 1, 7, 8, 255, 2047, 2048, 2049, 10_000].into_iter().enumerate() {
        for (first_row, rows, blocks) in [(0, 1, 1), (0, 37, 2), (1000, 5000, 3), (5, 70_000, 1)] {
            check(seed as u64, count, first_row, rows, blocks);
        }
    }
}
