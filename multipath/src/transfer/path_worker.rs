//! A worker moves chunks over one path: it takes them from the remainder of a copy, and keeps two
//! in flight.
//!
//! The program's memory passes through a worker's own pinned buffer. If a relay's worker fails, it
//! returns its chunks; an error of the direct path is the copy's.
//!
//! Invariants: a chunk is with the worker (`in_flight`), has arrived (`moved`), or was returned. A
//! worker runs on any thread, so it names no stream of the program. It runs only once the host has
//! seen the copy's start, because it reads and writes the program's memory.

use std::sync::Mutex;

use wm_abi::{CUdevice, CUresult};
use wm_driver::lock;

use crate::driver::{CopyDriver, DriverResult};
use crate::transfer::chunk_queue::{ChunkQueue, RangeEnd};
use crate::transfer::direct_pipeline::DirectPipeline;
use crate::transfer::pool::BounceBuffer;
use crate::transfer::relay_pipeline::RelayPipeline;
use crate::vocabulary::chunk::{Chunk, ChunkAddrs};
use crate::vocabulary::copy::{HostDeviceCopy, LinkDirection};
use crate::vocabulary::sizes::SLOTS;

/// The path of a worker.
#[derive(Debug)]
pub(crate) enum Pipeline {
    /// The target's own link.
    Direct(DirectPipeline),
    /// Through a relay.
    Relay(RelayPipeline),
}

/// A worker that moves chunks over one path.
#[derive(Debug)]
pub(crate) struct PathWorker {
    pipeline: Pipeline,
    bounce: BounceBuffer,
    in_flight: [Option<Chunk>; SLOTS],
    moved: usize,
    fault: Option<CUresult>,
}

impl PathWorker {
    /// A worker over a path, with its buffer.
    pub(crate) fn new(pipeline: Pipeline, bounce: BounceBuffer) -> Self {
        Self { pipeline, bounce, in_flight: [None; SLOTS], moved: 0, fault: None }
    }

    /// The path and the buffer, to be given back.
    pub(crate) fn into_parts(self) -> (Pipeline, BounceBuffer) {
        (self.pipeline, self.bounce)
    }

    /// The relay, if it goes through one.
    pub(crate) fn relay(&self) -> Option<CUdevice> {
        match &self.pipeline {
            Pipeline::Direct(_) => None,
            Pipeline::Relay(lane) => Some(lane.relay()),
        }
    }

    /// Bytes that have arrived.
    pub(crate) fn moved(&self) -> usize {
        self.moved
    }

    /// Why it stopped early.
    pub(crate) fn fault(&self) -> Option<CUresult> {
        self.fault
    }

    /// Pulls until no chunk is left, waiting for each one. A worker at fault moves nothing more.
    pub(crate) fn run<D: CopyDriver>(
        &mut self,
        driver: &D,
        copy: &HostDeviceCopy,
        queue: &Mutex<ChunkQueue>,
    ) {
        if self.fault.is_none()
            && let Err(code) = self.pull(driver, copy, queue)
        {
            self.fail(driver, queue, code);
        }
    }

    fn pull<D: CopyDriver>(
        &mut self,
        driver: &D,
        copy: &HostDeviceCopy,
        queue: &Mutex<ChunkQueue>,
    ) -> DriverResult<()> {
        loop {
            let slot = self.slot();
            if self.in_flight[slot].is_some() {
                self.settle(driver, slot)?;
                self.complete(driver, copy, slot);
            }
            let Some(chunk) = lock(queue).take(self.end()) else { break };
            self.send(driver, copy, slot, chunk)?;
        }
        while let Some(slot) = self.oldest() {
            self.settle(driver, slot)?;
            self.complete(driver, copy, slot);
        }
        Ok(())
    }

    fn end(&self) -> RangeEnd {
        if self.relay().is_none() { RangeEnd::Head } else { RangeEnd::Tail }
    }

    /// The slot that the next chunk will take.
    fn slot(&self) -> usize {
        match &self.pipeline {
            Pipeline::Direct(pipeline) => pipeline.slot(),
            Pipeline::Relay(lane) => lane.slot(),
        }
    }

    /// The slot of the chunk that was sent first.
    fn oldest(&self) -> Option<usize> {
        let next = self.slot();
        (next..next + SLOTS).map(|slot| slot % SLOTS).find(|slot| self.in_flight[*slot].is_some())
    }

    fn settle<D: CopyDriver>(&self, driver: &D, slot: usize) -> DriverResult<()> {
        match &self.pipeline {
            Pipeline::Direct(pipeline) => pipeline.settle(driver, slot),
            Pipeline::Relay(lane) => lane.settle(driver, slot),
        }
    }

    fn send<D: CopyDriver>(
        &mut self,
        driver: &D,
        copy: &HostDeviceCopy,
        slot: usize,
        chunk: Chunk,
    ) -> DriverResult<()> {
        self.in_flight[slot] = Some(chunk);
        let addrs = self.addrs(copy, slot, chunk);
        if copy.direction == LinkDirection::In {
            driver.move_bytes(addrs.host, copy.addrs(chunk).host, chunk.bytes);
        }
        match &mut self.pipeline {
            Pipeline::Direct(pipeline) => pipeline.carry(driver, copy.direction, addrs),
            Pipeline::Relay(lane) => lane.carry(driver, copy.direction, addrs),
        }
    }

    /// A chunk as the devices see it: in pinned memory.
    fn addrs(&self, copy: &HostDeviceCopy, slot: usize, chunk: Chunk) -> ChunkAddrs {
        ChunkAddrs { host: self.bounce.slot(slot), ..copy.addrs(chunk) }
    }

    /// The chunk of a slot has arrived: if the copy goes to the host, it moves on to pageable
    /// memory.
    fn complete<D: CopyDriver>(&mut self, driver: &D, copy: &HostDeviceCopy, slot: usize) {
        let Some(chunk) = self.in_flight[slot].take() else { return };
        if copy.direction == LinkDirection::Out {
            driver.move_bytes(copy.addrs(chunk).host, self.bounce.slot(slot), chunk.bytes);
        }
        self.moved += chunk.bytes;
    }

    /// Returns the chunks of a relay. An error of the direct path is the copy's: all workers stop.
    fn fail<D: CopyDriver>(&mut self, driver: &D, queue: &Mutex<ChunkQueue>, code: CUresult) {
        self.fault = Some(code);
        match &self.pipeline {
            Pipeline::Direct(pipeline) => pipeline.drain(driver),
            Pipeline::Relay(lane) => lane.drain(driver),
        }
        let in_flight = std::mem::take(&mut self.in_flight);
        match self.end() {
            RangeEnd::Head => lock(queue).abandon(),
            RangeEnd::Tail => lock(queue).give_back(in_flight.into_iter().flatten()),
        }
    }
}
