//! Hazard (wrong report): a benchmark accepts wrong rows, or compares with a kernel that moves
//! other rows than it states.

use wm_kernels::measure::{CheckRows, PlainGather, PlainScatter, WriteTable};

use crate::support::{for_each_case, read, run, written};

/// Ranks, rows of each, and elements of 8 bytes of a row.
const RANKS: usize = 3;
const ROWS: usize = 7;
const WORDS: usize = 4;
/// `WHOLEMEMORY_DT_INT64`, and the bits of a value.
const INT64: u32 = 6;
const BITS: u32 = 32;
/// All types with the bits of a value that each has exactly, and its bytes.
const TYPES: [(u32, u32, usize); 8] =
    [(1, 24, 4), (2, 11, 2), (3, 32, 8), (4, 8, 2), (5, 31, 4), (6, 32, 8), (7, 15, 2), (8, 7, 1)];

/// A word of 16 bytes, as kernels move them.
#[repr(align(16))]
#[derive(Clone, Copy, PartialEq)]
struct Pair([u64; 2]);

fn pairs(count: usize) -> Vec<Pair> {
    vec![Pair([0; 2]); count]
}

/// Each rank's part of a table.
fn parts(salt: u64, shape: (u32, u32)) -> Vec<Vec<Pair>> {
    let count = (ROWS * WORDS) as u64;
    let part = |rank: usize| {
        let mut part = pairs(ROWS * WORDS / 2);
        let (memory, first) = (written(&mut part), rank as u64 * count);
        run(shape, &WriteTable { memory, count, first, salt, kind: INT64, bits: BITS });
        part
    };
    (0..RANKS).map(part).collect()
}

fn numbers(count: usize) -> Vec<i64> {
    (0..count).map(|at| (at * 11 % (RANKS * ROWS)) as i64).collect()
}

fn wrong(rows: &[Pair], numbers: &[i64], salt: u64, shape: (u32, u32)) -> u64 {
    let mut found = [0_u64];
    let (count, columns) = (numbers.len() as u64, WORDS as u64);
    let (rows, numbers, wrong) = (read(rows), read(numbers), written(&mut found));
    run(shape, &CheckRows { rows, numbers, count, columns, salt, kind: INT64, bits: BITS, wrong });
    found[0]
}

#[test]
fn values_are_as_exact_as_their_type() {
    for (kind, bits, size) in TYPES {
        let (count, salt, shape) = (400, 9, (2, 64));
        let mut memory = pairs(count as usize * size / 16 + 1);
        let memory = written(&mut memory);
        run(shape, &WriteTable { memory, count, first: 0, salt, kind, bits });
        let places: Vec<i64> = (0..count as i64).collect();
        let differing = |bits| {
            let mut found = [0_u64];
            let (numbers, wrong) = (read(&places), written(&mut found));
            run(shape, &CheckRows { rows: memory, numbers, count, columns: 1, salt, kind, bits, wrong });
            found[0]
        };
        assert_eq!(differing(bits), 0, "type {kind}");
        assert!(differing(bits - 1) > count * 9 / 10, "type {kind}: its values do not have {bits} bits");
    }
}

#[test]
fn rows_are_those_of_their_numbers() {
    for_each_case(|count, shape| {
        let (parts, numbers) = (parts(5, shape), numbers(count));
        let bases: Vec<_> = parts.iter().map(|part| read(part)).collect();
        let mut output = pairs((count + 1) * WORDS / 2);
        let (bases, rows_each, shift) = (read(&bases), ROWS as u32, (WORDS / 2).ilog2());
        let arguments = PlainGather {
            output: written(&mut output),
            bases,
            rows_each,
            numbers: read(&numbers),
            count: count as u64,
            shift,
        };
        run(shape, &arguments);
        for (row, number) in output.chunks(WORDS / 2).zip(&numbers) {
            let (rank, at) = (*number as usize / ROWS, *number as usize % ROWS * WORDS / 2);
            assert!(row == &parts[rank][at..at + WORDS / 2], "{count} rows, shape {shape:?}: row {number}");
        }
        assert!(output[count * WORDS / 2..].iter().all(|pair| pair.0 == [0; 2]), "beyond {count} rows");
        assert_eq!(wrong(&output, &numbers, 5, shape), 0);
        assert_eq!(wrong(&output, &numbers, 6, shape), (count * WORDS) as u64, "another table's rows");
        if let Some(row) = output.get_mut(count / 2 * WORDS / 2).filter(|_| count > 0) {
            row.0[1] ^= 1;
            assert_eq!(wrong(&output, &numbers, 5, shape), 1);
        }
    });
}

#[test]
fn a_scatter_changes_the_rows_named() {
    for_each_case(|count, shape| {
        let (mut table, source, numbers) = (parts(5, shape), parts(6, shape), numbers(count));
        let row = |number: &i64| {
            let at = *number as usize % ROWS * WORDS / 2;
            source[*number as usize / ROWS][at..at + WORDS / 2].to_vec()
        };
        let input: Vec<Pair> = numbers.iter().flat_map(row).collect();
        let bases: Vec<_> = table.iter_mut().map(|part| written(part)).collect();
        let (bases, rows_each, shift) = (read(&bases), ROWS as u32, (WORDS / 2).ilog2());
        let (input, count) = (read(&input), count as u64);
        run(shape, &PlainScatter { input, bases, rows_each, numbers: read(&numbers), count, shift });
        let old = parts(5, shape);
        for number in 0..(RANKS * ROWS) as i64 {
            let (rank, at) = (number as usize / ROWS, number as usize % ROWS * WORDS / 2);
            let wanted = if numbers.contains(&number) { &source } else { &old };
            let places = at..at + WORDS / 2;
            assert!(table[rank][places.clone()] == wanted[rank][places], "{count} rows: row {number}");
        }
    });
}
