//! One pipeline through a relay: a stream on the relay's side, one on the target's, and slots of staging memory between.
//!
//! A piece makes two hops. The relay's engine moves it over the relay's PCIe link between host and slot; the target's
//! engine moves it over NVLink between slot and target. So only staging memory is ever shared between devices: no
//! access right of the program's own memory is needed or changed, wherever that memory comes from.
//!
//! Each slot has an event on either side, recorded anew with each piece: the second hop waits for the first one's event,
//! and the slot's next piece for the second one's. With two slots the PCIe link never waits for NVLink.
//!
//! A lane is owned: whoever copies takes it out of the pool, so its slots see one copy's calls at a time without a lock.
//! Work of two user streams may follow each other in a lane only if the earlier copy's start has been passed: then what
//! is ahead are copies that end by themselves, and a stream that the host holds back holds back nobody else.

use wm_abi::{CUcontext, CUdevice, CUevent, CUresult, CUstream};

use crate::links::{Hop, Links, Result, Transfer, Wake};
use crate::plan::{Direction, SLOT, SLOTS};

/// Pieces that a lane takes before the copy they belong to is known to have started. A driver's queues hold some thousand
/// commands, a piece is three in each of two.
const AHEAD: usize = 128;

/// Where a copy begins and ends on the user's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The target's context, in which the program made the call.
    pub context: CUcontext,
    /// The target.
    pub device: CUdevice,
    /// The program's stream. Default streams under their own names, never null.
    pub stream: CUstream,
}

/// One piece of a copy, by its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cargo {
    /// The end in pinned host memory.
    pub host: u64,
    /// The end in the target's memory.
    pub device: u64,
    /// Length.
    pub bytes: usize,
}

/// A record of an event: waiting for it is waiting for all that was in its stream then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The event's context.
    pub context: CUcontext,
    /// The event.
    pub event: CUevent,
}

#[derive(Debug)]
struct Slot {
    address: u64,
    /// On the relay's side.
    event: CUevent,
    /// The end of the last piece's second hop.
    last: Option<Mark>,
}

/// The target's side of a lane, one a context that copies through it.
#[derive(Debug)]
struct Far {
    context: CUcontext,
    stream: CUstream,
    /// Recorded in the user's stream when a copy starts.
    start: CUevent,
    /// One a slot.
    events: [CUevent; SLOTS],
}

/// A pipeline through a relay.
#[derive(Debug)]
pub struct Lane {
    relay: CUdevice,
    context: CUcontext,
    stream: CUstream,
    staging: u64,
    slots: [Slot; SLOTS],
    next: usize,
    far: Vec<Far>,
    /// Whose copy was the last.
    user: Option<User>,
    /// Pieces enqueued since a copy's start was last seen to be passed.
    ahead: usize,
    /// Which life of the relay's context it was made in, as the pool counts them.
    pub(crate) life: u64,
}

/// A hop's place: the stream that does it, and what says that it is done.
struct Stage {
    context: CUcontext,
    stream: CUstream,
    event: CUevent,
}

impl Lane {
    /// Bytes of staging memory of one lane.
    pub const STAGING: usize = SLOT * SLOTS;

    /// A new lane through `relay`, whose primary context is `context`.
    ///
    /// # Errors
    /// Those of the driver; what had been made is given back.
    pub fn new<L: Links>(links: &L, relay: CUdevice, context: CUcontext) -> Result<Self> {
        let staging = links.staging(relay, context, Self::STAGING)?;
        let parts = links.stream(context).and_then(|stream| match events(links, context) {
            Ok(events) => Ok((stream, events)),
            Err(code) => {
                links.retire(context, stream, &[]);
                Err(code)
            }
        });
        let (stream, events) = parts.inspect_err(|_| links.discard(staging, Self::STAGING))?;
        let slot = |index: usize| Slot {
            address: staging + (index * SLOT) as u64,
            event: events[index],
            last: None,
        };
        let slots = std::array::from_fn(slot);
        let far = Vec::new();
        Ok(Self { relay, context, stream, staging, slots, next: 0, far, user: None, ahead: 0, life: 0 })
    }

