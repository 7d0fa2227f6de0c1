//! What moves pieces over one path: takes them from what is left of a copy, and keeps two under way.
//!
//! The program's memory passes through a courier's own pinned buffer. A relay's courier that fails gives its pieces back;
//! an error of the direct path is the copy's.
//!
//! Invariants: a piece is with the courier (`flights`), has arrived (`moved`), or was given back. A courier runs on any thread, so it
//! names no stream of the program, and only once the host has seen the copy's start: it reads and writes the program's memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use wm_abi::{CUdevice, CUresult};

use crate::enqueue::Copy;
use crate::lane::{Cargo, Lane};
use crate::links::{Links, Result};
use crate::plan::{Direction, SLOTS};
use crate::pool::Bounce;
use crate::wire::Wire;
use crate::work::{End, Piece, Work};

/// The path of a courier.
#[derive(Debug)]
pub enum Carrier {
    /// The target's own link.
    Wire(Wire),
    /// Through a relay.
    Lane(Lane),
}

/// What moves pieces over one path.
#[derive(Debug)]
pub struct Courier {
    carrier: Carrier,
    bounce: Bounce,
    flights: [Option<Piece>; SLOTS],
    moved: usize,
    fault: Option<CUresult>,
}

impl Courier {
    /// A courier over a path, with its buffer.
    pub fn new(carrier: Carrier, bounce: Bounce) -> Self {
        Self { carrier, bounce, flights: [None; SLOTS], moved: 0, fault: None }
    }

    /// The path and the buffer, to be given back.
    pub fn into_parts(self) -> (Carrier, Bounce) {
        (self.carrier, self.bounce)
    }

    /// The relay, if it goes through one.
    pub fn relay(&self) -> Option<CUdevice> {
        match &self.carrier {
            Carrier::Wire(_) => None,
            Carrier::Lane(lane) => Some(lane.relay()),
        }
    }

    /// Bytes that have arrived.
    pub fn moved(&self) -> usize {
        self.moved
    }

    /// Why it stopped early.
    pub fn fault(&self) -> Option<CUresult> {
        self.fault
    }

    /// Pulls until nothing is left, waiting for each piece. A courier at fault moves nothing any more.
    pub(crate) fn run<L: Links>(&mut self, links: &L, copy: &Copy, work: &Mutex<Work>) {
        if self.fault.is_none()
            && let Err(code) = self.pull(links, copy, work)
        {
            self.fail(links, work, code);
        }
    }

    fn pull<L: Links>(&mut self, links: &L, copy: &Copy, work: &Mutex<Work>) -> Result<()> {
        loop {
            let slot = self.slot();
            if self.flights[slot].is_some() {
                self.settle(links, slot)?;
                self.land(links, copy, slot);
            }
            let Some(piece) = lock(work).take(self.end()) else { break };
            self.send(links, copy, slot, piece)?;
        }
        while let Some(slot) = self.oldest() {
            self.settle(links, slot)?;
            self.land(links, copy, slot);
        }
        Ok(())
    }

    fn end(&self) -> End {
        if self.relay().is_none() { End::Head } else { End::Tail }
    }

    /// The slot that the next piece will take.
    fn slot(&self) -> usize {
        match &self.carrier {
            Carrier::Wire(wire) => wire.slot(),
            Carrier::Lane(lane) => lane.slot(),
        }
    }

    /// The slot of the piece that was sent first.
    fn oldest(&self) -> Option<usize> {
        let next = self.slot();
        (next..next + SLOTS).map(|slot| slot % SLOTS).find(|slot| self.flights[*slot].is_some())
    }

    fn settle<L: Links>(&self, links: &L, slot: usize) -> Result<()> {
        match &self.carrier {
            Carrier::Wire(wire) => wire.settle(links, slot),
            Carrier::Lane(lane) => lane.settle(links, slot),
        }
    }

    fn send<L: Links>(&mut self, links: &L, copy: &Copy, slot: usize, piece: Piece) -> Result<()> {
        self.flights[slot] = Some(piece);
        let cargo = self.cargo(copy, slot, piece);
        if copy.direction == Direction::In {
            links.move_bytes(cargo.host, copy.cargo(piece).host, piece.bytes);
        }
        match &mut self.carrier {
            Carrier::Wire(wire) => wire.carry(links, copy.direction, cargo),
            Carrier::Lane(lane) => lane.carry(links, copy.direction, cargo),
        }
    }

    /// A piece as the devices see it: in pinned memory.
    fn cargo(&self, copy: &Copy, slot: usize, piece: Piece) -> Cargo {
        Cargo { host: self.bounce.slot(slot), ..copy.cargo(piece) }
    }

    /// A slot's piece has arrived: it goes on to pageable memory if that is where the copy goes.
    fn land<L: Links>(&mut self, links: &L, copy: &Copy, slot: usize) {
        let Some(piece) = self.flights[slot].take() else { return };
        if copy.direction == Direction::Out {
            links.move_bytes(copy.cargo(piece).host, self.bounce.slot(slot), piece.bytes);
        }
        self.moved += piece.bytes;
    }

    /// A relay's pieces go back. An error of the direct path is the copy's: all stop.
    fn fail<L: Links>(&mut self, links: &L, work: &Mutex<Work>, code: CUresult) {
        self.fault = Some(code);
        match &self.carrier {
            Carrier::Wire(wire) => wire.drain(links),
            Carrier::Lane(lane) => lane.drain(links),
        }
        let flights = std::mem::take(&mut self.flights);
        match self.end() {
            End::Head => lock(work).abandon(),
            End::Tail => lock(work).give_back(flights.into_iter().flatten()),
        }
    }
}

fn lock(work: &Mutex<Work>) -> MutexGuard<'_, Work> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}
