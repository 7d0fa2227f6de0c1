//! Graphs: which parameters their kernels have.
//!
//! The driver does not name the kernels that a graph's launch runs. So a block may be written by
//! any launch of any graph, living or not, that has a kernel with an address in the block.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::readers::{FunctionKey, ParameterKey};

/// An address in an argument, and the parameter that it was passed in.
pub type GraphWord = (u64, ParameterKey);

/// Words of all graphs together. Sharing ends when there are more.
const MOST_WORDS: usize = 1 << 20;

/// See above.
#[derive(Debug)]
struct GraphWords {
    words: BTreeSet<GraphWord>,
    /// First and last address, not included, of objects that such a word was in.
    objects: BTreeSet<(u64, u64, ParameterKey)>,
}

/// The graphs of a process.
#[derive(Debug)]
pub struct GraphFacts {
    words: Mutex<GraphWords>,
}

impl Default for GraphFacts {
    fn default() -> Self {
        Self::new()
    }
}

impl GraphFacts {
    /// Without graphs.
    pub const fn new() -> Self {
        Self { words: Mutex::new(GraphWords { words: BTreeSet::new(), objects: BTreeSet::new() }) }
    }

    /// A kernel's argument in a graph, captured or not. Returns `false` if there are too many.
    pub fn add_word(&self, word: GraphWord) -> bool {
        let mut known = self.lock();
        known.words.insert(word);
        known.is_bounded()
    }

    /// The same, and the addresses that the kernel may reach by it, as its object is now.
    pub fn add_object(&self, reach: &Range<u64>, parameter: ParameterKey) -> bool {
        let mut known = self.lock();
        known.objects.insert((reach.start, reach.end, parameter));
        known.is_bounded()
    }

    /// Parameters of any graph's kernels that reach into a range.
    pub fn reaching(&self, range: &Range<u64>) -> BTreeSet<ParameterKey> {
        let known = self.lock();
        let first = ParameterKey { function: FunctionKey(0), offset: 0 };
        let from = known.words.range((range.start, first)..);
        let words = from.take_while(|(address, _)| *address < range.end).map(|(_, parameter)| *parameter);
        let objects = known.objects.iter().take_while(|(start, ..)| *start < range.end);
        let objects = objects.filter(|(_, end, _)| range.start < *end).map(|(.., parameter)| *parameter);
        words.chain(objects).collect()
    }

    fn lock(&self) -> MutexGuard<'_, GraphWords> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GraphWords {
    fn is_bounded(&self) -> bool {
        self.words.len() + self.objects.len() <= MOST_WORDS
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a kernel of a graph writes a block that counts as read only.
    use super::*;

    fn word(address: u64, function: u128) -> GraphWord {
        (address, ParameterKey { function: FunctionKey(function), offset: 8 })
    }

    #[test]
    fn each_parameter_into_the_range_is_named_and_no_other() {
        let facts = GraphFacts::new();
        let words = [word(4096, 1), word(8191, 2), word(8192, 3), word(4095, 4)];
        words.iter().for_each(|word| assert!(facts.add_word(*word)));
        assert_eq!(facts.reaching(&(4096..8192)), [words[0].1, words[1].1].into());
        assert_eq!(facts.reaching(&(4097..8191)), BTreeSet::new());
    }

    #[test]
    fn an_object_is_reached_wherever_a_range_touches_it() {
        let facts = GraphFacts::new();
        let [(_, one), (_, other)] = [word(0, 1), word(0, 2)];
        assert!(facts.add_object(&(4096..12288), one) && facts.add_object(&(8192..9000), other));
        assert_eq!(facts.reaching(&(4000..4096)), BTreeSet::new());
        assert_eq!(facts.reaching(&(4000..4097)), [one].into());
        assert_eq!(facts.reaching(&(8999..20000)), [one, other].into());
        assert_eq!(facts.reaching(&(12287..12288)), [one].into());
        assert_eq!(facts.reaching(&(12288..20000)), BTreeSet::new());
    }

    #[test]
    fn words_without_end_are_refused() {
        let facts = GraphFacts::new();
        facts.words.lock().expect("whole").words = (0..MOST_WORDS as u64).map(|at| word(at, 1)).collect();
        assert!(facts.add_word(word(0, 1)), "a word that is there takes no room");
        assert!(!facts.add_word(word(u64::MAX, 1)));
    }
}
