//! Which entries of which file go to which place of a rank's part. Pure.
//!
//! Files are one list of entries, one after the other. A rank gets the entries that its part has
//! the numbers of; or, in round robin, every so many chunks one, which it puts side by side from
//! the beginning of its part.
//!
//! Invariants: a rank's places are filled from the first one on, without gaps; each entry of the
//! files goes to exactly one rank.

use crate::error::{Error, Result, require};

/// Entries that follow each other in a file and at the rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRange {
    /// Which file.
    pub file: usize,
    /// Number of the first one in the file.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Place of the first one in the rank's part.
    pub place: u64,
}

/// The entries that one rank loads.
#[derive(Debug, Clone)]
pub struct LoadPlan {
    /// Number of each file's first entry in the whole list, and the number of all entries.
    firsts: Box<[u64]>,
    /// Number of the rank's first entry in the list.
    begin: u64,
    /// How many it has.
    entries: u64,
    /// So many follow each other in the list.
    chunk: u64,
    /// From the first one of a chunk to that of the rank's next, in the list.
    distance: u64,
}

impl LoadPlan {
    /// The plan of a rank for files of so many entries. `parts` has the first entry of each rank's
    /// part, and the number of all entries that the memory has room for; `chunk` is how many
    /// entries each rank gets in its turn, 0 without round robin.
    ///
    /// # Errors
    /// [`Error::Value`] for more entries than there is room for, at whichever rank.
    pub fn new(files: &[u64], parts: &[u64], rank: usize, chunk: u64) -> Result<Self> {
        let firsts = one_after_the_other(files)?;
        let (all, ranks) = (firsts[files.len()], parts.len() as u64 - 1);
        let room = parts[parts.len() - 1];
        if all > room {
            return Err(Error::Value(format!(
                "the files have {all} entries, the memory has room for {room}"
            )));
        }
        if chunk == 0 {
            let (begin, end) = (parts[rank].min(all), parts[rank + 1].min(all));
            return Ok(Self {
                firsts,
                begin,
                entries: end - begin,
                chunk: (end - begin).max(1),
                distance: 0,
            });
        }
        for (other, part) in parts.windows(2).enumerate() {
            let (entries, room) = (dealt(all, ranks, other as u64, chunk), part[1] - part[0]);
            if entries > room {
                let reason = format!(
                    "in chunks of {chunk}, rank {other} gets {entries} entries of {all}, and has room for {room}"
                );
                return Err(Error::Value(reason));
            }
        }
        let (entries, begin) = (dealt(all, ranks, rank as u64, chunk), rank as u64 * chunk);
        Ok(Self { firsts, begin, entries, chunk, distance: ranks * chunk })
    }

    /// How many entries the rank gets.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The positions of the entries of some of the rank's places, in the order of the places.
    pub fn ranges(&self, place: u64, count: u64) -> impl Iterator<Item = FileRange> {
        let (mut place, end) = (place, (place + count).min(self.entries));
        std::iter::from_fn(move || {
            let range = (place < end).then(|| self.range(place, end - place))?;
            place += range.count;
            Some(range)
        })
    }

    /// The longest one that begins at a place.
    fn range(&self, place: u64, most: u64) -> FileRange {
        let inside = place % self.chunk;
        let entry = self.begin + place / self.chunk * self.distance + inside;
        // The last of those that begin there: the others are empty.
        let file = self.firsts.partition_point(|first| *first <= entry) - 1;
        let count = (self.chunk - inside).min(most).min(self.firsts[file + 1] - entry);
        FileRange { file, first: entry - self.firsts[file], count, place }
    }
}

/// How many whole entries a file has.
///
/// # Errors
/// [`Error::Input`] for one that ends within an entry.
pub fn whole_entries(bytes: u64, entry: u64) -> Result<u64> {
    require(bytes.is_multiple_of(entry), &format!("{bytes} bytes are no whole entries of {entry}"))?;
    Ok(bytes / entry)
}

fn one_after_the_other(files: &[u64]) -> Result<Box<[u64]>> {
    let mut all = 0_u64;
    let mut firsts = Vec::with_capacity(files.len() + 1);
    firsts.push(0);
    for entries in files {
        let next = all.checked_add(*entries);
        all = next.ok_or_else(|| Error::Value("the files have more than 2^64 entries".to_owned()))?;
        firsts.push(all);
    }
    Ok(firsts.into())
}

/// How many of all entries a rank gets in round robin.
fn dealt(all: u64, ranks: u64, rank: u64, chunk: u64) -> u64 {
    let round = ranks * chunk;
    let last = (all % round).saturating_sub(rank * chunk).min(chunk);
    all / round * chunk + last
}

