//! The objects that copies borrow: relays' contexts, lanes, direct pipelines, stream events and
//! pinned buffers.
//!
//! Each object is made when a copy first needs it, is owned by one copy at a time, and is returned
//! afterwards. The lock guards lists only: driver calls happen outside it, on objects that were
//! removed from the lists.
//!
//! No copy waits here. The objects in a home of the program end with the home and are forgotten
//! then; they are stored under the home's own name, so no later context can get them. A lane that
//! failed, or whose home has ended, stays until its copies are over, and a later copy destroys it
//! ([`Pool::sweep`]). Relays' contexts are ours and last until the process ends; a relay that
//! failed is tried again after a back-off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use wm_abi::{CUcontext, CUdevice, CUresult};
use wm_driver::lock;

use crate::driver::{CopyDriver, DriverResult};
use crate::transfer::copy_timer::CopyTimer;
use crate::transfer::direct_pipeline::DirectPipeline;
use crate::transfer::relay_pipeline::RelayPipeline;
use crate::transfer::stream_event::StreamEvent;
use crate::vocabulary::sizes::{BOUNCE, LANES, SLOTS};
use crate::vocabulary::stream::{Home, ProgramStream};

/// The part (one in this many) of its memory that a relay must have free after its context exists.
const SPARE: u64 = 32;
/// The first back-off of a relay that failed. It doubles with each further failure...
const PAUSE: Duration = Duration::from_secs(1);
/// ... up to this multiple.
const LONGEST: u32 = 256;

/// Pinned memory that a pageable copy passes through, one chunk a slot.
#[derive(Debug)]
pub struct BounceBuffer {
    device: CUdevice,
    /// First byte of the first slot.
    pub address: u64,
}

impl BounceBuffer {
    /// Bytes of one buffer.
    pub const BYTES: usize = BOUNCE * SLOTS;

    /// Address of a slot.
    pub fn slot(&self, slot: usize) -> u64 {
        self.address + (slot * BOUNCE) as u64
    }
}

/// A relay's context.
#[derive(Debug, Clone, Copy)]
struct RelayContext {
    context: CUcontext,
    /// Bytes in use on the device after the context was made.
    in_use: u64,
}

/// A relay that failed.
#[derive(Debug, Clone, Copy)]
struct FailedRelay {
    until: Duration,
    /// The length of the next back-off, in units of [`PAUSE`].
    next: u32,
}

/// A lane that takes no more chunks, and may still have copies in flight.
#[derive(Debug)]
struct RetiredPipeline {
    lane: RelayPipeline,
    /// Its home lives: only copies in that home may query it.
    has_home: bool,
}

#[derive(Debug, Default)]
struct PoolLists {
    lanes: Vec<RelayPipeline>,
    direct_pipelines: Vec<DirectPipeline>,
    events: Vec<Arc<StreamEvent>>,
    timers: Vec<CopyTimer>,
    bounces: Vec<BounceBuffer>,
    retired: Vec<RetiredPipeline>,
    opened: BTreeMap<CUdevice, RelayContext>,
    /// Contexts that a thread is making now.
    opening: BTreeSet<CUdevice>,
    /// The homes that copies came from.
    lives: BTreeMap<CUcontext, u64>,
    /// Lanes that exist, lent ones included.
    made: BTreeMap<(CUdevice, Home), usize>,
    lost: BTreeMap<CUdevice, FailedRelay>,
}

impl PoolLists {
    /// Forgets a home. Returns the lanes that served it.
    fn forget(&mut self, home: Home) -> Vec<RelayPipeline> {
        self.direct_pipelines.retain(|pipeline| pipeline.home() != home);
        self.events.retain(|event| event.home() != home);
        self.timers.retain(|timer| timer.home() != home);
        self.made.retain(|(_, other), _| *other != home);
        self.retired
            .iter_mut()
            .filter(|retired| retired.lane.home() == home)
            .for_each(|retired| retired.has_home = false);
        take_where(&mut self.lanes, |lane| lane.home() == home)
    }

    /// Lanes that were lent when their home ended, and have been returned since.
    fn late(&mut self) -> Vec<RelayPipeline> {
        let Self { lanes, lives, .. } = self;
        take_where(lanes, |lane| lives.get(&lane.home().context) != Some(&lane.home().life))
    }

    /// Counts one lane less.
    fn unmake(&mut self, relay: CUdevice, home: Home) {
        if let Some(made) = self.made.get_mut(&(relay, home)) {
            *made = made.saturating_sub(1);
        }
    }
}

/// The memory that copies hold on a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayUsage {
    /// The relay.
    pub device: CUdevice,
    /// Staging memory, bytes.
    pub staging: usize,
    /// Bytes that its context takes at most: the bytes in use there after it was made.
    pub context: u64,
}

/// The objects that copies borrow.
#[derive(Debug, Default)]
pub struct Pool {
    lists: Mutex<PoolLists>,
}

