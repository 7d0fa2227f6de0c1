//! Graphs: which parameters their kernels have, and which of them were launched.
//!
//! The driver does not name the kernels that a graph's launch runs. Two questions are answered
//! here:
//!
//! * Which parameters of any graph, living or not, held an address in a range? A block there may
//!   be written by any launch of a graph.
//! * Which parameters did a launch certainly run? Only these count as launches of a reader. The
//!   answer is known for a graph that was captured alone and not changed since. It is unknown for
//!   other graphs, such as those that are made node by node.
//!
//! Invariant: in doubt a graph proves nothing. No lock is held between calls.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;

use crate::readers::{FunctionKey, ParameterKey};

/// An address in an argument, and the parameter that it was passed in.
pub type GraphWord = (u64, ParameterKey);

/// A graph's handle, as the driver numbers it.
pub type GraphHandle = usize;

/// Words of all graphs together. Sharing ends when there are more.
const MOST_WORDS: usize = 1 << 20;

/// The launches of each executable graph when it was last asked about, by the graph's number.
#[derive(Debug, Clone, Default)]
pub struct SeenLaunches(HashMap<u64, u64, FxBuildHasher>);

/// The kernels of one capture.
#[derive(Debug, Default)]
struct CapturedKernels {
    count: u64,
    words: BTreeSet<GraphWord>,
}

/// The graphs that are not executable yet.
#[derive(Debug)]
struct GraphBook {
    captures: u32,
    /// Several captures were open at a time, so a word may belong to any of them.
    is_mixed: bool,
    captured: CapturedKernels,
    graphs: HashMap<GraphHandle, Arc<CapturedKernels>, FxBuildHasher>,
    ever: BTreeSet<GraphWord>,
    last_number: u64,
}

/// An executable graph with known kernels.
#[derive(Debug)]
struct ExecutableGraph {
    number: u64,
    kernels: Arc<CapturedKernels>,
    launches: AtomicU64,
}

/// The graphs of a process.
#[derive(Debug)]
pub struct GraphFacts {
    book: Mutex<GraphBook>,
    executables: OnceLock<DashMap<GraphHandle, Arc<ExecutableGraph>, FxBuildHasher>>,
    /// Of any graph.
    launches: AtomicU64,
}

impl Default for GraphFacts {
    fn default() -> Self {
        Self::new()
    }
}

impl GraphFacts {
    /// Without graphs.
    pub const fn new() -> Self {
        let captured = CapturedKernels { count: 0, words: BTreeSet::new() };
        let book = GraphBook {
            captures: 0,
            is_mixed: false,
            captured,
            graphs: HashMap::with_hasher(FxBuildHasher),
            ever: BTreeSet::new(),
            last_number: 0,
        };
        Self { book: Mutex::new(book), executables: OnceLock::new(), launches: AtomicU64::new(0) }
    }

    fn book(&self) -> MutexGuard<'_, GraphBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn executables(&self) -> &DashMap<GraphHandle, Arc<ExecutableGraph>, FxBuildHasher> {
        self.executables.get_or_init(DashMap::default)
    }

    /// A capture begins.
    pub fn begin_capture(&self) {
        let mut book = self.book();
        if book.captures == 0 {
            book.captured = CapturedKernels::default();
        }
        book.captures += 1;
        book.is_mixed |= book.captures > 1;
    }

    /// A capture has ended, with a graph or without. One that was not known to begin leaves a graph
    /// of unknown kernels.
    pub fn end_capture(&self, graph: Option<GraphHandle>) {
        let mut book = self.book();
        let was_known = book.captures > 0;
        book.captures = book.captures.saturating_sub(1);
        let kernels = std::mem::take(&mut book.captured);
        match graph {
            Some(graph) if book.is_mixed || !was_known => drop(book.graphs.remove(&graph)),
            Some(graph) => drop(book.graphs.insert(graph, Arc::new(kernels))),
            None => {}
        }
        book.is_mixed &= book.captures > 0;
    }

    /// A kernel is captured.
    pub fn add_kernel(&self) {
        self.book().captured.count += 1;
    }

    /// A kernel's argument in a graph, captured or not. Returns `false` if there are too many.
    pub fn add_word(&self, word: GraphWord, is_captured: bool) -> bool {
        let mut book = self.book();
        if is_captured {
            book.captured.words.insert(word);
        }
        book.ever.insert(word);
        book.ever.len() <= MOST_WORDS
    }

    /// A graph is changed, or ends.
    pub fn forget(&self, graph: GraphHandle) {
        self.book().graphs.remove(&graph);
    }

    /// A graph is changed, and the call does not name it.
    pub fn forget_all(&self) {
        self.book().graphs.clear();
    }

    /// A graph was made executable, or an executable graph was updated to it.
    pub fn instantiated(&self, executable: GraphHandle, graph: GraphHandle) {
        let mut book = self.book();
        let Some(kernels) = book.graphs.get(&graph).cloned() else {
            drop(book);
            return self.forget_executable(executable);
        };
        book.last_number += 1;
        let number = book.last_number;
        drop(book);
        let graph = ExecutableGraph { number, kernels, launches: AtomicU64::new(0) };
        self.executables().insert(executable, Arc::new(graph));
    }

    /// An executable graph was changed otherwise, or ends.
    pub fn forget_executable(&self, executable: GraphHandle) {
        self.executables().remove(&executable);
    }

    /// An executable graph is launched. Returns the number of its kernels that are known.
    pub fn launched(&self, executable: GraphHandle) -> u64 {
        self.launches.fetch_add(1, Relaxed);
        self.executables().get(&executable).map_or(0, |known| {
            known.launches.fetch_add(1, Relaxed);
            known.kernels.count
        })
    }

    /// Launches of any graph so far.
    pub fn launches(&self) -> u64 {
        self.launches.load(Relaxed)
    }

    /// Parameters of any graph's kernels that pointed into a range.
    pub fn reaching(&self, range: &Range<u64>) -> BTreeSet<ParameterKey> {
        words_in(&self.book().ever, range).collect()
    }

    /// Parameters into a range that certainly ran since the last call with the same `seen`, and
    /// their launches. A graph that `seen` does not have counts from now on.
    pub fn ran_since(&self, range: &Range<u64>, seen: &mut SeenLaunches) -> Vec<(ParameterKey, u64)> {
        let all: Vec<_> = self.executables().iter().map(|entry| Arc::clone(&entry)).collect();
        let (mut ran, mut now) = (Vec::new(), SeenLaunches::default());
        for executable in all {
            let launches = executable.launches.load(Relaxed);
            let since = seen.0.get(&executable.number).map_or(0, |before| launches - before);
            let parameters: BTreeSet<_> = words_in(&executable.kernels.words, range).collect();
            if !parameters.is_empty() {
                now.0.insert(executable.number, launches);
            }
            if since > 0 {
                ran.extend(parameters.into_iter().map(|parameter| (parameter, since)));
            }
        }
        *seen = now;
        ran
    }
}

