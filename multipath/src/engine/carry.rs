//! Carries a copy out: borrows lanes, direct pipelines and buffers, and returns them on every path
//! out.

use wm_abi::CUresult;

use crate::driver::CopyDriver;
use crate::engine::Inner;
use crate::engine::request::{CopyOutcome, CopyRequest};
use crate::engine::traffic::CopyRoute;
use crate::plan::{self, CopyPlan, Split};
use crate::topology::Topology;
use crate::transfer::copy_timer::CopyTimer;
use crate::transfer::enqueue::{Carried, enqueue};
use crate::transfer::relay_pipeline::RelayPipeline;
use crate::transfer::stream_event::StreamEvent;
use crate::vocabulary::copy::{HostDeviceCopy, HostMemory};
use crate::vocabulary::path::Path;
use crate::vocabulary::sizes::GRAIN;
use crate::vocabulary::stream::StreamOrdering;

impl<D: CopyDriver + 'static> Inner<D> {
    pub(super) fn carry(&self, topology: &Topology, request: &CopyRequest, paths: &[Path]) -> CopyOutcome {
        let copy = &request.copy;
        if request.memory == HostMemory::Pageable {
            return if paths.is_empty() { self.alone(request) } else { self.pageable(request, paths) };
        }
        if paths.is_empty() {
            return CopyOutcome::Plain;
        }
        let calibrated = || topology.threshold(paths, copy.direction);
        let threshold = self.settings.minimum.unwrap_or_else(calibrated);
        if plan::split(copy.bytes, threshold, paths, &topology.costs) == CopyPlan::Direct {
            return CopyOutcome::Plain;
        }
        let (paths, lanes) = self.lanes(request, paths);
        match plan::split(copy.bytes, threshold, &paths, &topology.costs) {
            // Only the direct share can order the copy with others, and there is none.
            CopyPlan::Split(split)
                if split.direct.bytes < GRAIN && copy.user.kind != StreamOrdering::Alone =>
            {
                self.give_back(lanes);
                CopyOutcome::Plain
            }
            CopyPlan::Split(split) if request.waits => self.awaited(copy, &split, lanes),
            CopyPlan::Split(split) => self.asynchronous(copy, &split, lanes),
            CopyPlan::Direct => {
                self.give_back(lanes);
                CopyOutcome::Plain
            }
        }
    }

    /// Lanes through each relay that can lend any, and the paths that have lanes.
    fn lanes(&self, request: &CopyRequest, paths: &[Path]) -> (Vec<Path>, Vec<RelayPipeline>) {
        let (mut left, mut lanes) = (paths[..1].to_vec(), Vec::new());
        for path in &paths[1..] {
            let lend = || self.pool.lane(&self.driver, path.device, request.copy.user);
            let before = lanes.len();
            lanes.extend((0..self.settings.lanes).map_while(|_| lend()));
            left.extend((lanes.len() > before).then_some(*path));
        }
        (left, lanes)
    }

    fn give_back(&self, lanes: Vec<RelayPipeline>) {
        lanes.into_iter().for_each(|lane| self.pool.give_back(lane));
    }

    fn asynchronous(&self, copy: &HostDeviceCopy, split: &Split, lanes: Vec<RelayPipeline>) -> CopyOutcome {
        let has_share = |lane: &RelayPipeline| split.shares.iter().any(|share| share.relay == lane.relay());
        let (mut lanes, idle): (Vec<_>, Vec<_>) = lanes.into_iter().partition(has_share);
        self.give_back(idle);
        let Ok(start) = self.pool.event(&self.driver, copy.user.home) else {
            self.give_back(lanes);
            return CopyOutcome::Plain;
        };
        let split = split.over(&lanes.iter().map(RelayPipeline::relay).collect::<Vec<_>>());
        let Some(turn) = self.turns.take(&copy.user) else {
            self.pool.give_event(start);
            self.give_back(lanes);
            return CopyOutcome::Plain;
        };
        let mut timer = self.timer(copy);
        let free = timer.as_mut().filter(|timer| timer.is_free());
        let free = free.map(|timer| timer.followed(copy));
        let outcome = enqueue(&self.driver, copy, &split, self.settings.chunk, &mut lanes, &start, free);
        timer.into_iter().for_each(|timer| self.pool.give_timer(&self.driver, timer));
        self.pool.give_event(start);
        // A lane at fault ends with waits of the stream.
        let outcome = self.take_back(copy, lanes, &outcome);
        drop(turn);
        outcome
    }

    /// Counts the bytes that went through relays, and gives up lanes at fault.
    fn take_back(
        &self,
        copy: &HostDeviceCopy,
        lanes: Vec<RelayPipeline>,
        outcome: &Result<Vec<Carried>, CUresult>,
    ) -> CopyOutcome {
        let Ok(carried) = outcome else {
            // The progress of the lanes is unknown.
            lanes.into_iter().for_each(|lane| self.give_up(lane, copy));
            return CopyOutcome::Plain;
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
        CopyOutcome::Done
    }

    /// The timer for a large copy, after it has reported the copy before.
    fn timer(&self, copy: &HostDeviceCopy) -> Option<CopyTimer> {
        if copy.bytes < self.settings.learn {
            return None;
        }
        let mut timer = self.pool.timer(&self.driver, copy.user.home)?;
        let doubtful = timer.read(&self.driver).is_some_and(|seen| self.corrections.learn(&seen));
        if doubtful {
            self.doubt();
        }
        Some(timer)
    }

    /// The same for a caller that waits for the end. A copy that fails during the wait is made
    /// again, plainly.
    fn awaited(&self, copy: &HostDeviceCopy, split: &Split, lanes: Vec<RelayPipeline>) -> CopyOutcome {
        let Ok(end) = self.pool.event(&self.driver, copy.user.home) else {
            self.give_back(lanes);
            return CopyOutcome::Plain;
        };
        let answer = match self.asynchronous(copy, split, lanes) {
            CopyOutcome::Done if self.wait_for(copy, &end) => CopyOutcome::Done,
            _ => CopyOutcome::Plain,
        };
        self.pool.give_event(end);
        answer
    }

    /// Blocks until the program's stream has completed all its present work.
    pub(super) fn wait_for(&self, copy: &HostDeviceCopy, event: &StreamEvent) -> bool {
        event.record(&self.driver, copy.user.stream).and_then(|()| event.wait(&self.driver)).is_ok()
    }

    fn count(&self, copy: &HostDeviceCopy, carried: &[Carried]) {
        let relayed: usize = carried.iter().map(|share| share.bytes).sum();
        self.traffic.add(CopyRoute::Direct, copy.direction, copy.bytes - relayed);
        carried
            .iter()
            .for_each(|share| self.traffic.add(CopyRoute::Relay(share.relay), copy.direction, share.bytes));
    }

    /// Ends a lane. The program's stream waits for the lane's remaining work, and so does the
    /// release of the lane's memory.
    pub(super) fn give_up(&self, lane: RelayPipeline, copy: &HostDeviceCopy) {
        lane.give_up(&self.driver, copy.user);
        self.pool.give_up(lane);
    }
}
