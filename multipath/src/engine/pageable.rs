//! Copies of pageable memory: threads fill or empty pinned buffers, over the target's own link and
//! over relays'.
//!
//! One thread moves less than a link carries, and the driver copies with one. Several threads over
//! the target's own link need no sibling, no measurement and no other process's claims.
//!
//! Invariants: no worker touches the program's memory before the host has seen the copy's start,
//! and all workers have ended when the call returns. There are as many pinned buffers as there have
//! been workers at once ([`crate::arbitration::threads`] bounds those of the own link).

use std::sync::Arc;
use std::time::Duration;

use wm_abi::CUdevice;

use crate::arbitration::threads::FEWEST;
use crate::driver::CopyDriver;
use crate::engine::Inner;
use crate::engine::request::{CopyOutcome, CopyRequest};
use crate::engine::settings::LEAST_PAGEABLE;
use crate::engine::traffic::CopyRoute;
use crate::plan;
use crate::transfer::enqueue::{direct, parts};
use crate::transfer::path_worker::{PathWorker, Pipeline};
use crate::transfer::pull::pull;
use crate::transfer::relay_pipeline::RelayPipeline;
use crate::transfer::stream_event::StreamEvent;
use crate::vocabulary::chunk::Chunk;
use crate::vocabulary::copy::{HostDeviceCopy, LinkDirection};
use crate::vocabulary::path::Path;
use crate::vocabulary::sizes::BOUNCE;
use crate::vocabulary::times::ThreadTimes;

/// Fewer workers than this move less than the driver does by itself.
const WORKERS_LEAST: usize = FEWEST + 1;

/// How often a copy checks whether its stream is empty while other threads keep enqueueing work
/// there.
const TRIES: usize = 4;

/// An idle stream reaches an event sooner than this.
const MOMENT: Duration = Duration::from_micros(200);

