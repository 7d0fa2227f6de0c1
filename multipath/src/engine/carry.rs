//! Carrying a copy out: borrows lanes, wires and buffers for it, and gives them back whatever happens.

use std::sync::Arc;
use std::time::Duration;

use wm_abi::{CUdevice, CUresult};

use super::{Answer, Inner, Request};
use crate::courier::{Carrier, Courier};
use crate::enqueue::{Carried, Copy, direct, enqueue, parts};
use crate::gauge::Gauge;
use crate::lane::Lane;
use crate::links::Links;
use crate::plan::{self, BOUNCE, Direction, GRAIN, HostMemory, Plan, Split};
use crate::point::Point;
use crate::pull::pull;
use crate::topology::{Path, Topology};
use crate::user::Kind;
use crate::work::Piece;

/// A pageable copy below this is the driver's: starting threads costs more than they gain. Measured on two H200s, into the
/// device: 0.60 of plain at 16 MiB, 0.88 at 32, 1.46 at 64. Bytes.
const PAGEABLE_LEAST: usize = 48 << 20;
/// Fewer threads than this move less than the driver does by itself.
const COURIERS_LEAST: usize = 3;

/// An idle stream passes an event sooner than this.
const MOMENT: Duration = Duration::from_micros(200);

impl<L: Links + 'static> Inner<L> {
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
            // Nothing to order the copy with others by.
            Plan::Split(split) if split.direct.bytes < GRAIN && copy.user.kind != Kind::Alone => {
                self.give_back(lanes);
                Answer::Plain
            }
            Plan::Split(split) if request.waits => self.awaited(copy, &split, lanes),
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
        lanes.into_iter().for_each(|lane| self.pool.give_back(lane));
    }

    fn asynchronous(&self, copy: &Copy, split: &Split, lanes: Vec<Lane>) -> Answer {
        let has_share = |lane: &Lane| split.shares.iter().any(|share| share.relay == lane.relay());
        let (mut lanes, idle): (Vec<_>, Vec<_>) = lanes.into_iter().partition(has_share);
        self.give_back(idle);
        let Ok(start) = self.pool.point(&self.links, copy.user.home) else {
            self.give_back(lanes);
            return Answer::Plain;
        };
        let split = split.over(&lanes.iter().map(Lane::relay).collect::<Vec<_>>());
        let mut gauge = self.gauge(copy);
        let free = gauge.as_mut().filter(|gauge| gauge.is_free());
        let free = free.map(|gauge| gauge.followed(copy));
        let outcome = enqueue(&self.links, copy, &split, self.settings.piece, &mut lanes, &start, free);
        gauge.into_iter().for_each(|gauge| self.pool.give_gauge(&self.links, gauge));
        self.pool.give_point(start);
        self.take_back(copy, lanes, &outcome)
    }

    /// Counts what went through relays, and gives up lanes at fault.
    fn take_back(&self, copy: &Copy, lanes: Vec<Lane>, outcome: &Result<Vec<Carried>, CUresult>) -> Answer {
        let Ok(carried) = outcome else {
            // How far the lanes got is not known.
            lanes.into_iter().for_each(|lane| self.give_up(lane, copy));
            return Answer::Plain;
        };
        self.count(copy, carried);
        for (lane, share) in lanes.into_iter().zip(carried) {
            if share.failed {
                self.drop_relay(lane.relay());
                self.give_up(lane, copy);
            } else {
                self.pool.give_back(lane);
            }
        }
        Answer::Done
    }

    /// What looks at a large copy, after it has told of the one before.
    fn gauge(&self, copy: &Copy) -> Option<Gauge> {
        if copy.bytes < self.settings.learn {
            return None;
        }
        let mut gauge = self.pool.gauge(&self.links, copy.user.home)?;
        let doubtful = gauge.read(&self.links).is_some_and(|seen| self.trims.learn(&seen));
        if doubtful {
            self.doubt();
        }
        Some(gauge)
    }

    /// The same, and the caller waits for its end. A copy that fails while it is waited for is made again, plainly.
    fn awaited(&self, copy: &Copy, split: &Split, lanes: Vec<Lane>) -> Answer {
        let Ok(end) = self.pool.point(&self.links, copy.user.home) else {
            self.give_back(lanes);
            return Answer::Plain;
        };
        let answer = match self.asynchronous(copy, split, lanes) {
            Answer::Done if self.wait_for(copy, &end) => Answer::Done,
            _ => Answer::Plain,
        };
        self.pool.give_point(end);
        answer
    }

    /// Blocks until the program's stream has done all that is in it now.
    fn wait_for(&self, copy: &Copy, point: &Point) -> bool {
        point.record(&self.links, copy.user.stream).and_then(|()| point.wait(&self.links)).is_ok()
    }

    fn count(&self, copy: &Copy, carried: &[Carried]) {
        let relayed: usize = carried.iter().map(|share| share.bytes).sum();
        self.traffic.add(None, copy.direction, copy.bytes - relayed);
        carried.iter().for_each(|share| self.traffic.add(Some(share.relay), copy.direction, share.bytes));
    }

    /// A pageable copy: as many couriers as cores and paths allow, each with a pinned buffer. The call returns when the copy is
    /// done, so the host waits here, once, for all that comes before it in the stream; no courier reads the program's memory
    /// sooner.
    fn pageable(&self, request: &Request, paths: &[Path]) -> Answer {
        let (copy, mut couriers) = (&request.copy, Vec::new());
        let cores = self.settings.cores.min(self.links.cores());
        let threads = cores.saturating_sub(1).min(copy.bytes / self.settings.portion.max(1));
        let fillers = plan::fillers(threads, paths);
        if fillers.iter().sum::<usize>() < COURIERS_LEAST {
            return Answer::Plain;
        }
        let Ok(start) = self.pool.point(&self.links, copy.user.home) else { return Answer::Plain };
        // In a blocking stream the driver's own copy of the first bytes waits for all that theirs has to wait for.
        let [head, body, _] = parts(Piece { offset: 0, bytes: copy.bytes }, copy.user.kind);
        // The driver may read these bytes at once, before the stream has made them: on the way in they are carried again with the rest.
        let from = if copy.direction == Direction::In { 0 } else { body.offset };
        let rest = &copy.part(Piece { offset: from, bytes: copy.bytes - from });
        if direct(&self.links, copy, head).is_ok() && self.starts(request, &start) {
            for (index, count) in fillers.into_iter().enumerate() {
                let relay = (index > 0).then(|| paths[index].device);
                couriers.extend((0..count).map_while(|_| self.courier(request, relay, &start)));
            }
        }
        self.pool.give_point(start);
        // Without a direct courier nobody would carry what relays give back.
        let has_direct = couriers.first().is_some_and(|courier| courier.relay().is_none());
        let carries = has_direct && couriers.len() >= COURIERS_LEAST;
        let arrived = carries && pull(&self.links, rest, BOUNCE, &mut couriers).is_ok();
        self.settle(copy, couriers, arrived)
    }

    /// Has the host seen the start? A copy to the device that is not waited for may return before its stream gets there, if the driver
    /// has room for the bytes: then the stream must not be waited for here, and the copy is the driver's.
    fn starts(&self, request: &Request, start: &Point) -> bool {
        let copy = &request.copy;
        if request.waits || copy.direction == Direction::Out {
            return self.wait_for(copy, start);
        }
        let recorded = start.record(&self.links, copy.user.stream).is_ok();
        let end = self.links.clock() + MOMENT;
        let mut passed = recorded && start.is_passed(&self.links);
        while recorded && !passed && self.links.clock() < end {
            passed = start.is_passed(&self.links);
        }
        passed
    }

    fn courier(&self, request: &Request, relay: Option<CUdevice>, start: &Arc<Point>) -> Option<Courier> {
        let user = request.copy.user;
        let bounce = self.pool.bounce(&self.links, user.device).ok()?;
        let carrier = match relay {
            None => self.pool.wire(&self.links, user.home).ok().map(Carrier::Wire),
            Some(relay) => self.pool.lane(&self.links, relay, user).map(|mut lane| {
                lane.engage(user.stream, start);
                Carrier::Lane(lane)
            }),
        };
        match carrier {
            Some(carrier) => Some(Courier::new(carrier, bounce)),
            None => {
                self.pool.give_bounce(bounce);
                None
            }
        }
    }

    /// Counts what couriers carried, drops relays at fault, and takes everything back.
    fn settle(&self, copy: &Copy, couriers: Vec<Courier>, arrived: bool) -> Answer {
        for courier in couriers {
            let (failed, moved) = (courier.fault().is_some(), courier.moved());
            if arrived {
                self.traffic.add(courier.relay(), copy.direction, moved);
            }
            let (carrier, bounce) = courier.into_parts();
            self.pool.give_bounce(bounce);
            match carrier {
                Carrier::Wire(wire) => self.pool.give_wire(wire),
                Carrier::Lane(lane) if failed => self.fail(lane, copy),
                Carrier::Lane(lane) => self.pool.give_back(lane),
            }
        }
        if arrived { Answer::Done } else { Answer::Plain }
    }

    /// A courier's lane was at fault.
    fn fail(&self, lane: Lane, copy: &Copy) {
        self.drop_relay(lane.relay());
        self.give_up(lane, copy);
    }

    /// A lane ends here: the program's stream waits for what it may still do, and so does whoever gives its memory back.
    fn give_up(&self, lane: Lane, copy: &Copy) {
        lane.give_up(&self.links, copy.user);
        self.pool.give_up(lane);
    }
}
