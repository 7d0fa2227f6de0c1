//! Which rank has which rows.
//!
//! Invariant: the ranks' parts follow each other, and are all rows together. A part may be empty.

use crate::error::{Error, Result, require};

/// Rows of each rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// First row of each rank, and the number of all rows.
    starts: Box<[u64]>,
}

impl Partition {
    /// As many rows for each rank as for the others; the last ones may have fewer, or none.
    pub fn equal(rows: u64, ranks: usize) -> Self {
        let each = equal_rows(rows, ranks);
        Self { starts: (0..=ranks as u64).map(|rank| rank.saturating_mul(each).min(rows)).collect() }
    }

    /// As the caller says.
    ///
    /// # Errors
    /// [`Error::Input`] where a rank has no rows, or the sum is not that of all rows.
    pub fn custom(rows: u64, each: &[u64]) -> Result<Self> {
        require(each.iter().all(|count| *count > 0), "each rank of a partition needs at least one row")?;
        let (mut starts, mut all) = (vec![0], 0_u64);
        for count in each {
            let next = all.checked_add(*count);
            all = next.ok_or_else(|| Error::Input("a partition of more than 2^64 rows".to_owned()))?;
            starts.push(all);
        }
        require(all == rows, &format!("the partition has {all} rows, the memory has {rows}"))?;
        Ok(Self { starts: starts.into() })
    }

    /// The rows of some ranks alone, numbered anew in the order of these ranks.
    pub fn of_members(&self, members: &[usize]) -> Self {
        let mut end = 0;
        let ends = members.iter().map(|rank| {
            end += self.count(*rank);
            end
        });
        Self { starts: std::iter::once(0).chain(ends).collect() }
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.starts.len() - 1
    }

    /// All rows.
    pub fn rows(&self) -> u64 {
        self.starts[self.ranks()]
    }

    /// A rank's first row.
    pub fn start(&self, rank: usize) -> u64 {
        self.starts[rank]
    }

    /// How many rows a rank has.
    pub fn count(&self, rank: usize) -> u64 {
        self.starts[rank + 1] - self.starts[rank]
    }

    /// First row of each rank, and the number of all rows.
    pub fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// Rows of each rank, where all ranks that have any but the last of them have as many; else 0.
    pub fn equal_count(&self) -> u64 {
        let first = self.count(0);
        let fits = |rank: usize| self.starts[rank] == (rank as u64).saturating_mul(first).min(self.rows());
        if (0..=self.ranks()).all(fits) { first } else { 0 }
    }
}

/// Rows of each rank but the last ones.
pub fn equal_rows(rows: u64, ranks: usize) -> u64 {
    rows.div_ceil(ranks.max(1) as u64)
}

#[cfg(test)]
mod tests {
    //! Hazard: a row that no rank has, or two have.
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_row_has_one_rank(rows in 0_u64..10_000, ranks in 1_usize..17) {
            let partition = Partition::equal(rows, ranks);
            prop_assert_eq!((partition.ranks(), partition.rows()), (ranks, rows));
            prop_assert_eq!((0..ranks).map(|rank| partition.count(rank)).sum::<u64>(), rows);
            // As the API documents it.
            let each = rows.div_ceil(ranks as u64);
            for rank in 0..ranks {
                prop_assert_eq!(partition.start(rank), (rank as u64 * each).min(rows));
            }
            prop_assert_eq!(partition.equal_count(), partition.count(0));
        }

        #[test]
        fn members_keep_their_counts(each in prop::collection::vec(1_u64..1000, 2..9), seed in any::<u16>()) {
            let whole = Partition::custom(each.iter().sum(), &each).expect("a sound one");
            let members: Vec<_> = (0..each.len()).filter(|rank| seed >> rank & 1 != 0).collect();
            let part = whole.of_members(&members);
            let counts: Vec<_> = (0..part.ranks()).map(|member| part.count(member)).collect();
            prop_assert_eq!(counts, members.iter().map(|rank| each[*rank]).collect::<Vec<_>>());
        }

        #[test]
        fn a_custom_partition_is_as_it_was_given(each in prop::collection::vec(1_u64..1000, 1..9)) {
            let rows = each.iter().sum();
            let partition = Partition::custom(rows, &each).expect("a sound one");
            prop_assert_eq!((0..each.len()).map(|rank| partition.count(rank)).collect::<Vec<_>>(), each.clone());
            prop_assert!(Partition::custom(rows + 1, &each).is_err());
            if partition.equal_count() != 0 {
                prop_assert!(each[..each.len() - 1].iter().all(|count| *count == each[0]) && each[each.len() - 1] <= each[0]);
            }
        }
    }

    #[test]
    fn no_rank_of_a_custom_partition_is_empty() {
        assert!(Partition::custom(3, &[3, 0]).is_err());
        assert!(Partition::custom(u64::MAX, &[u64::MAX, 1]).is_err());
    }

    #[test]
    fn two_ranks_with_different_parts_are_not_taken_for_equal_ones() {
        assert_eq!(Partition::custom(5, &[2, 3]).map(|p| p.equal_count()).ok(), Some(0));
        assert_eq!(Partition::custom(5, &[3, 2]).map(|p| p.equal_count()).ok(), Some(3));
    }
}
