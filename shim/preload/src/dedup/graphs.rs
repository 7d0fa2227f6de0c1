//! Graphs: which parameters their kernels have, and which of them were launched.
//!
//! A graph's kernels run without being named. What is asked here is which addresses any graph ever
//! had in an argument, whether the graph still lives or not: blocks there are suspect. And which
//! parameters a launch of an executable graph certainly ran, for only these have proved anything if
//! nothing has changed. That is known of graphs that were captured, one capture at a time, and not
//! changed since; of others nothing is, as of those that were made node by node.
//!
//! Invariant: in doubt a graph proves nothing.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;
use wm_abi::{CUgraph, CUgraphExec};
use wm_dedup::readers::ParameterKey;

/// An address in an argument, and the parameter that it was passed in.
type GraphWord = (u64, ParameterKey);

/// Words of all graphs together. With more, sharing ends.
const MOST: usize = 1 << 20;

/// What was captured.
#[derive(Debug, Default)]
struct CapturedKernels {
    count: u64,
    words: BTreeSet<GraphWord>,
}

/// What is known of graphs that are not executable yet.
#[derive(Default)]
struct GraphBook {
    captures: u32,
    /// Several captures were open at a time, so it is unknown which word belongs to which.
    is_mixed: bool,
    captured: CapturedKernels,
    graphs: HashMap<usize, Arc<CapturedKernels>>,
    ever: BTreeSet<GraphWord>,
}

/// An executable graph of which is known what it runs.
struct ExecutableGraph {
    number: u64,
    kernels: Arc<CapturedKernels>,
    launches: AtomicU64,
}

static BOOK: Mutex<Option<GraphBook>> = Mutex::new(None);

/// Launches of any graph.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);

fn executables() -> &'static DashMap<usize, Arc<ExecutableGraph>, FxBuildHasher> {
    static EXECUTABLES: OnceLock<DashMap<usize, Arc<ExecutableGraph>, FxBuildHasher>> = OnceLock::new();
    EXECUTABLES.get_or_init(DashMap::default)
}

fn lock() -> MutexGuard<'static, Option<GraphBook>> {
    BOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<T>(change: impl FnOnce(&mut GraphBook) -> T) -> T {
    change(lock().get_or_insert_with(GraphBook::default))
}

/// A capture begins.
pub(super) fn begin_capture() {
    with(|book| {
        book.captures += 1;
        book.is_mixed |= book.captures > 1;
    });
}

/// A capture has ended, with a graph or without.
pub(super) fn end_capture(graph: Option<CUgraph>) {
    with(|book| {
        book.captures = book.captures.saturating_sub(1);
        let kernels = std::mem::take(&mut book.captured);
        if let Some(graph) = graph {
            match book.is_mixed {
                true => drop(book.graphs.remove(&graph.0)),
                false => drop(book.graphs.insert(graph.0, Arc::new(kernels))),
            }
        }
        book.is_mixed &= book.captures > 0;
    });
}

/// A kernel is captured.
pub(super) fn note_kernel() {
    with(|book| book.captured.count += 1);
}

/// A kernel's argument in a graph, captured or not. `false`: there are too many.
pub(super) fn note_word(word: GraphWord, is_captured: bool) -> bool {
    with(|book| {
        if is_captured {
            book.captured.words.insert(word);
        }
        book.ever.insert(word);
        book.ever.len() <= MOST
    })
}

/// A graph is changed, or ends.
pub(super) fn forget(graph: CUgraph) {
    with(|book| book.graphs.remove(&graph.0));
}

/// Some graph is changed.
pub(super) fn forget_all() {
    with(|book| book.graphs.clear());
}

/// A graph was made executable, or an executable graph was made like it.
pub(super) fn instantiated(executable: CUgraphExec, graph: CUgraph) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let Some(kernels) = with(|book| book.graphs.get(&graph.0).cloned()) else {
        return forget_executable(executable);
    };
    let number = NUMBER.fetch_add(1, Relaxed);
    executables()
        .insert(executable.0, Arc::new(ExecutableGraph { number, kernels, launches: AtomicU64::new(0) }));
}

/// An executable graph was changed, or ends.
pub(super) fn forget_executable(executable: CUgraphExec) {
    executables().remove(&executable.0);
}

