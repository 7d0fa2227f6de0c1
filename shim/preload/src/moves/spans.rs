//! How far a kernel's use of the program's own memory goes on from the address that its arguments
//! name.
//!
//! Where PyTorch's allocator tells of its tensors ([`super::told_tensors`]), a use of a tensor's
//! begin is one of all of it, and no use goes on into another one. A tensor of which parts are
//! named, as a buffer of many parameters is, is used whole only if the launch's own numbers say so.
//!
//! Else the end is guessed. The driver does not know where a tensor ends, but where another one
//! begins is seen: it is an argument of some launch, a *border*. A use reaches to the nearest
//! border, or to the end of the pieces that follow each other without a gap, but over [`UNSURE`]
//! bytes at most, if nothing tells more. Three things do:
//!
//! * *Sizes*: if a border lies as far away as the launch's own numbers say
//!   ([`super::sizes`]), the use reaches to it, over the borders of tensors that are gone or of
//!   parts of this one. A border that was named since the address was named last is neither, unless
//!   no nearer border fits.
//! * *The last use*: one that reached farther stands until a border within it is named.
//! * *The same kernel, one period ago*: how far the tensor was used in its life that it wrote or
//!   read there ([`super::tensor_life`]), if that is a plausible size.
//!
//! On the launches of four trainings the nearest border alone gave 32 to 83 % of the bytes of their
//! tensors, and this gives 72 to 92 %. In a mixture of experts, with addresses that become known
//! late, a use reached over 120 bytes beside each one that it had without the bound, and over 1.9
//! with it. A wrong guess costs time, and never bytes.
//!
//! Invariants: addresses count for one generation at least and two at most, so that a tensor that
//! is gone divides no later one; there are at most [`MOST`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use smallvec::SmallVec;

use super::sizes::PlausibleSizes;
use super::tensor_life::TensorLife;
use super::told_tensors::{ToldPlace, ToldTensor, ToldTensors};
use super::touched_groups::TouchedGroups;
use crate::launches::TouchedBlock;

/// Launches of a generation.
const LAUNCHES: u64 = 1 << 14;

/// Addresses: a program that names more begins the next generation early.
const MOST: usize = 1 << 15;

/// An address that is nearer is a part of the same tensor: allocators have other pools for small
/// tensors, and kernels name columns and tiles of a large one.
const NEAR: u64 = 1 << 20;

/// Tensors are taken for no larger where neither a size nor an earlier use tells.
const UNSURE: u64 = 64 << 20;

/// Borders that are looked at for one that fits.
const LOOKS: usize = 32;

/// An address that launches have named.
#[derive(Debug, Clone, Default)]
struct NamedAddress {
    /// The launch that named it last; 0: none before the present one.
    last: u64,
    /// How far the use of that launch reached.
    end: u64,
    life: TensorLife,
}

/// The kernel of a launch, by its handle, and the numbers among its arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct SizedKernel<'a> {
    pub(super) kernel: u64,
    pub(super) numbers: &'a [u32],
}

/// The addresses in pieces that launches have named lately.
#[derive(Debug)]
pub(super) struct Spans {
    told: ToldTensors,
    named: BTreeMap<u64, NamedAddress>,
    launch: u64,
}

impl Spans {
    pub(super) const fn new() -> Self {
        Self { told: ToldTensors::new(), named: BTreeMap::new(), launch: 0 }
    }

    /// Adds the pieces that a launch with these words uses, each once, lowest address first. Those
    /// of one tensor are one group.
    pub(super) fn add_pieces(
        &mut self,
        words: impl Iterator<Item = u64>,
        by: SizedKernel<'_>,
        find: impl Fn(u64) -> Option<TouchedBlock>,
        used: &mut TouchedGroups,
    ) {
        self.begin_launch();
        let words: BTreeSet<u64> = words.filter(|word| !is_pair(*word) && find(*word).is_some()).collect();
        if words.is_empty() {
            return;
        }
        let is_half =
            |number: u32| words.iter().any(|word| [*word as u32, (*word >> 32) as u32].contains(&number));
        let numbers: SmallVec<[u32; 12]> =
            by.numbers.iter().copied().filter(|number| !is_half(*number)).collect();
        let sizes = PlausibleSizes::of(&numbers, NEAR);
        for word in &words {
            self.named.entry(*word).or_default();
        }
        let mut done = 0;
        for word in &words {
            let beside = words.range(word.saturating_add(NEAR)..).next().copied();
            let guess = self.end_of(*word, beside, by.kernel, &sizes);
            let end = self.told_end(*word, guess, &sizes);
            let mut at = done.max(*word);
            while let Some(piece) = find(at).filter(|_| at < end) {
                at = piece.address + piece.bytes;
                used.push(piece);
            }
            used.end_group();
            done = at;
            self.named.entry(*word).and_modify(|address| address.end = end);
        }
        for word in words {
            self.named.entry(word).and_modify(|address| address.last = self.launch);
        }
    }

