//! Moves of live memory between the device and the host: whether there may be any, and when nothing
//! is in their way.
//!
//! A move is sound where no work touches the memory, and nothing outside relies on where it is.
//! Calls that submit work wait at the gate ([`crate::gate`]), what was submitted before is looked
//! for by the manager, and what relies on memory is looked for here, behind the closed gate. All of
//! it errs towards memory that stays.

mod fingerprints;
mod graphs;
mod last_use;
mod leaving;
mod limits;
mod named_ranges;
pub(crate) mod paused;
mod pieces;
pub(crate) mod pin_reason;
mod predictor;
mod refusals;
mod rhythm;
mod room;
mod sizes;
mod slices;
mod spans;
mod step;
mod step_pace;
mod stops;
mod tensor_life;
mod told_tensors;
mod touched_groups;
mod wait_budget;
#[cfg(test)]
mod wait_model;
mod waits;
mod way_trial;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use wm_abi::{CUcontext, CUdevice, CUgraphExec, CUresult};
use wm_driver::{Device, Gpu, KeyedFingerprint};
use wm_memory::Manager;

use crate::events::{self, BlockAllocated, BlockFreed, BlockSubscriber};
use crate::gate::GATE;
use crate::launches::{self, Launch, LaunchWord, LaunchedWork, Subscriber};
use crate::registry;
use crate::settings::{Migrate, Pause, Settings};
use fingerprints::Fingerprints;
pub(crate) use graphs::{GraphChange, GraphOwner, GraphUses};
use graphs::{Graphs, RangeChanges};
use last_use::LastUse;
use predictor::Predictor;
use refusals::RefusalLog;
pub(crate) use refusals::WhyNot;
use spans::Spans;
pub(crate) use step::{StepEnd, StepTerms};
use step_pace::StepPace;
use waits::Waits;

/// Moves in a process.
pub(crate) struct Migrations {
    /// Memory can move, for moves, pauses or limits: calls that submit work have passed the gate
    /// from the first on. Decided at load.
    is_on: AtomicBool,
    /// The library moves it by itself, and as the program advises (`WMSHIM_MIGRATE`).
    is_migrating: AtomicBool,
    /// It moves only where that was measured to be faster.
    is_careful: AtomicBool,
    /// Pauses need the record of last uses, also while nothing else of the library works.
    is_for_pauses: AtomicBool,
    last_use: LastUse,
    /// From the first block on that finds no room.
    predictor: Mutex<Option<Predictor>>,
    /// There is one. Launches are recorded, except in its recess.
    has_predictor: AtomicBool,
    /// A thread moves memory.
    is_moving: AtomicBool,
    step_pace: Mutex<StepPace>,
    waits: Waits,
    refusals: RefusalLog,
    fingerprints: Fingerprints,
    graphs: Graphs,
    /// No graph was made yet.
    is_before_graphs: AtomicBool,
    /// The program has a piece that may take part.
    has_pieces: AtomicBool,
    spans: Mutex<Spans>,
}

