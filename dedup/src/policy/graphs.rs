//! Graphs: which parameters their kernels have.
//!
//! The driver does not name the kernels that a graph's launch runs. So a block may be written by
//! any launch of any graph, living or not, that has a kernel with an address in the block.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::readers::{FunctionKey, ParameterKey};

/// An address in an argument, and the parameter that it was passed in.
pub type GraphWord = (u64, ParameterKey);

/// Words of all graphs together. Sharing ends when there are more.
const MOST_WORDS: usize = 1 << 20;

/// The graphs of a process.
#[derive(Debug)]
pub struct GraphFacts {
    words: Mutex<BTreeSet<GraphWord>>,
}

impl Default for GraphFacts {
    fn default() -> Self {
        Self::new()
    }
}

impl GraphFacts {
    /// Without graphs.
    pub const fn new() -> Self {
        Self { words: Mutex::new(BTreeSet::new()) }
    }

    /// A kernel's argument in a graph, captured or not. Returns `false` if there are too many.
    pub fn add_word(&self, word: GraphWord) -> bool {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.insert(word);
        words.len() <= MOST_WORDS
    }

    /// Parameters of any graph's kernels that pointed into a range.
    pub fn reaching(&self, range: &Range<u64>) -> BTreeSet<ParameterKey> {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let first = ParameterKey { function: FunctionKey(0), offset: 0 };
        let from = words.range((range.start, first)..);
        from.take_while(|(address, _)| *address < range.end).map(|(_, parameter)| *parameter).collect()
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
    fn words_without_end_are_refused() {
        let facts = GraphFacts::new();
        *facts.words.lock().expect("whole") = (0..MOST_WORDS as u64).map(|at| word(at, 1)).collect();
        assert!(facts.add_word(word(0, 1)), "a word that is there takes no room");
        assert!(!facts.add_word(word(u64::MAX, 1)));
    }
}
