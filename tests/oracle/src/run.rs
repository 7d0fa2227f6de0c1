//! Runs one program: its steps one after the other, each by its own thread of the host.
//!
//! Invariants: a detached wait holds no lock; a step that stays for longer than the limit ends the run where it is; what is found
//! is told by the ledgers after all work is over.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conformance::cu;
use wm_abi::*;

use crate::model::Model;
use crate::outcome::{Outcome, Refused};
use crate::program::{Action, Context, Kind, Node, Program, Step, Way};
use crate::world::{Ready, STAGE, World};

/// What programs of one process have made so far, so that no two marks are alike.
#[derive(Debug, Default)]
pub(crate) struct Marks(u32);

/// A program under way.
struct Running<'a> {
    world: &'a World,
    program: &'a Program,
    /// By step, the step whose mark it looks for.
    expected: Vec<Option<usize>>,
    base: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    streams: Vec<CUstream>,
    blocks: BTreeMap<usize, (CUdeviceptr, u64)>,
    events: BTreeMap<usize, CUevent>,
    graphs: BTreeMap<usize, (CUgraph, CUgraphExec)>,
    gates: Vec<usize>,
    /// Checks that were launched, by step: bytes.
    checks: BTreeMap<usize, u64>,
    /// Checks by copy: step, offset, bytes, mark.
    copies: Vec<(usize, u64, u64, u32)>,
    staged: u64,
    refused: Vec<Refused>,
    wrong: Vec<String>,
}

/// Runs a program. Where the host stays for longer than the limit, the process ends with that as the outcome.
pub(crate) fn run(world: &World, program: &Program, marks: &mut Marks, limit: Duration) -> Ready<Outcome> {
    world.reset(&program.shape)?;
    let expected = expected(program);
    let running = Running { world, program, expected, base: marks.0, state: Mutex::default() };
    marks.0 += program.steps.len() as u32 + 1;
    running.streams()?;
    running.steps(limit);
    running.finish(limit);
    running.verify();
    Ok(running.verdict())
}

/// For each step, whose mark is in the block that it reads.
fn expected(program: &Program) -> Vec<Option<usize>> {
    let mut model = Model::new(&program.shape);
    let expect = |step: &Step| {
        let content = match step.action {
            Action::Check { block, .. } => model.content(block),
            _ => None,
        };
        // Whoever runs an illegal program has asked for it.
        let _legal = model.apply(step);
        content
    };
    program.steps.iter().map(expect).collect()
}

