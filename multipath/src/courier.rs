//! What moves pieces over one path: takes them from what is left of a copy, and keeps two under way.
//!
//! Pageable memory passes through a courier's own pinned buffer. A relay's courier that fails gives its pieces back;
//! an error of the direct path is the copy's.
//!
//! Invariant: a piece is with the courier (`flights`), has arrived (`moved`), or was given back.

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
    /// For a pageable copy.
    bounce: Option<Bounce>,
    begun: bool,
    flights: [Option<Piece>; SLOTS],
    moved: usize,
    fault: Option<CUresult>,
}

impl Courier {
    /// A courier over a path; with a pinned buffer if the host's end is pageable.
    pub fn new(carrier: Carrier, bounce: Option<Bounce>) -> Self {
        Self { carrier, bounce, begun: false, flights: [None; SLOTS], moved: 0, fault: None }
    }

    /// The path and the buffer, to be given back.
    pub fn into_parts(self) -> (Carrier, Option<Bounce>) {
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

    /// Pulls until nothing is left, waiting for each piece.
    pub(crate) fn run<L: Links>(&mut self, links: &L, copy: &Copy, work: &Mutex<Work>) {
        self.guarded(links, work, |courier| courier.pull(links, copy, work));
    }

    /// Does what can be done without waiting. Did anything happen?
    pub(crate) fn advance<L: Links>(&mut self, links: &L, copy: &Copy, work: &Mutex<Work>) -> bool {
        // A step that fails is one: there is something to give back.
        let mut moved = self.fault.is_none();
        self.guarded(links, work, |courier| {
            moved = courier.go_on(links, copy, work)?;
            Ok(())
        });
        moved
    }

    /// Waits for the piece that has been under way for longest. Returns at once, and `false`, if there is none. An error
    /// shows when that piece is looked at.
    pub(crate) fn rest<L: Links>(&self, links: &L) -> bool {
        let oldest = self.oldest();
        let _ = oldest.map(|slot| self.settle(links, slot));
        oldest.is_some()
    }

    /// A courier at fault moves nothing any more.
    fn guarded<L: Links>(
        &mut self,
        links: &L,
        work: &Mutex<Work>,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) {
        if self.fault.is_none()
            && let Err(code) = body(self)
        {
            self.fail(links, work, code);
        }
    }

    fn begin<L: Links>(&mut self, links: &L, copy: &Copy) -> Result<()> {
        if !std::mem::replace(&mut self.begun, true) {
            match &mut self.carrier {
                Carrier::Wire(wire) => wire.begin(links, copy.user)?,
                Carrier::Lane(lane) => lane.begin(links, copy.user, copy.direction)?,
            }
        }
        Ok(())
    }

    fn pull<L: Links>(&mut self, links: &L, copy: &Copy, work: &Mutex<Work>) -> Result<()> {
        self.begin(links, copy)?;
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

    fn go_on<L: Links>(&mut self, links: &L, copy: &Copy, work: &Mutex<Work>) -> Result<bool> {
        self.begin(links, copy)?;
        let mut moved = false;
        while let Some(slot) = self.oldest()
            && self.arrived(links, slot)?
        {
            self.land(links, copy, slot);
            moved = true;
        }
        while self.flights[self.slot()].is_none()
            && let Some(piece) = lock(work).take(self.end())
        {
            self.send(links, copy, self.slot(), piece)?;
            moved = true;
        }
        Ok(moved)
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

    fn arrived<L: Links>(&self, links: &L, slot: usize) -> Result<bool> {
        match &self.carrier {
            Carrier::Wire(wire) => wire.arrived(links, slot),
            Carrier::Lane(lane) => lane.arrived(links, slot),
        }
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
        if self.bounce.is_some() && copy.direction == Direction::In {
            links.move_bytes(cargo.host, copy.cargo(piece).host, piece.bytes);
        }
        match &mut self.carrier {
            Carrier::Wire(wire) => wire.carry(links, copy.direction, cargo),
            Carrier::Lane(lane) => lane.carry(links, copy.direction, cargo),
        }
    }

    /// A piece as the devices see it: in pinned memory.
    fn cargo(&self, copy: &Copy, slot: usize, piece: Piece) -> Cargo {
        let cargo = copy.cargo(piece);
        self.bounce.as_ref().map_or(cargo, |bounce| Cargo { host: bounce.slot(slot), ..cargo })
    }

    /// A slot's piece has arrived: it goes on to pageable memory if that is where the copy goes.
    fn land<L: Links>(&mut self, links: &L, copy: &Copy, slot: usize) {
        let Some(piece) = self.flights[slot].take() else { return };
        if let Some(bounce) = self.bounce.as_ref().filter(|_| copy.direction == Direction::Out) {
            links.move_bytes(copy.cargo(piece).host, bounce.slot(slot), piece.bytes);
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
