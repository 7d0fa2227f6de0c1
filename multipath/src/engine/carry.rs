//! Carrying a copy out: borrows lanes, wires and buffers for it, and gives them back whatever happens.

use wm_abi::CUdevice;

use super::{Answer, Engine, Request};
use crate::courier::{Carrier, Courier};
use crate::enqueue::{Carried, Copy, enqueue};
use crate::gauge::Gauge;
use crate::lane::Lane;
use crate::links::{Links, Wake};
use crate::plan::{self, BOUNCE, HostMemory, Plan, SLOT, Split};
use crate::pool::Bounce;
use crate::pull::{pull, steer};
use crate::topology::{Path, Topology};

/// A pageable copy below this is the driver's: starting threads costs more than they gain. Measured on two H200s, into the
/// device: 0.60 of plain at 16 MiB, 0.88 at 32, 1.46 at 64. Bytes.
const PAGEABLE_LEAST: usize = 48 << 20;
/// Fewer threads than this move less than the driver does by itself.
const COURIERS_LEAST: usize = 3;

impl<L: Links> Engine<L> {
    pub(super) fn carry(&self, topology: &Topology, request: &Request, paths: &[Path]) -> Answer {
        let copy = &request.copy;
        if paths.is_empty() {
            return Answer::Plain;
        }
        if request.memory == HostMemory::Pageable {
            let threshold = self.settings.minimum.unwrap_or(PAGEABLE_LEAST);
            return if copy.bytes < threshold { Answer::Plain } else { self.pageable(request, paths) };
        }
        let calibrated = || topology.threshold(paths, copy.direction);
        let threshold = self.settings.minimum.unwrap_or_else(calibrated);
        if plan::split(copy.bytes, threshold, paths, &topology.costs) == Plan::Direct {
            return Answer::Plain;
        }
        let (paths, lanes) = self.lanes(request, paths);
        match plan::split(copy.bytes, threshold, &paths, &topology.costs) {
            Plan::Split(split) if request.waits && copy.bytes < self.settings.pull => {
                self.awaited(copy, &split, lanes)
            }
            Plan::Split(_) if request.waits => self.pinned(copy, lanes),
            Plan::Split(split) => self.asynchronous(copy, &split, lanes),
            Plan::Direct => {
                self.give_back(lanes);
                Answer::Plain
            }
        }
    }

    /// Lanes through each relay that has any to lend, and the paths that are left.
    fn lanes(&self, request: &Request, paths: &[Path]) -> (Vec<Path>, Vec<Lane>) {
        let (mut left, mut lanes) = (paths[..1].to_vec(), Vec::new());
        for path in &paths[1..] {
            let lend = || self.pool.lane(&self.links, path.device, request.copy.user);
            let before = lanes.len();
            lanes.extend((0..self.settings.lanes).map_while(|_| lend()));
            left.extend((lanes.len() > before).then_some(*path));
        }
        (left, lanes)
    }

    fn give_back(&self, lanes: Vec<Lane>) {
        lanes.into_iter().for_each(|lane| self.pool.give_back(&self.links, lane));
    }

    fn asynchronous(&self, copy: &Copy, split: &Split, lanes: Vec<Lane>) -> Answer {
        let has_share = |lane: &Lane| split.shares.iter().any(|share| share.relay == lane.relay());
        let (mut lanes, idle): (Vec<_>, Vec<_>) = lanes.into_iter().partition(has_share);
        self.give_back(idle);
        let split = split.over(&lanes.iter().map(Lane::relay).collect::<Vec<_>>());
        let mut gauge = self.gauge(copy);
        let free = gauge.as_mut().filter(|gauge| gauge.is_free());
        let free = free.map(|gauge| gauge.followed(copy));
        let outcome = enqueue(&self.links, copy, &split, self.settings.piece, &mut lanes, free);
        gauge.into_iter().for_each(|gauge| self.pool.give_gauge(&self.links, gauge));
        if let Ok(carried) = &outcome {
            self.count(copy, carried);
            carried.iter().filter(|share| share.failed).for_each(|share| self.drop_relay(share.relay));
        }
        self.give_back(lanes);
        outcome.map_or(Answer::Plain, |_| Answer::Done)
    }

    /// What looks at a large copy, after it has told of the one before.
    fn gauge(&self, copy: &Copy) -> Option<Gauge> {
        if copy.bytes < self.settings.learn {
            return None;
        }
        let mut gauge = self.pool.gauge(&self.links, copy.user)?;
        let doubtful = gauge.read(&self.links).is_some_and(|seen| self.trims.learn(&seen));
        if doubtful {
            self.doubt();
        }
        Some(gauge)
    }