    /// The device it leads through.
    pub fn relay(&self) -> CUdevice {
        self.relay
    }

    /// May a copy of `user` follow what is in the lane?
    pub fn admits<L: Links>(&self, links: &L, user: User) -> bool {
        match self.user {
            None => true,
            Some(last) if last == user && user.stream != CUstream::PER_THREAD => true,
            // A context that has ended took its work with it.
            Some(last) => self.far(last.context).is_none() || self.has_started(links),
        }
    }

    /// Starts a copy: the lane's first hop will wait for all that is in the user's stream now.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn begin<L: Links>(&mut self, links: &L, user: User, direction: Direction) -> Result<()> {
        self.mark(links, user)?;
        self.follow(links, direction)
    }

    /// Notes how far the user's stream is now: the first half of [`Lane::begin`].
    ///
    /// # Errors
    /// Those of the driver.
    pub fn mark<L: Links>(&mut self, links: &L, user: User) -> Result<()> {
        let far = self.prepare(links, user)?;
        links.record(user.context, self.far[far].start, user.stream)?;
        self.user = Some(user);
        Ok(())
    }

    /// Makes the first hop wait for what was marked: the second half.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn follow<L: Links>(&mut self, links: &L, direction: Direction) -> Result<()> {
        let far = self.current()?;
        match direction {
            Direction::In => links.order(self.context, self.stream, far.start),
            Direction::Out => links.order(far.context, far.stream, far.start),
        }
    }

    /// The target's side of the last copy.
    fn current(&self) -> Result<&Far> {
        let user = self.user.ok_or(CUresult::ILLEGAL_STATE)?;
        self.far(user.context).ok_or(CUresult::CONTEXT_IS_DESTROYED)
    }

    /// Can one more piece be enqueued without waiting for a stream that may be held back?
    pub fn has_room<L: Links>(&mut self, links: &L) -> bool {
        if self.ahead >= AHEAD && self.has_started(links) {
            self.ahead = 0;
        }
        self.ahead < AHEAD
    }

    /// Is what is in the lane under way, so that it ends by itself?
    fn has_started<L: Links>(&self, links: &L) -> bool {
        self.current().is_ok_and(|far| links.passed(far.context, far.start).unwrap_or(false))
    }

    /// The target's side for a context, made at first use.
    fn prepare<L: Links>(&mut self, links: &L, user: User) -> Result<usize> {
        if let Some(index) = self.far.iter().position(|far| far.context == user.context) {
            return Ok(index);
        }
        links.admit(self.staging, Self::STAGING, user.device)?;
        self.far.push(Far::new(links, user.context)?);
        Ok(self.far.len() - 1)
    }

    /// The slot that the next piece will take.
    pub fn slot(&self) -> usize {
        self.next
    }

    /// Enqueues one piece, of at most [`SLOT`] bytes, of the copy that has begun.
    ///
    /// # Errors
    /// Those of the driver. The piece is then not copied, or not entirely; the lane must be abandoned.
    pub fn carry<L: Links>(&mut self, links: &L, direction: Direction, cargo: Cargo) -> Result<()> {
        let index = self.next;
        let (first, second) = self.stages(index, direction)?;
        let slot = &mut self.slots[index];
        let (into, out_of) = hops(direction, cargo, slot.address);
        if let Some(last) = slot.last {
            links.order(first.context, first.stream, last.event)?;
        }
        links.copy(first.context, first.stream, into)?;
        links.record(first.context, first.event, first.stream)?;
        links.order(second.context, second.stream, first.event)?;
        links.copy(second.context, second.stream, out_of)?;
        links.record(second.context, second.event, second.stream)?;
        slot.last = Some(Mark { context: second.context, event: second.event });
        self.next = (index + 1) % SLOTS;
        self.ahead += 1;
        Ok(())
    }

    fn stages(&self, slot: usize, direction: Direction) -> Result<(Stage, Stage)> {
        let far = self.current()?;
        let near = Stage { context: self.context, stream: self.stream, event: self.slots[slot].event };
        let far = Stage { context: far.context, stream: far.stream, event: far.events[slot] };
        Ok(match direction {
            Direction::In => (near, far),
            Direction::Out => (far, near),
        })
    }

    /// The end of what was enqueued last. All earlier pieces of the copy are behind it: they end in one stream.
    pub fn end(&self) -> Option<Mark> {
        self.slots[(self.next + SLOTS - 1) % SLOTS].last
    }

    /// Has the last piece in a slot arrived?
    ///
    /// # Errors
    /// A sticky error of one of the two contexts.
    pub fn arrived<L: Links>(&self, links: &L, slot: usize) -> Result<bool> {
        self.slots[slot].last.map_or(Ok(true), |mark| links.passed(mark.context, mark.event))
    }

    /// Blocks until the last piece in a slot has arrived.
    ///
    /// # Errors
    /// A sticky error of one of the two contexts.
    pub fn settle<L: Links>(&self, links: &L, slot: usize) -> Result<()> {
        self.slots[slot].last.map_or(Ok(()), |mark| links.wait(mark.context, mark.event))
    }

    /// Blocks until both streams are empty, as far as they can still tell.
    pub fn drain<L: Links>(&self, links: &L) {
        let _ = links.drain(self.context, self.stream);
        for far in &self.far {
            let _ = links.drain(far.context, far.stream);
        }
    }

    /// Forgets a context that has ended, and with it whatever it did in the slots.
    pub fn forget(&mut self, context: CUcontext) {
        self.far.retain(|far| far.context != context);
        for slot in &mut self.slots {
            slot.last = slot.last.filter(|mark| mark.context != context);
        }
    }

    /// Gives back what the lane has in a context that is about to end.
    pub fn leave<L: Links>(&mut self, links: &L, context: CUcontext) {
        if self.far(context).is_some() {
            self.drain(links);
        }
        self.far.iter().filter(|far| far.context == context).for_each(|far| far.retire(links));
        self.forget(context);
    }

    /// Gives everything back. The lane's streams are drained first.
    pub fn close<L: Links>(self, links: &L) {
        self.drain(links);
        links.retire(self.context, self.stream, &self.slots.map(|slot| slot.event));
        self.far.iter().for_each(|far| far.retire(links));
        links.discard(self.staging, Self::STAGING);
    }

    /// Gives the staging memory back, when the relay's context is gone and all else went with it.
    pub fn bury<L: Links>(self, links: &L) {
        links.discard(self.staging, Self::STAGING);
    }

    fn far(&self, context: CUcontext) -> Option<&Far> {
        self.far.iter().find(|far| far.context == context)
    }
}

