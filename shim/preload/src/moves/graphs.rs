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

use super::named_ranges::NamedRanges;
use crate::gate::GATE;

/// What a call changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum GraphOwner {
    Graph(usize),
    Executable(usize),
    /// A node: stands for its graph. If that is not known, its own latest blocks stay for the rest
    /// of the process.
    Node(usize),
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
    fn from(node: CUgraphNode) -> Self {
        Self::Node(node.0)
    }
}

/// The memory of one graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GraphUses {
    /// Blocks that copies and memsets name, as first address and end.
    pub(crate) named: BTreeSet<(u64, u64)>,
    /// Addresses in blocks that kernels use.
    pub(crate) kernels: BTreeSet<u64>,
    /// Nodes that calls may change to other blocks.
    pub(crate) nodes: BTreeSet<usize>,
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
        self.nodes.extend(other.nodes);
        self.names_pieces |= other.names_pieces;
        self.is_opaque |= other.is_opaque;
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

/// The live graphs of a process. A change takes as long as what it changes is large, not as long as
/// there are graphs.
#[derive(Debug, Default)]
pub(super) struct GraphTable {
    uses: FxHashMap<GraphOwner, GraphUses>,
    /// The graph of each node that calls may change.
    graphs: FxHashMap<usize, GraphOwner>,
    named: NamedRanges,
    /// How many of the graphs are opaque.
    opaque: usize,
    /// How many of them name pieces.
    of_pieces: usize,
}

/// Ranges that were named by a change, and those that nothing names since.
#[derive(Debug, Default)]
pub(super) struct RangeChanges {
    pub(super) named: Vec<Range<u64>>,
    pub(super) released: Vec<Range<u64>>,
}

impl GraphTable {
    fn change(&mut self, owner: GraphOwner, change: GraphChange) -> RangeChanges {
        let owner = self.graph_of(owner);
        let mut changes = RangeChanges::default();
        let former = match &change {
            GraphChange::Adds(_) if !matches!(owner, GraphOwner::Node(_)) => None,
            _ => self.uses.remove(&owner),
        };
        if let GraphChange::Adds(uses) | GraphChange::Is(uses) = change {
            self.add(owner, uses, &mut changes);
        }
        former.into_iter().for_each(|former| self.end(owner, former, &mut changes));
        changes
    }

    fn graph_of(&self, owner: GraphOwner) -> GraphOwner {
        match owner {
            GraphOwner::Node(node) => self.graphs.get(&node).copied().unwrap_or(owner),
            _ => owner,
        }
    }

    fn add(&mut self, owner: GraphOwner, mut uses: GraphUses, changes: &mut RangeChanges) {
        if !matches!(owner, GraphOwner::Graph(_)) {
            uses.nodes.clear();
        }
        // A node of which the graph was not known, or one before it with the same handle.
        let node = |node: &usize| self.uses.remove_entry(&GraphOwner::Node(*node));
        let known: Vec<_> = uses.nodes.iter().filter_map(node).collect();
        let all = self.uses.entry(owner).or_default();
        for (start, end) in uses.named.difference(&all.named) {
            self.named.add(&(*start..*end));
            changes.named.push(*start..*end);
        }
        self.opaque += usize::from(uses.is_opaque && !all.is_opaque);
        self.of_pieces += usize::from(uses.names_pieces && !all.names_pieces);
        self.graphs.extend(uses.nodes.iter().map(|node| (*node, owner)));
        all.join(uses);
        known.into_iter().for_each(|(node, former)| self.end(node, former, changes));
    }

    /// What an owner used once is not its any more, if it does not use it now.
    fn end(&mut self, owner: GraphOwner, former: GraphUses, changes: &mut RangeChanges) {
        for (start, end) in former.named {
            changes.released.append(&mut self.named.remove(&(start..end)));
        }
        self.opaque -= usize::from(former.is_opaque);
        self.of_pieces -= usize::from(former.names_pieces);
        let none = BTreeSet::new();
        let now = self.uses.get(&owner).map_or(&none, |uses| &uses.nodes);
        for node in former.nodes.difference(now) {
            if self.graphs.get(node) == Some(&owner) {
                self.graphs.remove(node);
            }
        }
    }
}

/// The graphs of a process.
pub(super) struct Graphs {
    table: Mutex<Option<GraphTable>>,
    names_pieces: AtomicBool,
}

impl Graphs {
    pub(super) const fn new() -> Self {
        Self { table: Mutex::new(None), names_pieces: AtomicBool::new(false) }
    }

    /// Notes a change, and has `tell` tell the managers. Returns ranges that may move again. To be
    /// called inside the gate.
    pub(super) fn change(
        &self,
        owner: GraphOwner,
        change: GraphChange,
        tell: impl FnOnce(&RangeChanges),
    ) -> Vec<Range<u64>> {
        let mut table = lock(&self.table);
        let table = table.get_or_insert_default();
        let changes = table.change(owner, change);
        GATE.set_opaque_graphs(table.opaque > 0);
        self.names_pieces.store(table.of_pieces > 0, SeqCst);
        tell(&changes);
        changes.released
    }

