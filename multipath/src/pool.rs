//! What copies borrow: relays' contexts, lanes, wires and pinned buffers.
//!
//! Everything here is made when it is first needed, is owned by one copy at a time, and comes back afterwards. The lock
//! guards lists only: whatever calls the driver happens outside it, on things that have been taken out.
//!
//! A relay that failed is lost until its context is made anew. A context that ends takes its streams, events and pinned
//! buffers with it: they are forgotten here, also by lanes that are lent out at that moment, when they come back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use wm_abi::{CUcontext, CUdevice, CUresult};

use crate::gauge::Gauge;
use crate::lane::{Lane, User};
use crate::links::{Links, Result, Wake};
use crate::plan::{BOUNCE, LANES, SLOTS};
use crate::wire::Wire;

/// A relay must have one part in so many of its memory free, once its context is there.
const SPARE: u64 = 32;

/// Pinned memory that a pageable copy passes through, one piece a slot.
#[derive(Debug)]
pub struct Bounce {
    context: CUcontext,
    /// First byte of the first slot.
    pub address: u64,
}

impl Bounce {
    /// Bytes of one.
    pub const BYTES: usize = BOUNCE * SLOTS;

    /// Where a slot's bytes are.
    pub fn slot(&self, slot: usize) -> u64 {
        self.address + (slot * BOUNCE) as u64
    }
}

#[derive(Debug, Default)]
struct Shelf {
    lanes: Vec<Lane>,
    wires: Vec<Wire>,
    gauges: Vec<Gauge>,
    bounces: Vec<Bounce>,
    /// Contexts that were opened for relays.
    opened: BTreeMap<CUdevice, Opened>,
    /// The contexts that copies came from, and their devices.
    targets: BTreeMap<CUcontext, CUdevice>,
    /// Lanes that exist, lent ones included.
    made: BTreeMap<CUdevice, usize>,
    /// How often the context of a relay has ended.
    lives: BTreeMap<CUdevice, u64>,
    /// Relays that failed.
    lost: BTreeSet<CUdevice>,
    /// Contexts that ended while lanes were lent.
    ended: BTreeSet<CUcontext>,
    lent: usize,
}

/// A relay's context.
#[derive(Debug, Clone, Copy)]
struct Opened {
    context: CUcontext,
    /// Bytes in use on the device when it had been made; nothing if the program had made it.
    in_use: Option<u64>,
}

/// What copies hold on a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relay {
    /// The relay.
    pub device: CUdevice,
    /// Staging memory, bytes.
    pub staging: usize,
    /// Bytes that its context takes at most: what was in use there when it had been made. Zero if it is the program's.
    pub context: u64,
}

impl Shelf {
    fn life(&self, relay: CUdevice) -> u64 {
        self.lives.get(&relay).copied().unwrap_or(0)
    }
}

/// What copies borrow.
#[derive(Debug, Default)]
pub struct Pool {
    shelf: Mutex<Shelf>,
}

impl Pool {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has this relay failed?
    pub fn is_lost(&self, relay: CUdevice) -> bool {
        self.shelf().lost.contains(&relay)
    }

    /// What copies hold on each relay, for the statistics.
    pub fn relays(&self) -> Vec<Relay> {
        let shelf = self.shelf();
        let relay = |(device, opened): (&CUdevice, &Opened)| Relay {
            device: *device,
            staging: shelf.made.get(device).copied().unwrap_or(0) * Lane::STAGING,
            context: opened.in_use.unwrap_or(0),
        };
        shelf.opened.iter().map(relay).collect()
    }

    /// A lane through a relay that a copy of `user` may use now; made if all others are in use and there may be more.
    /// `None` where there is none to be had: the relay is busy with copies that have not begun, or it has failed.
    pub fn lane<L: Links>(&self, links: &L, relay: CUdevice, user: User) -> Option<Lane> {
        let mut idle = self.idle(relay, user)?;
        let fit = idle.iter().position(|lane| lane.admits(links, user));
        let lane = fit.map(|position| idle.swap_remove(position));
        self.shelf().lanes.extend(idle);
        let lane = lane.or_else(|| self.reserve(relay).then(|| self.make(links, relay)).flatten());
        if lane.is_none() {
            self.shelf().lent -= 1;
        }
        lane
    }

