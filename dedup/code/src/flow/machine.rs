//! The fixed point: states at the start of each block, until nothing changes.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{BasicBlock, FlowGraph};
use super::state::{MachineState, StatePlaces};
use super::step::{MemoryAccess, World};
use super::value::{Id, NUMBER, UNKNOWN, VARIABLE, Values};
use crate::kernel::{KernelCode, Target};
use crate::sass::{Action, File, Flow, Space};
use crate::verdict::Why;

/// How many times an instruction is followed, on average, before the analysis gives up.
const ROUNDS: usize = 100;

/// How many different values there may be.
const VALUES: usize = 200_000;

/// Functions of the driver that store through no pointer of the program: they stop the kernel, or
/// write to memory of the driver.
const KNOWN: [&str; 2] = ["__assertfail", "vprintf"];

/// The registers of a function's result.
const RESULT: [usize; 2] = [4, 5];

/// A function that the kernel calls, or the kernel itself.
#[derive(Debug, Default)]
struct Routine {
    /// Its blocks, without those of functions that it calls.
    blocks: BTreeSet<usize>,
    /// The blocks that end with a call of it.
    callers: Vec<usize>,
    /// The places that it, or a function that it calls, writes.
    written: Vec<bool>,
    /// What is known when it returns.
    exit: Option<MachineState>,
}

/// The analysis of one kernel.
pub(super) struct FixedPoint<'a> {
    graph: &'a FlowGraph,
    world: World,
    routines: BTreeMap<usize, Routine>,
    /// What is known before the first instruction of each block.
    entries: Vec<Option<MachineState>>,
    open: BTreeSet<usize>,
    /// No function's address lies in the constants but those of [`KNOWN`].
    only_known: bool,
    /// Blocks that load from the block's or the thread's memory.
    loading: Vec<usize>,
    /// For each fork, its number as a value.
    forks: BTreeMap<usize, Id>,
}

