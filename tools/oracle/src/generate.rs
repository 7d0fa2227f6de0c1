//! Draws programs. Each step is tried on the model of the rules, and stays if it is legal.
//!
//! Each program has weights of its own: few kinds of streams, few sizes, many gates or none. So
//! some programs repeat situations that are rare in others.

mod bent;
mod graphs;
mod hosts;
mod order;
mod wishes;

use crate::model::Model;
use crate::program::{Action, Context, Kind, Pool, Program, Shape, Step, Stream, Way};
use bent::{Bent, Draw, HUGE};
use random::{Choices, Random};
pub(crate) use wishes::Wishes;

/// Larger blocks are not worth the time to write them.
const TOUCHED: u64 = 64 << 20;

struct Generator {
    random: Random,
    shape: Shape,
    bent: Bent,
    model: Model,
    steps: Vec<Step>,
    /// The next number of a block, event, gate or graph.
    number: usize,
}

/// The program of a seed.
pub(crate) fn program(seed: u64, wishes: &Wishes) -> Program {
    let mut random = Random::with_seed(seed);
    let (shape, contexts) = bent::shape(&mut random, wishes);
    let bent = bent::bent(&mut random, wishes, &shape, contexts);
    let model = Model::new(&shape);
    let mut generator = Generator { random, shape, bent, model, steps: Vec::new(), number: 0 };
    let length = wishes.steps / 4 + generator.random.below(wishes.steps * 3 / 4 + 1);
    // A draw that is legal nowhere is a draw less.
    for _ in 0..length * 20 {
        if generator.steps.len() >= length {
            break;
        }
        generator.draw();
    }
    generator.close();
    Program { seed, shape: generator.shape, steps: generator.steps }
}

impl Generator {
    fn is_legal(&self, steps: &[Step]) -> bool {
        let mut model = self.model.clone();
        steps.iter().all(|step| model.apply(step).is_ok())
    }

    /// Enters steps if they are legal, one after the other.
    fn enter(&mut self, steps: Vec<Step>) -> bool {
        let mut model = self.model.clone();
        let legal = !steps.is_empty() && steps.iter().all(|step| model.apply(step).is_ok());
        if legal {
            self.model = model;
            // A few steps may need two gates.
            self.number += 2;
            self.steps.extend(steps);
        }
        legal
    }

    fn draw(&mut self) {
        let draw = self.random.weighted(&self.bent.draws.clone());
        for _ in 0..6 {
            let steps = self.propose(draw).unwrap_or_default();
            if self.enter(steps) {
                return;
            }
        }
    }

    fn propose(&mut self, draw: Draw) -> Option<Vec<Step>> {
        match draw {
            Draw::Allocate => self.allocate(),
            Draw::Free => self.free(),
            Draw::Access => self.access(),
            Draw::Copy => self.copy(),
            Draw::Handover => self.handover(),
            Draw::Spin => {
                let (stream, microseconds) = (self.stream()?, 20 << self.random.below(5));
                Some(vec![self.step(Action::Spin { stream, microseconds })])
            }
            Draw::Close => {
                let (gate, stream) = (self.number, self.stream()?);
                let few = self.model.closed().len() < 3;
                few.then(|| vec![self.step(Action::Close { gate, stream })])
            }
            Draw::Open => {
                let gate = self.random.pick(&self.model.closed())?;
                Some(vec![self.step(Action::Open { gate })])
            }
            Draw::Event => self.event(),
            Draw::Sync => self.sync(),
            Draw::Query => {
                let stream = self.stream()?;
                let action =
                    if self.random.one_in(2) { Action::Idle { stream } } else { Action::Busy { stream } };
                Some(vec![self.step(action)])
            }
            Draw::Trim => {
                let pool = self.pool();
                Some(vec![self.step(Action::Trim { pool })])
            }
            Draw::Info => Some(vec![self.step(Action::Info)]),
            Draw::Capture => self.capture(),
            Draw::Launch => self.launch(),
            Draw::Build => self.build(),
            Draw::Retarget => self.retarget(),
            Draw::EndGraph => {
                let graph = self.random.pick(&self.model.graphs())?;
                Some(vec![self.step(Action::EndGraph { graph })])
            }
            Draw::Destroy => {
                let stream = self.stream()?;
                Some(vec![self.step(Action::Destroy { stream })])
            }
            Draw::Create => self.create(),
            Draw::Note => {
                let stream = self.stream()?;
                Some(vec![self.step(Action::Note { stream })])
            }
            Draw::Unlock => {
                let (gate, stream) = (self.random.pick(&self.model.closed())?, self.stream()?);
                Some(vec![self.step(Action::Unlock { gate, stream })])
            }
            Draw::Now => self.now(),
            Draw::Lean => self.lean(),
            Draw::Overtake => self.overtake(),
            Draw::Upload => self.upload(),
            Draw::Download => self.download(),
            Draw::Relay => self.relay(),
            Draw::AtHost => self.at_host(),
            Draw::Renew => self.renew(),
            Draw::Aside => self.aside(),
        }
    }

