//! Hazard (wrong result): a row's gradient is left out, is added twice or in another order, or
//! comes from another lane's columns. Words of four columns must give the bits that single columns
//! give, for each type, row length and launch shape.

use wm_kernels::wholememory::{
    Gradients, LazyAdam, OptimizeLazyAdam, OptimizeSgd, Powers, RowNames, Sgd, Step, Strided,
};

use super::support::{Draws, Placed, WARPS};
use super::types::{BF16, FLOAT, HALF, Value, encode, float, size};
use crate::support::{read, run, written};

const COLUMNS: [usize; 13] = [1, 3, 4, 5, 8, 31, 64, 100, 127, 128, 132, 260, 512];
const FLOATS: [u32; 3] = [FLOAT, HALF, BF16];
const ROWS: usize = 19;
/// Rows of gradients.
const GRADIENTS: u64 = 60;

/// The gradients of each row: rows with none, with one, with a hundred and with more or fewer than
/// are loaded at once.
struct Runs {
    rows: Vec<i64>,
    order: Vec<u32>,
    starts: Vec<i64>,
    count: [i64; 1],
}

impl Runs {
    fn new(draws: &mut Draws) -> Self {
        let lengths = [1, 0, 100, 2, 1, 4, 5, 6, 1, 1, 9, 3, 1, 33, 8, 1, 17, 1, 2];
        let starts: Vec<i64> = (0..=ROWS).map(|row| lengths[..row].iter().sum()).collect();
        let order = (0..starts[ROWS]).map(|_| draws.below(GRADIENTS) as u32).collect();
        // Others than 0, 1, 2, ..., each once.
        let rows = (0..ROWS as i64).map(|row| row * 7 % ROWS as i64).collect();
        Self { rows, order, starts, count: [ROWS as i64] }
    }

    fn of(&self, run: usize) -> &[u32] {
        &self.order[self.starts[run] as usize..self.starts[run + 1] as usize]
    }
}

/// Rows of one type, `stride` elements from each other, at some bytes from a multiple of 16.
struct Rows {
    kind: u32,
    stride: usize,
    memory: Placed,
}

impl Rows {
    fn new(
        kind: u32,
        rows: usize,
        stride: usize,
        misalignment: usize,
        value: impl FnMut(usize) -> f64,
    ) -> Self {
        let content: Vec<u8> =
            (0..rows * stride).map(value).flat_map(|value| encode(kind, Value::Float(value))).collect();
        Self { kind, stride, memory: Placed::new(&content, misalignment) }
    }

    fn places(&mut self) -> Strided {
        Strided { address: self.memory.address(), stride: (self.stride * size(self.kind)) as u64 }
    }

    fn element(&self, row: usize, column: usize) -> f32 {
        let at = (row * self.stride + column) * size(self.kind);
        float(self.kind, &self.memory.content()[at..at + size(self.kind)]) as f32
    }
}

fn fraction(draws: &mut Draws) -> f64 {
    f64::from(draws.below(20_001) as f32 / 10_000.0 - 1.0)
}

/// Columns between rows, elements before the first, columns of a lane: as aligned as it gets, and
/// off in each way.
fn placements(columns: usize) -> Vec<(usize, usize, u32)> {
    let words = if columns.is_multiple_of(4) { vec![(0, 0, 4), (4, 0, 4), (8, 4, 4)] } else { Vec::new() };
    [words, vec![(0, 0, 1), (1, 0, 1), (0, 1, 1), (4, 3, 1)]].concat()
}

fn step(table: &mut Rows, gradients: &mut Rows, runs: &Runs, columns: usize, lane_columns: u32) -> Step {
    let Strided { address, stride } = gradients.places();
    let names = RowNames { rows: read(&runs.rows), count: read(&runs.count), rows_in_table: ROWS as u64 };
    Step {
        table: table.places(),
        names,
        starts: read(&runs.starts),
        gradients: Gradients {
            address,
            order: read(&runs.order),
            stride: stride as u32,
            kind: gradients.kind,
        },
        columns: columns as u64,
        table_type: table.kind,
        lane_columns,
    }
}

