//! Hazard (out-of-bounds access): gather or scatter reads a neighbour's bytes, writes beside a
//! row, or uses an address that a GPU refuses.

use wm_kernels::cpu::Fault;
use wm_kernels::wholememory::{GatherRows, Numbers, RowSet, ScatterOrderedRows, ScatterRows, Strided, Table};

use super::support::{ChunkedTable, Draws, Layout, Placed, WARPS, indices, numbers, packed, row, width};
use crate::support::{launch, read, run};

/// One draw of everything that a gather or scatter has.
struct Case {
    table: ChunkedTable,
    model: Vec<u8>,
    offset: u64,
    rows: u64,
    row_bytes: usize,
    numbers: Vec<i64>,
    index_bytes: u32,
    indices: Vec<u8>,
    packed_stride: usize,
    packed: Placed,
    width: u32,
}

impl Case {
    /// Everything is a multiple of `unit` bytes, so that wide accesses are drawn too.
    fn draw(seed: u64, unit: usize, row_units: u64, most_rows: u64) -> Self {
        let draws = &mut Draws::new(seed);
        let row_bytes = row_units as usize * unit;
        let column = draws.below(3) as usize * unit;
        let stride = column + row_bytes + draws.below(3) as usize * unit;
        let layout = Layout::draw(draws, stride, draws_misalignment(seed, unit));
        let model = draws.bytes(layout.rows() as usize * stride);
        let table = ChunkedTable::new(layout, &model);
        // Part of a table is a table: the rows before it count as bytes of the offset.
        let skipped = draws.below(table.layout.rows());
        let (offset, rows) = (skipped * stride as u64 + column as u64, table.layout.rows() - skipped);
        let (count, index_bytes) = (draws.below(most_rows) as usize, draws.of(&[4, 8]));
        let (numbers, indices) = indices(draws, count, rows, index_bytes);
        let packed_stride = row_bytes + draws.below(3) as usize * unit;
        let mut packed = Placed::new(&draws.bytes(count * packed_stride), draws_misalignment(seed + 1, unit));
        let addresses = table.bases.iter().map(|base| base + column as u64).chain([packed.address()]);
        let mut aligned: Vec<u64> = addresses.collect();
        aligned.extend([stride as u64, row_bytes as u64, packed_stride as u64]);
        let width = width(&aligned);
        Self {
            table,
            model,
            offset,
            rows,
            row_bytes,
            numbers,
            index_bytes,
            indices,
            packed_stride,
            packed,
            width,
        }
    }

    /// Each position with its row's place in the table, both in bytes.
    fn moves(&self) -> Vec<(usize, usize)> {
        let place =
            |number: i64| Some(row(number, self.rows)? * self.table.layout.stride + self.offset as usize);
        let moves = self.numbers.iter().enumerate();
        moves.filter_map(|(i, number)| Some((i * self.packed_stride, place(*number)?))).collect()
    }

    fn gather(&mut self, shape: (u32, u32)) {
        let mut expected = self.packed.content().to_vec();
        for (to, from) in self.moves() {
            expected[to..to + self.row_bytes].copy_from_slice(&self.model[from..from + self.row_bytes]);
        }
        run(shape, &self.arguments());
        assert!(
            self.packed.content() == expected,
            "{:?}, {} bytes, {shape:?}",
            self.table.layout,
            self.row_bytes
        );
        assert!(self.table.content() == self.model, "the table is only read");
    }

    fn scatter(&mut self, shape: (u32, u32)) {
        // Of two rows for one place either may stay: the draws that come later are taken out.
        let mut taken = std::collections::BTreeSet::new();
        let once = |number: &mut i64| *number = if taken.insert(*number) { *number } else { -1 };
        self.numbers.iter_mut().for_each(once);
        self.indices = packed(&self.numbers, self.index_bytes);
        let before = self.packed.content().to_vec();
        for (from, to) in self.moves() {
            self.model[to..to + self.row_bytes].copy_from_slice(&before[from..from + self.row_bytes]);
        }
        let GatherRows { rows, row_bytes, width } = self.arguments();
        run(shape, &ScatterRows { rows, row_bytes, width });
        assert!(
            self.table.content() == self.model,
            "{:?}, {} bytes, {shape:?}",
            self.table.layout,
            self.row_bytes
        );
        assert!(self.packed.content() == before, "the input is only read");
    }

