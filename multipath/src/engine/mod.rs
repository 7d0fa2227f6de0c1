//! The copies of one process: decides for each whether several paths pay, borrows what it takes, and has it carried out.
//!
//! Every doubt ends in [`Answer::Plain`]: the caller then makes the call as the program made it, and gets the driver's
//! own outcome. An error on the way ends there too, after whatever was enqueued has ended, so the program never sees an
//! error of ours.
//!
//! The machine is measured when a copy first wants to know, or read from the cache. While one thread measures, others'
//! copies are plain. Relays are opened only when copies have missed as much time as opening them takes
//! ([`crate::opening`]): a context costs device memory, too.

mod carry;
mod routes;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use wm_abi::{CUcontext, CUdevice};

use crate::crossing::Crossings;
use crate::enqueue::Copy;
use crate::links::{Links, Survey};
use crate::opening::Missed;
use crate::plan::{Direction, HostMemory, LEAST, SLOT, SMALLEST_PIECE};
use crate::pool::{Pool, Relay};
use crate::share::Share;
use crate::topology::Topology;
use crate::topology::cache::{self, Turn};
use crate::topology::calibrate::{self, Calibration};
use crate::traffic::{Flow, Traffic};
use crate::trim::Trims;

/// What a user can set, and where things are kept.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Devices that may be relays; `None` for all.
    pub relays: Option<Vec<CUdevice>>,
    /// Copies below this are plain, whatever calibration says. Bytes.
    pub minimum: Option<usize>,
    /// Bytes that large copies must have moved before the links are measured, or their measurement is read.
    pub patience: u64,
    /// Relays' contexts are opened at first use, and not only when they have paid.
    pub eager: bool,
    /// From how many bytes on paths pull pieces of a pinned copy that is waited for.
    pub pull: usize,
    /// Cores that a pageable copy may keep busy.
    pub cores: usize,
    /// What each thread of a pageable copy should have to do, bytes.
    pub portion: usize,
    /// From how many bytes on it is looked how a copy went.
    pub learn: usize,
    /// Largest piece through a relay, bytes; a slot holds no more than [`SLOT`].
    pub piece: usize,
    /// Pipelines through each relay that a pinned copy takes, [`crate::plan::LANES`] at most.
    pub lanes: usize,
    /// Where measurements are kept.
    pub cache: Option<PathBuf>,
    /// The page where processes share what they use.
    pub page: Option<PathBuf>,
}

/// A program that moves less in large copies is left alone, where the user did not name relays. Bytes.
pub const PATIENCE: u64 = 1 << 30;

/// From here on a pinned copy that is waited for is pulled: a split fixed by rates that were measured some time ago loses more
/// than looking after the paths costs. Bytes.
pub const PULL: usize = 2 << 30;

/// With less to do, starting a thread costs more than it brings. Bytes.
pub const PORTION: usize = 4 << 20;

/// A shorter copy tells more of what events take than of links. Bytes.
pub const LEARN: usize = 128 << 20;

impl Default for Settings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            relays: None,
            minimum: None,
            patience: PATIENCE,
            eager: false,
            pull: PULL,
            cores,
            portion: PORTION,
            learn: LEARN,
            piece: SLOT,
            lanes: 1,
            cache: None,
            page: None,
        }
    }
}

/// A copy that may take several paths.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// What is copied.
    pub copy: Copy,
    /// What the host end is.
    pub memory: HostMemory,
    /// Does the caller wait for the end anyway?
    pub waits: bool,
}

impl Request {
    /// Does the call return only when the bytes have arrived? A pageable copy always does: its memory is the caller's
    /// again afterwards.
    fn blocks(&self) -> bool {
        self.waits || self.memory == HostMemory::Pageable
    }
}

/// What became of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is done, or enqueued.
    Done,
    /// Make the plain call.
    Plain,
}

/// What is known of the machine.
enum Found {
    /// All there is to know: `None` where copies stay plain.
    Known(Option<Box<Topology>>),
    /// Another process measures now.
    Later,
}

/// The copies of one process.
#[derive(Debug)]
pub struct Engine<L> {
    links: L,
    settings: Settings,
    pool: Pool,
    share: OnceLock<Share>,
    topology: OnceLock<Option<Topology>>,
    measuring: AtomicBool,
    moved: AtomicU64,
    traffic: Traffic,
    trims: Trims,
    crossings: Crossings,
    missed: Missed,
}

impl<L: Links> Engine<L> {
    /// Nothing is opened or measured yet.
    pub fn new(links: L, settings: Settings) -> Self {
        Self {
            links,
            settings,
            pool: Pool::default(),
            share: OnceLock::new(),
            topology: OnceLock::new(),
            measuring: AtomicBool::new(false),
            moved: AtomicU64::new(0),
            traffic: Traffic::default(),
            trims: Trims::default(),
            crossings: Crossings::default(),
            missed: Missed::default(),
        }
    }

    /// With a topology that is known already.
    pub fn with_topology(links: L, settings: Settings, topology: Topology) -> Self {
        let engine = Self::new(links, settings);
        let _ = engine.topology.set(Some(topology));
        engine
    }

