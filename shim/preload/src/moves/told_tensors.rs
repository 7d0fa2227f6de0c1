//! The tensors of which the program's allocator tells, as PyTorch's does. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

/// Live tensors, end by begin. None overlaps another.
#[derive(Debug)]
pub(super) struct ToldTensors(BTreeMap<u64, u64>);

impl ToldTensors {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// A tensor lies in a range. Those that overlap it are gone, although it was not told.
    pub(super) fn made(&mut self, tensor: Range<u64>) {
        let last = |tensors: &BTreeMap<u64, u64>| {
            let (start, end) = tensors.range(..tensor.end).next_back()?;
            (*end > tensor.start).then_some(*start)
        };
        while let Some(start) = last(&self.0) {
            self.0.remove(&start);
        }
        if !tensor.is_empty() {
            self.0.insert(tensor.start, tensor.end);
        }
    }

    /// The tensor that begins at an address is gone.
    pub(super) fn freed(&mut self, start: u64) {
        self.0.remove(&start);
    }

    /// Where the use of an address ends, which was guessed. That of a tensor's begin is one of all
    /// of it, and no use goes on into another one.
    pub(super) fn end_of_use(&self, address: u64, guess: u64) -> u64 {
        match self.0.range(..=address).next_back() {
            Some((start, end)) if *start == address => *end,
            Some((_, end)) if address < *end => guess.min(*end),
            _ => self.0.range(address..).next().map_or(guess, |(next, _)| guess.min(*next)),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): what a kernel uses counts as unused, and stays on the host.
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_use_is_of_the_whole_tensor_and_of_no_other() {
        let mut tensors = ToldTensors::new();
        tensors.made(100..200);
        tensors.made(300..900);
        let ends = |tensors: &ToldTensors, guess| {
            [100, 150, 200, 300, 500, 900].map(|at| tensors.end_of_use(at, guess))
        };
        assert_eq!(ends(&tensors, 250), [200, 200, 250, 900, 250, 250]);
        assert_eq!(ends(&tensors, 1000), [200, 200, 300, 900, 900, 1000]);
        tensors.freed(300);
        assert_eq!(ends(&tensors, 1000), [200, 200, 1000, 1000, 1000, 1000]);
    }

    proptest! {
        /// Hazard (resource leak): tensors whose frees are not told stay for ever, or are believed
        /// in beside the ones that have their place.
        #[test]
        fn none_overlaps_another(made in proptest::collection::vec((0..100_u64, 0..20_u64), 0..60)) {
            let mut tensors = ToldTensors::new();
            for (start, bytes) in made {
                tensors.made(start..start + bytes);
                let all: Vec<_> = tensors.0.iter().collect();
                prop_assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{all:?}");
                prop_assert!(bytes == 0 || tensors.end_of_use(start, 0) == start + bytes);
            }
        }
    }
}