#[test]
fn gradients_of_a_row_are_added_in_the_named_order() {
    let draws = &mut Draws::new(5);
    for (columns, shape) in COLUMNS.into_iter().zip(WARPS.into_iter().cycle()) {
        for (kind, table_kind) in FLOATS.into_iter().flat_map(|kind| FLOATS.map(|table| (kind, table))) {
            for (gap, first, lane_columns) in placements(columns) {
                let (stride, runs) = (columns + gap, Runs::new(draws));
                let (bytes, of_table) = (first * size(kind), first * size(table_kind));
                let mut gradients = Rows::new(kind, GRADIENTS as usize, stride, bytes, |_| fraction(draws));
                let mut table = Rows::new(table_kind, ROWS, stride, of_table, |_| 0.0);
                let step = step(&mut table, &mut gradients, &runs, columns, lane_columns);
                // From 0, a weight becomes its gradient.
                run(shape, &OptimizeSgd { step, rule: Sgd { rate: -1.0, decay: 0.0 } });
                for (i, row) in runs.rows.iter().map(|row| *row as usize).enumerate() {
                    for column in 0..stride {
                        let numbers = if column < columns { runs.of(i) } else { &[] };
                        let sum = numbers
                            .iter()
                            .fold(0f32, |sum, of| sum + gradients.element(*of as usize, column));
                        let expected =
                            float(table_kind, &encode(table_kind, Value::Float(f64::from(sum)))) as f32;
                        assert_eq!(
                            table.element(row, column),
                            expected,
                            "row {row}, column {column} of {columns}, {lane_columns} a lane"
                        );
                    }
                }
            }
        }
    }
}

/// The result of three steps of lazy Adam: rows, states and powers.
fn adam(columns: usize, table_kind: u32, lane_columns: u32, shape: (u32, u32)) -> Vec<Vec<u8>> {
    let draws = &mut Draws::new(columns as u64);
    let stride = columns.next_multiple_of(4);
    let mut gradients = Rows::new(FLOAT, GRADIENTS as usize, stride, 0, |_| fraction(draws));
    let mut table = Rows::new(table_kind, ROWS, stride, 0, |_| fraction(draws));
    let mut states = [(); 2].map(|()| Rows::new(FLOAT, ROWS, stride, 0, |_| 0.0));
    let mut powers = vec![1f32; ROWS * 2];
    for _ in 0..3 {
        let runs = Runs::new(draws);
        let step = step(&mut table, &mut gradients, &runs, columns, lane_columns);
        let [m, v] = states.each_mut().map(Rows::places);
        let powers_rows = Strided { address: written(&mut powers), stride: 8 };
        let powers_of = Powers { rows: powers_rows, beta1: 0.9, beta2: 0.999 };
        let rule = LazyAdam { m, v, powers: powers_of, rate: 0.05, decay: 0.01, epsilon: 1e-8, adam_w: 0 };
        run(shape, &OptimizeLazyAdam { step, rule });
        // A row that is longer than a warp leaves its powers to another kernel.
        let advanced = powers.iter().any(|power| *power != 1.0);
        assert_eq!(
            advanced,
            columns <= 32 * lane_columns as usize,
            "{columns} columns, {lane_columns} a lane"
        );
    }
    let [m, v] = states;
    let powers = powers.iter().flat_map(|power| power.to_le_bytes()).collect();
    [table, m, v].map(|rows| rows.memory.content().to_vec()).into_iter().chain([powers]).collect()
}

#[test]
fn words_of_columns_give_the_bits_of_single_columns() {
    for columns in [4, 8, 20, 32] {
        for kind in FLOATS {
            let expected = adam(columns, kind, 1, (1, 32));
            for shape in WARPS {
                assert!(
                    adam(columns, kind, 4, shape) == expected,
                    "{columns} columns of type {kind}, {shape:?}"
                );
            }
        }
    }
    for columns in [128, 512] {
        let expected = adam(columns, FLOAT, 4, (1, 32));
        for shape in WARPS {
            assert!(adam(columns, FLOAT, 4, shape) == expected, "{columns} columns, {shape:?}");
        }
    }
}