    /// The driver beneath.
    pub fn links(&self) -> &L {
        &self.links
    }

    /// Copies of fewer bytes are plain, whatever the machine.
    pub fn least(&self) -> usize {
        self.settings.minimum.unwrap_or(LEAST).max(SMALLEST_PIECE)
    }

    /// What the machine was measured to carry; `None` before the first need.
    pub fn topology(&self) -> Option<&Topology> {
        self.topology.get()?.as_ref()
    }

    /// Copies by path.
    pub fn traffic(&self) -> Vec<Flow> {
        self.traffic.read()
    }

    /// What copies hold on each relay.
    pub fn relays(&self) -> Vec<Relay> {
        self.pool.relays()
    }

    /// What relays carry now of what they were measured to, for copies of one target and direction.
    pub fn relays_factor(&self, target: CUdevice, direction: Direction) -> f64 {
        self.trims.factor(target, direction)
    }

    /// Copies, over several paths if that pays.
    pub fn copy(&self, request: &Request) -> Answer {
        if request.copy.bytes < self.least() || !self.is_patient_enough(request.copy.bytes) {
            return Answer::Plain;
        }
        let Some(topology) = self.measured() else { return Answer::Plain };
        let paths = self.routes(topology, &request.copy);
        let claimed = self.claim(topology, &request.copy, &paths);
        let answer = self.carry(topology, request, &paths);
        self.release(request, &claimed, answer == Answer::Plain);
        answer
    }

    fn is_patient_enough(&self, bytes: usize) -> bool {
        let before = self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
        before >= self.settings.patience
    }

    /// The topology, measured now if need be. `None` while another thread or process measures, and on machines with one device.
    pub fn measured(&self) -> Option<&Topology> {
        if let Some(known) = self.topology.get() {
            return known.as_ref();
        }
        if self.measuring.swap(true, Ordering::AcqRel) {
            return None;
        }
        match self.measure() {
            Found::Known(found) => self.topology.get_or_init(|| found.map(|found| *found)).as_ref(),
            Found::Later => {
                self.measuring.store(false, Ordering::Release);
                None
            }
        }
    }

    fn measure(&self) -> Found {
        let survey = self.links.survey().inspect_err(|code| log::warn!("no multi-path copies: {code}"));
        let Some(survey) = survey.ok().filter(|survey| survey.key.devices.len() > 1) else {
            return Found::Known(None);
        };
        let folder = self.settings.cache.as_deref();
        if let Some(kept) = folder.and_then(|folder| cache::load(folder, &survey.key)) {
            // Who reaches whom can change without a new device.
            return Found::Known(Some(Box::new(Topology { reach: survey.reach, ..kept })));
        }
        let turn = folder.map_or(Turn::Mine(None), cache::turn);
        if matches!(turn, Turn::Theirs) {
            return Found::Later;
        }
        Found::Known(self.calibrated(survey).map(Box::new))
    }

    fn calibrated(&self, survey: Survey) -> Option<Topology> {
        let usable = |device: &CUdevice| self.may_relay(*device);
        let devices: Vec<_> = (0..survey.key.devices.len() as CUdevice).filter(usable).collect();
        let quiet = self.share().is_quiet();
        let Calibration { topology, steady } = calibrate::calibrate(&self.links, survey, &devices)
            .inspect_err(|code| log::warn!("the links cannot be measured, copies stay plain: {code}"))
            .ok()?;
        let folder = self.settings.cache.as_deref();
        self.keep(folder.filter(|_| steady && quiet && self.share().is_quiet()), &topology);
        Some(topology)
    }

    /// A measurement that others disturbed is this process's only.
    fn keep(&self, folder: Option<&Path>, topology: &Topology) {
        // One of some of the devices is not the machine's.
        let whole = topology.into.alone.iter().all(|rate| *rate > 0.0);
        if let Some(folder) = folder.filter(|_| whole)
            && let Err(error) = cache::store(folder, topology)
        {
            log::info!("{}: {error}; the links are measured again next time", folder.display());
        }
    }

    /// Relays carry much less than was measured, copy after copy: later processes shall measure again.
    fn doubt(&self) {
        let kept = self.settings.cache.as_deref().zip(self.topology());
        if let Some((folder, topology)) = kept
            && cache::forget(folder, &topology.key).is_ok()
        {
            log::info!("the links carry less than was measured; the next program measures them again");
        }
    }

    /// A context is about to end.
    pub fn end_context(&self, context: CUcontext) {
        self.pool.end_context(&self.links, context);
    }

    /// The primary context of a device is about to end, or the program gives it up.
    pub fn end_device(&self, device: CUdevice) {
        self.pool.end_device(&self.links, device);
    }

    /// A relay whose share the direct path could copy, and it could not.
    fn drop_relay(&self, relay: CUdevice) {
        log::warn!("device {relay} failed as a relay; copies go on without it");
        self.pool.lose(relay);
    }
}