fn words_in<'a>(
    words: &'a BTreeSet<GraphWord>,
    range: &Range<u64>,
) -> impl Iterator<Item = ParameterKey> + use<'a> {
    let first = ParameterKey { function: FunctionKey(0), offset: 0 };
    let end = range.end;
    let from = words.range((range.start, first)..);
    from.take_while(move |(address, _)| *address < end).map(|(_, parameter)| *parameter)
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a kernel counts as a reader because another graph was launched,
    //! which does not have it.
    use proptest::prelude::*;

    use super::*;

    const RANGE: Range<u64> = 4096..8192;

    fn parameter(function: u128) -> ParameterKey {
        ParameterKey { function: FunctionKey(function), offset: 8 }
    }

    fn word(address: u64, function: u128) -> GraphWord {
        (address, parameter(function))
    }

    fn capture(facts: &GraphFacts, graph: GraphHandle, words: &[GraphWord]) {
        facts.begin_capture();
        words.iter().for_each(|word| {
            facts.add_kernel();
            assert!(facts.add_word(*word, true));
        });
        facts.end_capture(Some(graph));
    }

    /// Graph 1 was captured with function 1 and is executable as 0x10, and was asked about once.
    fn launched_once() -> (GraphFacts, SeenLaunches) {
        let (facts, mut seen) = (GraphFacts::new(), SeenLaunches::default());
        capture(&facts, 1, &[word(4096, 1), word(9000, 9)]);
        facts.instantiated(0x10, 1);
        assert_eq!(facts.launched(0x10), 2);
        assert_eq!(facts.ran_since(&RANGE, &mut seen), []);
        (facts, seen)
    }

    #[test]
    fn a_launch_before_the_first_question_proves_nothing() {
        let (facts, mut seen) = launched_once();
        assert_eq!(facts.ran_since(&RANGE, &mut seen), []);
        facts.launched(0x10);
        assert_eq!(facts.ran_since(&RANGE, &mut seen), [(parameter(1), 1)]);
        assert_eq!(facts.ran_since(&RANGE, &mut seen), []);
    }

    #[test]
    fn a_launch_proves_the_kernels_of_its_own_graph() {
        let (facts, mut seen) = launched_once();
        capture(&facts, 2, &[word(5000, 2)]);
        facts.instantiated(0x20, 2);
        facts.ran_since(&RANGE, &mut seen);
        facts.launched(0x20);
        facts.launched(0x20);
        assert_eq!(facts.ran_since(&RANGE, &mut seen), [(parameter(2), 2)]);
    }

    #[test]
    fn a_parameter_outside_the_range_is_not_named() {
        let (facts, _) = launched_once();
        assert_eq!(facts.reaching(&RANGE), [parameter(1)].into());
        assert_eq!(facts.reaching(&(9000..9001)), [parameter(9)].into());
        assert_eq!(facts.reaching(&(4097..9000)), BTreeSet::new());
    }

    #[test]
    fn captures_that_overlap_prove_nothing() {
        let (facts, mut seen) = launched_once();
        facts.begin_capture();
        capture(&facts, 3, &[word(6000, 3)]);
        facts.end_capture(None);
        facts.instantiated(0x10, 3);
        facts.ran_since(&RANGE, &mut seen);
        assert_eq!(facts.launched(0x10), 0);
        assert_eq!(facts.ran_since(&RANGE, &mut seen), []);
        assert!(facts.reaching(&RANGE).contains(&parameter(3)), "its kernels may run all the same");
    }

    #[test]
    fn a_capture_after_overlapping_ones_counts_again() {
        let facts = GraphFacts::new();
        facts.begin_capture();
        facts.begin_capture();
        facts.end_capture(Some(1));
        facts.end_capture(Some(2));
        capture(&facts, 3, &[word(4096, 3)]);
        facts.instantiated(0x30, 3);
        assert_eq!(facts.launched(0x30), 1);
    }

    /// A capture that the library does not know of ends while another one is open.
    #[test]
    fn an_end_without_a_begin_moves_no_words() {
        let facts = GraphFacts::new();
        facts.add_kernel();
        assert!(facts.add_word(word(4096, 1), true), "it was not known to begin");
        facts.end_capture(Some(1));
        capture(&facts, 2, &[word(4096, 2)]);
        for (executable, graph, kernels) in [(0x10, 1, 0), (0x20, 2, 1)] {
            facts.instantiated(executable, graph);
            assert_eq!(facts.launched(executable), kernels, "graph {graph}");
        }
        facts.add_kernel();
        capture(&facts, 3, &[]);
        facts.instantiated(0x30, 3);
        assert_eq!(facts.launched(0x30), 0, "what came before its begin is not the capture's");
    }

    #[test]
    fn a_changed_graph_proves_nothing() {
        for forget in [|facts: &GraphFacts| facts.forget(4), GraphFacts::forget_all] {
            let (facts, mut seen) = launched_once();
            capture(&facts, 4, &[word(7000, 4)]);
            forget(&facts);
            facts.instantiated(0x10, 4);
            facts.ran_since(&RANGE, &mut seen);
            facts.launched(0x10);
            assert_eq!(facts.ran_since(&RANGE, &mut seen), []);
        }
    }

    #[test]
    fn a_changed_executable_graph_proves_nothing() {
        let (facts, mut seen) = launched_once();
        facts.forget_executable(0x10);
        facts.launched(0x10);
        assert_eq!(facts.ran_since(&RANGE, &mut seen), []);
        assert_eq!(facts.launches(), 2, "the launch counts all the same");
    }

    #[test]
    fn a_handle_that_comes_again_does_not_inherit_launches() {
        let (facts, mut seen) = launched_once();
        (0..5).for_each(|_| assert_eq!(facts.launched(0x10), 2));
        facts.instantiated(0x10, 1);
        facts.launched(0x10);
        assert_eq!(facts.ran_since(&RANGE, &mut seen), []);
    }

    #[test]
    fn a_node_outside_a_capture_is_suspect_and_proves_nothing() {
        let (facts, mut seen) = launched_once();
        assert!(facts.add_word(word(4100, 7), false));
        capture(&facts, 5, &[]);
        facts.instantiated(0x50, 5);
        facts.ran_since(&RANGE, &mut seen);
        facts.launched(0x50);
        assert_eq!(facts.ran_since(&RANGE, &mut seen), []);
        assert!(facts.reaching(&RANGE).contains(&parameter(7)));
    }

    #[test]
    fn words_without_end_are_refused() {
        let facts = GraphFacts::new();
        facts.book().ever = (0..MOST_WORDS as u64).map(|address| word(address, 1)).collect();
        assert!(facts.add_word(word(0, 1), false), "a word that is there takes no room");
        assert!(!facts.add_word(word(u64::MAX, 1), false));
    }

    proptest! {
        /// Any order of captures, launches and questions: a parameter never has more proof than
        /// launches of a graph that contains it.
        #[test]
        fn proof_never_exceeds_launches(steps in prop::collection::vec((0..4_u8, 0..3_usize), 0..60)) {
            let (facts, mut seen) = (GraphFacts::new(), SeenLaunches::default());
            let (mut launches, mut proved) = ([0_u64; 3], [0_u64; 3]);
            for (step, graph) in steps {
                match step {
                    0 => capture(&facts, graph, &[word(4096 + graph as u64, graph as u128)]),
                    1 => facts.instantiated(graph, graph),
                    2 => {
                        facts.launched(graph);
                        launches[graph] += 1;
                    }
                    _ => for (parameter, count) in facts.ran_since(&RANGE, &mut seen) {
                        proved[parameter.function.0 as usize] += count;
                    },
                }
            }
            prop_assert!(proved.iter().zip(&launches).all(|(proved, launches)| proved <= launches));
        }
    }
}