    /// The allocator has made a tensor.
    pub(super) fn tensor_made(&mut self, tensor: Range<u64>) {
        self.told.made(tensor, self.launch);
    }

    /// The tensor that begins there is gone.
    pub(super) fn tensor_freed(&mut self, start: u64) {
        self.told.freed(start);
    }

    /// Where the use of an address ends by what the allocator tells, and by a guess.
    fn told_end(&self, word: u64, guess: u64, sizes: &PlausibleSizes) -> u64 {
        match self.told.at(word) {
            ToldPlace::Begin(tensor) if sizes.has(tensor.end - word) || !self.has_parts(word, tensor) => {
                tensor.end
            }
            ToldPlace::Begin(ToldTensor { end, .. }) | ToldPlace::Before(end) => guess.min(end),
            ToldPlace::Unknown => guess,
        }
    }

    /// Have launches named addresses within a tensor since it was made?
    fn has_parts(&self, start: u64, tensor: ToldTensor) -> bool {
        let from = start.saturating_add(NEAR).min(tensor.end);
        self.named.range(from..tensor.end).take(LOOKS).any(|(_, part)| part.last > tensor.born)
    }

    fn begin_launch(&mut self) {
        self.launch += 1;
        if self.launch.is_multiple_of(LAUNCHES) {
            self.forget_before(self.launch - LAUNCHES);
        }
        if self.named.len() >= MOST {
            self.forget_before(self.launch.saturating_sub(LAUNCHES / 4));
        }
        if self.named.len() >= MOST {
            self.named.clear();
        }
    }

    fn forget_before(&mut self, launch: u64) {
        self.named.retain(|_, address| address.last >= launch);
    }

    /// Where the use of an address ends. `beside`: the next address of the same launch.
    fn end_of(&mut self, word: u64, beside: Option<u64>, kernel: u64, sizes: &PlausibleSizes) -> u64 {
        let (last, before) = self.named.get(&word).map_or((0, 0), |address| (address.last, address.end));
        let is_fresh = |border: &NamedAddress| last == 0 || border.last >= last;
        let (mut nearest, mut fresh, mut fits) = (None, beside, None);
        for (border, named) in self.named.range(word.saturating_add(NEAR)..).take(LOOKS) {
            nearest = nearest.or(Some(*border));
            if is_fresh(named) {
                fresh = Some(fresh.map_or(*border, |other: u64| other.min(*border)));
            }
            let is_beyond = fresh.is_some_and(|fresh| *border > fresh);
            if is_beyond && fits.is_some() {
                break;
            }
            if sizes.has(border - word) {
                fits = Some(*border);
            }
        }
        let unsure = word.saturating_add(UNSURE).min(nearest.unwrap_or(u64::MAX));
        let end = fits.unwrap_or(unsure);
        let lives_on = last > 0 && fresh.is_none_or(|fresh| fresh >= before);
        let end = if lives_on { end.max(before) } else { end };
        let end = beside.map_or(end, |beside| end.min(beside));
        self.end_in_life(word, fresh, end, (kernel, sizes))
    }

    /// The same, with what later uses of such a tensor have shown. `fresh`: where another begins.
    fn end_in_life(
        &mut self,
        word: u64,
        fresh: Option<u64>,
        end: u64,
        (kernel, sizes): (u64, &PlausibleSizes),
    ) -> u64 {
        let Some(NamedAddress { life, .. }) = self.named.get_mut(&word) else { return end };
        life.meet(fresh);
        let known = life.end_by(kernel).filter(|known| *known > end && sizes.has(*known - word));
        let end = known.unwrap_or(end);
        life.note(kernel, end);
        end
    }
}

/// Two small numbers side by side look like an address where a program's addresses are low. Few
/// tensors begin at such ones.
fn is_pair(word: u64) -> bool {
    word as u32 >> 16 == 0 || word & ((1 << 30) - 1) == 0
}

#[cfg(test)]
mod tests {
    //! Hazard (thrashing): pieces that a kernel uses count as unused and leave the device, or all
    //! pieces behind a pointer count as used and none can leave.
    use proptest::prelude::*;

    use super::*;

