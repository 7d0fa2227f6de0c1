//! Carrying a copy out: borrows lanes, wires and buffers for it, and gives them back whatever happens.

use wm_abi::CUresult;

use super::{Answer, Inner, Request};
use crate::enqueue::{Carried, Copy, enqueue};
use crate::gauge::Gauge;
use crate::lane::Lane;
use crate::links::Links;
use crate::plan::{self, GRAIN, HostMemory, Plan, Split};
use crate::point::Point;
use crate::topology::{Path, Topology};
use crate::traffic::Way;
use crate::user::Kind;

impl<L: Links + 'static> Inner<L> {
    pub(super) fn carry(&self, topology: &Topology, request: &Request, paths: &[Path]) -> Answer {
        let copy = &request.copy;
        if request.memory == HostMemory::Pageable {
            return if paths.is_empty() { self.alone(request) } else { self.pageable(request, paths) };
        }
        if paths.is_empty() {
            return Answer::Plain;
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
    pub(super) fn wait_for(&self, copy: &Copy, point: &Point) -> bool {
        point.record(&self.links, copy.user.stream).and_then(|()| point.wait(&self.links)).is_ok()
    }

    fn count(&self, copy: &Copy, carried: &[Carried]) {
        let relayed: usize = carried.iter().map(|share| share.bytes).sum();
        self.traffic.add(Way::Direct, copy.direction, copy.bytes - relayed);
        carried
            .iter()
            .for_each(|share| self.traffic.add(Way::Relay(share.relay), copy.direction, share.bytes));
    }

    /// A lane ends here: the program's stream waits for what it may still do, and so does whoever gives its memory back.
    pub(super) fn give_up(&self, lane: Lane, copy: &Copy) {
        lane.give_up(&self.links, copy.user);
        self.pool.give_up(lane);
    }
}