    /// A step by a thread, in a context, that may make it.
    fn step(&mut self, action: Action) -> Step {
        let stream = action.stream().map(|stream| self.shape.streams[stream]);
        let thread = match stream {
            Some(Stream { kind: Kind::PerThread(thread), .. }) => thread,
            _ => self.random.below(self.shape.threads),
        };
        let any = if self.bent.aloof { None } else { self.random.pick(&self.bent.contexts) };
        let any = any.unwrap_or(Context::First);
        // Calls may name a stream of a context that is not current.
        let may = matches!(action, Action::Allocate { .. } | Action::FreeIn { .. });
        let strange = may && (self.bent.aloof || self.random.one_in(8));
        let current = match stream {
            Some(stream) if !(strange && stream.kind.is_created()) => stream.context,
            _ => any,
        };
        Step { thread, current, detached: false, action }
    }

    fn stream(&mut self) -> Option<usize> {
        self.random.pick(&self.model.streams())
    }

    /// A stream to allocate or free in.
    fn usual_stream(&mut self) -> Option<usize> {
        let home = self.bent.home.filter(|stream| self.model.streams().contains(stream));
        if self.random.one_in(4) { self.stream() } else { home.or_else(|| self.stream()) }
    }

    fn block(&mut self) -> Option<usize> {
        let blocks: Vec<usize> = self.model.live().map(|(number, _)| number).collect();
        self.random.pick(&blocks)
    }

    /// A block that is written and read.
    fn touched(&mut self) -> Option<usize> {
        let small = self.model.live().filter(|(_, block)| block.bytes <= TOUCHED);
        let blocks: Vec<usize> = small.map(|(number, _)| number).collect();
        self.random.pick(&blocks)
    }

    fn pool(&mut self) -> Pool {
        let device = self.random.pick(&self.bent.contexts).map_or(0, Context::device);
        Pool { device, own: self.random.one_in(2) }
    }

    /// As likely as not the stream in which a block was used last.
    fn near(&mut self, block: usize) -> Option<usize> {
        let last =
            self.model.live().find(|(number, _)| *number == block).and_then(|(_, block)| block.last_stream());
        let last = last.filter(|stream| self.model.streams().contains(stream));
        if self.random.one_in(2) { last.or_else(|| self.stream()) } else { self.stream() }
    }