    /// Takes all idle lanes of a relay, for one of them to be lent.
    fn idle(&self, relay: CUdevice, user: User) -> Option<Vec<Lane>> {
        let mut shelf = self.shelf();
        if shelf.lost.contains(&relay) {
            return None;
        }
        shelf.lent += 1;
        shelf.targets.insert(user.context, user.device);
        Some(take_where(&mut shelf.lanes, |lane| lane.relay() == relay))
    }

    /// May there be one more?
    fn reserve(&self, relay: CUdevice) -> bool {
        let mut shelf = self.shelf();
        let made = shelf.made.entry(relay).or_default();
        let fits = *made < LANES;
        *made += usize::from(fits);
        fits
    }

    fn make<L: Links>(&self, links: &L, relay: CUdevice) -> Option<Lane> {
        let life = self.shelf().life(relay);
        let made = self.open(links, relay).and_then(|context| Lane::new(links, relay, context));
        let made = made.map(|mut lane| {
            lane.life = life;
            lane
        });
        made.inspect_err(|code| {
            log::warn!("device {relay} does not serve as a relay: {code}");
            self.lose(relay);
        })
        .ok()
    }

    fn open<L: Links>(&self, links: &L, relay: CUdevice) -> Result<CUcontext> {
        if let Some(opened) = self.shelf().opened.get(&relay) {
            return Ok(opened.context);
        }
        let was_open = links.is_open(relay);
        let context = links.open(relay)?;
        let in_use = has_room(links, context).inspect_err(|_| links.close(relay))?;
        let opened = Opened { context, in_use: (!was_open).then_some(in_use) };
        if self.keep(relay, opened) {
            log::info!("{}", first_use(relay, opened));
        } else {
            // Another thread was faster: one claim on the context is enough.
            links.close(relay);
        }
        Ok(context)
    }

    /// `false` if there is one already.
    fn keep(&self, relay: CUdevice, opened: Opened) -> bool {
        let mut shelf = self.shelf();
        let first = !shelf.opened.contains_key(&relay);
        shelf.opened.entry(relay).or_insert(opened);
        first
    }

    /// A relay failed: no copy uses it any more.
    pub fn lose(&self, relay: CUdevice) {
        let mut shelf = self.shelf();
        shelf.lost.insert(relay);
        shelf.made.remove(&relay);
    }

    /// Takes a lane back.
    pub fn give_back<L: Links>(&self, links: &L, mut lane: Lane) {
        let mut shelf = self.shelf();
        for context in &shelf.ended {
            lane.forget(*context);
        }
        shelf.lent = shelf.lent.saturating_sub(1);
        if shelf.lent == 0 {
            shelf.ended.clear();
        }
        if lane.life != shelf.life(lane.relay()) {
            drop(shelf);
            lane.bury(links);
        } else if shelf.lost.contains(&lane.relay()) {
            drop(shelf);
            lane.close(links);
        } else {
            shelf.lanes.push(lane);
        }
    }

