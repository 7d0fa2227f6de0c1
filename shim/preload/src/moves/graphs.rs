//! Graphs of the program: the blocks that stay where they are for their sake, and those that their
//! launches use.
//!
//! The driver may decide how a copy or a memset is made, by where its memory lies, when the node is
//! made or the graph is instantiated. So blocks that such nodes name stay while the graph or an
//! executable one lives. A kernel uses addresses, which stay: its launch in a graph is one like any
//! other. A graph of which something is unknown pins all memory while it lives.
//!
//! Invariant: what a graph names is noted inside the gate, before the call that made the graph has
//! left it. No driver call is made here.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use rustc_hash::FxHashMap;
use wm_abi::{CUgraph, CUgraphExec, CUgraphNode};
use wm_driver::lock;

use crate::gate::GATE;

/// What a node belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum GraphOwner {
    Graph(usize),
    Executable(usize),
    /// A graph that the call does not name: its blocks stay for the rest of the process.
    Unnamed,
}

impl From<CUgraph> for GraphOwner {
    fn from(graph: CUgraph) -> Self {
        Self::Graph(graph.0)
    }
}

impl From<CUgraphExec> for GraphOwner {
    fn from(graph: CUgraphExec) -> Self {
        Self::Executable(graph.0)
    }
}

impl From<CUgraphNode> for GraphOwner {
    fn from(_: CUgraphNode) -> Self {
        Self::Unnamed
    }
}

/// The memory of one graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GraphUses {
    /// Blocks that copies and memsets name, as first address and end.
    pub(crate) named: BTreeSet<(u64, u64)>,
    /// Addresses in blocks that kernels use.
    pub(crate) kernels: BTreeSet<u64>,
    /// Copies and memsets name memory that the program made itself, and some of it is not on its
    /// device.
    pub(crate) names_pieces: bool,
    /// It may rely on where any memory is.
    pub(crate) is_opaque: bool,
}

impl GraphUses {
    pub(crate) fn opaque() -> Self {
        Self { is_opaque: true, ..Self::default() }
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.named.extend(other.named);
        self.kernels.extend(other.kernels);
        self.names_pieces |= other.names_pieces;
        self.is_opaque |= other.is_opaque;
    }
}

/// The live graphs of a process.
#[derive(Debug, Default)]
pub(super) struct GraphTable(FxHashMap<GraphOwner, GraphUses>);

impl GraphTable {
    fn add(&mut self, owner: GraphOwner, uses: GraphUses) {
        self.0.entry(owner).or_default().join(uses);
    }

    fn replace(&mut self, owner: GraphOwner, uses: GraphUses) {
        self.0.insert(owner, uses);
    }

    fn end(&mut self, owner: GraphOwner) {
        self.0.remove(&owner);
    }

    fn is_opaque(&self) -> bool {
        self.0.values().any(|uses| uses.is_opaque)
    }

    fn names_pieces(&self) -> bool {
        self.0.values().any(|uses| uses.names_pieces)
    }

    /// What graphs name, in order and apart from each other.
    fn named(&self) -> Vec<Range<u64>> {
        let all: BTreeSet<(u64, u64)> = self.0.values().flat_map(|uses| uses.named.iter().copied()).collect();
        let mut ranges: Vec<Range<u64>> = Vec::with_capacity(all.len());
        for (start, end) in all {
            match ranges.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => ranges.push(start..end),
            }
        }
        ranges
    }
}

/// A change of what a graph uses.
#[derive(Debug)]
pub(crate) enum GraphChange {
    Adds(GraphUses),
    /// All of it is known.
    Is(GraphUses),
    Ends,
}

/// The graphs of a process, and the ranges that its managers were told.
pub(super) struct Graphs {
    table: Mutex<Option<GraphTable>>,
    names_pieces: AtomicBool,
}

impl Graphs {
    pub(super) const fn new() -> Self {
        Self { table: Mutex::new(None), names_pieces: AtomicBool::new(false) }
    }

    /// Notes a change, and has `tell` tell the managers of other ranges than before. Returns ranges
    /// that may move again. To be called inside the gate.
    pub(super) fn change(
        &self,
        owner: GraphOwner,
        change: GraphChange,
        tell: impl FnOnce(&[Range<u64>]),
    ) -> Vec<Range<u64>> {
        let mut table = lock(&self.table);
        let table = table.get_or_insert_default();
        let before = table.named();
        match change {
            GraphChange::Adds(uses) => table.add(owner, uses),
            GraphChange::Is(uses) => table.replace(owner, uses),
            GraphChange::Ends => table.end(owner),
        }
        let after = table.named();
        GATE.set_opaque_graphs(table.is_opaque());
        self.names_pieces.store(table.names_pieces(), SeqCst);
        if before == after {
            return Vec::new();
        }
        tell(&after);
        before.into_iter().filter(|range| !after.contains(range)).collect()
    }

    /// May a live graph name memory that the program made itself? To be asked behind the closed
    /// gate.
    pub(super) fn name_pieces(&self) -> bool {
        self.names_pieces.load(SeqCst)
    }

    /// Addresses in the blocks that the kernels, copies and memsets of an executable graph use.
    pub(super) fn used_by(&self, executable: CUgraphExec) -> Vec<u64> {
        let table = lock(&self.table);
        let uses = table.as_ref().and_then(|table| table.0.get(&executable.into()));
        let named = uses.into_iter().flat_map(|uses| uses.named.iter().map(|(start, _)| *start));
        named.chain(uses.into_iter().flat_map(|uses| uses.kernels.iter().copied())).collect()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a block moves that a live graph names. Hazard (silent degradation):
    //! one stays that no live graph names.
    use proptest::prelude::*;

    use super::*;

    fn uses(blocks: &[u64]) -> GraphUses {
        let named = blocks.iter().map(|block| (block * 10, block * 10 + 10)).collect();
        GraphUses { named, ..GraphUses::default() }
    }

    proptest! {
        #[test]
        fn what_a_live_graph_names_is_named_and_nothing_else(
            steps in proptest::collection::vec((0..4_usize, 0..3_u8, proptest::collection::vec(0..20_u64, 0..4)), 0..60),
        ) {
            let (mut table, mut model) = (GraphTable::default(), vec![BTreeSet::new(); 4]);
            for (graph, step, blocks) in steps {
                let owner = GraphOwner::Executable(graph);
                match step {
                    0 => { table.add(owner, uses(&blocks)); model[graph].extend(blocks); }
                    1 => { table.replace(owner, uses(&blocks)); model[graph] = blocks.into_iter().collect(); }
                    _ => { table.end(owner); model[graph].clear(); }
                }
                let ranges = table.named();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
                for block in 0..20 {
                    let is_named = ranges.iter().any(|range| range.contains(&(block * 10 + 5)));
                    prop_assert_eq!(is_named, model.iter().any(|blocks| blocks.contains(&block)));
                }
            }
        }
    }

    #[test]
    fn a_graph_that_is_not_understood_pins_all_until_it_ends() {
        let (mut table, owner) = (GraphTable::default(), GraphOwner::Graph(1));
        table.add(owner, GraphUses { names_pieces: true, ..GraphUses::opaque() });
        table.add(owner, uses(&[1]));
        assert!(table.is_opaque() && table.names_pieces());
        table.end(owner);
        assert!(!table.is_opaque() && !table.names_pieces() && table.named().is_empty());
    }
}