impl Pool {
    fn lists(&self) -> MutexGuard<'_, PoolLists> {
        lock(&self.lists)
    }

    /// The memory that copies hold on each relay, for the statistics.
    pub fn relays(&self) -> Vec<RelayUsage> {
        let lists = self.lists();
        let lanes = |device: CUdevice| -> usize {
            lists.made.iter().filter(|((relay, _), _)| *relay == device).map(|(_, made)| made).sum()
        };
        let relay = |(device, opened): (&CUdevice, &RelayContext)| RelayUsage {
            device: *device,
            staging: lanes(*device) * RelayPipeline::STAGING,
            context: opened.in_use,
        };
        lists.opened.iter().map(relay).collect()
    }

    /// Has this relay failed a short while ago?
    pub fn is_lost(&self, relay: CUdevice, now: Duration) -> bool {
        self.lists().lost.get(&relay).is_some_and(|lost| lost.until > now)
    }

    /// Has this relay a context of ours?
    pub fn is_open(&self, relay: CUdevice) -> bool {
        self.lists().opened.contains_key(&relay)
    }

    /// Called when a copy begins: destroys the retired lanes whose copies are over.
    pub fn sweep<D: CopyDriver>(&self, driver: &D, home: Home) {
        let mut lists = self.lists();
        let before = lists.lives.insert(home.context, home.life).filter(|life| *life != home.life);
        let mut orphans = before.map(|life| lists.forget(Home { life, ..home })).unwrap_or_default();
        orphans.extend(lists.late());
        let retired =
            take_where(&mut lists.retired, |retired| !retired.has_home || retired.lane.home() == home);
        drop(lists);
        self.orphan(driver, orphans);
        for retired in retired {
            if retired.lane.is_over(driver, retired.has_home) {
                retired.lane.destroy(driver, retired.has_home);
            } else {
                self.lists().retired.push(retired);
            }
        }
    }

    /// Marks lanes whose home has ended. If that fails for a lane, the driver keeps its objects.
    fn orphan<D: CopyDriver>(&self, driver: &D, lanes: Vec<RelayPipeline>) {
        let marked = lanes.into_iter().filter(|lane| lane.orphan(driver).is_ok());
        let retired: Vec<_> = marked.map(|lane| RetiredPipeline { lane, has_home: false }).collect();
        self.lists().retired.extend(retired);
    }

    /// A lane through a relay that a copy of `user` may use now. If all are in use and there may be
    /// more, a new one is made. `None` if the relay is not open, is busy with copies that have not
    /// begun, or has failed.
    pub fn lane<D: CopyDriver>(
        &self,
        driver: &D,
        relay: CUdevice,
        user: ProgramStream,
    ) -> Option<RelayPipeline> {
        if self.is_lost(relay, driver.clock()) {
            return None;
        }
        let context = self.lists().opened.get(&relay)?.context;
        let mut idle =
            take_where(&mut self.lists().lanes, |lane| (lane.relay(), lane.home()) == (relay, user.home));
        let fit = idle.iter().position(|lane| lane.admits(driver, user.stream));
        let lane = fit.map(|position| idle.swap_remove(position));
        self.lists().lanes.extend(idle);
        lane.or_else(|| {
            self.reserve(relay, user.home).then(|| self.make(driver, relay, context, user)).flatten()
        })
    }

    /// May there be one more lane? If so, it is counted.
    fn reserve(&self, relay: CUdevice, home: Home) -> bool {
        let mut lists = self.lists();
        let made = lists.made.entry((relay, home)).or_default();
        let fits = *made < LANES;
        *made += usize::from(fits);
        fits
    }

    fn make<D: CopyDriver>(
        &self,
        driver: &D,
        relay: CUdevice,
        context: CUcontext,
        user: ProgramStream,
    ) -> Option<RelayPipeline> {
        let made = has_room(driver, context).and_then(|_| RelayPipeline::new(driver, relay, context, user));
        made.inspect_err(|code| {
            self.lists().unmake(relay, user.home);
            complain(relay, *code);
            self.lose(relay, driver.clock());
        })
        .ok()
    }

    /// Opens a relay, unless it is open or another thread opens it now.
    pub fn open<D: CopyDriver>(&self, driver: &D, relay: CUdevice) {
        if self.lists().opened.contains_key(&relay) || !self.lists().opening.insert(relay) {
            return;
        }
        let opened = driver.open(relay).and_then(|context| {
            let in_use = has_room(driver, context).inspect_err(|_| driver.close(context))?;
            Ok(RelayContext { context, in_use })
        });
        self.lists().opening.remove(&relay);
        match opened {
            Ok(opened) => {
                self.lists().opened.insert(relay, opened);
                log::info!("{}", first_use(relay, opened));
            }
            Err(code) => {
                complain(relay, code);
                self.lose(relay, driver.clock());
            }
        }
    }

    /// A relay failed: no copy uses it for a while.
    pub fn lose(&self, relay: CUdevice, now: Duration) {
        let mut lists = self.lists();
        let pause = lists.lost.get(&relay).map_or(1, |lost| lost.next);
        lists.lost.insert(relay, FailedRelay { until: now + PAUSE * pause, next: (pause * 2).min(LONGEST) });
    }

    /// Returns a lane.
    pub fn give_back(&self, lane: RelayPipeline) {
        self.lists().lanes.push(lane);
    }

    /// Retires a lane that was at fault and has been given up.
    pub fn give_up(&self, lane: RelayPipeline) {
        let mut lists = self.lists();
        lists.unmake(lane.relay(), lane.home());
        lists.retired.push(RetiredPipeline { lane, has_home: true });
    }

    /// A direct pipeline in a home. If none is idle, a new one is made.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn direct_pipeline<D: CopyDriver>(&self, driver: &D, home: Home) -> DriverResult<DirectPipeline> {
        let idle = take_one(&mut self.lists().direct_pipelines, |pipeline| pipeline.home() == home);
        idle.map_or_else(|| DirectPipeline::new(driver, home), Ok)
    }

    /// Returns a direct pipeline.
    pub fn give_direct_pipeline(&self, pipeline: DirectPipeline) {
        self.lists().direct_pipelines.push(pipeline);
    }

    /// An event in a home that no lane holds. If there is none, a new one is made.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn event<D: CopyDriver>(&self, driver: &D, home: Home) -> DriverResult<Arc<StreamEvent>> {
        let is_free = |event: &Arc<StreamEvent>| event.home() == home && Arc::strong_count(event) == 1;
        let idle = take_one(&mut self.lists().events, is_free);
        idle.map_or_else(|| StreamEvent::new(driver, home).map(Arc::new), Ok)
    }

    /// Returns an event. Lanes may still hold it.
    pub fn give_event(&self, event: Arc<StreamEvent>) {
        self.lists().events.push(event);
    }

    /// A timer in a home. If none is idle, a new one is made. `None` if that fails.
    pub fn timer<D: CopyDriver>(&self, driver: &D, home: Home) -> Option<CopyTimer> {
        let idle = take_one(&mut self.lists().timers, |timer| timer.home() == home);
        idle.or_else(|| CopyTimer::new(driver, home).ok())
    }

    /// Returns a timer. A broken one, and a second one of the same home, is destroyed.
    pub fn give_timer<D: CopyDriver>(&self, driver: &D, timer: CopyTimer) {
        let mut lists = self.lists();
        let known = lists.timers.iter().any(|other| other.home() == timer.home());
        if known || timer.is_broken() {
            drop(lists);
            timer.close(driver);
        } else {
            lists.timers.push(timer);
        }
    }

    /// A pinned buffer near a device. If none is idle, a new one is made.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn bounce<D: CopyDriver>(&self, driver: &D, device: CUdevice) -> DriverResult<BounceBuffer> {
        if let Some(idle) = take_one(&mut self.lists().bounces, |bounce| bounce.device == device) {
            return Ok(idle);
        }
        Ok(BounceBuffer { device, address: driver.buffer(device, BounceBuffer::BYTES)? })
    }

    /// Returns a pinned buffer.
    pub fn give_bounce(&self, bounce: BounceBuffer) {
        self.lists().bounces.push(bounce);
    }

    /// A home has ended, and with it all objects that were made there.
    pub fn end_home<D: CopyDriver>(&self, driver: &D, home: Home) {
        let mut lists = self.lists();
        if lists.lives.get(&home.context) == Some(&home.life) {
            lists.lives.remove(&home.context);
        }
        let orphans = lists.forget(home);
        drop(lists);
        self.orphan(driver, orphans);
    }
}