    /// A wire in a context, made if none is idle.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn wire<L: Links>(&self, links: &L, user: User, wake: Wake) -> Result<Wire> {
        let context = user.context;
        let mut shelf = self.shelf();
        shelf.targets.insert(context, user.device);
        if let Some(position) = shelf.wires.iter().position(|wire| wire.fits(context, wake)) {
            return Ok(shelf.wires.swap_remove(position));
        }
        drop(shelf);
        Wire::new(links, context, wake)
    }

    /// Takes a wire back.
    pub fn give_wire(&self, wire: Wire) {
        self.shelf().wires.push(wire);
    }

    /// A gauge in a context, made if none is idle. `None` where it cannot be made.
    pub fn gauge<L: Links>(&self, links: &L, user: User) -> Option<Gauge> {
        let context = user.context;
        let mut shelf = self.shelf();
        shelf.targets.insert(context, user.device);
        if let Some(position) = shelf.gauges.iter().position(|gauge| gauge.context() == context) {
            return Some(shelf.gauges.swap_remove(position));
        }
        drop(shelf);
        Gauge::new(links, context).ok()
    }

    /// Takes a gauge back; one that is broken, or that there is another one of, ends here.
    pub fn give_gauge<L: Links>(&self, links: &L, gauge: Gauge) {
        let mut shelf = self.shelf();
        let known = shelf.gauges.iter().any(|other| other.context() == gauge.context());
        if known || gauge.is_broken() {
            drop(shelf);
            gauge.close(links);
        } else {
            shelf.gauges.push(gauge);
        }
    }

    /// A pinned buffer, made if none is idle.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn bounce<L: Links>(&self, links: &L, user: User) -> Result<Bounce> {
        let context = user.context;
        let mut shelf = self.shelf();
        shelf.targets.insert(context, user.device);
        if let Some(position) = shelf.bounces.iter().position(|bounce| bounce.context == context) {
            return Ok(shelf.bounces.swap_remove(position));
        }
        drop(shelf);
        Ok(Bounce { context, address: links.pin(context, Bounce::BYTES)? })
    }

    /// Takes a pinned buffer back.
    pub fn give_bounce(&self, bounce: Bounce) {
        self.shelf().bounces.push(bounce);
    }

    /// A context is about to end, and what was made in it.
    pub fn end_context<L: Links>(&self, links: &L, context: CUcontext) {
        let mut shelf = self.shelf();
        let Some(_) = shelf.targets.remove(&context) else { return };
        let mut lanes = std::mem::take(&mut shelf.lanes);
        let wires = take_where(&mut shelf.wires, |wire| wire.context() == context);
        let bounces = take_where(&mut shelf.bounces, |bounce| bounce.context == context);
        let gauges = take_where(&mut shelf.gauges, |gauge| gauge.context() == context);
        if shelf.lent > 0 {
            shelf.ended.insert(context);
        }
        drop(shelf);
        lanes.iter_mut().for_each(|lane| lane.leave(links, context));
        wires.into_iter().for_each(|wire| wire.close(links));
        gauges.into_iter().for_each(|gauge| gauge.close(links));
        bounces.into_iter().for_each(|bounce| links.unpin(context, bounce.address));
        self.shelf().lanes.extend(lanes);
    }

    /// The primary context of a device is about to end, or the program gives it up: what is ours there goes first. It is
    /// made anew when it is needed.
    pub fn end_device<L: Links>(&self, links: &L, device: CUdevice) {
        let mut shelf = self.shelf();
        let lanes = take_where(&mut shelf.lanes, |lane| lane.relay() == device);
        let opened = shelf.opened.remove(&device).is_some();
        shelf.made.remove(&device);
        shelf.lost.remove(&device);
        *shelf.lives.entry(device).or_default() += 1;
        let targets: Vec<_> =
            shelf.targets.iter().filter(|(_, on)| **on == device).map(|(c, _)| *c).collect();
        drop(shelf);
        lanes.into_iter().for_each(|lane| lane.close(links));
        targets.into_iter().for_each(|context| self.end_context(links, context));
        if opened {
            links.close(device);
        }
    }
}

/// A sibling that is nearly full is left to whoever filled it. Bytes in use on another one.
fn has_room<L: Links>(links: &L, context: CUcontext) -> Result<u64> {
    let (free, total) = links.room(context)?;
    if free < total / SPARE { Err(CUresult::OUT_OF_MEMORY) } else { Ok(total.saturating_sub(free)) }
}

/// What copies begin to hold on a relay, in words.
fn first_use(relay: CUdevice, opened: Opened) -> String {
    let staging = Lane::STAGING >> 20;
    match opened.in_use {
        Some(bytes) => format!(
            "copies go through device {relay} from now on: a context there, at most {} MiB, and {staging} MiB of staging",
            bytes >> 20
        ),
        None => format!(
            "copies go through device {relay} from now on: {staging} MiB of staging in the program's own context there"
        ),
    }
}

fn take_where<T>(list: &mut Vec<T>, wanted: impl Fn(&T) -> bool) -> Vec<T> {
    let (taken, kept) = std::mem::take(list).into_iter().partition(wanted);
    *list = kept;
    taken
}