    /// Scatters with numbers that repeat: of rows for one place each word is that of one of them.
    /// An ordered one has them in the order of their places.
    fn scatter_repeated(&mut self, shape: (u32, u32), is_ordered: bool) {
        let before = self.packed.content().to_vec();
        let mut sources = std::collections::BTreeMap::<usize, Vec<usize>>::new();
        for (from, to) in self.moves() {
            sources.entry(to).or_default().push(from);
        }
        let GatherRows { rows, row_bytes, width } = self.arguments();
        let mut order: Vec<u32> = (0..self.numbers.len() as u32).collect();
        order.sort_by_key(|at| self.numbers[*at as usize]);
        if is_ordered {
            let rows = RowSet { order: read(&order), ..rows };
            run(shape, &ScatterOrderedRows { rows, row_bytes, width });
        } else {
            run(shape, &ScatterRows { rows, row_bytes, width });
        }
        let mut found = self.table.content();
        for (to, sources) in sources {
            for at in (0..self.row_bytes).step_by(width as usize) {
                let word = &mut found[to + at..to + at + width as usize];
                let is_word = |from: &usize| before[from + at..from + at + width as usize] == *word;
                assert!(sources.iter().any(is_word), "{:?}, {shape:?}", self.table.layout);
                word.copy_from_slice(&self.model[to + at..to + at + width as usize]);
            }
        }
        assert!(found == self.model, "{:?}, {shape:?}: a row that no number names", self.table.layout);
    }

    fn arguments(&mut self) -> GatherRows {
        let rows = RowSet {
            table: self.table.table(self.rows, self.offset),
            numbers: numbers(&self.indices, self.index_bytes),
            packed: Strided { address: self.packed.address(), stride: self.packed_stride as u64 },
            order: 0,
        };
        GatherRows { rows, row_bytes: self.row_bytes as u64, width: self.width }
    }
}

/// A multiple of `unit` below 16.
fn draws_misalignment(seed: u64, unit: usize) -> usize {
    Draws::new(seed ^ 0x5a5a).below(16 / unit as u64) as usize * unit
}

/// Every unit with row lengths around the edges of groups and pieces.
fn for_each_draw(test: impl Fn(Case, (u32, u32))) {
    let mut seed = 0;
    for unit in [1, 2, 4, 8, 16] {
        for row_units in [0, 1, 2, 3, 4, 5, 8, 13, 31, 32, 33, 64, 65, 129, 300] {
            for shape in WARPS {
                seed += 1;
                test(Case::draw(seed, unit, row_units, 400), shape);
            }
        }
    }
}

#[test]
fn gather_takes_the_named_rows_and_no_others() {
    for_each_draw(|mut case, shape| case.gather(shape));
}

#[test]
fn scatter_writes_the_named_rows_and_no_others() {
    for_each_draw(|mut case, shape| case.scatter(shape));
}

#[test]
fn a_row_that_is_scattered_twice_is_there() {
    for_each_draw(|mut case, shape| case.scatter_repeated(shape, false));
    for_each_draw(|mut case, shape| case.scatter_repeated(shape, true));
}

#[test]
fn every_width_is_drawn() {
    let mut seen = std::collections::BTreeSet::new();
    for (seed, unit) in (0..200).zip([1, 2, 4, 8, 16].into_iter().cycle()) {
        seen.insert(Case::draw(seed, unit, 3, 9).width);
    }
    assert_eq!(seen, [1, 2, 4, 8, 16].into());
}

#[test]
fn many_rows_on_few_warps_and_few_on_many() {
    for (rows, shape) in [(5000, (1, 32)), (5000, (1, 64)), (2, (40, 128))] {
        for row_units in [1, 2, 7, 40] {
            Case::draw(rows + row_units, 16, row_units, rows).gather(shape);
            Case::draw(rows + row_units, 16, row_units, rows).scatter(shape);
        }
    }
}

#[test]
fn a_width_that_the_addresses_do_not_have_is_a_fault_as_on_a_gpu() {
    let numbers = [0i64];
    let (mut table, mut output) = (Placed::new(&[1; 64], 4), Placed::new(&[0; 64], 0));
    let rows = RowSet {
        table: Table::at(table.address(), 2, 32),
        numbers: Numbers { address: read(&numbers), count: 1, bytes: 8 },
        packed: Strided { address: output.address(), stride: 32 },
        order: 0,
    };
    let arguments = GatherRows { rows, row_bytes: 32, width: 16 };
    let fault = launch([1; 3], [32, 1, 1], &arguments);
    assert!(matches!(fault, Err(Fault::IllegalAddress(_))), "{fault:?}");
}
