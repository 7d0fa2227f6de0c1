//! Hazard (wrong result): a cache returns another row's bytes, keeps a row after it was written,
//! or lets two threads fill one line.

use std::thread;

use wm_kernels::wholememory::{
    ArrivedRows, CacheAdjust, CacheAdjustArrived, CacheCount, CacheDrop, CacheGather, CacheRenew,
    CacheTables, CacheTake, Chunks, Numbers, RowSet, Strided,
};

use super::support::{ChunkedTable, Draws, Layout, Placed, WARPS, indices, row, width};
use crate::support::{read, run, written};

/// Bytes of a set before its lines.
const SET: u64 = 64 + 128;
const WAYS: u64 = 8;
/// A tag that is being filled.
const FILLING: u64 = 1 << 40;

/// A table in chunks with a cache: a part for each chunk, or equal parts, or rows spread over
/// parts.
struct Cached {
    table: ChunkedTable,
    model: Vec<u8>,
    parts: Vec<Vec<u128>>,
    bases: Vec<u64>,
    row_starts: Vec<u64>,
    rows_equal: u64,
    is_spread: bool,
    set_starts: Vec<u64>,
    stride: u64,
}

impl Cached {
    fn new(seed: u64, sets: u64) -> Self {
        let draws = &mut Draws::new(seed);
        let stride = 16 * (1 + draws.below(6));
        let layout = Layout::draw(draws, stride as usize, 0);
        let model = draws.bytes((layout.rows() * stride) as usize);
        let table = ChunkedTable::new(layout, &model);
        let rows = table.layout.rows();
        let equal: Vec<_> = (0..4).map(|part| (part * rows.div_ceil(3)).min(rows)).collect();
        let (row_starts, rows_equal, is_spread) = match draws.below(3) {
            0 => (table.starts.clone(), table.layout.equal, false),
            1 => (equal, rows.div_ceil(3), false),
            _ => (equal, 0, true),
        };
        Self::of_parts(table, model, stride, sets, (row_starts, rows_equal, is_spread))
    }

    /// Rows that are spread over parts of so many sets.
    fn spread(rows: u64, parts: usize, sets: u64) -> Self {
        let layout = Layout { chunks: vec![rows], equal: rows, stride: 16, misalignment: 0 };
        let model = Draws::new(5).bytes(rows as usize * 16);
        Self::of_parts(ChunkedTable::new(layout, &model), model, 16, sets, (vec![0; parts + 1], 0, true))
    }

    fn of_parts(
        table: ChunkedTable,
        model: Vec<u8>,
        stride: u64,
        sets: u64,
        (row_starts, rows_equal, is_spread): (Vec<u64>, u64, bool),
    ) -> Self {
        let count = row_starts.len() as u64 - 1;
        let set_starts = (0..=count).map(|part| part * sets).collect();
        let words = (sets * (SET + WAYS * stride)) / 16;
        let mut parts: Vec<_> = (0..count).map(|_| vec![0u128; words as usize]).collect();
        let bases = parts.iter_mut().map(|part| written(part)).collect();
        Self { table, model, parts, bases, row_starts, rows_equal, is_spread, set_starts, stride }
    }

    fn rows(&self) -> u64 {
        self.table.layout.rows()
    }

    fn tables(&self) -> CacheTables {
        let starts = if self.is_spread { 0 } else { read(&self.row_starts) };
        let (bases, count) = (read(&self.bases), self.parts.len() as u32);
        let parts = Chunks { bases, starts, equal: self.rows_equal, count };
        CacheTables { parts, set_starts: read(&self.set_starts), stride: self.stride }
    }

