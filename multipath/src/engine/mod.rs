//! The copies of one process: decides for each whether several paths pay, borrows its lanes and
//! buffers, and has it carried out.
//!
//! Every doubt ends in [`CopyOutcome::Plain`]: the caller then makes the program's call unchanged,
//! and gets the driver's own outcome. An error on the way ends there too; the plain call is ordered
//! behind all work that was enqueued before, so the program never sees an error of ours.
//!
//! No call of the program waits for slow work: a thread of ours measures the links and opens
//! relays' contexts ([`beside`]), while copies use the paths that exist. Relays are opened only
//! when copies have missed as much time as opening them takes ([`crate::arbitration::opening`]),
//! since a context costs device memory, too.

mod beside;
mod carry;
mod pageable;
pub(crate) mod request;
mod routes;
pub(crate) mod settings;
pub(crate) mod traffic;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use wm_abi::{CUcontext, CUdevice, CUstream};

use crate::arbitration::link_claims::LinkClaims;
use crate::arbitration::opening::DeferredBenefit;
use crate::arbitration::opposing::OpposingTraffic;
use crate::arbitration::plain_calls::PlainCall;
use crate::arbitration::stream_turns::StreamTurns;
use crate::arbitration::threads::ThreadBudget;
use crate::driver::CopyDriver;
use crate::engine::request::{CopyOutcome, CopyRequest};
use crate::engine::settings::EngineSettings;
use crate::engine::traffic::{RouteUsage, Traffic};
use crate::plan::LEAST_SPLIT;
use crate::topology::correction::RateCorrections;
use crate::topology::{Topology, cache};
use crate::transfer::pool::{Pool, RelayUsage};
use crate::vocabulary::copy::{HostMemory, LinkDirection};
use crate::vocabulary::sizes::SMALLEST_CHUNK;
use crate::vocabulary::stream::{Home, ProgramStream};

/// The copies of one process.
#[derive(Debug)]
pub struct Engine<D>(Arc<Inner<D>>);

/// The state that an engine and its thread share.
#[derive(Debug)]
pub struct Inner<D> {
    me: Weak<Self>,
    driver: D,
    settings: EngineSettings,
    pool: Pool,
    claims: OnceLock<LinkClaims>,
    topology: OnceLock<Option<Topology>>,
    /// A thread measures or opens contexts.
    busy: AtomicBool,
    /// The process ends: that thread makes no more driver calls.
    over: AtomicBool,
    moved: AtomicU64,
    threads: ThreadBudget,
    traffic: Traffic,
    corrections: RateCorrections,
    opposing: OpposingTraffic,
    turns: StreamTurns,
    deferred: DeferredBenefit,
}

impl<D> Deref for Engine<D> {
    type Target = Inner<D>;

    fn deref(&self) -> &Inner<D> {
        &self.0
    }
}

impl<D: CopyDriver + 'static> Engine<D> {
    /// An engine that has opened and measured nothing yet.
    pub fn new(driver: D, settings: EngineSettings) -> Self {
        Self(Arc::new_cyclic(|me| Inner {
            me: Weak::clone(me),
            driver,
            settings,
            pool: Pool::default(),
            claims: OnceLock::new(),
            topology: OnceLock::new(),
            busy: AtomicBool::new(false),
            over: AtomicBool::new(false),
            moved: AtomicU64::new(0),
            threads: ThreadBudget::default(),
            traffic: Traffic::default(),
            corrections: RateCorrections::default(),
            opposing: OpposingTraffic::default(),
            turns: StreamTurns::default(),
            deferred: DeferredBenefit::default(),
        }))
    }

    /// An engine with a known topology.
    pub fn with_topology(driver: D, settings: EngineSettings, topology: Topology) -> Self {
        let engine = Self::new(driver, settings);
        let _ = engine.topology.set(Some(topology));
        engine
    }
}