impl<'a> FixedPoint<'a> {
    /// # Errors
    /// A function that is called is not known, or returns to a place that is not.
    pub(super) fn new(kernel: &KernelCode, graph: &'a FlowGraph) -> Result<FixedPoint<'a>, Why> {
        let all = || (0..graph.blocks.len()).flat_map(|block| graph.instructions(block));
        let places = StatePlaces::of(all().map(|(_, instruction)| instruction));
        let calls = graph.blocks.iter().filter(|block| block.callee.is_some());
        let mut world = World::new(kernel, places, calls.map(|block| block.end).collect());
        let forks = graph.forks.iter().enumerate();
        let forks = forks
            .map(|(number, fork)| (fork.at, world.values.word(number.min(u16::MAX as usize - 1) as u16)))
            .collect();
        let loading = (0..graph.blocks.len()).filter(|&block| loads(graph, block)).collect();
        let entries = vec![None; graph.blocks.len()];
        let open = BTreeSet::from([graph.entry]);
        let only_known = kernel
            .addresses
            .iter()
            .all(|address| address.of == Target::Variable || KNOWN.contains(&address.symbol));
        let mut machine =
            FixedPoint { graph, only_known, world, routines: BTreeMap::new(), entries, open, loading, forks };
        if graph.forks.len() >= usize::from(u16::MAX) {
            return Err(Why::Bounds);
        }
        machine.routines();
        machine.entries[graph.entry] = Some(MachineState::new(&machine.world.places));
        Ok(machine)
    }

    /// Follows the code until nothing changes.
    ///
    /// # Errors
    /// It takes too long, or control goes to a place that is not known.
    pub(super) fn run(&mut self) -> Result<(), Why> {
        let size: usize = (0..self.graph.blocks.len()).map(|at| self.instructions(at)).sum();
        let mut left = size * ROUNDS + 10_000;
        while let Some(block) = self.open.pop_first() {
            let cost = self.instructions(block);
            if left < cost || self.world.values.len() > VALUES {
                return Err(Why::Bounds);
            }
            left -= cost;
            self.visit(block)?;
        }
        Ok(())
    }

    /// Gives each access to memory that is reached to `take`, with its place.
    ///
    /// # Errors
    /// Those of `take`.
    pub(super) fn accesses(
        &mut self,
        mut take: impl FnMut(&Values, usize, MemoryAccess) -> Result<(), Why>,
    ) -> Result<(), Why> {
        for block in 0..self.graph.blocks.len() {
            let Some(mut state) = self.entries[block].clone() else { continue };
            for (at, instruction) in self.graph.instructions(block) {
                if let Some(access) = self.world.step(at, instruction, &mut state) {
                    take(&self.world.values, at, access)?;
                }
            }
        }
        Ok(())
    }

    fn instructions(&self, block: usize) -> usize {
        let BasicBlock { start, end, .. } = self.graph.blocks[block];
        (end - start) / crate::sass::BYTES
    }

    fn visit(&mut self, number: usize) -> Result<(), Why> {
        let graph = self.graph;
        let Some(mut state) = self.entries[number].clone() else { return Ok(()) };
        let cells = (self.world.shared, self.world.local);
        for (at, instruction) in graph.instructions(number) {
            self.world.step(at, instruction, &mut state);
        }
        if cells != (self.world.shared, self.world.local) {
            self.open.extend(self.loading.iter().filter(|block| self.entries[**block].is_some()));
        }
        let block = &graph.blocks[number];
        match block.flow {
            Flow::Fork { barrier, .. } => {
                let place = self.world.places.barrier(barrier);
                state.values[place] = self.forks[&(block.end - crate::sass::BYTES)];
                self.enter(block.next[1], &state);
            }
            Flow::Join { barrier } => self.join(block, barrier, &state)?,
            Flow::Call { .. } => self.call(number, &state)?,
            Flow::CallRegister => self.call_known(number, state)?,
            Flow::Return { .. } => {
                self.leave(number, &state)?;
                self.enter_all(&block.next, &state);
            }
            _ => self.enter_all(&block.next, &state),
        }
        Ok(())
    }

    fn enter_all(&mut self, blocks: &[usize], state: &MachineState) {
        for &block in blocks {
            self.enter(block, state);
        }
    }

    /// Control may come to this block with this state.
    fn enter(&mut self, block: usize, state: &MachineState) {
        let changed = match &mut self.entries[block] {
            Some(known) => known.join(state, &mut self.world.values),
            none => {
                *none = Some(state.clone());
                true
            }
        };
        if changed {
            self.open.insert(block);
        }
    }

    /// Threads join: they go on where the forks say that may have made this barrier, or behind it.
    fn join(&mut self, block: &BasicBlock, barrier: u8, state: &MachineState) -> Result<(), Why> {
        let place = self.world.places.barrier(barrier);
        let forks = self.world.values.get(state.values[place]).words.clone();
        if forks.is_empty() {
            return Err(Why::Jump { offset: block.end - crate::sass::BYTES });
        }
        for fork in forks {
            self.enter(self.graph.forks[usize::from(fork)].block, state);
        }
        self.enter_all(&block.next, state);
        Ok(())
    }

    /// A function is entered; and if it is known how it returns, the code behind the call is.
    fn call(&mut self, number: usize, state: &MachineState) -> Result<(), Why> {
        let block = &self.graph.blocks[number];
        let Some(callee) = block.callee else { return Ok(()) };
        let alone = self.routines.get(&callee).is_some_and(|routine| routine.callers.len() == 1);
        if !alone && !self.is_linked(block.end, state) {
            return Err(Why::Call { offset: block.end - crate::sass::BYTES });
        }
        self.enter(callee, state);
        let entered = self.entries[callee].as_ref().and_then(|entry| entry.frame);
        let Some(routine) = self.routines.get(&callee) else { return Ok(()) };
        let Some(exit) = &routine.exit else { return Ok(()) };
        // What the function does not write is the caller's.
        let mut after = state.clone();
        after.guards.clear();
        for (place, value) in after.values.iter_mut().enumerate() {
            if routine.written[place] {
                *value = exit.values[place];
            }
        }
        after.frame = state.frame.filter(|_| exit.frame.is_some() && exit.frame == entered);
        self.enter_all(&block.next, &after);
        Ok(())
    }

    /// A function of the driver is called through a register. Its result is in the registers in
    /// which results are; what else it may change, the code behind it does not read.
    fn call_known(&mut self, number: usize, mut state: MachineState) -> Result<(), Why> {
        let block = &self.graph.blocks[number];
        let last = self.graph.instructions(number).last();
        let target = last.map_or(UNKNOWN, |(_, one)| self.world.target(one, &state));
        if target != VARIABLE || !self.only_known {
            return Err(Why::Call { offset: block.end - crate::sass::BYTES });
        }
        state.guards.clear();
        for register in RESULT {
            let place = self.world.places.register(File::General, register);
            state.values[place] = NUMBER;
        }
        self.enter_all(&block.next, &state);
        Ok(())
    }

    /// A register holds the place behind the call, so that the function returns there.
    fn is_linked(&self, end: usize, state: &MachineState) -> bool {
        let Some(place) = self.world.place(end) else { return false };
        state.values.iter().any(|value| self.world.values.get(*value).places() == [place])
    }

    /// The function returns to places behind calls of its own.
    fn is_return(&self, number: usize, owners: &[usize], state: &MachineState) -> bool {
        let Some((_, last)) = self.graph.instructions(number).last() else { return false };
        let link = last.address[0];
        let place = self.world.places.register(link.file, usize::from(link.first));
        let places = self.world.values.get(state.values[place]).places();
        let behind = |caller: &usize| self.world.place(self.graph.blocks[*caller].end);
        let known: BTreeSet<u16> =
            owners.iter().flat_map(|owner| self.routines[owner].callers.iter().filter_map(behind)).collect();
        link.count > 0 && !places.is_empty() && places.iter().all(|place| known.contains(place))
    }

    /// A function returns: each of its callers goes on.
    fn leave(&mut self, number: usize, state: &MachineState) -> Result<(), Why> {
        let offset = self.graph.blocks[number].end - crate::sass::BYTES;
        let owners: Vec<usize> = self
            .routines
            .iter()
            .filter(|(_, routine)| routine.blocks.contains(&number))
            .map(|(entry, _)| *entry)
            .collect();
        if owners.contains(&self.graph.entry) || !self.is_return(number, &owners, state) {
            return Err(Why::Jump { offset });
        }
        for owner in owners {
            let Some(routine) = self.routines.get_mut(&owner) else { continue };
            let changed = match &mut routine.exit {
                Some(exit) => exit.join(state, &mut self.world.values),
                none => {
                    *none = Some(state.clone());
                    true
                }
            };
            if changed {
                let callers = routine.callers.iter();
                self.open.extend(callers.filter(|caller| self.entries[**caller].is_some()));
            }
        }
        Ok(())
    }

    /// Finds the functions, their callers and what they write.
    fn routines(&mut self) {
        let graph = self.graph;
        let entries: BTreeSet<usize> =
            graph.blocks.iter().filter_map(|block| block.callee).chain([graph.entry]).collect();
        for &entry in &entries {
            let blocks = reached(graph, entry);
            let callers = callers(graph, entry);
            let written = self.written(&blocks);
            let routine = Routine { blocks, callers, written, exit: None };
            self.routines.insert(entry, routine);
        }
        self.spread(&entries);
    }

    /// What a function writes is written by its callers, too.
    fn spread(&mut self, entries: &BTreeSet<usize>) {
        let calls: Vec<(usize, usize)> = entries
            .iter()
            .flat_map(|&entry| {
                let blocks = self.routines[&entry].blocks.iter();
                let callees = blocks.filter_map(|&block| self.graph.blocks[block].callee);
                callees.map(move |callee| (entry, callee)).collect::<Vec<_>>()
            })
            .collect();
        let mut changed = true;
        while changed {
            changed = false;
            for &(caller, callee) in &calls {
                let theirs = self.routines[&callee].written.clone();
                let Some(routine) = self.routines.get_mut(&caller) else { continue };
                for (mine, theirs) in routine.written.iter_mut().zip(theirs) {
                    changed |= theirs && !*mine;
                    *mine |= theirs;
                }
            }
        }
    }

    fn written(&self, blocks: &BTreeSet<usize>) -> Vec<bool> {
        let places = &self.world.places;
        let mut written = vec![false; places.len()];
        let first_barrier = places.barrier(0);
        for &block in blocks {
            for (at, instruction) in self.graph.instructions(block) {
                for number in instruction.destination.iter() {
                    written[places.register(instruction.destination.file, number)] = true;
                }
                if instruction.action == Action::Store(Space::Local) {
                    // Slots lie behind the barriers.
                    written[first_barrier + super::state::BARRIERS..].fill(true);
                }
                if self.forks.contains_key(&at) {
                    let barrier = instruction.fields.bits(16, 4) as u8;
                    written[places.barrier(barrier)] = true;
                }
            }
        }
        written
    }
}

fn loads(graph: &FlowGraph, block: usize) -> bool {
    graph
        .instructions(block)
        .any(|(_, instruction)| matches!(instruction.action, Action::Load(_) | Action::Atomic(_)))
}

fn callers(graph: &FlowGraph, entry: usize) -> Vec<usize> {
    (0..graph.blocks.len()).filter(|&block| graph.blocks[block].callee == Some(entry)).collect()
}

/// The blocks from a function's first one on, without those of functions that it calls.
fn reached(graph: &FlowGraph, entry: usize) -> BTreeSet<usize> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![entry]);
    while let Some(block) = open.pop() {
        if seen.insert(block) {
            open.extend(&graph.blocks[block].next);
        }
    }
    seen
}