impl<D: CopyDriver + 'static> Inner<D> {
    /// Over the target's own link alone.
    pub(super) fn alone(&self, request: &CopyRequest) -> CopyOutcome {
        self.pageable(request, &[Path { device: request.copy.user.device, rate: 0.0 }])
    }

    /// A pageable copy: as many workers as cores and paths allow, each with a pinned buffer. The
    /// call returns when the copy is done, so the host waits here, once, for all earlier work in
    /// the stream; no worker reads the program's memory sooner.
    pub(super) fn pageable(&self, request: &CopyRequest, paths: &[Path]) -> CopyOutcome {
        let copy = &request.copy;
        if copy.bytes < self.settings.minimum.unwrap_or(LEAST_PAGEABLE) || !self.has_threads(copy, paths) {
            return CopyOutcome::Plain;
        }
        let Ok(start) = self.pool.event(&self.driver, copy.user.home) else { return CopyOutcome::Plain };
        let begun = self.begin(request, &start);
        let answer = if begun { self.in_turn(request, paths, &start) } else { CopyOutcome::Plain };
        self.pool.give_event(start);
        answer
    }

    /// The turn is used only while the stream is empty: then the copy's remaining waits end by
    /// themselves, and so does the turn. If another thread has enqueued work meanwhile, or is about
    /// to, that work comes first, and the wait for it is made without the turn. After [`TRIES`]
    /// attempts the driver makes the copy.
    fn in_turn(&self, request: &CopyRequest, paths: &[Path], start: &Arc<StreamEvent>) -> CopyOutcome {
        let user = request.copy.user;
        for _ in 0..TRIES {
            let turn = self.turns.take(&user);
            // The device has reached its start, so it holds only later work of other threads.
            if turn.is_some() && self.driver.is_empty(user.home.context, user.stream) == Ok(true) {
                return self.fill(request, paths, start);
            }
            drop(turn);
            if !self.starts(request, start) {
                break;
            }
        }
        CopyOutcome::Plain
    }

    /// Has the device reached the event within [`MOMENT`]?
    fn passes_soon(&self, event: &StreamEvent) -> bool {
        let end = self.driver.clock() + MOMENT;
        let mut passed = event.is_passed(&self.driver);
        while !passed && self.driver.clock() < end {
            passed = event.is_passed(&self.driver);
        }
        passed
    }

    fn cores(&self) -> usize {
        self.settings.cores.min(self.driver.cores())
    }

    /// Workers that have enough to do.
    fn worthwhile(&self, copy: &HostDeviceCopy) -> usize {
        copy.bytes / self.settings.portion.max(1)
    }

    /// Workers for each of several paths. A core is left to the program.
    fn fillers(&self, copy: &HostDeviceCopy, paths: &[Path]) -> Vec<usize> {
        plan::fillers(self.cores().saturating_sub(1).min(self.worthwhile(copy)), paths)
    }

    fn has_threads(&self, copy: &HostDeviceCopy, paths: &[Path]) -> bool {
        if let [_] = paths {
            return self.threads.room(self.cores(), self.beside(copy), self.driver.clock()) > 0;
        }
        self.fillers(copy, paths).iter().sum::<usize>() >= WORKERS_LEAST
    }

    /// Threads beside the caller's own that have enough to do.
    fn beside(&self, copy: &HostDeviceCopy) -> usize {
        self.worthwhile(copy).saturating_sub(1)
    }

    /// Waits for the copy's start.
    fn begin(&self, request: &CopyRequest, start: &StreamEvent) -> bool {
        let copy = &request.copy;
        // In a blocking stream the driver's own copy of the first bytes waits for all work that the
        // whole copy has to wait for.
        let [head, ..] = parts(Chunk { offset: 0, bytes: copy.bytes }, copy.user.kind);
        // The workers carry these bytes again. Into the device the driver may read them at once,
        // before the stream has made them, and in both directions work of another thread may come
        // between them and the copy's turn.
        direct(&self.driver, copy, head).is_ok() && self.starts(request, start)
    }

    /// Has the host seen the start? If the driver has room for the bytes, a copy to the device
    /// whose caller does not wait may return before its stream gets there. Then the host must not
    /// wait for the stream here, and the driver makes the copy.
    fn starts(&self, request: &CopyRequest, start: &StreamEvent) -> bool {
        let copy = &request.copy;
        if request.waits || copy.direction == LinkDirection::Out {
            return self.wait_for(copy, start);
        }
        start.record(&self.driver, copy.user.stream).is_ok() && self.passes_soon(start)
    }

    /// Borrows the threads only now: until its start, a copy has no use for them.
    fn fill(&self, request: &CopyRequest, paths: &[Path], start: &Arc<StreamEvent>) -> CopyOutcome {
        let copy = &request.copy;
        let [_] = paths else {
            let fillers = self.fillers(copy, paths);
            return self.carried(request, paths, &fillers, start, &ThreadTimes::default());
        };
        let lent = self.threads.borrow(self.cores(), self.beside(copy), self.driver.clock());
        let waits = ThreadTimes::default();
        let answer = self.carried(request, paths, &[lent + 1], start, &waits);
        self.threads.give_back(lent, &waits, self.driver.clock());
        answer
    }

    /// Carries the copy with this many workers over each path.
    fn carried(
        &self,
        request: &CopyRequest,
        paths: &[Path],
        fillers: &[usize],
        start: &Arc<StreamEvent>,
        waits: &ThreadTimes,
    ) -> CopyOutcome {
        let mut workers = Vec::new();
        for (index, count) in fillers.iter().enumerate() {
            let relay = (index > 0).then(|| paths[index].device);
            workers.extend((0..*count).map_while(|_| self.worker(request, relay, start)));
        }
        // Without a direct worker no thread would carry the chunks that relays return.
        let has_direct = workers.first().is_some_and(|worker| worker.relay().is_none());
        let carries = has_direct && workers.len() >= WORKERS_LEAST;
        let arrived = carries && pull(&self.driver, &request.copy, BOUNCE, &mut workers, waits).is_ok();
        self.settle(&request.copy, workers, arrived)
    }

    fn worker(
        &self,
        request: &CopyRequest,
        relay: Option<CUdevice>,
        start: &Arc<StreamEvent>,
    ) -> Option<PathWorker> {
        let user = request.copy.user;
        let bounce = self.pool.bounce(&self.driver, user.device).ok()?;
        let pipeline = match relay {
            None => self.pool.direct_pipeline(&self.driver, user.home).ok().map(Pipeline::Direct),
            Some(relay) => self.pool.lane(&self.driver, relay, user).map(|mut lane| {
                lane.engage(user.stream, start);
                Pipeline::Relay(lane)
            }),
        };
        match pipeline {
            Some(pipeline) => Some(PathWorker::new(pipeline, bounce)),
            None => {
                self.pool.give_bounce(bounce);
                None
            }
        }
    }

    /// Counts the bytes that workers moved, drops failed relays, and takes everything back.
    fn settle(&self, copy: &HostDeviceCopy, workers: Vec<PathWorker>, arrived: bool) -> CopyOutcome {
        if arrived {
            self.count_workers(copy, &workers);
        }
        for worker in workers {
            let failed = worker.fault().is_some();
            let (pipeline, bounce) = worker.into_parts();
            self.pool.give_bounce(bounce);
            match pipeline {
                Pipeline::Direct(pipeline) => self.pool.give_direct_pipeline(pipeline),
                Pipeline::Relay(lane) if failed => self.fail(lane, copy),
                Pipeline::Relay(lane) => self.pool.give_back(lane),
            }
        }
        if arrived { CopyOutcome::Done } else { CopyOutcome::Plain }
    }

    /// Several workers over one path carry one part.
    fn count_workers(&self, copy: &HostDeviceCopy, workers: &[PathWorker]) {
        let mut moved = std::collections::BTreeMap::new();
        for worker in workers {
            *moved.entry(worker.relay().map_or(CopyRoute::Threads, CopyRoute::Relay)).or_insert(0) +=
                worker.moved();
        }
        moved.into_iter().for_each(|(way, bytes)| self.traffic.add(way, copy.direction, bytes));
    }

    /// A worker's lane was at fault.
    fn fail(&self, lane: RelayPipeline, copy: &HostDeviceCopy) {
        self.drop_relay(lane.relay());
        self.give_up(lane, copy);
    }
}
