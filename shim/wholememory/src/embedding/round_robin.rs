//! Rows that are dealt to the ranks in turn, so many at a time, so that neighbours are spread over
//! all GPUs.
//!
//! Rank `r` has rows `r * turn..(r + 1) * turn`, then those `ranks * turn` further on, and so on,
//! one after the other in its memory. All ranks have the same number of rows of memory. If the rows
//! do not divide evenly, the last rows of some ranks are padding.

use wm_kernels::wholememory::RoundRobinPlaces;

use crate::error::{Error, Result, require};
use crate::operations::array::numbers;
use crate::operations::scratch::{Scratch, Workspace};
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::ElementType;
use crate::vocabulary::description::ArrayDescription;

/// How rows are dealt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundRobin {
    rows: u64,
    turn: u64,
    ranks: u64,
    rows_of_rank: u64,
}

impl RoundRobin {
    /// `turn` rows of `rows` for each of some ranks in turn.
    ///
    /// # Errors
    /// [`Error::Input`] for a turn or a number of rows below 0, or of no rows.
    pub fn new(rows: i64, turn: i32, ranks: usize) -> Result<Self> {
        require(turn > 0 && rows >= 0, "rows that go round robin go at least one at a time")?;
        let (rows, turn, ranks) = (rows.unsigned_abs(), u64::from(turn.unsigned_abs()), ranks as u64);
        let round = turn * ranks;
        let rows_of_rank = rows / round * turn + (rows % round).min(turn);
        Ok(Self { rows, turn, ranks, rows_of_rank })
    }

    /// Rows of memory of all ranks: those of the table, and the padding.
    ///
    /// # Errors
    /// [`Error::Input`] for more than 63 bits can count.
    pub fn places(&self) -> Result<i64> {
        let all = self.rows_of_rank.checked_mul(self.ranks).and_then(|all| i64::try_from(all).ok());
        all.ok_or_else(|| Error::Input("more than 2^63 rows".to_owned()))
    }

    /// Row numbers as places, in the stream's order. The tensor is good as long as the memory with
    /// it.
    ///
    /// # Errors
    /// [`Error::Input`] for a tensor that is no array of row numbers; the driver's.
    pub fn places_of(&self, indices: &Tensor, workspace: &Workspace<'_>) -> Result<(Tensor, Scratch)> {
        let numbers = numbers(indices)?;
        let (scratch, [places]) = workspace.allocate([numbers.count * size_of::<i64>() as u64])?;
        let &Self { rows, turn, ranks, rows_of_rank } = self;
        if numbers.count > 0 {
            CallerStream::with(workspace.communicator.kernels()?, workspace.stream).launch(
                &RoundRobinPlaces { numbers, rows, turn, ranks, rows_of_rank, places },
                numbers.count,
            )?;
        }
        let size = numbers.count.cast_signed();
        let shape = ArrayDescription { size, storage_offset: 0, dtype: ElementType::Int64.code() };
        Ok((Tensor::at(places, shape.into())?, scratch))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: two rows at one place, or a place beyond a rank's memory.
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_row_has_a_place(rows in 0i64..500, turn in 1i32..40, ranks in 1usize..9) {
            let dealt = RoundRobin::new(rows, turn, ranks).expect("a turn");
            let all = dealt.places().expect("few").unsigned_abs();
            let place = |row: u64| {
                let (turn, ranks) = (dealt.turn, dealt.ranks);
                let (deal, within) = (row / turn, row % turn);
                let in_rank = deal / ranks * turn + within;
                prop_assert!(in_rank < dealt.rows_of_rank);
                Ok(deal % ranks * dealt.rows_of_rank + in_rank)
            };
            let places = (0..rows.unsigned_abs()).map(place).collect::<Result<HashSet<u64>, _>>()?;
            prop_assert_eq!(places.len() as u64, rows.unsigned_abs());
            prop_assert!(places.iter().all(|place| *place < all));
            // The padding is less than a turn for each rank.
            prop_assert!(all - rows.unsigned_abs() <= dealt.turn * dealt.ranks);
        }
    }
}
