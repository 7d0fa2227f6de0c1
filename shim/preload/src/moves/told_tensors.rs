//! The tensors of which the program's allocator tells, as PyTorch's does. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

/// Live tensors, by begin. None overlaps another.
#[derive(Debug)]
pub(super) struct ToldTensors(BTreeMap<u64, ToldTensor>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ToldTensor {
    pub(super) end: u64,
    /// The last launch before it was made.
    pub(super) born: u64,
}

/// What was told of an address.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ToldPlace {
    /// A tensor begins there.
    Begin(ToldTensor),
    /// It is in a tensor, or before one, that ends or begins there: no use of it goes on beyond.
    Before(u64),
    /// There is none beyond.
    Unknown,
}

impl ToldTensors {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// A tensor lies in a range, since that launch. Those that overlap it are gone, although it was
    /// not told.
    pub(super) fn made(&mut self, tensor: Range<u64>, born: u64) {
        let last = |tensors: &BTreeMap<u64, ToldTensor>| {
            let (start, other) = tensors.range(..tensor.end).next_back()?;
            (other.end > tensor.start).then_some(*start)
        };
        while let Some(start) = last(&self.0) {
            self.0.remove(&start);
        }
        if !tensor.is_empty() {
            self.0.insert(tensor.start, ToldTensor { end: tensor.end, born });
        }
    }

    /// The tensor that begins at an address is gone.
    pub(super) fn freed(&mut self, start: u64) {
        self.0.remove(&start);
    }

    pub(super) fn at(&self, address: u64) -> ToldPlace {
        match self.0.range(..=address).next_back() {
            Some((start, tensor)) if *start == address => ToldPlace::Begin(*tensor),
            Some((_, tensor)) if address < tensor.end => ToldPlace::Before(tensor.end),
            _ => {
                let next = self.0.range(address..).next();
                next.map_or(ToldPlace::Unknown, |(next, _)| ToldPlace::Before(*next))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): what a kernel uses counts as unused, and stays on the host.
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_is_a_tensors_begin_or_before_an_end() {
        let mut tensors = ToldTensors::new();
        tensors.made(100..200, 1);
        tensors.made(300..900, 2);
        let (one, other) = (ToldTensor { end: 200, born: 1 }, ToldTensor { end: 900, born: 2 });
        assert_eq!([100, 300].map(|at| tensors.at(at)), [one, other].map(ToldPlace::Begin));
        assert_eq!([50, 150, 200, 899].map(|at| tensors.at(at)), [100, 200, 300, 900].map(ToldPlace::Before));
        assert_eq!(tensors.at(900), ToldPlace::Unknown);
        tensors.freed(300);
        assert_eq!([200, 300].map(|at| tensors.at(at)), [ToldPlace::Unknown, ToldPlace::Unknown]);
    }

    proptest! {
        /// Hazard (resource leak): tensors whose frees are not told stay for ever, or are believed
        /// in beside the ones that have their place.
        #[test]
        fn none_overlaps_another(made in proptest::collection::vec((0..100_u64, 0..20_u64), 0..60)) {
            let mut tensors = ToldTensors::new();
            for (start, bytes) in made {
                let end = start + bytes;
                tensors.made(start..end, 7);
                let all: Vec<_> = tensors.0.iter().collect();
                prop_assert!(all.windows(2).all(|pair| pair[0].1.end <= *pair[1].0), "{all:?}");
                let begin = ToldPlace::Begin(ToldTensor { end, born: 7 });
                prop_assert!(bytes == 0 || tensors.at(start) == begin);
            }
        }
    }
}