    /// The same, and the caller waits for its end. A copy that fails while it is waited for is made again, plainly.
    fn awaited(&self, copy: &Copy, split: &Split, lanes: Vec<Lane>) -> Answer {
        let Ok(mut wire) = self.pool.wire(&self.links, copy.user, Wake::Prompt) else {
            self.give_back(lanes);
            return Answer::Plain;
        };
        let answer = match self.asynchronous(copy, split, lanes) {
            Answer::Done if wire.follow(&self.links, copy.user).is_ok() => Answer::Done,
            _ => Answer::Plain,
        };
        self.pool.give_wire(wire);
        answer
    }

    fn count(&self, copy: &Copy, carried: &[Carried]) {
        let relayed: usize = carried.iter().map(|share| share.bytes).sum();
        self.traffic.add(None, copy.direction, copy.bytes - relayed);
        carried.iter().for_each(|share| self.traffic.add(Some(share.relay), copy.direction, share.bytes));
    }

    /// A pinned copy that is waited for: one courier a path, all steered by the caller.
    fn pinned(&self, copy: &Copy, lanes: Vec<Lane>) -> Answer {
        let Ok(wire) = self.pool.wire(&self.links, copy.user, Wake::Prompt) else {
            self.give_back(lanes);
            return Answer::Plain;
        };
        let direct = std::iter::once(Courier::new(Carrier::Wire(wire), None));
        let relays = lanes.into_iter().map(|lane| Courier::new(Carrier::Lane(lane), None));
        let mut couriers: Vec<_> = direct.chain(relays).collect();
        let outcome = steer(&self.links, copy, SLOT, &mut couriers);
        self.settle(copy, couriers, outcome.is_ok())
    }

    /// A pageable copy: as many couriers as cores and paths allow, each with a pinned buffer.
    fn pageable(&self, request: &Request, paths: &[Path]) -> Answer {
        let (copy, mut couriers) = (&request.copy, Vec::new());
        let threads = self.settings.cores.saturating_sub(1).min(copy.bytes / self.settings.portion.max(1));
        let fillers = plan::fillers(threads, paths);
        for (index, count) in fillers.into_iter().enumerate() {
            let relay = (index > 0).then(|| paths[index].device);
            couriers.extend((0..count).map_while(|_| self.courier(request, relay)));
        }
        // Without a direct courier nobody would carry what relays give back.
        let has_direct = couriers.first().is_some_and(|courier| courier.relay().is_none());
        if !has_direct || couriers.len() < COURIERS_LEAST {
            self.dismiss(couriers);
            return Answer::Plain;
        }
        let outcome = pull(&self.links, copy, BOUNCE, &mut couriers);
        self.settle(copy, couriers, outcome.is_ok())
    }

    fn courier(&self, request: &Request, relay: Option<CUdevice>) -> Option<Courier> {
        let user = request.copy.user;
        let bounce = self.pool.bounce(&self.links, user).ok()?;
        let carrier = match relay {
            None => self.pool.wire(&self.links, user, Wake::Sleeping).ok().map(Carrier::Wire),
            Some(relay) => self.pool.lane(&self.links, relay, user).map(Carrier::Lane),
        };
        match carrier {
            Some(carrier) => Some(Courier::new(carrier, Some(bounce))),
            None => {
                self.pool.give_bounce(bounce);
                None
            }
        }
    }

    /// Counts what couriers carried, drops relays at fault, and takes everything back.
    fn settle(&self, copy: &Copy, couriers: Vec<Courier>, arrived: bool) -> Answer {
        for courier in couriers.iter().filter(|_| arrived) {
            self.traffic.add(courier.relay(), copy.direction, courier.moved());
            let failed = courier.relay().filter(|_| courier.fault().is_some());
            failed.into_iter().for_each(|relay| self.drop_relay(relay));
        }
        self.dismiss(couriers);
        if arrived { Answer::Done } else { Answer::Plain }
    }

    fn dismiss(&self, couriers: Vec<Courier>) {
        let (carriers, bounces): (Vec<_>, Vec<Option<Bounce>>) =
            couriers.into_iter().map(Courier::into_parts).unzip();
        for carrier in carriers {
            match carrier {
                Carrier::Wire(wire) => self.pool.give_wire(wire),
                Carrier::Lane(lane) => self.pool.give_back(&self.links, lane),
            }
        }
        bounces.into_iter().flatten().for_each(|bounce| self.pool.give_bounce(bounce));
    }
}