impl<D: CopyDriver + 'static> Inner<D> {
    /// The driver beneath.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// Copies of fewer bytes are plain on every machine.
    pub fn least(&self) -> usize {
        let least = if self.is_alone() { settings::LEAST_PAGEABLE } else { LEAST_SPLIT };
        self.settings.minimum.unwrap_or(least).max(SMALLEST_CHUNK)
    }

    /// The measured rates of the machine; `None` before the first copy that needs them.
    pub fn topology(&self) -> Option<&Topology> {
        self.topology.get()?.as_ref()
    }

    /// Copies by path.
    pub fn traffic(&self) -> Vec<RouteUsage> {
        self.traffic.read()
    }

    /// The memory that copies hold on each relay.
    pub fn relays(&self) -> Vec<RelayUsage> {
        self.pool.relays()
    }

    /// The ratio of the relays' present rate to their measured rate, for one target and direction.
    pub fn relays_factor(&self, target: CUdevice, direction: LinkDirection) -> f64 {
        self.corrections.factor(target, direction)
    }

    /// Copies, over several paths if that pays. Before the answer that the caller has to make the
    /// plain call, it has [followed](Inner::follow) the turns of other threads.
    pub fn copy(&self, request: &CopyRequest) -> CopyOutcome {
        let concerns = request.memory == HostMemory::Pageable || !self.is_alone();
        if request.copy.bytes < self.least() || !concerns {
            return CopyOutcome::Plain;
        }
        self.turns.decide(&request.copy.user);
        let outcome = self.driver.quietly(|| self.large(request));
        if outcome == CopyOutcome::Plain {
            self.follow(&request.copy.user);
        }
        outcome
    }

    /// Is a thread enqueueing a copy of several parts into any stream? Then the work of other
    /// threads may have to wait for its end ([`Inner::follow`]).
    #[inline]
    pub fn has_turns(&self) -> bool {
        self.turns.any()
    }

    /// May copies have parts that their own stream does not order? Then each plain call has an
    /// entry ([`Inner::enter`]).
    #[inline]
    pub fn has_relays(&self) -> bool {
        !self.is_alone()
    }

    /// The calling thread is about to make a plain call into a stream, until the value is dropped.
    /// It has to ask afterwards whether there are turns. Default streams under their own names; the
    /// context is null if it is not known.
    #[inline]
    pub fn enter(&self, stream: CUstream, context: CUcontext) -> PlainCall<'_> {
        self.turns.enter(stream, context)
    }

    /// Waits until no other thread is enqueueing a copy of several parts into this stream, or into
    /// one whose work this stream waits for. Copies of other threads are plain from here on until
    /// the calling thread's call is over, if it has an entry.
    pub fn follow(&self, user: &ProgramStream) {
        self.turns.follow(user);
    }

    fn large(&self, request: &CopyRequest) -> CopyOutcome {
        let copy = &request.copy;
        self.pool.sweep(&self.driver, copy.user.home);
        let Some(topology) = self.worth_knowing(copy.bytes) else {
            return if request.memory == HostMemory::Pageable {
                self.alone(request)
            } else {
                CopyOutcome::Plain
            };
        };
        let paths = self.routes(topology, copy);
        let claimed = self.claim(topology, copy, &paths);
        let answer = self.carry(topology, request, &paths);
        self.release(request, &claimed, answer == CopyOutcome::Plain);
        answer
    }

    /// Is every sibling excluded as a relay?
    fn is_alone(&self) -> bool {
        self.settings.relays.as_ref().is_some_and(Vec::is_empty)
    }

    /// The topology, if it is known and the program has copied enough.
    fn worth_knowing(&self, bytes: usize) -> Option<&Topology> {
        if self.is_alone() || !self.is_patient_enough(bytes) { None } else { self.known() }
    }

    fn is_patient_enough(&self, bytes: usize) -> bool {
        let before = self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
        before >= self.settings.patience
    }

    /// Relays carry much less than was measured, copy after copy: later processes will measure
    /// again.
    fn doubt(&self) {
        let kept = self.settings.cache.as_deref().zip(self.topology());
        if let Some((folder, topology)) = kept
            && cache::forget(folder, &topology.key).is_ok()
        {
            log::info!("the links carry less than was measured; the next program measures them again");
        }
    }

    /// A context of the program has ended.
    pub fn end_home(&self, home: Home) {
        self.driver.quietly(|| self.pool.end_home(&self.driver, home));
    }

    /// A relay failed to copy a share that the direct path then copied.
    fn drop_relay(&self, relay: CUdevice) {
        // At the end of the process the driver refuses calls to every relay.
        if !self.over.load(Ordering::Acquire) {
            log::warn!("device {relay} failed as a relay; copies go on without it");
        }
        self.pool.lose(relay, self.driver.clock());
    }
}
