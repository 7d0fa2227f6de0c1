//! The copies of one process: decides for each whether several paths pay, borrows what it takes,
//! and has it carried out.
//!
//! Every doubt ends in [`CopyOutcome::Plain`]: the caller then makes the call as the program made
//! it, and gets the driver's own outcome. An error on the way ends there too, and the plain call is
//! ordered behind whatever was enqueued, so the program never sees an error of ours.
//!
//! What takes long is no call of the program: links are measured, and relays' contexts are opened,
//! on a thread of ours ([`beside`]), while copies take the paths that there are. Relays are opened
//! only when copies have missed as much time as opening them takes
//! ([`crate::arbitration::opening`]): a context costs device memory, too.

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

use wm_abi::CUdevice;

use crate::arbitration::link_claims::LinkClaims;
use crate::arbitration::opening::DeferredBenefit;
use crate::arbitration::opposing::OpposingTraffic;
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

/// What an engine and its thread share.
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
    /// The process ends: that thread shall leave the driver alone.
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
    /// Nothing is opened or measured yet.
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

    /// With a topology that is known already.
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

    /// Copies of fewer bytes are plain, whatever the machine.
    pub fn least(&self) -> usize {
        let least = if self.is_alone() { settings::LEAST_PAGEABLE } else { LEAST_SPLIT };
        self.settings.minimum.unwrap_or(least).max(SMALLEST_CHUNK)
    }

    /// What the machine was measured to carry; `None` before the first need.
    pub fn topology(&self) -> Option<&Topology> {
        self.topology.get()?.as_ref()
    }

    /// Copies by path.
    pub fn traffic(&self) -> Vec<RouteUsage> {
        self.traffic.read()
    }

    /// What copies hold on each relay.
    pub fn relays(&self) -> Vec<RelayUsage> {
        self.pool.relays()
    }

    /// What relays carry now of what they were measured to, for copies of one target and direction.
    pub fn relays_factor(&self, target: CUdevice, direction: LinkDirection) -> f64 {
        self.corrections.factor(target, direction)
    }

    /// Copies, over several paths if that pays.
    pub fn copy(&self, request: &CopyRequest) -> CopyOutcome {
        let concerns = request.memory == HostMemory::Pageable || !self.is_alone();
        if request.copy.bytes < self.least() || !concerns {
            return CopyOutcome::Plain;
        }
        self.driver.quietly(|| self.large(request))
    }

    /// Is a copy of several parts being put into any stream? Then other threads' work may have to
    /// wait for its end ([`Inner::follow`]).
    #[inline]
    pub fn has_turns(&self) -> bool {
        self.turns.any()
    }

    /// Waits until no other thread is in the middle of putting a copy of several parts into this
    /// stream, or into one whose work this stream's waits for.
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

    /// May no sibling take part?
    fn is_alone(&self) -> bool {
        self.settings.relays.as_ref().is_some_and(Vec::is_empty)
    }

    /// The topology, where it is known and the program copies enough.
    fn worth_knowing(&self, bytes: usize) -> Option<&Topology> {
        if self.is_alone() || !self.is_patient_enough(bytes) { None } else { self.known() }
    }

    fn is_patient_enough(&self, bytes: usize) -> bool {
        let before = self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
        before >= self.settings.patience
    }

    /// Relays carry much less than was measured, copy after copy: later processes shall measure
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

    /// A relay whose share the direct path could copy, and it could not.
    fn drop_relay(&self, relay: CUdevice) {
        // At the end of the process calls are refused, whatever the relay is like.
        if !self.over.load(Ordering::Acquire) {
            log::warn!("device {relay} failed as a relay; copies go on without it");
        }
        self.pool.lose(relay, self.driver.clock());
    }
}
