//! Graphs: recorded work that can run again and again.
//!
//! A node is a piece of work and the nodes that it waits for. An executable graph is the work in
//! one legal order, and runs as one piece of its stream's work.
//!
//! Invariants: an executable graph does not change when the graph does; memory of a graph's
//! allocation nodes lives until the graph and all its executable forms are gone.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use wm_abi::{CUgraphNode, CUresult};

use crate::entry::{Outcome, require};
use crate::graph_form::Form;
use crate::lane::{Point, Work};
use crate::memory::{Area, Owner};
use crate::races;
use crate::state::driver;

/// The kind of a node (`CUgraphNodeType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(pub(crate) u32);

impl Kind {
    pub(crate) const KERNEL: Self = Self(0);
    pub(crate) const MEMCPY: Self = Self(1);
    pub(crate) const MEMSET: Self = Self(2);
    pub(crate) const HOST: Self = Self(3);
    pub(crate) const GRAPH: Self = Self(4);
    pub(crate) const EMPTY: Self = Self(5);
    pub(crate) const ALLOCATE: Self = Self(10);
    pub(crate) const FREE: Self = Self(11);
    pub(crate) const MEMORY_OPERATION: Self = Self(12);
}

/// One node.
pub(crate) struct Node {
    pub(crate) handle: usize,
    /// Handle of its graph.
    pub(crate) graph: usize,
    pub(crate) kind: Kind,
    work: Mutex<Work>,
    form: Mutex<Form>,
    /// Address and size of the memory that it allocates, or address of the block that it frees.
    pub(crate) block: OnceLock<(u64, usize)>,
    after: Mutex<Vec<usize>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("handle", &self.handle).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Node {
    fn work(&self) -> Work {
        Arc::clone(&self.work.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Its work as it is now, for an executable graph.
    fn step(&self) -> Outcome<Work> {
        match &*self.form() {
            Form::Child(child) => child.graph().work(),
            form => Ok(form.fix(self.work())),
        }
    }

    /// Gives it other work.
    pub(crate) fn change(&self, form: Form, work: Work) {
        *self.form() = form;
        *self.work.lock().unwrap_or_else(PoisonError::into_inner) = work;
    }

    /// What the driver tells about it.
    pub(crate) fn form(&self) -> MutexGuard<'_, Form> {
        self.form.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles of the nodes that it waits for.
    pub(crate) fn after(&self) -> MutexGuard<'_, Vec<usize>> {
        self.after.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A graph.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) handle: usize,
    nodes: Mutex<Vec<Arc<Node>>>,
    memory: Arc<GraphMemory>,
}

/// Blocks that allocation nodes made, by address.
#[derive(Debug, Default)]
struct GraphMemory(Mutex<Vec<u64>>);

impl Drop for GraphMemory {
    fn drop(&mut self) {
        let blocks = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        for block in blocks {
            let area =
                driver().memory_mut().remove_if(block, |area| matches!(area.owner, Owner::Graph { .. }));
            area.into_iter().for_each(Area::discard);
        }
    }
}

impl Graph {
    /// An empty graph that is in no table yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { handle: driver().graphs.reserve(), nodes: Mutex::default(), memory: Arc::default() })
    }

    /// Its nodes, in the order in which they were added.
    pub(crate) fn nodes(&self) -> MutexGuard<'_, Vec<Arc<Node>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a node behind others. Returns its handle.
    pub(crate) fn add(&self, form: Form, work: Work, after: Vec<usize>) -> usize {
        let make = |handle| {
            let (kind, block) = (form.kind(), OnceLock::new());
            let (work, form) = (Mutex::new(work), Mutex::new(form));
            Node { handle, graph: self.handle, kind, work, form, block, after: Mutex::new(after) }
        };
        let (handle, node) = driver().nodes.insert(make);
        self.nodes().push(node);
        handle
    }

    /// Keeps a block alive while the graph can run.
    pub(crate) fn retain(&self, block: u64) {
        self.memory.0.lock().unwrap_or_else(PoisonError::into_inner).push(block);
    }

    /// Some nodes and all nodes that they wait for.
    pub(crate) fn ancestors(&self, from: Vec<usize>) -> HashSet<usize> {
        let nodes: HashMap<usize, Arc<Node>> =
            self.nodes().iter().map(|node| (node.handle, Arc::clone(node))).collect();
        let (mut reached, mut open) = (HashSet::new(), from);
        while let Some(handle) = open.pop() {
            if reached.insert(handle) {
                open.extend(nodes.get(&handle).iter().flat_map(|node| node.after().clone()));
            }
        }
        reached
    }

    /// The work, by node, in an order in which every node comes behind those that it waits for.
    fn ordered(&self) -> Outcome<Vec<(usize, Work)>> {
        let mut left: Vec<Arc<Node>> = self.nodes().clone();
        let (mut done, mut order) = (HashSet::new(), Vec::with_capacity(left.len()));
        while !left.is_empty() {
            let before = left.len();
            left.retain(|node| {
                let ready = node.after().iter().all(|handle| done.contains(handle));
                if ready {
                    done.insert(node.handle);
                    order.push(Arc::clone(node));
                }
                !ready
            });
            require(left.len() < before, CUresult::INVALID_VALUE)?;
        }
        order.into_iter().map(|node| Ok((node.handle, node.step()?))).collect()
    }

    /// Removes a node; the nodes that waited for it no longer do.
    pub(crate) fn remove(&self, handle: usize) {
        self.nodes().retain(|node| node.handle != handle);
        self.nodes().iter().for_each(|node| node.after().retain(|other| *other != handle));
        driver().nodes.remove(handle);
    }

    /// A copy with nodes of its own.
    pub(crate) fn copy(&self) -> Arc<Self> {
        let handle = driver().graphs.reserve();
        let copy = Arc::new(Self { handle, nodes: Mutex::default(), memory: Arc::clone(&self.memory) });
        let mut renamed = HashMap::new();
        for node in self.nodes().iter() {
            let after = node.after().iter().filter_map(|old| renamed.get(old).copied()).collect();
            let form = node.form().clone();
            renamed.insert(node.handle, copy.add(form, node.work(), after));
        }
        for (own, node) in copy.nodes().iter().zip(self.nodes().iter()) {
            if let Some(block) = node.block.get() {
                let _ = own.block.set(*block);
            }
        }
        copy
    }

    /// All nodes as one piece of work: the work of a child node.
    ///
    /// # Errors
    /// `INVALID_VALUE` if nodes wait for each other in a circle.
    pub(crate) fn work(&self) -> Outcome<Work> {
        Ok(self.steps()?.work())
    }

    /// The work of every node, for an executable graph.
    ///
    /// # Errors
    /// As [`Self::work`].
    pub(crate) fn steps(&self) -> Outcome<Steps> {
        Ok(Steps { order: self.ordered()?, memory: Arc::clone(&self.memory) })
    }
}

/// Work by its node, in an order that the edges allow, and the memory that it uses.
pub(crate) struct Steps {
    order: Vec<(usize, Work)>,
    memory: Arc<GraphMemory>,
}

impl Steps {
    /// All steps as one piece of work.
    pub(crate) fn work(&self) -> Work {
        let order: Vec<Work> = self.order.iter().map(|(_, work)| Arc::clone(work)).collect();
        let (order, memory) = (Arc::new(order), Arc::clone(&self.memory));
        let parts = Arc::clone(&order);
        let work: Work = Arc::new(move || {
            let _kept = &memory;
            order.iter().try_for_each(|work| work())
        });
        races::declare_all(work, parts.iter())
    }