impl Migrations {
    pub(crate) const fn new() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            is_migrating: AtomicBool::new(false),
            is_careful: AtomicBool::new(false),
            is_for_pauses: AtomicBool::new(false),
            last_use: LastUse::new(),
            predictor: Mutex::new(None),
            has_predictor: AtomicBool::new(false),
            is_moving: AtomicBool::new(false),
            step_pace: Mutex::new(StepPace::NEW),
            waits: Waits::new(),
            refusals: RefusalLog::new(),
            fingerprints: Fingerprints::new(),
            graphs: Graphs::new(),
            is_before_graphs: AtomicBool::new(true),
            has_pieces: AtomicBool::new(false),
            spans: Mutex::new(Spans::new()),
        }
    }

    /// Decides for the whole process whether memory may move. To be called before the first hook is
    /// connected. `events` tells this value of blocks.
    pub(crate) fn choose(&self, settings: &Settings, events: BlockSubscriber) {
        let is_for_pauses = settings.may_pause();
        if settings.migrate == Migrate::Off && !is_for_pauses || settings.disable {
            return;
        }
        if let Some(why) = pin_reason::of_settings(settings) {
            let named = match settings.migrate {
                // Nothing that was asked for is missing.
                Migrate::Auto if !is_for_pauses => return log::debug!("memory does not move with {why}"),
                Migrate::On | Migrate::Asked => "WMSHIM_MIGRATE",
                _ if settings.pause != Pause::Off => "WMSHIM_PAUSE",
                _ => "WMSHIM_SHARE",
            };
            return log::warn!("{named} has no effect with {why}");
        }
        self.is_on.store(true, Relaxed);
        GATE.turn_on();
        let is_migrating = settings.migrates_by_itself();
        if !is_migrating && !is_for_pauses {
            return;
        }
        self.is_migrating.store(is_migrating, Relaxed);
        self.is_careful.store(settings.migrate == Migrate::Auto, Relaxed);
        self.is_for_pauses.store(is_for_pauses, Relaxed);
        launches::expect_subscription();
        if self.notes_last_uses(settings) {
            self.last_use.turn_on();
            launches::subscribe(Subscriber::LastUse);
        }
        events::subscribe(events);
    }

    /// Are launches noted before the first shortage? Nothing is to be moved by what they used then,
    /// where it is measured first.
    fn notes_last_uses(&self, settings: &Settings) -> bool {
        settings.migrate == Migrate::On || self.is_for_pauses.load(Relaxed)
    }

    /// When a wait of the host begins, if its time is of interest.
    pub(crate) fn begin_of_wait(&self) -> Option<Instant> {
        self.is_recording().then(Instant::now)
    }

    /// The host has waited for work of its own.
    pub(crate) fn host_waited(&self, time: Duration) {
        self.waits.host_waited(time);
    }

    /// Does the predictor record what the program does?
    #[inline]
    fn is_recording(&self) -> bool {
        self.has_predictor.load(Relaxed)
    }

    /// Can memory move?
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Does it move by itself, and on advice?
    #[inline]
    pub(crate) fn is_migrating(&self) -> bool {
        self.is_migrating.load(Relaxed)
    }

    /// Does memory come back by itself once there is room for it? With care only used memory does.
    pub(crate) fn brings_back(&self) -> bool {
        self.is_migrating() && !self.is_careful()
    }

    /// Does it move only where that was measured to be faster?
    pub(super) fn is_careful(&self) -> bool {
        self.is_careful.load(Relaxed)
    }

    /// Does memory that is used less give way for new memory, at the moment?
    pub(crate) fn gives_way(&self) -> bool {
        let is_left = || match &*wm_driver::lock(&self.predictor) {
            Some(predictor) => predictor.leaves_in_place(),
            None => self.is_careful(),
        };
        self.is_migrating() && !is_left()
    }

    /// Nothing moves by itself any more. A process that can be paused goes on recording uses: the
    /// next resume brings back first what was used last.
    pub(crate) fn rest(&self) {
        self.is_migrating.store(false, Relaxed);
        if !self.is_for_pauses.load(Relaxed) {
            launches::unsubscribe(Subscriber::LastUse);
        }
        self.forget_predictor();
    }

    /// It does again, if the user has set that.
    pub(crate) fn resume(&self, settings: &Settings) {
        let may_migrate = self.is_on() && settings.migrates_by_itself();
        if may_migrate && !self.is_migrating.swap(true, Relaxed) && self.notes_last_uses(settings) {
            launches::subscribe(Subscriber::LastUse);
        }
    }

    /// Is a device idle, and can nothing use memory of its pieces while the gate is closed? To be
    /// asked behind it.
    pub(crate) fn finds_idle(&self, manager: &Manager<Device>, limit: Duration) -> bool {
        let has_reason = || pin_reason::of_others().is_some() || self.graphs.name_pieces();
        self.is_on() && !has_reason() && manager.gpu().is_settled(limit).unwrap_or(false)
    }

    pub(crate) fn allocated(&self, event: &BlockAllocated) {
        self.last_use.forget(event.address, event.bytes as u64);
        if self.is_recording() {
            self.record_block(event.manager, event.address);
        }
    }

    pub(crate) fn freed(&self, event: &BlockFreed) {
        if self.is_recording() {
            self.record_free(event.manager, event.address);
        }
    }

    /// A kernel is about to be launched: its blocks count as used.
    #[inline]
    pub(crate) fn record_use(&self, launch: &Launch) {
        match launch.work() {
            LaunchedWork::Kernel(_) => self.last_use.launched(launch.words()),
            // What a graph uses is behind a lock, which is not worth its time where all fits.
            LaunchedWork::Graph(executable) if self.is_recording() => self.record_graph(executable),
            LaunchedWork::Graph(_) => {}
        }
    }

    #[cold]
    fn record_graph(&self, executable: CUgraphExec) {
        let used = self.graphs.used_by(executable).into_iter();
        let words: Vec<LaunchWord> = used.map(|address| LaunchWord { offset: 0, address }).collect();
        self.last_use.launched(&words);
    }

    /// Is a graph about to be made, the first of the process?
    pub(crate) fn meets_first_graph(&self) -> bool {
        self.is_before_graphs.load(Relaxed) && self.is_before_graphs.swap(false, Relaxed)
    }

    /// A graph was made or changed, or ends. To be called inside the gate.
    pub(crate) fn graph_changes(&self, owner: GraphOwner, change: GraphChange) {
        let released = self.graphs.change(owner, change, |RangeChanges { named, released }| {
            for manager in registry::all() {
                manager.release_from_graphs(released);
                manager.keep_in_graphs(named);
            }
        });
        if !released.is_empty() {
            self.release(&released);
        }
    }

    /// Loads what fingerprints need into the current context.
    pub(crate) fn prepare_fingerprints(&self, context: CUcontext) {
        self.fingerprints.prepare(context);
    }

    /// Keyed fingerprints of chunks, in the current context. Only a mover calls it, behind the
    /// closed gate.
    pub(crate) fn fingerprints(
        &self,
        context: CUcontext,
        chunks: &[u64],
    ) -> Result<Vec<KeyedFingerprint>, CUresult> {
        self.fingerprints.take(context, chunks)
    }

    /// A context is about to end.
    pub(crate) fn context_ends(&self, context: CUcontext) {
        self.fingerprints.forget(context);
    }

    /// Refusals on a device, by reason; `moves` has those of its manager.
    pub(crate) fn refusals(&self, device: CUdevice, moves: &wm_memory::Moves) -> Vec<(&'static str, u64)> {
        self.refusals.of(device, moves)
    }
}