/// It is launched. The kernels that it is known to have.
pub(super) fn launched(executable: CUgraphExec) -> u64 {
    LAUNCHES.fetch_add(1, Relaxed);
    executables().get(&executable.0).map_or(0, |known| {
        known.launches.fetch_add(1, Relaxed);
        known.kernels.count
    })
}

/// Launches of graphs so far.
pub(super) fn launches() -> u64 {
    LAUNCHES.load(Relaxed)
}

fn words_in<'a>(
    words: &'a BTreeSet<GraphWord>,
    range: &Range<u64>,
) -> impl Iterator<Item = ParameterKey> + use<'a> {
    let end = range.end;
    let from = words.range((range.start, first_parameter())..);
    from.take_while(move |(address, _)| *address < end).map(|(_, parameter)| *parameter)
}

fn first_parameter() -> ParameterKey {
    ParameterKey { function: wm_dedup::readers::FunctionKey(0), offset: 0 }
}

/// Parameters of any graph's kernels that pointed into a range.
pub(super) fn reaching(range: &Range<u64>) -> BTreeSet<ParameterKey> {
    with(|book| words_in(&book.ever, range).collect())
}

/// Parameters into a range that certainly ran since this was asked before, and how often. `seen`
/// has the launches of each graph at that time; of a graph that was not there nothing counts.
pub(super) fn ran_since(range: &Range<u64>, seen: &mut HashMap<u64, u64>) -> Vec<(ParameterKey, u64)> {
    let all: Vec<_> = executables().iter().map(|entry| Arc::clone(&entry)).collect();
    let mut ran = Vec::new();
    let mut now = HashMap::new();
    for executable in all {
        let launches = executable.launches.load(Relaxed);
        let since = seen.get(&executable.number).map_or(0, |before| launches - before);
        let parameters: BTreeSet<_> = words_in(&executable.kernels.words, range).collect();
        if !parameters.is_empty() {
            now.insert(executable.number, launches);
        }
        if since > 0 {
            ran.extend(parameters.into_iter().map(|parameter| (parameter, since)));
        }
    }
    *seen = now;
    ran
}

#[cfg(test)]
mod tests {
    //! Hazard: a kernel is taken for one that reads because another graph was launched that does
    //! not have it.
    use wm_dedup::readers::FunctionKey;

    use super::*;

    fn word(address: u64, function: u128) -> GraphWord {
        (address, ParameterKey { function: FunctionKey(function), offset: 8 })
    }

    fn capture(graph: usize, words: &[GraphWord]) {
        begin_capture();
        words.iter().for_each(|word| {
            note_kernel();
            assert!(note_word(*word, true));
        });
        end_capture(Some(CUgraph(graph)));
    }

    /// One test, since the book is the process's.
    #[test]
    fn only_what_a_launched_graph_has_is_proved() {
        let (range, mut seen) = (4096..8192, HashMap::new());
        let (one, other) = (CUgraphExec(0x10), CUgraphExec(0x20));
        capture(1, &[word(4096, 1), word(9000, 9)]);
        capture(2, &[word(5000, 2)]);
        instantiated(one, CUgraph(1));
        instantiated(other, CUgraph(2));
        assert_eq!((launched(one), launched(other)), (2, 1));
        assert_eq!(ran_since(&range, &mut seen), [], "what ran before the first look proves nothing");
        launched(other);
        launched(other);
        assert_eq!(ran_since(&range, &mut seen), [(word(0, 2).1, 2)]);
        assert_eq!(reaching(&range), [word(0, 1).1, word(0, 2).1].into());
        forget_executable(other);
        launched(other);
        launched(one);
        assert_eq!(ran_since(&range, &mut seen), [(word(0, 1).1, 1)]);
        begin_capture();
        capture(3, &[word(6000, 3)]);
        end_capture(None);
        instantiated(one, CUgraph(3));
        launched(one);
        assert_eq!(ran_since(&range, &mut seen), [], "two captures at a time");
        assert!(reaching(&range).contains(&word(0, 3).1));
        capture(4, &[word(7000, 4)]);
        forget(CUgraph(4));
        instantiated(one, CUgraph(4));
        let mut fresh = HashMap::new();
        assert_eq!((ran_since(&range, &mut fresh), fresh.len()), (vec![], 0), "it was changed");
        assert_eq!(launches(), 7);
    }
}
