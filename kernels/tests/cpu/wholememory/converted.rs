//! Hazard (wrong result): a value is rounded twice or in the wrong direction, a NaN becomes a
//! number, or an element has the wrong size.

use wm_kernels::wholememory::{
    GatherConverted, GatherConvertedRuns, RowSet, ScatterConverted, ScatterConvertedRuns, Strided,
};

use super::support::{ChunkedTable, Draws, Layout, Placed, WARPS, indices, numbers, packed, row};
use super::types::{DOUBLE, FLOAT, FLOATS, HALF, INT, INTEGERS, decode, draw, encode, same, size};
use crate::support::run;

/// `rows` rows of `columns` drawn elements, each row followed by `padding` bytes.
fn drawn_rows(draws: &mut Draws, kind: u32, rows: usize, columns: usize, padding: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rows {
        (0..columns).for_each(|_| bytes.extend(draw(kind, draws)));
        bytes.extend(draws.bytes(padding));
    }
    bytes
}

struct Case {
    table: ChunkedTable,
    model: Vec<u8>,
    packed: Placed,
    columns: usize,
    packed_stride: usize,
    numbers: Vec<i64>,
    index_bytes: u32,
    indices: Vec<u8>,
    types: (u32, u32),
    in_runs: bool,
}

impl Case {
    /// A conversion of single elements, or of runs: then both sides are aligned for the longest.
    fn draw(seed: u64, (table_type, other_type): (u32, u32), columns: usize, in_runs: bool) -> Self {
        let draws = &mut Draws::new(seed);
        let (table_size, other_size) = (size(table_type), size(other_type));
        let unit = |size: usize| if in_runs { (4 * size).min(16) } else { size };
        let (table_unit, other_unit) = (unit(table_size), unit(other_size));
        let padding = draws.below(3) as usize * table_unit;
        let misalignment = draws.below(16 / table_unit as u64) as usize * table_unit;
        let layout = Layout::draw(draws, columns * table_size + padding, misalignment);
        let rows = layout.rows();
        let model = drawn_rows(draws, table_type, rows as usize, columns, padding);
        let table = ChunkedTable::new(layout, &model);
        let (count, index_bytes) = (draws.below(150) as usize, draws.of(&[4, 8]));
        let (mut numbers, _) = indices(draws, count, rows, index_bytes);
        let mut taken = std::collections::BTreeSet::new();
        numbers.iter_mut().for_each(|number| *number = if taken.insert(*number) { *number } else { -1 });
        let indices = packed(&numbers, index_bytes);
        let packed_padding = draws.below(3) as usize * other_unit;
        let content = drawn_rows(draws, other_type, count, columns, packed_padding);
        let packed = Placed::new(&content, draws.below(16 / other_unit as u64) as usize * other_unit);
        let packed_stride = columns * other_size + packed_padding;
        Self {
            table,
            model,
            packed,
            columns,
            packed_stride,
            numbers,
            index_bytes,
            indices,
            types: (table_type, other_type),
            in_runs,
        }
    }

    /// Each element that is to move: its place on the packed side and in the table.
    fn elements(&self) -> Vec<(usize, usize)> {
        let (table_size, other_size) = (size(self.types.0), size(self.types.1));
        let mut places = Vec::new();
        for (i, number) in self.numbers.iter().enumerate() {
            let Some(row) = row(*number, self.table.layout.rows()) else { continue };
            let place = |j| {
                (i * self.packed_stride + j * other_size, row * self.table.layout.stride + j * table_size)
            };
            places.extend((0..self.columns).map(place));
        }
        places
    }

    fn gather(&mut self, shape: (u32, u32)) {
        let (from, to) = self.types;
        let mut expected = self.packed.content().to_vec();
        let elements = self.elements();
        for (packed, table) in &elements {
            let element = encode(to, decode(from, &self.model[*table..][..size(from)]));
            expected[*packed..][..size(to)].copy_from_slice(&element);
        }
        let arguments = self.arguments();
        let GatherConverted { rows, columns, table_type, packed_type } = arguments;
        if self.in_runs {
            run(shape, &GatherConvertedRuns { rows, columns, table_type, packed_type });
        } else {
            run(shape, &arguments);
        }
        let found = self.packed.content();
        let hide = elements.iter().map(|(packed, _)| *packed);
        compare(self.types, to, hide.collect(), &expected, found);
        assert!(self.table.content() == self.model, "the table is only read");
    }

    fn scatter(&mut self, shape: (u32, u32)) {
        let (to, from) = self.types;
        let before = self.packed.content().to_vec();
        let elements = self.elements();
        for (packed, table) in &elements {
            let element = encode(to, decode(from, &before[*packed..][..size(from)]));
            self.model[*table..][..size(to)].copy_from_slice(&element);
        }
        let GatherConverted { rows, columns, table_type, packed_type } = self.arguments();
        if self.in_runs {
            run(shape, &ScatterConvertedRuns { rows, columns, table_type, packed_type });
        } else {
            run(shape, &ScatterConverted { rows, columns, table_type, packed_type });
        }
        compare(
            self.types,
            to,
            elements.iter().map(|(_, table)| *table).collect(),
            &self.model,
            &self.table.content(),
        );
        assert!(self.packed.content() == before, "the input is only read");
    }

    fn arguments(&mut self) -> GatherConverted {
        let rows = RowSet {
            table: self.table.whole(),
            numbers: numbers(&self.indices, self.index_bytes),
            packed: Strided { address: self.packed.address(), stride: self.packed_stride as u64 },
            order: 0,
        };
        let (table_type, packed_type) = self.types;
        GatherConverted { rows, columns: self.columns as u64, table_type, packed_type }
    }
}

/// The elements of type `kind` at `places` are the same, and every byte beside them too.
fn compare(types: (u32, u32), kind: u32, places: Vec<usize>, expected: &[u8], found: &[u8]) {
    let mut beside = (expected.to_vec(), found.to_vec());
    for place in places {
        let at = place..place + size(kind);
        assert!(
            same(kind, &expected[at.clone()], &found[at.clone()]),
            "{types:?}: {:?} for {:?}",
            &found[at.clone()],
            &expected[at]
        );
        beside.0[at.clone()].fill(0);
        beside.1[at].fill(0);
    }
    assert!(beside.0 == beside.1, "{types:?}: something beside the rows changed");
}

/// Every pair of types of a family, and columns with a shape of the launch.
fn for_each_pair(columns: [usize; 5], in_runs: bool) {
    let mut seed = 0;
    for family in [FLOATS, INTEGERS] {
        for pair in family.into_iter().flat_map(|a| family.map(|b| (a, b))) {
            for (columns, shape) in columns.into_iter().zip(WARPS) {
                seed += 1;
                Case::draw(seed, pair, columns, in_runs).gather(shape);
                Case::draw(seed, pair, columns, in_runs).scatter(shape);
            }
        }
    }
}

#[test]
fn every_pair_of_a_family_converts_both_ways() {
    for_each_pair([1, 2, 5, 33, 70], false);
}

#[test]
fn every_pair_converts_in_runs() {
    for_each_pair([4, 8, 20, 132, 280], true);
}

#[test]
fn types_of_two_families_move_nothing() {
    for pair in [(FLOAT, INT), (INT, DOUBLE), (0, HALF), (HALF, 9)] {
        let mut case = Case::draw(7, (HALF, HALF), 5, false);
        case.types = pair;
        let before = case.packed.content().to_vec();
        run((2, 64), &case.arguments());
        assert!(case.packed.content() == before, "{pair:?}");
    }
}
