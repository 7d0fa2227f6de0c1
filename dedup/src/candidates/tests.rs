//! Hazard: a chunk that something wrote counts as one that arrived by a copy, or the books of a
//! program that loads in small pieces grow without end. The model is a map with one entry a byte.

use proptest::prelude::*;

use super::*;

/// Bytes of a block are counted in these, so that the model stays small: all ranges are multiples
/// of it.
const UNIT: u64 = CHUNK_BYTES / 8;

#[derive(Debug, Clone)]
enum Step {
    Loaded(Range<u64>),
    Written(Range<u64>),
    Copied(Range<u64>, u64),
    CopiedBack(Range<u64>, u64),
    CopiedWithin(Range<u64>, u64),
}

fn range() -> impl Strategy<Value = Range<u64>> {
    // Ranges beyond the end, empty ones and backward ones are among them.
    (0..70_u64, 0..70_u64, prop::bool::weighted(0.9))
        .prop_map(|(a, b, sorted)| if sorted { a.min(b)..a.max(b) } else { a..b })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        range().prop_map(Step::Loaded),
        range().prop_map(Step::Written),
        (range(), 0..70_u64).prop_map(|(range, at)| Step::Copied(range, at)),
        (range(), 0..70_u64).prop_map(|(range, at)| Step::CopiedBack(range, at)),
        (range(), 0..70_u64).prop_map(|(range, at)| Step::CopiedWithin(range, at)),
    ]
}

fn scaled(range: &Range<u64>) -> Range<u64> {
    range.start * UNIT..range.end * UNIT
}

/// A flag a unit.
#[derive(Debug, Clone)]
struct Model(Vec<bool>);

impl Model {
    fn set(&mut self, range: Range<u64>, value: bool) {
        for unit in range {
            if let Some(flag) = self.0.get_mut(unit as usize) {
                *flag = value;
            }
        }
    }

    fn copied(&mut self, source: &Self, range: Range<u64>, at: u64) {
        for unit in range.clone() {
            let value = source.0.get(unit as usize).copied().unwrap_or(false);
            self.set(at + unit - range.start..at + unit - range.start + 1, value);
        }
    }

    fn chunks(&self) -> Vec<u64> {
        let whole = |chunk: &usize| self.0[chunk * 8..].iter().take(8).all(|unit| *unit);
        (0..self.0.len() / 8).filter(whole).map(|chunk| chunk as u64).collect()
    }

    fn bytes(&self) -> u64 {
        self.0.iter().filter(|unit| **unit).count() as u64 * UNIT
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_loaded_is_what_a_map_of_bytes_says(
        units in 0..66_u64, others in 0..66_u64, steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut blocks = [Candidates::new(units * UNIT), Candidates::new(others * UNIT)];
        let mut models = [Model(vec![false; units as usize]), Model(vec![false; others as usize])];
        for step in steps {
            let [block, other] = &mut blocks;
            let [model, of_other] = &mut models;
            match step {
                Step::Loaded(range) => {
                    block.loaded(scaled(&range));
                    model.set(range, true);
                }
                Step::Written(range) => {
                    block.written(scaled(&range));
                    model.set(range, false);
                }
                Step::Copied(range, at) => {
                    other.copied(block, scaled(&range), at * UNIT);
                    of_other.copied(model, range, at);
                }
                Step::CopiedBack(range, at) => {
                    block.copied(other, scaled(&range), at * UNIT);
                    model.copied(of_other, range, at);
                }
                Step::CopiedWithin(range, at) => {
                    block.copied_within(scaled(&range), at * UNIT);
                    let overlap = range.start.abs_diff(at) < range.end.saturating_sub(range.start);
                    let source = if overlap { Model(Vec::new()) } else { model.clone() };
                    model.copied(&source, range, at);
                }
            }
            for (block, model) in blocks.iter().zip(&models) {
                prop_assert_eq!(block.chunks().collect::<Vec<_>>(), model.chunks());
                let loaded: u64 = block.pieces.iter().map(|(start, end)| end - start).sum();
                prop_assert_eq!(loaded, model.bytes());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Pieces of any length, so many that some are given up: nothing is loaded that the model has
    /// not, and a whole chunk stays.
    #[test]
    fn what_is_given_up_is_no_whole_chunk(
        pieces in prop::collection::vec((0..3 * CHUNK_BYTES, 1..2000_u64, any::<bool>()), 200..400),
    ) {
        let mut block = Candidates::new(3 * CHUNK_BYTES);
        let mut all = vec![false; 3 * CHUNK_BYTES as usize];
        block.loaded(CHUNK_BYTES..2 * CHUNK_BYTES);
        all[CHUNK_BYTES as usize..2 * CHUNK_BYTES as usize].fill(true);
        for (start, length, load) in pieces {
            let load = load || (CHUNK_BYTES..2 * CHUNK_BYTES).contains(&(start + length));
            let end = (start + length).min(3 * CHUNK_BYTES);
            if load { block.loaded(start..end) } else if start >= 2 * CHUNK_BYTES { block.written(start..end) }
            if load || start >= 2 * CHUNK_BYTES { all[start as usize..end as usize].fill(load) }
            prop_assert!(block.pieces.len() <= block.most_pieces());
        }
        prop_assert!(block.pieces.iter().all(|(start, end)| all[*start as usize..*end as usize].iter().all(|byte| *byte)));
        prop_assert!(block.chunks().any(|chunk| chunk == 1));
    }
}

#[test]
fn a_million_single_bytes_stay_few_pieces() {
    let mut block = Candidates::new(4 * CHUNK_BYTES);
    block.loaded(0..CHUNK_BYTES);
    for byte in 0..1_000_000 {
        block.loaded(CHUNK_BYTES + 2 * byte..CHUNK_BYTES + 2 * byte + 1);
        assert!(block.pieces.len() <= block.most_pieces());
    }
    assert_eq!(block.chunks().collect::<Vec<_>>(), [0]);
    block.loaded(0..4 * CHUNK_BYTES);
    assert_eq!(block.chunks().collect::<Vec<_>>(), [0, 1, 2, 3]);
    for byte in 0..1_000_000 {
        block.written(4 * byte..4 * byte + 1);
        assert!(block.pieces.len() <= block.most_pieces());
    }
    assert_eq!(block.chunks().collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn single_bytes_in_order_make_a_chunk() {
    let mut block = Candidates::new(CHUNK_BYTES);
    (0..CHUNK_BYTES).for_each(|byte| block.loaded(byte..byte + 1));
    assert_eq!(block.chunks().collect::<Vec<_>>(), [0]);
}

#[test]
fn ranges_at_the_end_of_numbers_are_no_panic() {
    let mut block = Candidates::new(u64::MAX);
    block.loaded(0..CHUNK_BYTES);
    block.copied_within(0..u64::MAX, u64::MAX - 1);
    block.copied(&block.clone(), 0..CHUNK_BYTES, u64::MAX - 5);
    let (late, early) = (u64::MAX - 9, 3);
    block.copied(&block.clone(), late..early, 0);
    block.written(u64::MAX..u64::MAX);
    assert!(block.chunks().any(|chunk| chunk == 0));
}