#[cfg(test)]
mod tests {
    //! Hazard: an entry at a place of another one, at two places, or at none.
    use proptest::prelude::*;

    use super::*;

    /// Deals entries out one by one: by rank and place, the file and the number in it.
    fn row_by_row(files: &[u64], parts: &[u64], chunk: u64) -> Vec<Vec<(usize, u64)>> {
        let ranks = parts.len() - 1;
        let mut hands = vec![Vec::new(); ranks];
        let list =
            files.iter().enumerate().flat_map(|(file, count)| (0..*count).map(move |entry| (file, entry)));
        let (mut turn, mut left) = (0, chunk);
        for (number, entry) in list.enumerate() {
            if chunk == 0 {
                let owner =
                    (0..ranks).find(|rank| (parts[*rank]..parts[rank + 1]).contains(&(number as u64)));
                hands[owner.expect("a rank has it")].push(entry);
                continue;
            }
            if left == 0 {
                (turn, left) = ((turn + 1) % ranks, chunk);
            }
            hands[turn].push(entry);
            left -= 1;
        }
        hands
    }

    fn planned(plan: &LoadPlan, step: u64) -> Vec<(usize, u64)> {
        let mut hand = Vec::new();
        for place in (0..plan.entries()).step_by(step as usize) {
            for range in plan.ranges(place, step) {
                assert_eq!(range.place, hand.len() as u64);
                assert!(range.count > 0);
                hand.extend((range.first..range.first + range.count).map(|entry| (range.file, entry)));
            }
        }
        hand
    }

    fn starts(each: &[u64]) -> Vec<u64> {
        let sums = each.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        std::iter::once(0).chain(sums).collect()
    }

    proptest! {
        #[test]
        fn each_entry_goes_where_it_goes_one_by_one(
            files in prop::collection::vec(0_u64..40, 1..9),
            each in prop::collection::vec(0_u64..60, 1..9),
            chunk in 0_u64..20,
            step in 1_u64..50,
        ) {
            let parts = starts(&each);
            let all: u64 = files.iter().sum();
            let plans: Vec<_> = (0..each.len()).map(|rank| LoadPlan::new(&files, &parts, rank, chunk)).collect();
            if all > parts[each.len()] {
                prop_assert!(plans.iter().all(|plan| matches!(plan, Err(Error::Value(_)))));
                return Ok(());
            }
            let hands = row_by_row(&files, &parts, chunk);
            if hands.iter().zip(&each).any(|(hand, room)| hand.len() as u64 > *room) {
                // Every rank refuses entries that do not fit at one rank.
                prop_assert!(plans.iter().all(|plan| matches!(plan, Err(Error::Value(_)))));
                return Ok(());
            }
            for (plan, hand) in plans.iter().zip(&hands) {
                let plan = plan.as_ref().expect("it fits");
                prop_assert_eq!(plan.entries(), hand.len() as u64);
                prop_assert_eq!(&planned(plan, step), hand);
            }
        }

        #[test]
        fn round_robin_that_fits_is_planned(
            files in prop::collection::vec(0_u64..40, 1..6), ranks in 1_usize..9, chunk in 1_u64..20, step in 1_u64..50,
        ) {
            let rounds = files.iter().sum::<u64>().div_ceil(ranks as u64 * chunk);
            let parts = starts(&vec![rounds * chunk; ranks]);
            for (rank, hand) in row_by_row(&files, &parts, chunk).iter().enumerate() {
                let plan = LoadPlan::new(&files, &parts, rank, chunk).expect("whole rounds have room");
                prop_assert_eq!(&planned(&plan, step), hand);
            }
        }
    }

    #[test]
    fn numbers_beyond_all_memory_are_refused() {
        assert!(matches!(LoadPlan::new(&[u64::MAX, 2], &[0, 1], 0, 0), Err(Error::Value(_))));
        assert!(matches!(LoadPlan::new(&[5], &[0, 2, 4], 1, 0), Err(Error::Value(_))));
        assert!(matches!(whole_entries(65, 8), Err(Error::Input(_))));
        assert_eq!(whole_entries(64, 8).ok(), Some(8));
    }

    #[test]
    fn a_chunk_that_is_larger_than_all_files_goes_to_the_first_rank() {
        let plan = |rank| LoadPlan::new(&[3], &[0, 3, 6], rank, i32::MAX as u64).expect("three entries fit");
        assert_eq!((plan(0).entries(), plan(1).entries()), (3, 0));
    }
}
