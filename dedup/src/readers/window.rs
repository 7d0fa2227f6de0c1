//! The launches on a block between two fingerprints of it.
//!
//! [`LaunchWindow::add`] is on the path of launches: programs launch the same kernels in the same
//! order again and again, so the entry that followed the last one the time before is looked at
//! first.

use rustc_hash::FxHashMap;

use super::key::ParameterKey;

/// Entries that are searched one by one before there is a map.
const FEW: usize = 16;

/// Parameters that a window tells apart. With more it is as if an unknown function had been
/// launched.
const MOST: usize = 1 << 16;

/// The launches of one block since its chunks were fingerprinted.
#[derive(Debug, Clone, Default)]
pub struct LaunchWindow {
    entries: Vec<Launches>,
    /// Of the last launch.
    last: usize,
    /// Places of all entries, once they are more than [`FEW`].
    places: FxHashMap<ParameterKey, u32>,
    is_unknown: bool,
}

#[derive(Debug, Clone, Copy)]
struct Launches {
    of: ParameterKey,
    /// The entry that was noted after this one when it was noted before.
    next: u32,
}

impl LaunchWindow {
    /// Without launches.
    pub fn new() -> Self {
        Self::default()
    }

    /// A kernel is launched whose parameter points into the block. Returns `true` if it is clear
    /// without a search that the window has the parameter already.
    #[inline]
    pub fn add(&mut self, parameter: ParameterKey) -> bool {
        let next = self.entries.get(self.last).map_or(0, |last| last.next as usize);
        let is_expected = self.entries.get(next).is_some_and(|entry| entry.of == parameter);
        let at = match is_expected {
            true => next,
            false => match self.place(parameter) {
                Some(at) => at,
                None => {
                    self.add_unknown();
                    return false;
                }
            },
        };
        if let Some(last) = self.entries.get_mut(self.last) {
            last.next = at as u32;
        }
        self.last = at;
        is_expected
    }

    /// A kernel is launched that may reach the block and has no key. The window teaches nothing.
    pub fn add_unknown(&mut self) {
        self.is_unknown = true;
    }

    /// Begins anew, and keeps its memory for as many launches again.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.places.clear();
        self.last = 0;
        self.is_unknown = false;
    }

    /// Was a kernel launched that has no key?
    pub fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// Was no kernel launched?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && !self.is_unknown
    }

    /// Each parameter once, in the order of the first launches.
    pub fn parameters(&self) -> impl Iterator<Item = ParameterKey> {
        self.entries.iter().map(|entry| entry.of)
    }

    /// Index of the parameter's entry, an old or a new one; none if there are too many.
    fn place(&mut self, parameter: ParameterKey) -> Option<usize> {
        if self.entries.len() <= FEW {
            if let Some(at) = self.entries.iter().position(|entry| entry.of == parameter) {
                return Some(at);
            }
        } else if let Some(at) = self.places.get(&parameter) {
            return Some(*at as usize);
        }
        self.append(parameter)
    }

    fn append(&mut self, parameter: ParameterKey) -> Option<usize> {
        let at = self.entries.len();
        if at == MOST {
            return None;
        }
        self.entries.push(Launches { of: parameter, next: at as u32 });
        if self.entries.len() == FEW + 1 {
            let places = self.entries.iter().enumerate().map(|(at, entry)| (entry.of, at as u32));
            self.places = places.collect();
        } else if self.entries.len() > FEW {
            self.places.insert(parameter, at as u32);
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a launch is noted for another parameter, or not at all. The model is
    //! a set.

    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::key::FunctionKey;
    use super::*;

    fn parameter(number: u64) -> ParameterKey {
        ParameterKey { function: FunctionKey(u128::from(number / 3)), offset: (number % 3) as u32 * 8 }
    }

    proptest! {
        #[test]
        fn parameters_are_those_of_a_set(
            launches in prop::collection::vec(prop_oneof![0..5_u64, 0..60_u64], 0..300), rounds in 1..4,
        ) {
            let (mut window, mut model) = (LaunchWindow::new(), BTreeSet::new());
            for launch in (0..rounds).flat_map(|_| &launches) {
                window.add(parameter(*launch));
                model.insert(parameter(*launch));
            }
            prop_assert_eq!(window.parameters().count(), model.len());
            prop_assert_eq!(window.parameters().collect::<BTreeSet<_>>(), model.clone());
            prop_assert!(!window.is_unknown());
            window.add_unknown();
            window.clear();
            prop_assert!(window.is_empty());
            for launch in &launches {
                window.add(parameter(*launch));
            }
            prop_assert_eq!(window.parameters().collect::<BTreeSet<_>>(), model);
        }
    }

    #[test]
    fn endless_functions_are_unknown_ones() {
        let mut window = LaunchWindow::new();
        for number in 0..MOST as u64 {
            window.add(parameter(number));
        }
        assert!(!window.is_unknown());
        window.add(parameter(MOST as u64));
        assert!(window.is_unknown());
        assert_eq!(window.parameters().count(), MOST);
    }
}