    fn allocate(&mut self) -> Option<Vec<Step>> {
        if self.model.live().count() >= self.bent.blocks {
            return None;
        }
        let (block, bytes, stream) = (self.number, self.random.pick(&self.bent.sizes)?, self.usual_stream()?);
        let way = match self.random.weighted(&self.bent.ways.clone()) {
            0 => Way::Plain,
            1 if bytes < HUGE => Way::Pitch,
            3 => Way::From { pool: Pool { own: false, ..self.pool() }, stream },
            4 => Way::From { pool: Pool { own: true, ..self.pool() }, stream },
            5 if bytes < HUGE => Way::Mapped { parts: 1 + self.random.below(4) },
            _ => Way::Async { stream },
        };
        let mut steps = vec![self.step(Action::Allocate { block, bytes, way })];
        let fill = bytes <= TOUCHED && !self.random.one_in(3);
        let near = way_stream(way).filter(|_| self.random.one_in(2));
        if let (true, Some(stream)) = (fill, near.or_else(|| self.stream())) {
            let kernel = self.bent.kernels || self.random.one_in(2);
            steps.push(self.step(Action::Stamp { block, stream, kernel }));
        }
        // Steps without an order behind the allocation are left out; a later step fills the block.
        if !self.is_legal(&steps) {
            steps.truncate(1);
        }
        Some(steps)
    }

    fn free(&mut self) -> Option<Vec<Step>> {
        let block = self.block()?;
        if self.is_mapped(block) {
            let wait = self.step(Action::SyncContext);
            return Some(vec![wait, self.step(Action::Free { block })]);
        }
        if self.random.one_in(4) {
            return Some(vec![self.step(Action::Free { block })]);
        }
        let stream = if self.random.one_in(2) { self.usual_stream()? } else { self.near(block)? };
        let free = self.step(Action::FreeIn { block, stream });
        // The host may wait until the block is free.
        if self.random.one_in(6) {
            return Some(vec![free, self.step(Action::SyncStream { stream })]);
        }
        // Or the stream goes with the free still to come.
        if self.random.one_in(16) && self.shape.streams[stream].kind.is_created() {
            return Some(vec![free, self.step(Action::Destroy { stream })]);
        }
        Some(vec![free])
    }

    fn is_mapped(&self, block: usize) -> bool {
        self.model.live().any(|(number, found)| number == block && found.is_mapped())
    }

    /// Memory of the program's own is mapped again, mostly behind a wait.
    fn renew(&mut self) -> Option<Vec<Step>> {
        let mapped = self.model.live().filter(|(_, block)| block.is_mapped());
        let mapped: Vec<usize> = mapped.map(|(number, _)| number).collect();
        let (block, how) = (self.random.pick(&mapped)?, self.random.pick(self.bent.renewals)?);
        let waits = !self.random.one_in(4);
        let mut steps: Vec<Step> = waits.then(|| self.step(Action::SyncContext)).into_iter().collect();
        steps.push(self.step(Action::Renew { block, how }));
        Some(steps)
    }

    fn use_of(&mut self, block: usize, stream: usize) -> Action {
        let kernel = self.bent.kernels || !self.random.one_in(3);
        match self.random.below(5) {
            0 | 1 => Action::Stamp { block, stream, kernel },
            _ => Action::Check { block, stream, kernel },
        }
    }

    fn access(&mut self) -> Option<Vec<Step>> {
        let block = self.touched()?;
        let stream = self.near(block)?;
        let action = self.use_of(block, stream);
        Some(vec![self.step(action)])
    }

    fn copy(&mut self) -> Option<Vec<Step>> {
        let (from, to) = (self.touched()?, self.touched()?);
        let stream = self.near(from)?;
        Some(vec![self.step(Action::Copy { from, to, stream })])
    }

    /// A stream comes, often where another one has just gone: its handle may come again.
    fn create(&mut self) -> Option<Vec<Step>> {
        let unborn = self.model.unborn();
        let gone = self.stream()?;
        let same: Vec<usize> = unborn.iter().copied().filter(|stream| self.is_alike(*stream, gone)).collect();
        let replaced = (!same.is_empty() && self.random.one_in(2)).then_some(gone);
        let stream = self.random.pick(if replaced.is_some() { &same } else { &unborn })?;
        let mut steps: Vec<Step> =
            replaced.into_iter().map(|stream| self.step(Action::Destroy { stream })).collect();
        steps.push(self.step(Action::Create { stream }));
        Some(steps)
    }

    fn is_alike(&self, one: usize, other: usize) -> bool {
        let streams = &self.shape.streams;
        streams[other].kind.is_created() && streams[one].context == streams[other].context
    }

