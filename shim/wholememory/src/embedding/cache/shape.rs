//! Sizes of a cache: how many sets each part has, and where a part's arrays begin (`cache.cuh`).
//! Pure.
//!
//! Invariants: each part has a set; where the ratio is 1 it has a line for each row, in the row's
//! own set.

use crate::error::{Error, Result};
use crate::vocabulary::partition::Partition;

/// Lines of a set.
pub const WAYS: u64 = 8;
/// Bytes of a set's tags.
pub const TAG_BYTES: u64 = 64;
/// Bytes of a set's counts.
const RECORD_BYTES: u64 = 128;
/// Bits of a tag that have a row's number and 1.
const ROW_BITS: u32 = 40;

/// Sets that a launch looks at, at most: each is some 160 bytes.
const MOST_SETS: u64 = 1 << 18;
/// Lookups that are counted, at most, unless the cache still learns: others are like them.
const MOST_COUNTED: u64 = 1 << 17;
/// Sets that are looked at at once.
pub const SETS_OF_A_TURN: u64 = 32;

/// How rows are spread over sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheShape {
    /// Which part has which rows, where each has its owner's; else they are spread over all parts.
    pub owned: Option<Partition>,
    /// Sets of each part.
    pub sets: Vec<u64>,
    /// Bytes of a set with its lines.
    pub set_bytes: u64,
}

impl CacheShape {
    /// A cache for a part of the rows, `stride` bytes each, which are a multiple of 16: of each
    /// owner's.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for more rows than a tag can name.
    pub fn of_owners(rows: Partition, ratio: f32, stride: u64) -> Result<Self> {
        check(rows.rows())?;
        let sets = (0..rows.ranks()).map(|part| sets_of(rows.count(part), ratio)).collect();
        Ok(Self { owned: Some(rows), sets, set_bytes: set_bytes(stride) })
    }

    /// The same with as many parts as are wanted, for any rows.
    ///
    /// # Errors
    /// As [`Self::of_owners`].
    pub fn spread(rows: u64, parts: usize, ratio: f32, stride: u64) -> Result<Self> {
        check(rows)?;
        let sets = vec![sets_of(rows.div_ceil(parts as u64), ratio); parts];
        Ok(Self { owned: None, sets, set_bytes: set_bytes(stride) })
    }

    /// Has it lines for fewer than half of the rows?
    pub fn is_small(&self, rows: u64) -> bool {
        self.sets.iter().sum::<u64>() < rows / WAYS / 2
    }

    /// Bytes at a part's start that must be 0 at first.
    pub fn first_bytes(&self, part: usize) -> u64 {
        self.sets[part] * (TAG_BYTES + RECORD_BYTES)
    }

    /// Tags of a part.
    pub fn tags(&self, part: usize) -> u64 {
        self.sets[part] * WAYS
    }
}

fn check(rows: u64) -> Result {
    if rows >= (1 << ROW_BITS) - 1 {
        return Err(Error::NotSupported(format!("a cache for {rows} rows")));
    }
    Ok(())
}

fn set_bytes(stride: u64) -> u64 {
    TAG_BYTES + RECORD_BYTES + WAYS * stride
}

/// Sets for some rows. An odd number, so that rows at distances of a power of two go to different
/// sets.
fn sets_of(rows: u64, ratio: f32) -> u64 {
    let lines = (rows as f64 * f64::from(ratio)).ceil() as u64;
    lines.div_ceil(WAYS) | 1
}

/// Of how many lookups one is counted, as a power of two.
pub fn count_shift(lookups: u64) -> u32 {
    (lookups / MOST_COUNTED).checked_ilog2().map_or(0, |power| power + 1)
}

/// Turns of a launch that adjusts some of the sets: more of them where more was asked for.
pub fn turns(lookups: u64, sets: u64) -> u64 {
    let window = (lookups.max(1024).saturating_mul(4)).min(MOST_SETS).min(sets);
    window.div_ceil(SETS_OF_A_TURN)
}

#[cfg(test)]
mod tests {
    //! Hazard: a row that goes to a set that there is not, or a cache for all rows that cannot hold
    //! them.
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cache_has_its_share_of_lines(
            each in prop::collection::vec(1_u64..3000, 1..9), ratio in 1.0_f32 / 512.0..=1.0, words in 1_u64..100,
        ) {
            let rows = Partition::custom(each.iter().sum(), &each).expect("a sound one");
            let shape = CacheShape::of_owners(rows, ratio, words * 16).expect("few rows");
            prop_assert_eq!(shape.set_bytes % 64, 0);
            for (part, rows) in each.iter().enumerate() {
                let lines = shape.sets[part] * WAYS;
                prop_assert_eq!((lines, shape.sets[part] % 2), (shape.tags(part), 1));
                let wanted = *rows as f64 * f64::from(ratio);
                prop_assert!(lines as f64 >= wanted && (lines as f64) < wanted + 2.0 * WAYS as f64 + 1.0);
            }
        }

        #[test]
        fn with_a_line_for_each_row_no_part_is_too_small(rows in 1_u64..5000, parts in 1_usize..9) {
            let shape = CacheShape::spread(rows, parts, 1.0, 16).expect("few rows");
            // Of as many rows as there are parts each part has one, and of as many as it has sets
            // each set.
            let most = rows.div_ceil(parts as u64);
            prop_assert_eq!(shape.sets.len(), parts);
            prop_assert!(shape.sets.iter().all(|sets| most.div_ceil(*sets) <= WAYS && !shape.is_small(rows)));
        }

        #[test]
        fn a_cache_for_few_of_many_rows_is_small(rows in 1_u64 << 14..1 << 30, parts in 1_usize..9) {
            prop_assert!(CacheShape::spread(rows, parts, 0.4, 16).expect("few rows").is_small(rows));
            prop_assert!(!CacheShape::spread(rows, parts, 0.6, 16).expect("few rows").is_small(rows));
        }

        #[test]
        fn few_lookups_are_counted(lookups in 0_u64..1 << 40) {
            let counted = lookups >> count_shift(lookups);
            prop_assert!(counted <= MOST_COUNTED);
            prop_assert!(lookups <= MOST_COUNTED || counted >= MOST_COUNTED / 4);
        }
    }

    #[test]
    fn a_part_without_rows_has_a_set() {
        let shape = CacheShape::of_owners(Partition::equal(1, 3), 0.5, 16).expect("few rows");
        assert_eq!((shape.sets.as_slice(), shape.first_bytes(2)), ([1; 3].as_slice(), 192));
    }

    #[test]
    fn all_sets_have_their_turn() {
        assert_eq!((turns(10, 1), turns(10, 64), turns(10, u64::MAX)), (1, 2, 128));
        assert_eq!(turns(u64::MAX, u64::MAX) * SETS_OF_A_TURN, MOST_SETS);
    }

    #[test]
    fn a_tag_names_every_row() {
        assert!(CacheShape::spread((1 << ROW_BITS) - 1, 1, 1.0, 16).is_err());
        assert!(CacheShape::spread((1 << ROW_BITS) - 2, 1, 1.0, 16).is_ok());
    }
}