    /// Gives a node other work.
    ///
    /// # Errors
    /// `INVALID_VALUE` if it is not among them.
    pub(crate) fn change(&mut self, node: usize, work: Work) -> Outcome {
        let step = self.order.iter_mut().find(|(handle, _)| *handle == node);
        step.ok_or(CUresult::INVALID_VALUE)?.1 = work;
        Ok(())
    }

    /// Takes the work of another graph of the same form; the nodes keep their handles.
    pub(crate) fn update(&mut self, other: Self) {
        let names: Vec<usize> = self.order.iter().map(|(handle, _)| *handle).collect();
        *self = other;
        self.order.iter_mut().zip(names).for_each(|((handle, _), name)| *handle = name);
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        for node in std::mem::take(self.nodes.get_mut().unwrap_or_else(PoisonError::into_inner)) {
            driver().nodes.remove(node.handle);
        }
    }
}

/// A graph that can run.
pub(crate) struct Exec {
    steps: Mutex<Steps>,
    /// Flags of its instantiation.
    pub(crate) flags: u64,
    /// Its latest launch: launches of one graph do not overlap.
    pub(crate) latest: Mutex<Option<Point>>,
}

impl std::fmt::Debug for Exec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exec").field("flags", &self.flags).finish_non_exhaustive()
    }
}

impl Exec {
    pub(crate) fn new(steps: Steps, flags: u64) -> Self {
        Self { steps: Mutex::new(steps), flags, latest: Mutex::default() }
    }

    pub(crate) fn steps(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The graph of a handle.
///
/// # Errors
/// `INVALID_VALUE` if there is none.
pub(crate) fn graph(handle: wm_abi::CUgraph) -> Outcome<Arc<Graph>> {
    driver().graphs.get(handle.0).ok_or(CUresult::INVALID_VALUE)
}

/// The node of a handle.
///
/// # Errors
/// `INVALID_VALUE` if there is none.
pub(crate) fn node(handle: CUgraphNode) -> Outcome<Arc<Node>> {
    driver().nodes.get(handle.0).ok_or(CUresult::INVALID_VALUE)
}

/// The executable graph of a handle.
///
/// # Errors
/// `INVALID_VALUE` if there is none.
pub(crate) fn exec(handle: wm_abi::CUgraphExec) -> Outcome<Arc<Exec>> {
    driver().execs.get(handle.0).ok_or(CUresult::INVALID_VALUE)
}
