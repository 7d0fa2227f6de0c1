//! How far a kernel's use of the program's own memory goes on from the address that its arguments
//! name.
//!
//! The driver does not know where a tensor ends, but where the next one begins is seen: it is an
//! argument of some launch. So a use reaches from the argument up to the next address that is
//! another tensor's, or to the end of the pieces that follow each other without a gap. A framework
//! gives the memory of a tensor to others, later. While a tensor lives none begins inside of it: so
//! an address that was no argument since the tensor was used before is no border of it. At its first
//! use that is not known yet, and what the same kernel wrote at the same address the last time tells.
//! A wrong guess costs time, and never bytes.
//!
//! Invariant: at most [`MOST`] addresses are remembered, and each for [`LAUNCHES`] at least.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::touched_groups::TouchedGroups;
use crate::launches::TouchedBlock;

/// Launches after which an address may be forgotten.
const LAUNCHES: u64 = 1 << 14;

/// Addresses: of more than these all but the latest are forgotten early.
const MOST: usize = 1 << 15;

/// Launches between two uses of a tensor that belong together: the kernels of one operation.
const BURST: u64 = 32;

/// Addresses that are looked at for a border.
const LOOKS: usize = 256;

/// Kernels of which it is remembered how far they have gone on from an address.
const KERNELS: usize = 4;

/// Launches that have named an address.
#[derive(Debug)]
struct Naming {
    last: u64,
    /// The first one of the uses that belong together with the last, and of those before.
    burst: u64,
    before: u64,
    /// The kernels of these uses, and the end that was guessed.
    kernels: SmallVec<[u64; 2]>,
    end: u64,
    /// Kernels of which later uses have shown another end than was seen at theirs.
    learned: SmallVec<[(u64, u64); 2]>,
}

impl Naming {
    fn new(launch: u64) -> Self {
        let (kernels, learned) = (SmallVec::new(), SmallVec::new());
        Self { last: launch, burst: launch, before: 0, kernels, end: 0, learned }
    }

    /// Later uses begin. Returns the kernels of those before, and the end that was guessed then.
    fn begin_burst(&mut self, launch: u64) -> (SmallVec<[u64; 2]>, u64) {
        (self.before, self.burst) = (self.burst, launch);
        (std::mem::take(&mut self.kernels), std::mem::replace(&mut self.end, 0))
    }

    /// The uses before, by these kernels, went on to `guessed`. The border of the later ones is
    /// farther if no other tensor has begun since; else the guess was too far, or the tensor is
    /// another one.
    fn learn(&mut self, kernels: &[u64], guessed: u64, border: u64) {
        if guessed == border {
            return;
        }
        self.learned.retain(|(kernel, _)| !kernels.contains(kernel));
        if border > guessed {
            let spare = KERNELS.saturating_sub(self.learned.len());
            self.learned.extend(kernels.iter().take(spare).map(|kernel| (*kernel, border)));
        }
    }

    /// The end of a use by this kernel, where the border is known.
    fn use_by(&mut self, kernel: u64, border: u64) -> u64 {
        let learned = self.learned.iter().find(|(other, _)| *other == kernel).map_or(0, |(_, end)| *end);
        if self.kernels.len() < KERNELS && !self.kernels.contains(&kernel) {
            self.kernels.push(kernel);
        }
        self.end = border.max(learned);
        self.end
    }
}

/// The addresses in pieces that launches have named lately.
#[derive(Debug, Default)]
pub(super) struct Spans {
    named: BTreeMap<u64, Naming>,
    launch: u64,
    swept: u64,
}

impl Spans {
    pub(super) const fn new() -> Self {
        Self { named: BTreeMap::new(), launch: 0, swept: 0 }
    }