    const PIECE: u64 = 19 << 20;
    const BASE: u64 = 0x7f00_1230_0000;

    /// Ten pieces side by side, and ten behind a gap.
    fn find(address: u64) -> Option<TouchedBlock> {
        let index = address.checked_sub(BASE)? / PIECE;
        let is_piece = index < 10 || (20..30).contains(&index);
        is_piece.then_some(TouchedBlock { address: BASE + index * PIECE, bytes: PIECE, id: index, device: 0 })
    }

    fn used(spans: &mut Spans, words: &[u64]) -> Vec<u64> {
        used_with(spans, words, &[])
    }

    fn used_with(spans: &mut Spans, words: &[u64], numbers: &[u32]) -> Vec<u64> {
        used_by(spans, 0, words, numbers)
    }

    fn used_by(spans: &mut Spans, kernel: u64, words: &[u64], numbers: &[u32]) -> Vec<u64> {
        let mut groups = TouchedGroups::default();
        spans.add_pieces(words.iter().copied(), SizedKernel { kernel, numbers }, find, &mut groups);
        groups.iter().flatten().map(|piece| piece.id).collect()
    }

    fn at(tenths: u64) -> u64 {
        BASE + PIECE * tenths / 10
    }

    #[test]
    fn a_use_goes_on_to_the_next_tensor_or_to_the_end_of_the_pieces() {
        let mut spans = Spans::new();
        assert_eq!(used(&mut spans, &[at(25)]), [2, 3, 4, 5], "no other is known");
        assert_eq!(used(&mut spans, &[at(80)]), [8, 9], "the pieces end");
        used(&mut spans, &[at(40)]);
        assert_eq!(used(&mut spans, &[at(25)]), [2, 3]);
        assert_eq!(used(&mut spans, &[at(201)]), [20, 21, 22, 23], "behind the gap");
        assert_eq!(used(&mut spans, &[at(26), at(25)]), [2, 3], "each once");
        assert_eq!(used(&mut spans, &[at(100), 0, u64::MAX]), [0; 0], "no piece is there");
    }

    /// Hazard (silent degradation): a tensor is taken for smaller than it is, since nothing shows
    /// where it ends, and the rest of it stays on the host.
    #[test]
    fn a_tensor_that_was_told_is_used_whole() {
        let mut spans = Spans::new();
        used(&mut spans, &[at(40)]);
        spans.tensor_made(at(5)..at(75));
        assert_eq!(used(&mut spans, &[at(5)]), [0, 1, 2, 3, 4, 5, 6, 7], "the one at 40 is gone");
        assert_eq!(used(&mut spans, &[at(80)]), [8, 9], "another one");
        assert_eq!(used(&mut spans, &[at(62)]), [6, 7], "no farther than to its end");
        assert_eq!(used(&mut spans, &[at(5)]), [0, 1, 2, 3], "it has parts");
        assert_eq!(
            used_with(&mut spans, &[at(5)], &elements(7)),
            [0, 1, 2, 3, 4, 5, 6, 7],
            "but for this one"
        );
        spans.tensor_freed(at(5));
        spans.tensor_made(at(5)..at(75));
        assert_eq!(used(&mut spans, &[at(5)]), [0, 1, 2, 3, 4, 5, 6, 7], "those were another one's");
    }

    #[test]
    fn a_tensor_that_is_gone_divides_no_later_one() {
        let mut spans = Spans::new();
        used(&mut spans, &[at(40)]);
        for _ in 0..2 * LAUNCHES {
            used(&mut spans, &[at(25)]);
        }
        assert_eq!(used(&mut spans, &[at(25)]), [2, 3, 4, 5]);
    }

    /// Elements of 4 bytes in so many pieces.
    fn elements(pieces: u64) -> [u32; 3] {
        [3, 4096, (pieces * PIECE / 4) as u32]
    }

    #[test]
    fn a_use_goes_as_far_as_the_launchs_numbers_say_over_borders_of_tensors_that_are_gone() {
        let mut spans = Spans::new();
        used(&mut spans, &[at(20), at(40), at(60)]);
        assert_eq!(used_with(&mut spans, &[at(0)], &elements(6)), [0, 1, 2, 3, 4, 5], "a border fits");
        assert_eq!(used(&mut spans, &[at(0)]), [0, 1, 2, 3, 4, 5], "the last use stands");
        assert_eq!(used(&mut spans, &[at(20)]), [2, 3], "another tensor begins there");
        assert_eq!(used(&mut spans, &[at(0)]), [0, 1], "which ended the first one");
        assert_eq!(used_with(&mut spans, &[at(0)], &elements(5)), [0, 1], "no border fits");
    }