/// The bytes in use on a sibling. A sibling that is nearly full is out of memory.
pub(crate) fn has_room<D: CopyDriver>(driver: &D, context: CUcontext) -> DriverResult<u64> {
    let (free, total) = driver.room(context)?;
    if free < total / SPARE { Err(CUresult::OUT_OF_MEMORY) } else { Ok(total.saturating_sub(free)) }
}

/// Reports a relay that could not be opened, or a lane that could not be made. At the end of the
/// process neither is needed.
fn complain(relay: CUdevice, code: CUresult) {
    if code != CUresult::DEINITIALIZED {
        log::warn!("device {relay} does not serve as a relay now: {code}");
    }
}

/// The log message for the memory that copies begin to hold on a relay.
fn first_use(relay: CUdevice, opened: RelayContext) -> String {
    format!(
        "copies go through device {relay} from now on: a context of ours there, at most {} MiB, and {} MiB of staging for each pipeline",
        opened.in_use >> 20,
        RelayPipeline::STAGING >> 20
    )
}

fn take_where<T>(list: &mut Vec<T>, wanted: impl Fn(&T) -> bool) -> Vec<T> {
    list.extract_if(.., |item| wanted(item)).collect()
}

fn take_one<T>(list: &mut Vec<T>, wanted: impl Fn(&T) -> bool) -> Option<T> {
    list.iter().position(wanted).map(|position| list.swap_remove(position))
}
