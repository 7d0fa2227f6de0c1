//! When the ranks of an island share the rows that they ask other islands for, so that a row that
//! several want crosses the network once. Pure.
//!
//! Each rank claims rows before it tells its counts, so whether it does is known from the calls
//! before: from their records, which all ranks have. Whether a call's rows are then shared follows
//! from its own records: ranks of an island that claim no row of each other have nothing to wait
//! for.
//!
//! Invariant: ranks of an island come to the same verdict, for each of its islands alike.

use crate::vocabulary::islands::Islands;

/// Fewest bytes of a rank's numbers and rows that are worth claims: less crosses in the time of the
/// further messages.
const FEWEST_BYTES: u64 = 256 << 10;
/// Claims are worth it if they keep more than one row of so many from crossing.
const WORTH: u64 = 5;
/// Calls between two that claim, at most, while these keep too few rows.
const LONGEST_PAUSE: u32 = 63;

/// What ranks have told of a call.
#[derive(Debug, Clone)]
pub struct ToldCounts {
    /// How many rows each rank has for each island.
    pub counts: Vec<Vec<u64>>,
    /// For how many numbers each rank has claimed rows.
    pub claimed: Vec<u64>,
}

impl ToldCounts {
    /// Of the numbers that claimed rows in an island: those that name no row of the island itself,
    /// and those of them that cross. Numbers that are no row's count as kept.
    fn claims(&self, islands: &Islands, island: usize) -> (u64, u64) {
        let members = islands.members(island).iter().filter(|member| self.claimed[**member] > 0);
        members.fold((0, 0), |(numbers, crossing), member| {
            let counts = &self.counts[*member];
            let all: u64 = counts.iter().take(islands.count()).sum();
            let own = counts[island];
            (numbers + self.claimed[*member].saturating_sub(own), crossing + all - own)
        })
    }

    /// May a rank of the island borrow rows?
    pub fn is_shared(&self, islands: &Islands, island: usize) -> bool {
        let (numbers, crossing) = self.claims(islands, island);
        crossing > 0 && numbers > crossing
    }

    /// May a rank of any island?
    pub fn is_shared_anywhere(&self, islands: &Islands) -> bool {
        (0..islands.count()).any(|island| self.is_shared(islands, island))
    }
}

/// The policy of one memory, alike at all ranks of an island.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClaimPolicy {
    /// Gathers after one whose claims kept too little.
    pause: u32,
    /// Those of them that are still to come.
    left: u32,
}

impl ClaimPolicy {
    /// Does a rank claim rows in the next gather, whose numbers and rows are so many bytes?
    pub fn claims(&self, bytes: u64) -> bool {
        bytes >= FEWEST_BYTES && self.left == 0
    }

    /// A gather has passed.
    pub fn learn(&mut self, told: &ToldCounts, islands: &Islands, own: usize) {
        if islands.members(own).iter().all(|member| told.claimed[*member] == 0) {
            self.left = self.left.saturating_sub(1);
            return;
        }
        let (numbers, crossing) = told.claims(islands, own);
        let is_worth_it = numbers.saturating_sub(crossing).saturating_mul(WORTH) > numbers;
        self.pause = if is_worth_it { 0 } else { (2 * self.pause + 1).min(LONGEST_PAUSE) };
        self.left = self.pause;
    }
}

#[cfg(test)]
mod tests {
    //! Hazards (deadlock): ranks of an island come to different verdicts. Rows that are shared by
    //! no rank pay for claims; rows that begin to be are never claimed again.
    use proptest::prelude::*;

    use super::*;

    const MANY: u64 = 1 << 20;

    /// Two islands of two ranks. Each rank of island 0 has 10 rows of its own and so many that
    /// cross, of so many that it wants.
    fn told(wanted: u64, crossing: [u64; 2], claims: [bool; 2]) -> (ToldCounts, Islands) {
        let islands = Islands::new(4, |one, other| one % 2 == other % 2);
        let mut counts = vec![vec![10, 10]; 4];
        let mut claimed = vec![0; 4];
        for (member, rank) in [0, 2].into_iter().enumerate() {
            counts[rank] = vec![10, if claims[member] { crossing[member] } else { wanted }];
            claimed[rank] = if claims[member] { 10 + wanted } else { 0 };
        }
        (ToldCounts { counts, claimed }, islands)
    }

    #[test]
    fn rows_are_shared_where_fewer_cross_than_are_wanted() {
        for (crossing, claims, is_shared) in [
            ([100, 100], [true, true], false),
            ([100, 99], [true, true], true),
            ([100, 0], [true, true], true),
            ([0, 0], [true, true], false),
            ([99, 0], [true, false], true),
            ([100, 0], [true, false], false),
            ([0, 0], [false, false], false),
        ] {
            let (told, islands) = told(100, crossing, claims);
            assert_eq!(told.is_shared(&islands, 0), is_shared, "{crossing:?}, {claims:?}");
            assert!(!told.is_shared(&islands, 1));
            assert_eq!(told.is_shared_anywhere(&islands), is_shared);
        }
    }

    #[test]
    fn pauses_double_up_to_every_64th_gather() {
        let mut policy = ClaimPolicy::default();
        let claims: Vec<_> = (0..400)
            .filter(|_| {
                let claims = policy.claims(MANY);
                let (told, islands) = told(100, [100, 100], [claims; 2]);
                policy.learn(&told, &islands, 0);
                claims
            })
            .collect();
        assert_eq!(claims, [0, 2, 6, 14, 30, 62, 126, 190, 254, 318, 382]);
    }

    #[test]
    fn small_gathers_claim_nothing() {
        assert!(!ClaimPolicy::default().claims(FEWEST_BYTES - 1));
        assert!(ClaimPolicy::default().claims(FEWEST_BYTES));
    }

    proptest! {
        #[test]
        fn rows_that_are_shared_are_found_within_64_gathers_and_then_in_each(
            before in prop::collection::vec((1_u64..100, 0_u64..100, any::<[bool; 2]>()), 0..200),
        ) {
            let mut policy = ClaimPolicy::default();
            for (wanted, crossing, large) in before {
                let claims = large.map(|is_large| is_large && policy.claims(MANY));
                let (told, islands) = told(wanted, [crossing.min(wanted); 2], claims);
                policy.learn(&told, &islands, 0);
            }
            let mut found = Vec::new();
            for _ in 0..100 {
                found.push(policy.claims(MANY));
                let (told, islands) = told(100, [50; 2], [policy.claims(MANY); 2]);
                policy.learn(&told, &islands, 0);
            }
            let first = found.iter().position(|claims| *claims);
            prop_assert!(first.is_some_and(|first| first < 64));
            prop_assert!(found[first.unwrap_or_default()..].iter().all(|claims| *claims));
        }
    }
}