    /// A copy or a memset without a stream.
    fn now(&mut self) -> Option<Vec<Step>> {
        let defaults = self.model.streams().into_iter();
        let defaults: Vec<usize> =
            defaults.filter(|stream| !self.shape.streams[*stream].kind.is_created()).collect();
        let (stream, block) = (self.random.pick(&defaults)?, self.touched()?);
        let action = match self.random.below(6) {
            0 => Action::Fill { block, stream },
            1 => Action::Set { block, stream },
            2 => Action::Move { from: block, to: self.touched()?, stream },
            _ => Action::Read { block, stream },
        };
        let last = self.model.live().find(|(number, _)| *number == block)?.1.last_stream();
        // Where a default stream is not behind the block's last use, an event may help.
        let mut steps = match last.filter(|last| *last != stream && self.random.one_in(2)) {
            Some(last) => {
                let event = self.number;
                let record = self.step(Action::Record { event, stream: last });
                vec![record, self.step(Action::Wait { event, stream })]
            }
            None => Vec::new(),
        };
        steps.push(self.step(action));
        Some(steps)
    }

    /// Uses or frees a block in another stream, behind an event.
    fn handover(&mut self) -> Option<Vec<Step>> {
        let block = self.touched()?;
        let last = self.model.live().find(|(number, _)| *number == block)?.1.last_stream()?;
        let (event, stream) = (self.number, self.stream()?);
        let action =
            if self.random.one_in(2) { Action::FreeIn { block, stream } } else { self.use_of(block, stream) };
        let record = self.step(Action::Record { event, stream: last });
        Some(vec![record, self.step(Action::Wait { event, stream }), self.step(action)])
    }

    fn event(&mut self) -> Option<Vec<Step>> {
        let stream = self.stream()?;
        if self.random.one_in(2) {
            let event = self.number;
            return Some(vec![self.step(Action::Record { event, stream })]);
        }
        let event = self.random.pick(&self.model.events())?;
        Some(vec![self.step(Action::Wait { event, stream })])
    }

    fn sync(&mut self) -> Option<Vec<Step>> {
        let action = match self.random.below(4) {
            0 => Action::SyncEvent { event: self.random.pick(&self.model.events())? },
            1 => Action::SyncContext,
            _ => Action::SyncStream { stream: self.stream()? },
        };
        let detached = self.shape.threads > 1 && self.random.one_in(3);
        let step = self.step(action);
        Some(vec![Step { detached, ..step }])
    }

    /// Opens the closed gates, and checks all remaining blocks.
    fn close(&mut self) {
        let closed = self.model.closed();
        for gate in closed {
            let step = self.step(Action::Open { gate });
            self.enter(vec![step]);
        }
        let left: Vec<usize> = self.model.live().map(|(number, _)| number).collect();
        for block in left {
            let Some(stream) = self.near(block) else { continue };
            let step = self.step(Action::Check { block, stream, kernel: true });
            self.enter(vec![step]);
        }
        self.close_hosts();
    }
}

