//! What moves pieces over one path: takes them from what is left of a copy, and keeps two under way.
//!
//! The program's memory passes through a courier's own pinned buffer. A relay's courier that fails gives its pieces back;
//! an error of the direct path is the copy's.
//!
//! Invariants: a piece is with the courier (`flights`), has arrived (`moved`), or was given back. A courier runs on any thread, so it
//! names no stream of the program, and only once the host has seen the copy's start: it reads and writes the program's memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use wm_abi::{CUdevice, CUresult};

use crate::driver::{CopyDriver, DriverResult};
use crate::transfer::chunk_queue::{ChunkQueue, RangeEnd};
use crate::transfer::direct_pipeline::DirectPipeline;
use crate::transfer::pool::BounceBuffer;
use crate::transfer::relay_pipeline::RelayPipeline;
use crate::vocabulary::chunk::{Chunk, ChunkAddrs};
use crate::vocabulary::copy::{HostDeviceCopy, LinkDirection};
use crate::vocabulary::sizes::SLOTS;

/// The path of a courier.
#[derive(Debug)]
pub(crate) enum Pipeline {
    /// The target's own link.
    Direct(DirectPipeline),
    /// Through a relay.
    Relay(RelayPipeline),
}

/// What moves pieces over one path.
#[derive(Debug)]
pub(crate) struct PathWorker {
    carrier: Pipeline,
    bounce: BounceBuffer,
    flights: [Option<Chunk>; SLOTS],
    moved: usize,
    fault: Option<CUresult>,
}

impl PathWorker {
    /// A courier over a path, with its buffer.
    pub(crate) fn new(carrier: Pipeline, bounce: BounceBuffer) -> Self {
        Self { carrier, bounce, flights: [None; SLOTS], moved: 0, fault: None }
    }

    /// The path and the buffer, to be given back.
    pub(crate) fn into_parts(self) -> (Pipeline, BounceBuffer) {
        (self.carrier, self.bounce)
    }

    /// The relay, if it goes through one.
    pub(crate) fn relay(&self) -> Option<CUdevice> {
        match &self.carrier {
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

    /// Pulls until nothing is left, waiting for each piece. A courier at fault moves nothing any more.
    pub(crate) fn run<D: CopyDriver>(&mut self, driver: &D, copy: &HostDeviceCopy, work: &Mutex<ChunkQueue>) {
        if self.fault.is_none()
            && let Err(code) = self.pull(driver, copy, work)
        {
            self.fail(driver, work, code);
        }
    }

    fn pull<D: CopyDriver>(
        &mut self,
        driver: &D,
        copy: &HostDeviceCopy,
        work: &Mutex<ChunkQueue>,
    ) -> DriverResult<()> {
        loop {
            let slot = self.slot();
            if self.flights[slot].is_some() {
                self.settle(driver, slot)?;
                self.land(driver, copy, slot);
            }
            let Some(piece) = lock(work).take(self.end()) else { break };
            self.send(driver, copy, slot, piece)?;
        }
        while let Some(slot) = self.oldest() {
            self.settle(driver, slot)?;
            self.land(driver, copy, slot);
        }
        Ok(())
    }

    fn end(&self) -> RangeEnd {
        if self.relay().is_none() { RangeEnd::Head } else { RangeEnd::Tail }
    }

    /// The slot that the next piece will take.
    fn slot(&self) -> usize {
        match &self.carrier {
            Pipeline::Direct(wire) => wire.slot(),
            Pipeline::Relay(lane) => lane.slot(),
        }
    }

    /// The slot of the piece that was sent first.
    fn oldest(&self) -> Option<usize> {
        let next = self.slot();
        (next..next + SLOTS).map(|slot| slot % SLOTS).find(|slot| self.flights[*slot].is_some())
    }

    fn settle<D: CopyDriver>(&self, driver: &D, slot: usize) -> DriverResult<()> {
        match &self.carrier {
            Pipeline::Direct(wire) => wire.settle(driver, slot),
            Pipeline::Relay(lane) => lane.settle(driver, slot),
        }
    }

    fn send<D: CopyDriver>(
        &mut self,
        driver: &D,
        copy: &HostDeviceCopy,
        slot: usize,
        piece: Chunk,
    ) -> DriverResult<()> {
        self.flights[slot] = Some(piece);
        let cargo = self.cargo(copy, slot, piece);
        if copy.direction == LinkDirection::In {
            driver.move_bytes(cargo.host, copy.cargo(piece).host, piece.bytes);
        }
        match &mut self.carrier {
            Pipeline::Direct(wire) => wire.carry(driver, copy.direction, cargo),
            Pipeline::Relay(lane) => lane.carry(driver, copy.direction, cargo),
        }
    }

    /// A piece as the devices see it: in pinned memory.
    fn cargo(&self, copy: &HostDeviceCopy, slot: usize, piece: Chunk) -> ChunkAddrs {
        ChunkAddrs { host: self.bounce.slot(slot), ..copy.cargo(piece) }
    }

    /// A slot's piece has arrived: it goes on to pageable memory if that is where the copy goes.
    fn land<D: CopyDriver>(&mut self, driver: &D, copy: &HostDeviceCopy, slot: usize) {
        let Some(piece) = self.flights[slot].take() else { return };
        if copy.direction == LinkDirection::Out {
            driver.move_bytes(copy.cargo(piece).host, self.bounce.slot(slot), piece.bytes);
        }
        self.moved += piece.bytes;
    }

    /// A relay's pieces go back. An error of the direct path is the copy's: all stop.
    fn fail<D: CopyDriver>(&mut self, driver: &D, work: &Mutex<ChunkQueue>, code: CUresult) {
        self.fault = Some(code);
        match &self.carrier {
            Pipeline::Direct(wire) => wire.drain(driver),
            Pipeline::Relay(lane) => lane.drain(driver),
        }
        let flights = std::mem::take(&mut self.flights);
        match self.end() {
            RangeEnd::Head => lock(work).abandon(),
            RangeEnd::Tail => lock(work).give_back(flights.into_iter().flatten()),
        }
    }
}

fn lock(work: &Mutex<ChunkQueue>) -> MutexGuard<'_, ChunkQueue> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}