    /// Adds the pieces that a launch of this kernel with these words uses, each once, lowest address
    /// first. Those of one tensor are one group.
    pub(super) fn add_pieces(
        &mut self,
        kernel: u64,
        words: impl Iterator<Item = u64>,
        find: impl Fn(u64) -> Option<TouchedBlock>,
        used: &mut TouchedGroups,
    ) {
        self.begin_launch();
        let words: BTreeSet<u64> = words.filter(|word| find(*word).is_some()).collect();
        words.iter().for_each(|word| self.note(*word));
        let mut done = 0;
        for word in words {
            let end = self.end(word, kernel);
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
        self.launch += 1;
        if self.launch - self.swept >= LAUNCHES {
            let swept = std::mem::replace(&mut self.swept, self.launch);
            self.named.retain(|_, naming| naming.last > swept);
        }
    }

    fn note(&mut self, word: u64) {
        if self.named.len() >= MOST {
            let recent = self.launch.saturating_sub(LAUNCHES / 8);
            self.named.retain(|_, naming| naming.last > recent);
            if self.named.len() >= MOST {
                self.named.clear();
            }
        }
        let launch = self.launch;
        let naming = self.named.entry(word).or_insert_with(|| Naming::new(launch));
        let is_later = launch - naming.last > BURST;
        naming.last = launch;
        if !is_later {
            return;
        }
        let (kernels, end) = naming.begin_burst(launch);
        let border = self.border(word);
        if let Some(naming) = self.named.get_mut(&word) {
            naming.learn(&kernels, end, border);
        }
    }

    /// Where the tensor at an address ends at the latest.
    fn border(&self, word: u64) -> u64 {
        let since = self.named.get(&word).map_or(0, |naming| naming.before);
        let mut behind = self.named.range(word.saturating_add(1)..).take(LOOKS).enumerate();
        let border = behind.find(|(number, (_, naming))| naming.last >= since || number + 1 == LOOKS);
        border.map_or(u64::MAX, |(_, (address, _))| *address)
    }

    fn end(&mut self, word: u64, kernel: u64) -> u64 {
        let border = self.border(word);
        self.named.get_mut(&word).map_or(border, |naming| naming.use_by(kernel, border))
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
        used_by(spans, 0, words)
    }

    fn used_by(spans: &mut Spans, kernel: u64, words: &[u64]) -> Vec<u64> {
        let mut groups = TouchedGroups::default();
        spans.add_pieces(kernel, words.iter().copied(), find, &mut groups);
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

    /// Hazard (silent degradation): a tensor whose memory is given to a smaller one in between never
    /// comes as a whole.
    #[test]
    fn a_tensor_that_begins_in_dead_memory_does_not_divide_a_live_one() {
        let mut spans = Spans::new();
        let mut step = || {
            let mut launch = |kernel, words: &[u64]| {
                (0..BURST).for_each(|_| drop(used(&mut spans, &[])));
                used_by(&mut spans, kernel, words).len()
            };
            launch(1, &[at(60)]);
            (launch(2, &[at(0)]), launch(3, &[at(0)]))
        };
        assert_eq!(step(), (6, 10), "no other has begun between its two uses");
        assert_eq!((step(), step()), ((10, 10), (10, 10)), "and it was as long the last time");
    }

    proptest! {
        /// Against the definition, with all launches in mind.
        #[test]
        fn the_pieces_are_those_between_an_argument_and_the_next_of_another_live_tensor(
            launches in proptest::collection::vec(
                (0..2 * BURST, proptest::collection::vec(0..310_u64, 0..4)), 1..60),
        ) {
            let (mut spans, mut known, mut launch) = (Spans::new(), Vec::new(), 0);
            for (pause, launched) in launches {
                (0..pause).for_each(|_| drop(used(&mut spans, &[])));
                launch += pause + 1;
                let words: Vec<u64> = launched.iter().map(|tenths| at(*tenths)).collect();
                let named: BTreeSet<u64> = words.iter().copied().filter(|word| find(*word).is_some()).collect();
                known.extend(named.iter().map(|word| (*word, launch)));
                let mut wanted = BTreeSet::new();
                for word in &named {
                    let uses: Vec<u64> = known.iter().filter(|(other, _)| other == word).map(|(_, at)| *at).collect();
                    let bursts: Vec<u64> = (0..uses.len())
                        .filter(|index| *index == 0 || uses[*index] - uses[index - 1] > BURST)
                        .map(|index| uses[index])
                        .collect();
                    let since = if bursts.len() > 1 { bursts[bursts.len() - 2] } else { 0 };
                    let borders = known.iter().filter(|(other, at)| other > word && *at >= since);
                    let end = borders.map(|(other, _)| *other).min().unwrap_or(u64::MAX);
                    let first = (word - BASE) / PIECE;
                    let pieces = (first..).take_while(|index| {
                        find(BASE + index * PIECE).is_some() && (BASE + index * PIECE).max(*word) < end
                    });
                    wanted.extend(pieces);
                }
                // No kernel is launched twice, so none is known.
                let found = used_by(&mut spans, launch, &words);
                prop_assert_eq!(found, wanted.into_iter().collect::<Vec<_>>());
            }
        }

        #[test]
        fn what_is_remembered_is_bounded(words in proptest::collection::vec(0..PIECE * 10, 1..200)) {
            let mut spans = Spans::new();
            for word in words.iter().cycle().zip(0..40_000_u64).map(|(word, step)| (word + step * 4099) % (PIECE * 10)) {
                used(&mut spans, &[BASE + word]);
                prop_assert!(spans.named.len() <= MOST);
            }
        }
    }
}