    #[test]
    fn of_borders_that_fit_the_farthest_counts_that_no_fresh_one_is_before() {
        let mut spans = Spans::new();
        used(&mut spans, &[at(0), at(20), at(40), at(80)]);
        let numbers = [elements(2), elements(4), elements(8)].concat();
        assert_eq!(used_with(&mut spans, &[at(0)], &numbers), [0, 1], "20 was named with it");
        let mut spans = Spans::new();
        used(&mut spans, &[at(20), at(40), at(80)]);
        used(&mut spans, &[at(0)]);
        used(&mut spans, &[at(80)]);
        assert_eq!(used_with(&mut spans, &[at(0)], &numbers), [0, 1, 2, 3, 4, 5, 6, 7], "80 alone is fresh");
    }

    /// Hazard (thrashing): in each step a tensor is taken for the half of it that has another one's
    /// place at another time.
    #[test]
    fn a_tensor_is_as_large_as_later_uses_showed_in_the_last_period() {
        let mut spans = Spans::new();
        let numbers = [elements(3), elements(6)].concat();
        used(&mut spans, &[at(30), at(60)]);
        let mut period = || {
            let firsts = [1, 2].map(|kernel| used_by(&mut spans, kernel, &[at(0)], &numbers).len());
            used_by(&mut spans, 3, &[at(30)], &numbers);
            used_by(&mut spans, 4, &[at(60)], &numbers);
            firsts
        };
        assert_eq!(period(), [3, 6], "the border at 30 is fresh at first");
        assert_eq!(period(), [6, 6]);
        assert_eq!(used_by(&mut spans, 5, &[at(0)], &numbers).len(), 3, "an unknown kernel");
    }

    /// Hazard (silent degradation): numbers count as uses of tensors that a kernel does not use.
    #[test]
    fn two_numbers_in_a_word_are_no_address() {
        let find = |address: u64| {
            Some(TouchedBlock { address: address / PIECE * PIECE, bytes: PIECE, id: 1, device: 0 })
        };
        let used = |word: u64| {
            let mut groups = TouchedGroups::default();
            let by = SizedKernel { kernel: 0, numbers: &[] };
            Spans::new().add_pieces([word].into_iter(), by, find, &mut groups);
            groups.iter().count()
        };
        assert_eq!([0x4_0000_0006, 0x5_8000_0000, 0x5_8000_0200, 0x5_0001_0000].map(used), [0, 0, 1, 1]);
    }

    /// Hazard (thrashing): the half of an address passes for a number of elements.
    #[test]
    fn halves_of_addresses_are_no_sizes() {
        const LOW: u64 = BASE;
        let find = |address: u64| {
            (LOW..LOW + 16 * PIECE).contains(&address).then(|| {
                let index = (address - LOW) / PIECE;
                TouchedBlock { address: LOW + index * PIECE, bytes: PIECE, id: index, device: 0 }
            })
        };
        let mut spans = Spans::new();
        let mut used = |word: u64, numbers: &[u32]| {
            let mut groups = TouchedGroups::default();
            spans.add_pieces([word].into_iter(), SizedKernel { kernel: 0, numbers }, find, &mut groups);
            groups.iter().flatten().count()
        };
        let half = LOW as u32;
        assert_eq!([used(LOW + u64::from(half), &[]), used(LOW + PIECE, &[])], [1, 4]);
        assert_eq!(used(LOW, &[half]), 1, "not to the address that lies as far away");
        assert_eq!(used(LOW, &[half + 512]), 1);
    }

    #[test]
    fn an_address_near_by_is_a_part_of_the_same_tensor() {
        let mut spans = Spans::new();
        assert_eq!(used(&mut spans, &[at(0), at(0) + 512, at(20)]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(used(&mut spans, &[at(0)]), [0, 1]);
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
                    let next = known.range(word + 1..).next().copied().unwrap_or(u64::MAX);
                    let end = next.min(word + UNSURE);
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
            assert!(spans.named.len() <= MOST + 1);
        }
    }

    /// Hazard (process crash): a fused optimizer names hundreds of tensors a launch, from the first
    /// one on.
    #[test]
    fn many_addresses_of_few_launches_are_bounded() {
        let mut spans = Spans::new();
        for launch in 0..200_u64 {
            let words: Vec<u64> = (0..400).map(|word| BASE + (launch * 400 + word) * 2000).collect();
            used(&mut spans, &words);
            assert!(spans.named.len() <= MOST + words.len());
        }
    }
}