    /// May a live graph name memory that the program made itself? To be asked behind the closed
    /// gate.
    pub(super) fn name_pieces(&self) -> bool {
        self.names_pieces.load(SeqCst)
    }

    /// Addresses in the blocks that the kernels, copies and memsets of an executable graph use.
    pub(super) fn used_by(&self, executable: CUgraphExec) -> Vec<u64> {
        let table = lock(&self.table);
        let uses = table.as_ref().and_then(|table| table.uses.get(&executable.into()));
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

    /// The blocks that stay, as the managers know it.
    fn follow(staying: &mut BTreeSet<u64>, changes: &RangeChanges) {
        let blocks = |ranges: &[Range<u64>]| -> Vec<u64> {
            ranges.iter().cloned().flatten().step_by(10).map(|address| address / 10).collect()
        };
        staying.extend(blocks(&changes.named));
        blocks(&changes.released).iter().for_each(|block| _ = staying.remove(block));
    }

    proptest! {
        #[test]
        fn what_a_live_graph_names_is_named_and_nothing_else(
            steps in proptest::collection::vec((0..4_usize, 0..3_u8, proptest::collection::vec(0..20_u64, 0..4)), 0..60),
        ) {
            let (mut table, mut model) = (GraphTable::default(), vec![BTreeSet::new(); 4]);
            let mut staying = BTreeSet::new();
            for (graph, step, blocks) in steps {
                let change = match step {
                    0 => { model[graph].extend(blocks.clone()); GraphChange::Adds(uses(&blocks)) }
                    1 => { model[graph] = blocks.iter().copied().collect(); GraphChange::Is(uses(&blocks)) }
                    _ => { model[graph].clear(); GraphChange::Ends }
                };
                follow(&mut staying, &table.change(GraphOwner::Executable(graph), change));
                prop_assert_eq!(&staying, &model.iter().flatten().copied().collect());
            }
        }
    }

    #[test]
    fn a_graph_that_is_not_understood_pins_all_until_it_ends() {
        let (mut table, owner) = (GraphTable::default(), GraphOwner::Graph(1));
        let opaque = || GraphUses { names_pieces: true, ..GraphUses::opaque() };
        for uses in [opaque(), opaque(), uses(&[1])] {
            table.change(owner, GraphChange::Adds(uses));
        }
        assert_eq!((table.opaque, table.of_pieces), (1, 1));
        table.change(owner, GraphChange::Is(uses(&[1])));
        assert_eq!((table.opaque, table.of_pieces), (0, 0));
        table.change(owner, GraphChange::Adds(opaque()));
        table.change(owner, GraphChange::Ends);
        assert_eq!((table.opaque, table.of_pieces), (0, 0));
    }

    /// A call that changes a node does not name its graph.
    #[test]
    fn a_node_is_its_graphs_until_that_ends() {
        let (mut table, mut staying) = (GraphTable::default(), BTreeSet::new());
        let mut change = |owner, change| {
            follow(&mut staying, &table.change(owner, change));
            (staying.iter().copied().collect::<Vec<_>>(), table.graphs.len())
        };
        let (graph, node) = (GraphOwner::Graph(1), GraphOwner::Node(7));
        let with_node = |blocks| GraphUses { nodes: BTreeSet::from([7]), ..uses(blocks) };
        assert_eq!(change(graph, GraphChange::Adds(with_node(&[1]))), (vec![1], 1));
        assert_eq!(change(node, GraphChange::Adds(uses(&[2]))), (vec![1, 2], 1));
        assert_eq!(change(graph, GraphChange::Is(with_node(&[2]))), (vec![2], 1));
        assert_eq!(change(graph, GraphChange::Ends), (vec![], 0));
        // A node of which no graph is known.
        assert_eq!(change(node, GraphChange::Adds(uses(&[3]))), (vec![3], 0));
        assert_eq!(change(node, GraphChange::Adds(uses(&[4]))), (vec![4], 0));
        // The driver gives its handle to nodes of other graphs.
        assert_eq!(change(graph, GraphChange::Adds(with_node(&[5]))), (vec![5], 1));
        assert_eq!(change(GraphOwner::Graph(2), GraphChange::Is(with_node(&[6]))), (vec![5, 6], 1));
        assert_eq!(change(graph, GraphChange::Ends), (vec![6], 1));
        // An executable graph has no nodes of its own.
        assert_eq!(change(GraphOwner::Executable(3), GraphChange::Is(with_node(&[8]))), (vec![6, 8], 1));
        assert_eq!(change(GraphOwner::Executable(3), GraphChange::Ends), (vec![6], 1));
    }
}