    fn part_of(&self, row: u64) -> usize {
        let parts = self.parts.len() as u64;
        if self.is_spread {
            let neighbours = row / parts;
            let mixed = (neighbours ^ (neighbours >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            return ((row % parts + ((mixed ^ (mixed >> 29)) >> 33)) % parts) as usize;
        }
        match self.rows_equal {
            0 => self
                .row_starts
                .iter()
                .rposition(|start| *start <= row)
                .expect("a part")
                .min(self.parts.len() - 1),
            equal => ((row / equal) as usize).min(self.parts.len() - 1),
        }
    }

    fn gather(&self, numbers: &[i64], row_bytes: usize, output: &mut Placed, shape: (u32, u32)) {
        self.gather_in_order(numbers, &[], row_bytes, output, shape);
    }

    /// Gathers rows in an order of the numbers, or as they come.
    fn gather_in_order(
        &self,
        numbers: &[i64],
        order: &[u32],
        row_bytes: usize,
        output: &mut Placed,
        shape: (u32, u32),
    ) {
        let packed = Strided { address: output.address(), stride: row_bytes as u64 };
        let rows = RowSet {
            table: self.table.whole(),
            numbers: numbers_of(numbers),
            packed,
            order: if order.is_empty() { 0 } else { read(order) },
        };
        let width = width(&[packed.address, packed.stride]);
        run(shape, &CacheGather { rows, row_bytes: packed.stride, width, cache: self.tables() });
    }

    /// Takes rows that have a line: what is missed, and the packed rows.
    fn take(&self, numbers: &[i64]) -> (Vec<i64>, Placed) {
        let (mut missed, bytes) = (vec![0; numbers.len()], self.stride);
        let mut output = Placed::new(&vec![0; numbers.len() * bytes as usize], 0);
        let packed = Strided { address: output.address(), stride: bytes };
        let numbers = numbers_of(numbers);
        let rows = ArrivedRows { numbers, packed, slots: 0, capacity: 0, bytes, width: 16 };
        let (cache, rows_in_table) = (self.tables(), self.rows());
        run((2, 64), &CacheTake { rows, rows_in_table, cache, missed: written(&mut missed) });
        (missed, output)
    }

    fn count(&self, numbers: &[i64], shift: u32) {
        let (numbers, rows_in_table) = (numbers_of(numbers), self.rows());
        run((2, 64), &CacheCount { numbers, shift, seed: 3, rows_in_table, cache: self.tables(), part: 0 });
    }

    fn adjust(&self, part: usize, shape: (u32, u32)) {
        let turns = (self.set_starts[part + 1] - self.set_starts[part]).div_ceil(32);
        let (table, cache) = (self.table.whole(), self.tables());
        run(shape, &CacheAdjust { table, cache, part: part as u32, turns });
    }

    fn word(&self, part: usize, at: u64) -> u64 {
        // The parts are written by kernels alone, which have ended.
        (self.parts[part][at as usize / 16] >> (at % 16 * 8)) as u64
    }

    /// Rows that have a line, with the line's bytes; and tags of other kinds.
    fn lines(&self, part: usize) -> (Vec<(u64, Vec<u8>)>, usize) {
        let sets = self.set_starts[part + 1] - self.set_starts[part];
        let (mut lines, mut others) = (Vec::new(), 0);
        for way in 0..sets * WAYS {
            let tag = self.word(part, way * 8);
            match tag & (FILLING * 2 - 1) {
                0 => {}
                name if name < FILLING => {
                    let at = sets * SET + way * self.stride;
                    let bytes = (0..self.stride / 8).flat_map(|i| self.word(part, at + i * 8).to_le_bytes());
                    lines.push((name - 1, bytes.collect()));
                }
                _ => others += 1,
            }
        }
        (lines, others)
    }

    fn row(&self, row: u64) -> &[u8] {
        &self.model[(row * self.stride) as usize..][..self.stride as usize]
    }

    fn drop_lines(&mut self, part: usize) {
        let tags = (self.set_starts[part + 1] - self.set_starts[part]) * WAYS;
        run((2, 32), &CacheDrop { own_tags: written(&mut self.parts[part]), tags });
    }
}

fn numbers_of(numbers: &[i64]) -> Numbers {
    Numbers { address: read(numbers), count: numbers.len() as u64, bytes: 8 }
}

#[test]
fn what_is_asked_for_gets_lines_with_its_own_bytes() {
    for seed in 0..60 {
        let draws = &mut Draws::new(seed + 1000);
        let mut cached = Cached::new(seed, 1 + 2 * draws.below(3));
        for round in 0..6 {
            let (numbers, _) = indices(draws, 200, cached.rows(), 8);
            let row_bytes = draws.of(&[1, 4, 10, cached.stride as usize]).min(cached.stride as usize);
            let mut output = Placed::new(&vec![0xee; numbers.len() * row_bytes], 0);
            // By their rows, of which some come again; from time to time as they come.
            let mut order: Vec<_> = (0..numbers.len() as u32).collect();
            order.sort_by_key(|at| numbers[*at as usize]);
            order.truncate(if round % 3 == 0 { 0 } else { numbers.len() });
            cached.gather_in_order(&numbers, &order, row_bytes, &mut output, WARPS[round % WARPS.len()]);
            for (number, found) in numbers.iter().zip(output.content().chunks(row_bytes)) {
                match row(*number, cached.rows()) {
                    Some(row) => assert_eq!(found, &cached.row(row as u64)[..row_bytes], "row {row}"),
                    None => assert!(found.iter().all(|byte| *byte == 0xee)),
                }
            }
            cached.count(&numbers, (round % 2) as u32);
            let parts = 0..cached.parts.len();
            parts.clone().for_each(|part| cached.adjust(part, WARPS[round % WARPS.len()]));
            let mut all = 0;
            for part in parts {
                let (lines, others) = cached.lines(part);
                assert_eq!(others, 0, "a tag that nobody fills is left");
                for (row, bytes) in &lines {
                    assert_eq!(
                        (cached.part_of(*row), bytes.as_slice()),
                        (part, cached.row(*row)),
                        "seed {seed}"
                    );
                }
                let mut rows: Vec<_> = lines.iter().map(|(row, _)| *row).collect();
                rows.sort_unstable();
                rows.dedup();
                assert_eq!(rows.len(), lines.len(), "a row has two lines");
                all += rows.len();
            }
            assert!(all > 0, "seed {seed}: nothing has a line");
        }
        for part in 0..cached.parts.len() {
            cached.drop_lines(part);
            assert_eq!(cached.lines(part), (Vec::new(), 0));
        }
    }
}

/// Hazard: a row that is neither taken from a line nor asked for; a line that gets the bytes of
/// another packed row, or bytes beside them.
#[test]
fn what_is_missed_is_asked_for_and_gets_a_line_when_it_has_come() {
    for seed in 0..60 {
        let draws = &mut Draws::new(seed + 3000);
        let cached = Cached::new(seed, 1 + 2 * draws.below(3));
        let row_bytes = draws.of(&[1, 4, 10, 12, cached.stride]).min(cached.stride) as usize;
        let (gap, misalignment) = (draws.of(&[0, 2, 16]) as usize, draws.of(&[0, 4, 7]));
        let pitch = row_bytes + gap;
        let (mut taken, mut asked_for) = (0, 0);
        for round in 0..6 {
            let (numbers, _) = indices(draws, 200, cached.rows(), 8);
            let mut output = Placed::new(&vec![0xee; numbers.len() * pitch], misalignment);
            let packed = Strided { address: output.address(), stride: pitch as u64 };
            let width = width(&[packed.address, packed.stride, row_bytes as u64]);
            // No places are kept where the cache is not adjusted.
            let capacity = if round == 3 { 0 } else { (2 * numbers.len()).next_power_of_two() as u64 };
            let (mut slots, mut missed) = (vec![u32::MAX; capacity as usize], vec![7i64; numbers.len()]);
            let rows = ArrivedRows {
                numbers: numbers_of(&numbers),
                packed,
                slots: if capacity == 0 { 0 } else { written(&mut slots) },
                capacity,
                bytes: row_bytes as u64,
                width,
            };
            let (cache, rows_in_table) = (cached.tables(), cached.rows());
            let shape = WARPS[round % WARPS.len()];
            run(shape, &CacheTake { rows, rows_in_table, cache, missed: written(&mut missed) });
            let lines: Vec<_> = (0..cached.parts.len()).flat_map(|part| cached.lines(part).0).collect();
            // What the islands answer.
            let mut answered = output.content().to_vec();
            for (at, number) in numbers.iter().enumerate() {
                let (place, row) = (at * pitch..at * pitch + row_bytes, row(*number, cached.rows()));
                let has_line = lines.iter().any(|(row, _)| *row as i64 == *number);
                assert_eq!(missed[at], if has_line { -1 } else { *number }, "seed {seed}, round {round}");
                let wanted = row.map(|row| &cached.row(row as u64)[..row_bytes]);
                match wanted {
                    Some(wanted) if has_line => assert_eq!(&answered[place], wanted, "row {number}"),
                    _ => {
                        assert!(answered[place.clone()].iter().all(|byte| *byte == 0xee));
                        wanted.iter().for_each(|wanted| answered[place.clone()].copy_from_slice(wanted));
                    }
                }
                assert!(answered[at * pitch + row_bytes..(at + 1) * pitch].iter().all(|byte| *byte == 0xee));
                (taken, asked_for) = (taken + u32::from(has_line), asked_for + u32::from(!has_line));
            }
            if capacity == 0 {
                continue;
            }
            let mut output = Placed::new(&answered, misalignment);
            let rows = ArrivedRows { packed: Strided { address: output.address(), ..packed }, ..rows };
            cached.count(&numbers, 0);
            for part in 0..cached.parts.len() {
                let turns = (cached.set_starts[part + 1] - cached.set_starts[part]).div_ceil(32);
                run(shape, &CacheAdjustArrived { rows, cache: cached.tables(), part: part as u32, turns });
                let (lines, others) = cached.lines(part);
                assert_eq!(others, 0, "a tag that is being filled is left");
                for (row, bytes) in lines {
                    assert_eq!(cached.part_of(row), part, "seed {seed}");
                    assert_eq!(bytes[..row_bytes], cached.row(row)[..row_bytes], "seed {seed}, row {row}");
                }
            }
        }
        assert!(taken > 0 && asked_for > 0, "seed {seed}: {taken} rows are taken, {asked_for} are asked for");
    }
}

/// Hazard: the row that is asked for most is forgotten, or keeps others from a line, because it has
/// not come with this gather.
#[test]
fn a_candidate_that_has_not_come_stays_one() {
    let cached = Cached::spread(100, 1, 1);
    cached.count(&[5, 5, 5, 9], 0);
    let (numbers, mut slots) = ([9i64], [u32::MAX; 2]);
    let mut output = Placed::new(cached.row(9), 0);
    let packed = Strided { address: output.address(), stride: 16 };
    let slots = written(&mut slots);
    let rows =
        ArrivedRows { numbers: numbers_of(&numbers), packed, slots, capacity: 2, bytes: 16, width: 16 };
    let mut missed = [0i64];
    let (cache, missed) = (cached.tables(), written(&mut missed));
    run((1, 32), &CacheTake { rows, rows_in_table: 100, cache, missed });
    run((1, 32), &CacheAdjustArrived { rows, cache: cached.tables(), part: 0, turns: 1 });
    assert_eq!(cached.lines(0), (vec![(9, cached.row(9).to_vec())], 0));
    cached.adjust(0, (1, 32));
    let mut rows: Vec<_> = cached.lines(0).0.iter().map(|(row, _)| *row).collect();
    rows.sort_unstable();
    assert_eq!(rows, [5, 9]);
}

/// Hazard: an order that is not heeded, which no bytes show.
#[test]
fn rows_are_moved_by_their_order() {
    let cached = Cached::spread(100, 2, 1);
    let (numbers, order) = ([7, 8, 7, -1, 9, 100], [4, 2, 3, 2, 5, 4]);
    let mut output = Placed::new(&[0xee; 6 * 16], 0);
    cached.gather_in_order(&numbers, &order, 16, &mut output, (1, 64));
    for (place, found) in output.content().chunks(16).enumerate() {
        // A place that is not in the order belongs to no line, nor does the place of a number
        // without a row.
        let wanted = if matches!(place, 2 | 4) { cached.row(numbers[place] as u64) } else { &[0xee; 16] };
        assert_eq!(found, wanted, "place {place}");
    }
}

#[test]
fn what_is_asked_for_most_stays() {
    let rows_of = |cached: &Cached| (cached.row_starts[1] - cached.row_starts[0]) as i64;
    let cached =
        (0..).map(|seed| Cached::new(seed, 1)).find(|cached| !cached.is_spread && rows_of(cached) > 16);
    let cached = cached.expect("many rows");
    let (first, rows) = (cached.row_starts[0] as i64, rows_of(&cached));
    for round in 0..200 {
        // Eight rows often, and one of the others in its turn.
        let hot = (0..8).map(|row| first + row);
        let numbers: Vec<_> = hot.clone().chain(hot).chain([first + 8 + round % (rows - 8)]).collect();
        cached.count(&numbers, 0);
        cached.adjust(0, (1, 64));
    }
    let mut rows: Vec<_> = cached.lines(0).0.iter().map(|(row, _)| *row as i64 - first).collect();
    rows.sort_unstable();
    assert_eq!(rows, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_row_that_is_written_is_brought_anew_or_cancelled() {
    let mut cached = Cached::new(7, 1);
    let (start, rows) = (cached.row_starts[0], cached.row_starts[1] - cached.row_starts[0]);
    cached.count(&[start as i64, start as i64 + 1], 0);
    cached.adjust(0, (1, 32));
    assert_eq!(cached.lines(0).0.len(), 2);
    // Another warp is filling a line with row 2.
    let free = (0..WAYS).find(|way| cached.word(0, way * 8) == 0).expect("a free line");
    let at = free as usize;
    cached.parts[0][at / 2] |= u128::from(FILLING | (start + 3)) << (at % 2 * 64);
    let changed: Vec<u8> = (0..rows * cached.stride).map(|at| (at * 7 + 1) as u8).collect();
    let mut own = Placed::new(&changed, 0);
    let numbers = [0i64, 2, -1, rows as i64];
    let count = [numbers.len() as i64];
    let renew = CacheRenew {
        rows: read(&numbers),
        count: read(&count),
        own_rows: own.address(),
        first_row: start,
        rows_in_part: rows,
        cache: cached.tables(),
        part: 0,
    };
    run((1, 64), &renew);
    let (lines, others) = cached.lines(0);
    assert_eq!(others, 1, "who fills a line is its only writer: the tag stays claimed");
    let cancelled = cached.word(0, free * 8);
    assert_eq!(cancelled & (FILLING * 2 - 1), FILLING, "row 2 is still to be brought");
    for (row, bytes) in lines {
        let wanted = if row == start { &changed[..cached.stride as usize] } else { cached.row(row) };
        assert_eq!(bytes, wanted, "row {row}");
    }
    // Nor does a drop set the claimed tag free, or an adjusting of other rows take it.
    cached.drop_lines(0);
    assert_eq!(cached.word(0, free * 8), cancelled);
    cached.count(&[start as i64 + 3; 5], 0);
    cached.adjust(0, (1, 32));
    assert_eq!(cached.word(0, free * 8), cancelled);
}

#[test]
fn readers_see_whole_rows_while_lines_are_taken() {
    let cached = &Cached::new(9, 1);
    let stride = cached.stride as usize;
    let draw = |seed: u64| {
        let draws = &mut Draws::new(seed);
        (0..96).map(|_| draws.below(cached.rows()) as i64).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        for reader in 0..2 {
            scope.spawn(move || {
                for round in 0..400 {
                    let numbers = draw(reader * 1000 + round);
                    let mut output = Placed::new(&vec![0; numbers.len() * stride], 0);
                    cached.gather(&numbers, stride, &mut output, (2, 64));
                    for (number, found) in numbers.iter().zip(output.content().chunks(stride)) {
                        assert_eq!(found, cached.row(*number as u64), "row {number}, round {round}");
                    }
                    let (missed, output) = cached.take(&numbers);
                    let taken = numbers.iter().zip(output.content().chunks(stride)).zip(missed);
                    for ((number, found), _) in taken.filter(|(_, missed)| *missed == -1) {
                        assert_eq!(found, cached.row(*number as u64), "row {number}, round {round}");
                    }
                }
            });
        }
        // Two streams of the rank that has the parts.
        for writer in 0..2 {
            scope.spawn(move || {
                for round in 0..400 {
                    cached.count(&draw(writer * 5000 + round), 0);
                    (0..cached.parts.len()).for_each(|part| cached.adjust(part, (1, 64)));
                }
            });
        }
    });
}

/// Row numbers by Zipf's law: place k of the order of frequency is row k * `step`.
fn zipf(draws: &mut Draws, count: usize, rows: u64, step: u64) -> Vec<i64> {
    let span = ((rows + 1) as f64).ln();
    let draw = |_| {
        let part = draws.below(1 << 40) as f64 / (1_u64 << 40) as f64;
        ((((part * span).exp() - 1.0) as u64).min(rows - 1) * step % rows) as i64
    };
    (0..count).map(draw).collect()
}

/// Hazard: a cache whose hot rows meet in few sets, or in one part; and one that learns from too
/// few lookups.
#[test]
fn a_tenth_of_the_rows_answers_nearly_what_the_best_tenth_would() {
    let (rows, sets) = (1 << 15, 205);
    // Neighbours; a distance that the number of sets is a multiple of; all in a half of the table;
    // in the same set.
    for step in [1, 5, 4_294_967_291, 2 * sets + 1, 2 * sets - 1] {
        let (cached, draws) = (Cached::spread(rows, 2, sets), &mut Draws::new(step));
        for _ in 0..12 {
            cached.count(&zipf(draws, 1 << 14, rows, step), 5);
            (0..2).for_each(|part| cached.adjust(part, (2, 64)));
        }
        let mut has_line = vec![false; rows as usize];
        for part in 0..2 {
            cached.lines(part).0.iter().for_each(|(row, _)| has_line[*row as usize] = true);
        }
        let asked = zipf(draws, 1 << 16, rows, step);
        let hits = asked.iter().filter(|row| has_line[**row as usize]).count() as f64 / asked.len() as f64;
        let best = ((2 * sets * WAYS + 1) as f64).ln() / ((rows + 1) as f64).ln();
        assert!(hits > 0.95 * best, "step {step}: {hits:.3} of {best:.3}");
    }
}

#[test]
fn all_lookups_are_counted_while_a_part_takes_many_lines() {
    const CURSOR: u64 = WAYS * 8 + 104;
    let cached = Cached::spread(100, 1, 1);
    let counted = |cached: &Cached, row: u64| {
        cached.count(&[row as i64; 64], 5);
        let candidates = (0..8).map(|at| cached.word(0, WAYS * 8 + at * 8));
        candidates.filter(|word| word & (FILLING - 1) == row + 1).map(|word| word >> 40).sum::<u64>()
    };
    assert_eq!(counted(&cached, 3), 64, "nothing was adjusted yet");
    cached.adjust(0, (1, 32));
    assert_eq!(counted(&cached, 4), 64, "a line was taken");
    (0..20).for_each(|_| cached.adjust(0, (1, 32)));
    assert_eq!((cached.word(0, CURSOR), cached.word(0, CURSOR + 8)), (21 * 32, 0));
    assert_eq!(counted(&cached, 5), 2, "no line was taken of late");
}
