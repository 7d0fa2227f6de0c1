//! Runs one program: its steps one after the other, each on its own thread of the host.
//!
//! Invariants: a detached wait holds no lock; a step that exceeds the limit is the last one, and
//! ends the process only if it lasts with all gates open; the ledgers report the results after all
//! work is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use conformance::cu;
use wm_abi::*;

use crate::calls::aside;
use crate::clock::Stamp;
use crate::host;
use crate::model::Model;
use crate::outcome::{Outcome, Stay, Took};
use crate::program::{Action, Context, Kind, Program, Step, Stream};
use crate::running::{Beside, MadeGraph, Marks, Running, State};
use crate::world::World;

/// The end of a program is many calls: it may take this many times as long as a step.
const ENDS: u32 = 5;

/// Runs a program. If the host exceeds the limit with all gates open, the process ends with that as
/// the outcome.
pub(crate) fn run(
    world: &World,
    program: &Program,
    marks: &mut Marks,
    limit: Duration,
    beside: Beside,
) -> Result<Outcome> {
    let begin = Instant::now();
    world.reset(program)?;
    host::reset();
    aside::release();
    let Foreseen { expected, held, launched, ordered } = foreseen(program);
    let (base, state) = (marks.0, Mutex::default());
    let running = Running { world, program, expected, held, launched, ordered, base, beside, state };
    marks.0 += program.steps.len() as u32 + 1;
    running.streams()?;
    let prepared = begin.elapsed();
    running.steps(limit);
    let stepped = begin.elapsed();
    running.finish(limit);
    let took = Took { prepare: prepared, steps: stepped - prepared, finish: begin.elapsed() - stepped };
    running.verify();
    Ok(Outcome { took, ..running.verdict() })
}

/// The model's facts about each step: the step whose mark is in the block that it reads and in the
/// host memory that it uses; what graphs write; and the order of the host functions.
struct Foreseen {
    expected: Vec<Option<usize>>,
    held: Vec<Option<(usize, u64)>>,
    launched: Vec<Vec<(usize, usize)>>,
    ordered: Vec<(usize, usize)>,
}

fn foreseen(program: &Program) -> Foreseen {
    let mut model = Model::new(&program.shape);
    let (mut held, mut launched) = (Vec::new(), Vec::new());
    let expect = |step: &Step| {
        let content = match step.action {
            Action::Check { block, .. } | Action::Read { block, .. } => model.content(block),
            Action::Copy { from, .. } | Action::Move { from, .. } => model.content(from),
            _ => None,
        };
        // An illegal program runs only at the user's explicit request.
        let _legal = model.apply(step);
        held.push(match step.action {
            Action::Look { host, .. } | Action::Download { host, .. } => model.host_content(host),
            _ => None,
        });
        launched.push(match step.action {
            Action::Launch { graph, .. } => model.written_by(graph),
            _ => Vec::new(),
        });
        content
    };
    let expected = program.steps.iter().map(expect).collect();
    let notes = model.callbacks();
    let behind = |(first, stamp): &(usize, Stamp)| {
        let later = notes.iter().filter(|(_, other)| stamp.place != other.place && stamp.is_before(other));
        later.map(|(step, _)| (*first, *step)).collect::<Vec<_>>()
    };
    Foreseen { expected, held, launched, ordered: notes.iter().flat_map(behind).collect() }
}