fn way_stream(way: Way) -> Option<usize> {
    match way {
        Way::Async { stream } | Way::From { stream, .. } => Some(stream),
        Way::Plain | Way::Pitch | Way::Mapped { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a generator that draws little of the language, or steps that its own rules forbid.
    use std::collections::BTreeSet;

    use super::*;
    use crate::program::{Node, Rules};

    const RULES: Rules =
        Rules { allocation_is_action: true, free_is_action: true, short: false, lawless: false };

    fn wishes() -> Wishes {
        let (green, gates, scarce, copies, held_copies) = (true, true, false, false, true);
        let (sibling, mapped, moves) = (copies, false, false);
        let (devices, steps, rules) = (2, 60, RULES);
        Wishes { devices, steps, rules, green, gates, scarce, copies, sibling, held_copies, mapped, moves }
    }

    #[test]
    fn what_is_drawn_is_legal_and_repeats() {
        for seed in 0..60 {
            let wishes = Wishes { copies: seed % 2 == 0, mapped: seed % 3 == 0, ..wishes() };
            let drawn = program(seed, &wishes);
            assert_eq!(drawn, program(seed, &wishes));
            let mut model = Model::new(&drawn.shape);
            for step in &drawn.steps {
                assert_eq!(model.apply(step), Ok(()), "{drawn}");
            }
        }
    }

    #[test]
    fn half_of_the_programs_hold_nothing_up_and_most_others_make_no_copies() {
        let has = |p: &Program, is: fn(&Action) -> bool| p.steps.iter().any(|step| is(&step.action));
        let is_gate = |action: &Action| matches!(action, Action::Close { .. });
        let is_copy = |action: &Action| {
            use Action::*;
            matches!(action, Copy { .. } | Stamp { kernel: false, .. } | Check { kernel: false, .. })
        };
        let programs: Vec<Program> = (0..300).map(|seed| program(seed, &wishes())).collect();
        let held: Vec<&Program> = programs.iter().filter(|p| has(p, is_gate)).collect();
        let copying = held.iter().filter(|p| has(p, is_copy)).count();
        assert!((90..=180).contains(&held.len()), "{} of 300", held.len());
        assert!((1..held.len() / 3).contains(&copying), "{copying} of {}", held.len());
    }

    #[test]
    fn every_step_is_drawn() {
        let wishes = Wishes { mapped: true, ..wishes() };
        let programs = (0..200).map(|seed| program(seed, &wishes));
        let drawn: BTreeSet<&str> =
            programs.flat_map(|p| p.steps.into_iter().map(|s| s.action.name())).collect();
        assert_eq!(drawn.len(), 32 + 4, "{drawn:?}");
    }

    #[test]
    fn graphs_beside_moves_name_blocks_and_change() {
        let wishes = Wishes { green: false, devices: 1, moves: true, ..wishes() };
        let (mut drawn, mut launched) = (BTreeSet::new(), 0);
        for program in (0..200).map(|seed| program(seed, &wishes)) {
            let mut named = BTreeSet::new();
            for step in program.steps {
                drawn.insert(step.action.name());
                match step.action {
                    Action::Build { graph, .. } => _ = named.insert(graph),
                    Action::Capture { graph, nodes, .. } if nodes.iter().any(Node::is_built) => {
                        _ = named.insert(graph);
                    }
                    Action::Launch { graph, .. } => launched += usize::from(named.contains(&graph)),
                    _ => {}
                }
            }
        }
        let changes =
            ["cuGraphExecUpdate", "cuGraphExecMemsetNodeSetParams", "cuGraphExecDestroy", "cuGraphLaunch"];
        assert!(changes.iter().all(|change| drawn.contains(change)), "{drawn:?}");
        assert!(launched > 100, "{launched} launches of graphs that name blocks");
    }

    #[test]
    fn copies_of_both_kinds_of_host_memory_are_drawn_in_every_kind_of_stream() {
        let wishes = Wishes { copies: true, ..wishes() };
        let (mut drawn, mut captured) = (BTreeSet::new(), 0);
        for program in (0..200).map(|seed| program(seed, &wishes)) {
            for step in &program.steps {
                if let Action::Capture { nodes, .. } = &step.action {
                    captured += nodes.iter().filter(|node| node.ends().is_some()).count();
                }
                if let Action::Upload { stream, .. } | Action::Download { stream, .. } = step.action {
                    let kind = match program.shape.streams[stream].kind {
                        Kind::PerThread(_) => "per thread".to_owned(),
                        kind => format!("{kind:?}"),
                    };
                    drawn.insert(format!("{} in {kind}", program.name_of(step)));
                }
            }
        }
        // Each of four asynchronous forms in four kinds of streams, each of four that wait in the
        // two default ones.
        assert_eq!(drawn.len(), 4 * 4 + 4 * 2, "{drawn:?}");
        assert!(captured > 20, "{captured} copies in graphs");
    }
}
