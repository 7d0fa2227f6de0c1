//! How far a kernel's use of the program's own memory goes on from the address that its arguments
//! name.
//!
//! The driver does not know where a tensor ends, but where the next one begins is seen: it is an
//! argument of some launch. So a use reaches from the argument up to the next address that was an
//! argument lately, or to the end of the pieces that follow each other without a gap. A wrong guess
//! costs time, and never bytes.
//!
//! Invariants: addresses count for one generation at least and two at most, so that a tensor that
//! is gone divides no later one; there are at most [`MOST`] of a generation.

use std::collections::BTreeSet;

use super::touched_groups::TouchedGroups;
use crate::launches::TouchedBlock;

/// Launches of a generation.
const LAUNCHES: u32 = 1 << 14;

/// Addresses of a generation: a program that names more begins the next one early.
const MOST: usize = 1 << 14;

/// The addresses in pieces that launches have named lately.
#[derive(Debug, Default)]
pub(super) struct Spans {
    now: BTreeSet<u64>,
    before: BTreeSet<u64>,
    launches: u32,
}

impl Spans {
    pub(super) const fn new() -> Self {
        Self { now: BTreeSet::new(), before: BTreeSet::new(), launches: 0 }
    }

    /// Adds the pieces that a launch with these words uses, each once, lowest address first. Those
    /// of one tensor are one group.
    pub(super) fn add_pieces(
        &mut self,
        words: impl Iterator<Item = u64>,
        find: impl Fn(u64) -> Option<TouchedBlock>,
        used: &mut TouchedGroups,
    ) {
        self.begin_launch();
        let named: BTreeSet<u64> = words.filter(|word| find(*word).is_some()).collect();
        self.now.extend(named.iter().copied());
        let mut done = 0;
        for word in named {
            let end = self.next_after(word).unwrap_or(u64::MAX);
            let mut at = word.max(done);
            while let Some(piece) = find(at).filter(|_| at < end) {
                at = piece.address + piece.bytes;
                used.push(piece);
            }
            used.end_group();
            done = at;
        }
    }

    fn begin_launch(&mut self) {
        self.launches += 1;
        if self.launches >= LAUNCHES || self.now.len() >= MOST {
            self.before = std::mem::take(&mut self.now);
            self.launches = 0;
        }
    }

    fn next_after(&self, word: u64) -> Option<u64> {
        let next = |of: &BTreeSet<u64>| of.range(word.saturating_add(1)..).next().copied();
        [next(&self.now), next(&self.before)].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (thrashing): pieces that a kernel uses count as unused and leave the device, or all
    //! pieces behind a pointer count as used and none can leave.
    use proptest::prelude::*;

    use super::*;

    const PIECE: u64 = 20 << 20;
    const BASE: u64 = 0x7f00_0000_0000;

    /// Ten pieces side by side, and ten behind a gap.
    fn find(address: u64) -> Option<TouchedBlock> {
        let index = address.checked_sub(BASE)? / PIECE;
        let is_piece = index < 10 || (20..30).contains(&index);
        is_piece.then_some(TouchedBlock { address: BASE + index * PIECE, bytes: PIECE, id: index, device: 0 })
    }

    fn used(spans: &mut Spans, words: &[u64]) -> Vec<u64> {
        let mut groups = TouchedGroups::default();
        spans.add_pieces(words.iter().copied(), find, &mut groups);
        groups.iter().flatten().map(|piece| piece.id).collect()
    }

    fn at(tenths: u64) -> u64 {
        BASE + PIECE * tenths / 10
    }

    #[test]
    fn a_use_goes_on_to_the_next_tensor_or_to_the_end_of_the_pieces() {
        let mut spans = Spans::new();
        assert_eq!(used(&mut spans, &[at(25)]), [2, 3, 4, 5, 6, 7, 8, 9], "no other is known");
        assert_eq!(used(&mut spans, &[at(60)]), [6, 7, 8, 9]);
        assert_eq!(used(&mut spans, &[at(25)]), [2, 3, 4, 5]);
        assert_eq!(used(&mut spans, &[at(201)]), (20..30).collect::<Vec<_>>(), "behind the gap");
        assert_eq!(used(&mut spans, &[at(26), at(25)]), [2, 3, 4, 5], "each once");
        assert_eq!(used(&mut spans, &[at(100), 0, u64::MAX]), [0; 0], "no piece is there");
    }

    #[test]
    fn a_tensor_that_is_gone_divides_no_later_one() {
        let mut spans = Spans::new();
        used(&mut spans, &[at(60)]);
        for _ in 0..2 * LAUNCHES {
            used(&mut spans, &[at(25)]);
        }
        assert_eq!(used(&mut spans, &[at(25)]), [2, 3, 4, 5, 6, 7, 8, 9]);
    }

    proptest! {
        /// Against the definition, with all addresses in mind.
        #[test]
        fn the_pieces_are_those_between_an_argument_and_the_next_known_one(
            launches in proptest::collection::vec(proptest::collection::vec(0..310_u64, 0..4), 1..60),
        ) {
            let (mut spans, mut known) = (Spans::new(), BTreeSet::new());
            for launch in launches {
                let words: Vec<u64> = launch.iter().map(|tenths| at(*tenths)).collect();
                known.extend(words.iter().copied().filter(|word| find(*word).is_some()));
                let mut wanted = BTreeSet::new();
                for word in words.iter().filter(|word| find(**word).is_some()) {
                    let end = known.range(word + 1..).next().copied().unwrap_or(u64::MAX);
                    let first = (word - BASE) / PIECE;
                    let pieces = (first..).take_while(|index| {
                        find(BASE + index * PIECE).is_some() && (BASE + index * PIECE).max(*word) < end
                    });
                    wanted.extend(pieces);
                }
                prop_assert_eq!(used(&mut spans, &words), wanted.into_iter().collect::<Vec<_>>());
            }
        }
    }

    /// Hazard (resource leak): a program with ever new addresses fills the memory of the process.
    #[test]
    fn what_is_remembered_is_bounded() {
        let mut spans = Spans::new();
        for step in 0..50_000_u64 {
            used(&mut spans, &[BASE + step * 4099 % (PIECE * 10)]);
            assert!(spans.now.len() <= MOST && spans.before.len() <= MOST + 1);
        }
    }
}