impl Running<'_> {
    fn streams(&self) -> Result<()> {
        for stream in &self.program.shape.streams {
            let handle = match stream.kind {
                Kind::Legacy => CUstream::NULL,
                Kind::PerThread(_) => CUstream::PER_THREAD,
                Kind::Blocking | Kind::NonBlocking if stream.late => CUstream::NULL,
                Kind::Blocking | Kind::NonBlocking => {
                    let used = self.world.used_stream(stream.context, stream.kind);
                    used.map_or_else(|| self.create(*stream), Ok)?
                }
            };
            self.state().streams.push(handle);
        }
        Ok(())
    }

    /// Makes all steps.
    fn steps(&self, limit: Duration) {
        std::thread::scope(|scope| {
            let (done, over) = mpsc::channel();
            let (mut hands, mut threads) = (Vec::new(), Vec::new());
            for thread in 0..self.program.shape.threads {
                let (hand, orders) = mpsc::channel();
                let done = done.clone();
                threads.push(scope.spawn(move || self.obey(thread, &orders, &done)));
                hands.push(Hand { orders: hand, away: None });
            }
            let ended = Arc::new(AtomicBool::new(false));
            let blocks = || self.state().blocks.values().copied().collect();
            let adviser = self.beside.advice.map(|advice| {
                let ended = Arc::clone(&ended);
                scope.spawn(move || advice.go_on(self.program, &ended, blocks))
            });
            let pauser = self.beside.pauses.map(|pauses| {
                let ended = Arc::clone(&ended);
                scope.spawn(move || pauses.go_on(self.program.seed, &ended))
            });
            let made = self.dispatch(&mut hands, &over, limit);
            ended.store(true, Ordering::SeqCst);
            threads.extend(adviser.into_iter().chain(pauser));
            made.unwrap_or_else(|step| self.stay(step, &mut hands, &over, limit));
            drop(hands);
            self.state().ending = "the end of its threads";
            self.join(threads, limit * ENDS);
        });
    }

    /// Waits until the threads are gone. A scope alone waits only for their closures, not for the
    /// driver's clean-up when a thread ends.
    fn join(&self, threads: Vec<ScopedJoinHandle<'_, ()>>, limit: Duration) {
        std::thread::scope(|scope| {
            let (done, over) = mpsc::channel();
            scope.spawn(move || {
                threads.into_iter().for_each(|thread| thread.join().expect("a step does not panic"));
                let _awaited = done.send(());
            });
            over.recv_timeout(limit).unwrap_or_else(|_| self.leave());
        });
    }

    /// A step exceeds the limit. If it waits for a gate alone, the process can go on with other
    /// programs.
    fn stay(&self, step: usize, hands: &mut [Hand], over: &Receiver<usize>, limit: Duration) {
        let place = format!("step {step}: {}", self.program.steps[step]);
        self.state().hang = Some(Stay { step: Some(step), place, for_good: false });
        self.open_gates();
        gather(hands, over, limit).unwrap_or_else(|_| self.leave());
    }

    /// Reports the place of the hang, and ends the process: threads that wait for a device for ever
    /// cannot be joined.
    fn leave(&self) -> ! {
        let mut outcome = self.verdict();
        let call = self.state().ending;
        let end = || Stay { step: None, place: format!("the end of the program: {call}"), for_good: true };
        outcome.hang = Some(outcome.hang.map_or_else(end, |stay| Stay { for_good: true, ..stay }));
        outcome.hand_over();
        // SAFETY: ends the process, in any state of its threads.
        unsafe { libc::_exit(0) }
    }

    /// Makes the steps; the first that exceeds the limit is an error.
    fn dispatch(&self, hands: &mut [Hand], over: &Receiver<usize>, limit: Duration) -> Result<(), usize> {
        for (number, step) in self.program.steps.iter().enumerate() {
            await_hand(hands, step.thread, over, limit)?;
            let hand = &mut hands[step.thread];
            hand.away = Some(number);
            let _thread_lives = hand.orders.send(number);
            if !step.detached {
                await_hand(hands, step.thread, over, limit)?;
            }
        }
        // A detached wait may need a gate that no step has opened yet.
        self.open_gates();
        gather(hands, over, limit)
    }

    fn obey(&self, thread: usize, orders: &Receiver<usize>, done: &Sender<usize>) {
        for step in orders {
            let begin = Instant::now();
            self.perform(step, &self.program.steps[step]);
            self.state().times.insert(step, begin.elapsed());
            self.advise_after(step);
            // A wait may return beside another thread's copy.
            if !self.program.steps[step].action.is_wait() && self.world.has_carried() {
                self.state().relayed.push(step);
            }
            if done.send(thread).is_err() {
                break;
            }
        }
        self.end_own_streams(thread);
    }

    /// Waits for a thread's own default streams: a thread that ends with work in them could hang in
    /// the driver's own clean-up, also without a preload (docs/dev/ordering.md).
    fn end_own_streams(&self, thread: usize) {
        let d = self.world.driver;
        let own = |stream: &&Stream| stream.kind == Kind::PerThread(thread);
        for stream in self.program.shape.streams.iter().filter(own) {
            let code = cu!(d, cuCtxSetCurrent(self.world.handle(stream.context)));
            self.record_code(None, "cuCtxSetCurrent", code);
            self.record_code(None, "cuStreamSynchronize", cu!(d, cuStreamSynchronize(CUstream::PER_THREAD)));
        }
    }

    fn open_gates(&self) {
        let gates = self.state().gates.clone();
        gates.iter().for_each(|gate| self.world.open_gate(*gate));
    }

    /// Waits for all work and releases everything: many calls, some of which end contexts.
    fn finish(&self, limit: Duration) {
        std::thread::scope(|scope| self.join(vec![scope.spawn(|| self.give_back())], limit * ENDS));
    }

    fn give_back(&self) {
        let d = self.world.driver;
        // During a hang, the present call is known.
        macro_rules! end {
            ($call:ident($($argument:expr),*)) => {{
                self.state().ending = stringify!($call);
                let code = cu!(d, $call($($argument),*));
                self.record_code(None, stringify!($call), code);
            }};
        }
        for context in self.world.contexts() {
            end!(cuCtxSetCurrent(context));
            end!(cuCtxSynchronize());
        }
        end!(cuCtxSetCurrent(self.world.handle(Context::First)));
        let mapped: Vec<usize> = self.state().mapped.keys().copied().collect();
        for block in mapped {
            self.state().ending = "cuMemUnmap";
            let code = self.give_mapped_up(block).unwrap_or(CUresult::SUCCESS);
            self.record_code(None, "cuMemUnmap", code);
        }
        let State { blocks, events, graphs, .. } = std::mem::take(&mut *self.take_objects());
        for MadeGraph { graph, exec, .. } in graphs.into_values() {
            end!(cuGraphExecDestroy(exec));
            end!(cuGraphDestroy(graph));
        }
        for (address, _) in blocks.into_values() {
            end!(cuMemFree_v2(address));
        }
        for event in events.into_values() {
            end!(cuEventDestroy_v2(event));
        }
        self.state().ending = "cuStreamDestroy";
        self.destroy_streams();
        self.state().ending = "cuCtxDestroy";
        self.record_code(None, "cuCtxDestroy", self.world.leave());
    }

    /// The program's remaining objects, taken out of the state.
    fn take_objects(&self) -> Box<State> {
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
            if !matches!(handle, CUstream::NULL | CUstream::PER_THREAD) && !destroyed(number) {
                let Stream { context, kind, .. } = self.program.shape.streams[number];
                self.record_code(None, "cuStreamDestroy", self.world.leave_stream(context, kind, handle));
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
            early: state.early.clone(),
            hang: state.hang.clone(),
            relayed: state.relayed.clone(),
            moved: 0,
            asks: 0,
            times: self.times(&state),
            checked: state.checks.values().sum::<u64>() + copied + state.read,
            took: Took::default(),
        }
    }

    /// The host has waited for the context: as long as no other step is made the device is idle.
    fn advise_after(&self, number: usize) {
        let step = &self.program.steps[number];
        if let (Some(advice), Action::SyncContext, false) = (self.beside.advice, &step.action, step.detached)
        {
            let blocks: Vec<_> = self.state().blocks.values().copied().collect();
            advice.give_some(self.program.seed.wrapping_add(number as u64), &blocks);
        }
    }

    /// By step; none for one that was not made, or that goes on beside others: it may wait for
    /// them.
    fn times(&self, state: &State) -> Vec<Duration> {
        let time = |(number, step): (usize, &Step)| {
            state.times.get(&number).filter(|_| !step.detached).copied().unwrap_or_default()
        };
        self.program.steps.iter().enumerate().map(time).collect()
    }

    /// Reads the ledgers and the bytes that were copied out. All work is over.
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
            // SAFETY: pinned memory of ours, and no copy is in flight any more.
            let words = unsafe {
                std::slice::from_raw_parts(self.world.stage(*offset).cast::<u32>(), *bytes as usize / 4)
            };
            let count = words.iter().filter(|word| *word != mark).count();
            if count != 0 {
                wrong.push(format!("step {step}: {}: {count} words wrong", self.program.steps[*step]));
            }
        }
        for step in state.notes.iter().filter(|step| host::wrong(**step) != 0) {
            let (told, count) = (&self.program.steps[*step], host::wrong(*step));
            wrong.push(format!("step {step}: {told}: {count} words wrong"));
        }
        state.wrong.extend(wrong);
        let called = |step: &usize| state.notes.contains(step);
        let reversed = |(first, second): &&(usize, usize)| {
            let (one, other) = (host::taken(*first), host::taken(*second));
            called(first) && called(second) && (one == 0 || one >= other)
        };
        let turned = self.ordered.iter().find(reversed).map(|(first, second)| {
            format!("step {second}: {}: called before step {first}", self.program.steps[*second])
        });
        state.wrong.extend(turned);
    }
}

/// A thread of the host, from the dispatcher's side.
struct Hand {
    orders: Sender<usize>,
    /// The step that it makes.
    away: Option<usize>,
}

/// Waits until a thread has made its step; if it exceeds the limit, the step is an error.
fn await_hand(
    hands: &mut [Hand],
    thread: usize,
    over: &Receiver<usize>,
    limit: Duration,
) -> Result<(), usize> {
    while let Some(step) = hands[thread].away {
        // Threads end after the dispatcher only.
        let back = over.recv_timeout(limit).map_err(|_| step)?;
        hands[back].away = None;
    }
    Ok(())
}

/// Waits until all threads have made their steps.
fn gather(hands: &mut [Hand], over: &Receiver<usize>, limit: Duration) -> Result<(), usize> {
    (0..hands.len()).try_for_each(|thread| await_hand(hands, thread, over, limit))
}
