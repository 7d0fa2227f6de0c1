//! The slow work, on a thread of ours: measuring the links, and opening relays' contexts.
//!
//! Both make calls that may wait for work of the program or take most of a second. A call of the
//! program must not wait for them: the program may release its stream only after the call has
//! returned. So copies are plain until the measurement or the context is there.
//!
//! Invariants: there is at most one such thread, and none without work; once the process ends it
//! makes no more calls.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use wm_abi::{CUdevice, CUresult};
use wm_driver::thread;

use crate::driver::CopyDriver;
use crate::engine::Inner;
use crate::measure::{self, Calibration};
use crate::topology::Topology;
use crate::topology::cache::{self, Turn};
use crate::vocabulary::machine::Survey;

/// Stack of the thread, bytes: it calls the driver.
const STACK: usize = 512 << 10;

/// The right to measure or to open contexts. One thread of the process has it at a time.
struct Busy<D>(Arc<Inner<D>>);

impl<D> Drop for Busy<D> {
    fn drop(&mut self) {
        self.0.busy.store(false, Release);
    }
}

impl<D: CopyDriver + 'static> Inner<D> {
    /// The topology, if it is known. If not, a background thread measures it.
    pub(super) fn known(&self) -> Option<&Topology> {
        if self.settings.prompt {
            return self.measured();
        }
        if let Some(known) = self.topology.get() {
            return known.as_ref();
        }
        let busy = self.busy()?;
        let survey = self.survey()?;
        if let Some(kept) = self.kept(&survey) {
            return self.learn(Some(kept));
        }
        if let Turn::Mine(turn) = self.turn() {
            spawn(busy, move |inner| {
                inner.find_out(survey);
                drop(turn);
            });
        }
        None
    }

    /// The topology, measured on this thread if need be. `None` while another thread or process
    /// measures, and on machines with one device.
    pub fn measured(&self) -> Option<&Topology> {
        if let Some(known) = self.topology.get() {
            return known.as_ref();
        }
        let _busy = self.busy()?;
        let survey = self.survey()?;
        if let Some(kept) = self.kept(&survey) {
            return self.learn(Some(kept));
        }
        if let Turn::Mine(_turn) = self.turn() {
            self.find_out(survey);
        }
        self.topology.get()?.as_ref()
    }

    /// Opens relays, on a thread beside the copies, or before the copies go on.
    pub(super) fn open(&self, relays: Vec<CUdevice>) {
        let open = move |inner: &Self| {
            let wanted = relays.iter().take_while(|_| !inner.over.load(Acquire));
            wanted.for_each(|relay| inner.pool.open(&inner.driver, *relay));
        };
        if self.settings.prompt {
            open(self);
        } else if let Some(busy) = self.busy() {
            spawn(busy, open);
        }
    }

    /// The process ends. A measurement in flight is left as it is; the process waits for the driver
    /// call of its thread ([`wm_driver::departure`]).
    pub fn stop(&self) {
        self.over.store(true, Release);
    }

    fn busy(&self) -> Option<Busy<D>> {
        let inner = self.me.upgrade()?;
        let is_ours = !self.over.load(Acquire) && !self.busy.swap(true, AcqRel);
        is_ours.then_some(Busy(inner))
    }

    /// Is this process the one that measures?
    fn turn(&self) -> Turn {
        self.settings.cache.as_deref().map_or(Turn::Mine(None), cache::turn)
    }

    /// The devices; `None` if there are none to copy through, which is then recorded.
    fn survey(&self) -> Option<Survey> {
        let survey = self.driver.survey().inspect_err(|code| log::warn!("no multi-path copies: {code}"));
        let survey = survey.ok().filter(|survey| survey.key.devices.len() > 1);
        if survey.is_none() {
            self.learn(None);
        }
        survey
    }

    fn learn(&self, topology: Option<Topology>) -> Option<&Topology> {
        self.topology.get_or_init(|| topology).as_ref()
    }

    /// An earlier measurement.
    fn kept(&self, survey: &Survey) -> Option<Topology> {
        let kept = cache::load(self.settings.cache.as_deref()?, &survey.key)?;
        // Peer access between devices can change without a new device.
        Some(Topology { reach: survey.reach.clone(), ..kept })
    }

    fn find_out(&self, survey: Survey) {
        let measured = self.calibrated(survey);
        if !self.over.load(Acquire) {
            self.learn(measured);
        }
    }

    fn calibrated(&self, survey: Survey) -> Option<Topology> {
        let usable = |device: &CUdevice| self.may_relay(*device);
        let devices: Vec<_> = (0..survey.key.devices.len() as CUdevice).filter(usable).collect();
        let quiet = self.claims().is_quiet();
        let go_on = || if self.over.load(Acquire) { Err(CUresult::DEINITIALIZED) } else { Ok(()) };
        let Calibration { topology, steady } = measure::calibrate(&self.driver, survey, &devices, &go_on)
            .inspect_err(|code| {
                if *code != CUresult::DEINITIALIZED {
                    log::warn!("the links cannot be measured: {code}; copies stay plain");
                }
            })
            .ok()?;
        let folder = self.settings.cache.as_deref();
        self.keep(folder.filter(|_| steady && quiet && self.claims().is_quiet()), &topology);
        Some(topology)
    }

    /// Stores a measurement in the cache, unless others disturbed it: such a one serves this
    /// process only.
    fn keep(&self, folder: Option<&Path>, topology: &Topology) {
        // A measurement of some of the devices does not describe the machine.
        let whole = topology.into.alone.iter().all(|rate| *rate > 0.0);
        if let Some(folder) = folder.filter(|_| whole)
            && let Err(error) = cache::store(folder, topology)
        {
            log::info!("{}: {error}; the links are measured again next time", folder.display());
        }
    }
}

/// Runs `body` on a thread of ours.
fn spawn<D: CopyDriver + 'static>(busy: Busy<D>, body: impl FnOnce(&Inner<D>) + Send + 'static) {
    let run = move || busy.0.driver.quietly(|| body(&busy.0));
    if let Err(error) = thread::spawn(c"wm-links", STACK, run) {
        log::debug!("no thread to measure links or open contexts: {error}");
    }
}
