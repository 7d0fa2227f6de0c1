//! Hazard (wrong result): gradients are added to another row, or in an order that changes from run
//! to run.

use wm_kernels::wholememory::{RunsCollect, RunsMark, SortBegin, SortCount, SortKeys, SortMove};

use super::graph::scan_in_place;
use super::support::{Draws, indices};
use crate::support::{read, run, written};

/// Numbers of 4 or 8 bytes.
struct Words {
    bytes: Vec<u8>,
    width: u32,
}

impl Words {
    fn new(count: usize, width: u32) -> Self {
        Self { bytes: vec![0; count * width as usize], width }
    }

    fn keys(&mut self, positions: &mut [u32]) -> SortKeys {
        let (numbers, n) = (written(&mut self.bytes), (self.bytes.len() / self.width as usize) as u64);
        SortKeys { numbers, positions: written(positions), n, kept: 0, bytes: self.width }
    }

    fn values(&self) -> Vec<u64> {
        let value = |word: &[u8]| word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        self.bytes.chunks(self.width as usize).map(value).collect()
    }
}

/// Sorts numbers and positions by the kernels, digit by digit; how many are left.
fn sort(numbers: &mut Words, positions: &mut Vec<u32>, limit: u64, bits: u32, blocks: u32) -> usize {
    let n = positions.len();
    let mut total = n as i64;
    for shift in (0..bits).step_by(8) {
        let kept = if shift == 0 { 0 } else { read(std::slice::from_ref(&total)) };
        let mut counts = vec![-1i32; n.div_ceil(4096) * 256 + 1];
        let keys = SortKeys { kept, ..numbers.keys(positions) };
        run((blocks, 256), &SortCount { keys, limit, shift, counts: written(&mut counts) });
        let left = scan_in_place(&mut counts, (1, 64));
        let (mut moved, mut moved_positions) = (Words::new(n, numbers.width), vec![u32::MAX; n]);
        let moving = SortMove {
            keys,
            limit,
            shift,
            offsets: read(&counts),
            output_numbers: written(&mut moved.bytes),
            output_positions: written(&mut moved_positions),
        };
        run((blocks, 256), &moving);
        (*numbers, *positions, total) = (moved, moved_positions, left);
    }
    total as usize
}

/// Row numbers to be sorted: how many, the rows of interest, and how numbers are kept.
struct Case {
    count: usize,
    first_row: i64,
    rows: u64,
    number_bytes: u32,
    others_are_left_out: bool,
    blocks: u32,
}

fn check(seed: u64, case: &Case) {
    let &Case { count, first_row, rows, number_bytes, others_are_left_out, blocks } = case;
    let draws = &mut Draws::new(seed);
    let index_bytes = draws.of(&[4, 8]);
    let (drawn, array) = indices(draws, count, first_row as u64 + rows + 3, index_bytes);
    let (mut numbers, mut positions) = (Words::new(count, number_bytes), vec![0u32; count]);
    let (array, keys) = (super::support::numbers(&array, index_bytes), numbers.keys(&mut positions));
    run((2, 100), &SortBegin { rows: array, first_row, rows_in_part: rows, keys });
    let number = |index: &i64| {
        let number = index.checked_sub(first_row).filter(|number| (0..rows as i64).contains(number));
        number.map_or(rows, |number| number as u64)
    };
    let mut expected: Vec<(u64, u32)> = drawn.iter().map(number).zip(0..).collect();
    expected.sort();
    let limit = if others_are_left_out { rows } else { u64::MAX };
    expected.retain(|(number, _)| *number < limit);
    let left = sort(&mut numbers, &mut positions, limit, 64 - rows.leading_zeros(), blocks);
    let found: Vec<(u64, u32)> = numbers.values().into_iter().zip(positions).take(left).collect();
    assert_eq!(found, expected);
    check_runs(&mut numbers, left, &expected.iter().map(|(number, _)| *number as i64).collect::<Vec<_>>());
}

/// The runs of sorted numbers, of which so many are left.
fn check_runs(numbers: &mut Words, left: usize, sorted: &[i64]) {
    let mut expected: Vec<(i64, i64)> = Vec::new();
    for (i, number) in sorted.iter().enumerate() {
        if expected.last().is_none_or(|(last, _)| last != number) {
            expected.push((*number, i as i64));
        }
    }
    let kept = left as i64;
    let keys = SortKeys { kept: read(std::slice::from_ref(&kept)), ..numbers.keys(&mut []) };
    let mut marks = vec![-1i32; keys.n as usize + 1];
    run((3, 50), &RunsMark { keys, marks: written(&mut marks) });
    assert_eq!(scan_in_place(&mut marks, (1, 32)), expected.len() as i64);
    let (mut runs, mut starts) = (vec![0i64; expected.len()], vec![0i64; expected.len() + 1]);
    let (marks, runs_at, starts_at) = (read(&marks), written(&mut runs), written(&mut starts));
    run((2, 70), &RunsCollect { keys, marks, runs: runs_at, starts: starts_at });
    assert_eq!(starts.pop(), Some(left as i64));
    assert_eq!(runs.into_iter().zip(starts).collect::<Vec<_>>(), expected);
}

#[test]
fn numbers_are_sorted_with_equal_ones_in_their_order() {
    let counts = [0, 1, 31, 32, 33, 512, 4095, 4096, 4097, 10_000];
    for (seed, count) in counts.into_iter().enumerate() {
        for (first_row, rows, blocks) in [(0, 1, 1), (0, 37, 2), (1000, 5000, 3), (5, 70_000, 1)] {
            for (number_bytes, others_are_left_out) in [(4, true), (8, true), (4, false), (8, false)] {
                let case = Case { count, first_row, rows, number_bytes, others_are_left_out, blocks };
                check(seed as u64, &case);
            }
        }
    }
}
