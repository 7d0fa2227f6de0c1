//! A copy whose caller waits anyway: couriers pull pieces, each over its path, as fast as the path is.
//!
//! A courier is a thread for the time of one copy (the first one is the caller's own): nothing of ours runs between
//! copies, after a fork, or at exit. Each keeps two pieces under way and sleeps on events. The direct path's couriers
//! take from the head, relays' from the tail; a relay that fails gives its pieces back and the direct path copies
//! them, so the worst case is the plain copy.
//!
//! Pageable memory passes through a courier's own pinned buffer. Several couriers share a path then, because one core
//! moves less than a link carries. The driver does the same with one core.

use std::sync::{Mutex, PoisonError};

use wm_abi::{CUdevice, CUresult};
use wm_driver::thread;

use crate::enqueue::Copy;
use crate::lane::{Cargo, Lane};
use crate::links::{Links, Result};
use crate::plan::Direction;
use crate::plan::SLOTS;
use crate::pool::Bounce;
use crate::wire::Wire;
use crate::work::{End, Piece, Work};

/// Stack of a courier's thread, bytes: it calls the driver and copies.
const STACK: usize = 512 << 10;

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
    flights: [Option<Piece>; SLOTS],
    moved: usize,
    fault: Option<CUresult>,
}

impl Courier {
    /// A courier over a path; with a pinned buffer if the host's end is pageable.
    pub fn new(carrier: Carrier, bounce: Option<Bounce>) -> Self {
        Self { carrier, bounce, flights: [None; SLOTS], moved: 0, fault: None }
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

    fn end(&self) -> End {
        if self.relay().is_none() { End::Head } else { End::Tail }
    }

    fn begin<L: Links>(&mut self, links: &L, copy: &Copy) {
        let begun = match &mut self.carrier {
            Carrier::Wire(wire) => wire.begin(links, copy.user),
            Carrier::Lane(lane) => lane.begin(links, copy.user, copy.direction),
        };
        self.fault = begun.err();
    }

    /// Pulls until nothing is left.
    fn run<L: Links>(&mut self, links: &L, copy: &Copy, work: &Mutex<Work>) {
        if self.fault.is_some() {
            return;
        }
        if let Err(code) = self.pull(links, copy, work) {
            self.fail(links, work, code);
        }
    }

    fn pull<L: Links>(&mut self, links: &L, copy: &Copy, work: &Mutex<Work>) -> Result<()> {
        loop {
            let slot = self.slot();
            self.land(links, copy, slot)?;
            let Some(piece) = lock(work).take(self.end()) else { break };
            self.flights[slot] = Some(piece);
            self.send(links, copy, slot, piece)?;
        }
        (0..SLOTS).try_for_each(|_| {
            let slot = self.flights.iter().position(Option::is_some);
            slot.map_or(Ok(()), |slot| self.land(links, copy, slot))
        })
    }

    fn slot(&self) -> usize {
        match &self.carrier {
            Carrier::Wire(wire) => wire.slot(),
            Carrier::Lane(lane) => lane.slot(),
        }
    }

    fn send<L: Links>(&mut self, links: &L, copy: &Copy, slot: usize, piece: Piece) -> Result<()> {
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

    /// Waits for a slot's piece, and brings it to pageable memory if that is where it goes.
    fn land<L: Links>(&mut self, links: &L, copy: &Copy, slot: usize) -> Result<()> {
        let Some(piece) = self.flights[slot] else { return Ok(()) };
        match &self.carrier {
            Carrier::Wire(wire) => wire.settle(links, slot)?,
            Carrier::Lane(lane) => lane.settle(links, slot)?,
        }
        if let Some(bounce) = self.bounce.as_ref().filter(|_| copy.direction == Direction::Out) {
            links.move_bytes(copy.cargo(piece).host, bounce.slot(slot), piece.bytes);
        }
        self.flights[slot] = None;
        self.moved += piece.bytes;
        Ok(())
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

fn lock(work: &Mutex<Work>) -> std::sync::MutexGuard<'_, Work> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries a whole copy out and returns when every byte has arrived. The first courier must be a direct one; pieces
/// are at most `largest` bytes.
///
/// # Errors
/// The direct path's error. Nothing is under way any more: the caller can make the plain call.
pub fn pull<L: Links>(links: &L, copy: &Copy, largest: usize, couriers: &mut [Courier]) -> Result<()> {
    let work = Mutex::new(Work::new(copy.bytes, largest, couriers.len()));
    couriers.iter_mut().for_each(|courier| courier.begin(links, copy));
    together(links, copy, &work, couriers);
    // Pieces that a relay gave back when the direct couriers had finished already.
    couriers[0].run(links, copy, &work);
    let direct = couriers.iter().filter(|courier| courier.relay().is_none());
    direct.filter_map(Courier::fault).next().map_or(Ok(()), Err)
}

/// Runs all couriers, the first on this thread. One whose thread cannot be started carries nothing.
fn together<L: Links>(links: &L, copy: &Copy, work: &Mutex<Work>, couriers: &mut [Courier]) {
    let Some((first, others)) = couriers.split_first_mut() else { return };
    let others = others.iter_mut().map(|courier| move || courier.run(links, copy, work));
    thread::beside(c"wm-copy", STACK, others, || first.run(links, copy, work));
}