impl Far {
    fn new<L: Links>(links: &L, context: CUcontext) -> Result<Self> {
        let (start, events) = (links.event(context, Wake::Sleeping)?, events(links, context)?);
        Ok(Self { context, stream: links.stream(context)?, start, events })
    }

    fn retire<L: Links>(&self, links: &L) {
        links.retire(self.context, self.stream, &self.events);
        links.retire(self.context, CUstream::NULL, &[self.start]);
    }
}

fn events<L: Links>(links: &L, context: CUcontext) -> Result<[CUevent; SLOTS]> {
    let mut events = [CUevent::NULL; SLOTS];
    for event in &mut events {
        *event = links.event(context, Wake::Sleeping)?;
    }
    Ok(events)
}

/// A piece's two hops through a slot, in the order of time.
fn hops(direction: Direction, cargo: Cargo, slot: u64) -> (Transfer, Transfer) {
    let Cargo { host, device, bytes } = cargo;
    match direction {
        Direction::In => (
            Transfer { hop: Hop::HostToDevice, to: slot, from: host, bytes },
            Transfer { hop: Hop::DeviceToDevice, to: device, from: slot, bytes },
        ),
        Direction::Out => (
            Transfer { hop: Hop::DeviceToDevice, to: slot, from: device, bytes },
            Transfer { hop: Hop::DeviceToHost, to: host, from: slot, bytes },
        ),
    }
}