impl Running<'_> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mark that a step writes.
    fn mark(&self, step: usize) -> u32 {
        (self.base + step as u32 + 1).wrapping_mul(0x9e37_79b1) | 1
    }

    fn owner(&self, step: usize) -> u64 {
        let mark = u64::from(self.mark(step));
        mark << 32 | mark
    }

    fn streams(&self) -> Result<(), String> {
        for stream in &self.program.shape.streams {
            let mut handle = match stream.kind {
                Kind::Legacy => CUstream::NULL,
                Kind::PerThread(_) => CUstream::PER_THREAD,
                Kind::Blocking | Kind::NonBlocking => CUstream::NULL,
            };
            if stream.kind.is_created() {
                let flags =
                    if stream.kind == Kind::Blocking { CU_STREAM_DEFAULT } else { CU_STREAM_NON_BLOCKING };
                let current = cu!(self.world.driver, cuCtxSetCurrent(self.world.handle(stream.context)));
                let created = cu!(self.world.driver, cuStreamCreate(&mut handle, flags));
                current.ok().and_then(|()| created.ok()).map_err(|code| format!("cuStreamCreate: {code}"))?;
            }
            self.state().streams.push(handle);
        }
        Ok(())
    }

    /// Makes all steps.
    fn steps(&self, limit: Duration) {
        std::thread::scope(|scope| {
            let (done, over) = mpsc::channel();
            let mut hands = Vec::new();
            for thread in 0..self.program.shape.threads {
                let (hand, orders) = mpsc::channel();
                let done = done.clone();
                scope.spawn(move || self.obey(thread, &orders, &done));
                hands.push(Hand { orders: hand, away: None });
            }
            self.dispatch(&mut hands, &over, limit).unwrap_or_else(|place| self.leave(place));
        });
    }

    /// Says where the run stays, and ends the process: threads that wait for a device for ever cannot be joined.
    fn leave(&self, place: String) -> ! {
        crate::child::say(&Outcome { hang: Some(place), ..self.verdict() });
        // SAFETY: ends the process, whatever its threads do.
        unsafe { libc::_exit(0) }
    }

    fn dispatch(&self, hands: &mut [Hand], over: &Receiver<usize>, limit: Duration) -> Result<(), String> {
        for (number, step) in self.program.steps.iter().enumerate() {
            self.await_hand(hands, step.thread, over, limit)?;
            let hand = &mut hands[step.thread];
            hand.away = Some(number);
            let _thread_lives = hand.orders.send(number);
            if !step.detached {
                self.await_hand(hands, step.thread, over, limit)?;
            }
        }
        // A wait that goes on beside the others may need what nobody has opened.
        self.open_gates();
        (0..hands.len()).try_for_each(|thread| self.await_hand(hands, thread, over, limit))
    }

    /// Waits until a thread is back from its step.
    fn await_hand(
        &self,
        hands: &mut [Hand],
        thread: usize,
        over: &Receiver<usize>,
        limit: Duration,
    ) -> Result<(), String> {
        while let Some(step) = hands[thread].away {
            match over.recv_timeout(limit) {
                Ok(back) => hands[back].away = None,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("step {step}: {}", self.program.steps[step]));
                }
                Err(RecvTimeoutError::Disconnected) => return Err("a thread has ended".into()),
            }
        }
        Ok(())
    }

    fn obey(&self, thread: usize, orders: &Receiver<usize>, done: &Sender<usize>) {
        for step in orders {
            self.perform(step, &self.program.steps[step]);
            if done.send(thread).is_err() {
                return;
            }
        }
    }

    fn note(&self, step: Option<usize>, call: &str, code: CUresult) -> bool {
        if code != CUresult::SUCCESS {
            let refused = Refused { step, call: call.to_owned(), code: code.0 };
            self.state().refused.push(refused);
        }
        code == CUresult::SUCCESS
    }

    fn perform(&self, number: usize, step: &Step) {
        let (d, name) = (self.world.driver, step.action.name());
        let current = cu!(d, cuCtxSetCurrent(self.world.handle(step.current)));
        self.note(Some(number), "cuCtxSetCurrent", current);
        let stream =
            step.action.stream().map(|stream| self.state().streams[stream]).unwrap_or(CUstream::NULL);
        let code = match &step.action {
            Action::Allocate { block, bytes, way } => self.allocate(*block, *bytes, *way, stream),
            Action::Free { block } => self.take(*block).map(|address| cu!(d, cuMemFree_v2(address))),
            Action::FreeIn { block, .. } => {
                self.take(*block).map(|address| cu!(d, cuMemFreeAsync(address, stream)))
            }
            Action::Stamp { .. } | Action::Check { .. } | Action::Copy { .. } => {
                self.access(number, step, stream)
            }
            Action::Spin { microseconds, .. } => Some(self.world.spin(step.current, stream, *microseconds)),
            Action::Close { gate, .. } => {
                self.state().gates.push(*gate);
                Some(cu!(d, cuStreamWaitValue32_v2(stream, self.world.gate(*gate), 1, 0)))
            }
            Action::Open { gate } => {
                self.world.open_gate(*gate);
                None
            }
            Action::Record { event, .. } => self.record(*event, stream),
            Action::Wait { event, .. } => {
                let event = self.state().events.get(event).copied();
                event.map(|event| cu!(d, cuStreamWaitEvent(stream, event, 0)))
            }
            Action::SyncStream { .. } => Some(cu!(d, cuStreamSynchronize(stream))),
            Action::SyncEvent { event } => {
                let event = self.state().events.get(event).copied();
                event.map(|event| cu!(d, cuEventSynchronize(event)))
            }
            Action::SyncContext => Some(cu!(d, cuCtxSynchronize())),
            Action::Idle { .. } => Some(self.until_idle(stream)),
            Action::Busy { .. } => self.while_held(number, stream),
            Action::Trim { pool } => Some(cu!(d, cuMemPoolTrimTo(self.world.pool(*pool), 0))),
            Action::Info => {
                let (mut free, mut total) = (0, 0);
                Some(cu!(d, cuMemGetInfo_v2(&mut free, &mut total)))
            }
            Action::Capture { graph, mode, nodes, .. } => {
                self.capture(number, step.current, *graph, stream, *mode, nodes);
                None
            }
            Action::Launch { graph, .. } => {
                let graph = self.state().graphs.get(graph).copied();
                graph.map(|(_, exec)| cu!(d, cuGraphLaunch(exec, stream)))
            }
            Action::Destroy { .. } => Some(cu!(d, cuStreamDestroy_v2(stream))),
        };
        self.note(Some(number), name, code.unwrap_or(CUresult::SUCCESS));
    }

    fn allocate(&self, block: usize, bytes: u64, way: Way, stream: CUstream) -> Option<CUresult> {
        let (d, mut address, size) = (self.world.driver, 0, bytes as usize);
        let code = match way {
            Way::Plain => cu!(d, cuMemAlloc_v2(&mut address, size)),
            Way::Pitch => {
                // Rows of whole multiples of every pitch, so that no bytes are lost between them.
                let (mut pitch, row) = (0, if bytes.is_multiple_of(4096) { 4096 } else { 512 });
                cu!(d, cuMemAllocPitch_v2(&mut address, &mut pitch, row, size.div_ceil(row), 4))
            }
            Way::Async { .. } => cu!(d, cuMemAllocAsync(&mut address, size, stream)),
            Way::From { pool, .. } => {
                cu!(d, cuMemAllocFromPoolAsync(&mut address, size, self.world.pool(pool), stream))
            }
        };
        if code == CUresult::SUCCESS {
            self.state().blocks.insert(block, (address, bytes));
        }
        Some(code)
    }

    /// The address of a block that is about to be freed.
    fn take(&self, block: usize) -> Option<CUdeviceptr> {
        self.state().blocks.remove(&block).map(|(address, _)| address)
    }

    fn place(&self, block: usize) -> Option<(CUdeviceptr, u64)> {
        self.state().blocks.get(&block).copied()
    }

    fn access(&self, number: usize, step: &Step, stream: CUstream) -> Option<CUresult> {
        let d = self.world.driver;
        match step.action {
            Action::Stamp { block, kernel, .. } => {
                let (address, bytes) = self.place(block)?;
                if kernel {
                    return Some(self.world.own(step.current, stream, address, bytes, self.owner(number)));
                }
                Some(cu!(d, cuMemsetD32Async(address, self.mark(number), bytes as usize / 4, stream)))
            }
            Action::Check { block, kernel, .. } => {
                let (address, bytes) = self.place(block)?;
                let written = self.expected[number]?;
                if !kernel && let Some(code) = self.copy_out(number, address, bytes, written, stream) {
                    return Some(code);
                }
                self.state().checks.insert(number, bytes);
                let (owner, ledger) = (self.owner(written), self.world.ledger(number));
                Some(self.world.check(step.current, stream, address, bytes, owner, ledger))
            }
            Action::Copy { from, to, .. } => {
                let ((from, bytes), (to, _)) = (self.place(from)?, self.place(to)?);
                Some(cu!(d, cuMemcpyDtoDAsync_v2(to, from, bytes as usize, stream)))
            }
            _ => None,
        }
    }

    /// Copies a block out, where there is room.
    fn copy_out(
        &self,
        number: usize,
        address: u64,
        bytes: u64,
        written: usize,
        stream: CUstream,
    ) -> Option<CUresult> {
        let mut state = self.state();
        let offset = state.staged;
        if offset + bytes > STAGE {
            return None;
        }
        state.staged += bytes;
        state.copies.push((number, offset, bytes, self.mark(written)));
        drop(state);
        let to = self.world.stage(offset);
        Some(cu!(self.world.driver, cuMemcpyDtoHAsync_v2(to.cast(), address, bytes as usize, stream)))
    }

    fn record(&self, number: usize, stream: CUstream) -> Option<CUresult> {
        let (d, mut event) = (self.world.driver, CUevent::NULL);
        let created = cu!(d, cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING));
        if created != CUresult::SUCCESS {
            return Some(created);
        }
        self.state().events.insert(number, event);
        Some(cu!(d, cuEventRecord(event, stream)))
    }

    fn until_idle(&self, stream: CUstream) -> CUresult {
        loop {
            match cu!(self.world.driver, cuStreamQuery(stream)) {
                CUresult::NOT_READY => std::thread::sleep(Duration::from_micros(20)),
                code => return code,
            }
        }
    }

    fn while_held(&self, number: usize, stream: CUstream) -> Option<CUresult> {
        match cu!(self.world.driver, cuStreamQuery(stream)) {
            CUresult::NOT_READY => None,
            CUresult::SUCCESS => {
                let step = &self.program.steps[number];
                self.state().wrong.push(format!("step {number}: {step}: the answer is that it is done"));
                None
            }
            code => Some(code),
        }
    }

    fn capture(
        &self,
        number: usize,
        current: Context,
        graph: usize,
        stream: CUstream,
        mode: u32,
        nodes: &[Node],
    ) {
        let (d, note) = (self.world.driver, |call, code| self.note(Some(number), call, code));
        let (mut captured, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
        note("cuStreamBeginCapture", cu!(d, cuStreamBeginCapture_v2(stream, mode)));
        for node in nodes {
            self.node(number, current, stream, *node);
        }
        let ended = note("cuStreamEndCapture", cu!(d, cuStreamEndCapture(stream, &mut captured)));
        if ended && note("cuGraphInstantiate", cu!(d, cuGraphInstantiateWithFlags(&mut exec, captured, 0))) {
            self.state().graphs.insert(graph, (captured, exec));
        }
    }

    fn node(&self, number: usize, current: Context, stream: CUstream, node: Node) {
        let (d, note) = (self.world.driver, |call, code| self.note(Some(number), call, code));
        let (mut address, bytes) = match node {
            Node::Mark { block } => match self.place(block) {
                Some(place) => place,
                None => return,
            },
            Node::Own { bytes } => (0, bytes),
        };
        let own = matches!(node, Node::Own { .. });
        if own && !note("cuMemAllocAsync", cu!(d, cuMemAllocAsync(&mut address, bytes as usize, stream))) {
            return;
        }
        let owner = self.owner(number);
        note("stamp", self.world.own(current, stream, address, bytes, owner));
        let ledger = self.world.ledger(number);
        note("check", self.world.check(current, stream, address, bytes, owner, ledger));
        if own {
            note("cuMemFreeAsync", cu!(d, cuMemFreeAsync(address, stream)));
        }
        // How often a graph runs is not known here.
        self.state().checks.insert(number, 0);
    }

    fn open_gates(&self) {
        let gates = self.state().gates.clone();
        gates.iter().for_each(|gate| self.world.open_gate(*gate));
    }

    /// Waits for everything, gives everything back.
    fn finish(&self, limit: Duration) {
        std::thread::scope(|scope| {
            let (done, over) = mpsc::channel();
            scope.spawn(move || {
                self.give_back();
                let _awaited = done.send(());
            });
            over.recv_timeout(limit).unwrap_or_else(|_| self.leave("the end of the program".to_owned()));
        });
    }

    fn give_back(&self) {
        let (d, note) = (self.world.driver, |call, code| self.note(None, call, code));
        for context in self.world.contexts() {
            note("cuCtxSetCurrent", cu!(d, cuCtxSetCurrent(context)));
            note("cuCtxSynchronize", cu!(d, cuCtxSynchronize()));
        }
        note("cuCtxSetCurrent", cu!(d, cuCtxSetCurrent(self.world.handle(Context::First))));
        let State { blocks, events, graphs, .. } = std::mem::take(&mut *self.parts());
        for (exec, graph) in graphs.values().map(|(graph, exec)| (*exec, *graph)) {
            note("cuGraphExecDestroy", cu!(d, cuGraphExecDestroy(exec)));
            note("cuGraphDestroy", cu!(d, cuGraphDestroy(graph)));
        }
        for (address, _) in blocks.into_values() {
            note("cuMemFree", cu!(d, cuMemFree_v2(address)));
        }
        for event in events.into_values() {
            note("cuEventDestroy", cu!(d, cuEventDestroy_v2(event)));
        }
        self.destroy_streams();
    }

    /// What the program still has, taken out of the state.
    fn parts(&self) -> Box<State> {
        let mut state = self.state();
        let (blocks, events) = (std::mem::take(&mut state.blocks), std::mem::take(&mut state.events));
        let graphs = std::mem::take(&mut state.graphs);
        Box::new(State { blocks, events, graphs, ..State::default() })
    }

    fn destroy_streams(&self) {
        let destroyed = |stream: usize| {
            let is_it =
                |step: &Step| matches!(step.action, Action::Destroy { stream: other } if other == stream);
            self.program.steps.iter().any(is_it)
        };
        let streams = self.state().streams.clone();
        for (number, handle) in streams.into_iter().enumerate() {
            if self.program.shape.streams[number].kind.is_created() && !destroyed(number) {
                self.note(None, "cuStreamDestroy", cu!(self.world.driver, cuStreamDestroy_v2(handle)));
            }
        }
    }

    fn verdict(&self) -> Outcome {
        let state = self.state();
        let copied: u64 = state.copies.iter().map(|(_, _, bytes, _)| bytes).sum();
        Outcome {
            seed: self.program.seed,
            refused: state.refused.clone(),
            wrong: state.wrong.clone(),
            hang: None,
            checked: state.checks.values().sum::<u64>() + copied,
        }
    }

    /// Reads the ledgers and what was copied out. All work is over.
    fn verify(&self) {
        let mut state = self.state();
        let mut wrong = Vec::new();
        for (step, bytes) in &state.checks {
            let [looked, count, at, block, owner, found] = self.world.entries(*step);
            let told = &self.program.steps[*step];
            if count != 0 {
                let byte = at.wrapping_sub(block);
                wrong.push(format!(
                    "step {step}: {told}: {count} words wrong; byte {byte} is of {found:#x}, not {owner:#x}"
                ));
            } else if *bytes != 0 && looked != *bytes {
                wrong.push(format!("step {step}: {told}: {looked} bytes were looked at, not {bytes}"));
            }
        }
        for (step, offset, bytes, mark) in &state.copies {
            // SAFETY: pinned memory of ours, and no copy is under way any more.
            let words = unsafe {
                std::slice::from_raw_parts(self.world.stage(*offset).cast::<u32>(), *bytes as usize / 4)
            };
            let count = words.iter().filter(|word| *word != mark).count();
            if count != 0 {
                wrong.push(format!("step {step}: {}: {count} words wrong", self.program.steps[*step]));
            }
        }
        state.wrong.extend(wrong);
    }
}

/// A thread of the host, from the dispatcher's side.
struct Hand {
    orders: Sender<usize>,
    /// The step that it makes.
    away: Option<usize>,
}
