//! The direct path of a copy whose caller waits: a stream of ours on the target's own link.
//!
//! An asynchronous copy's direct share goes into the user's stream itself. A pulled copy enqueues piece by piece while
//! other threads may use that stream; a stream of ours keeps their work from coming in between.

use wm_abi::{CUcontext, CUevent, CUstream};

use crate::lane::{Cargo, User};
use crate::links::{Hop, Links, Result, Transfer, Wake};
use crate::plan::{Direction, SLOTS};

/// A stream on the target's link, with an event for each piece in flight.
#[derive(Debug)]
pub struct Wire {
    context: CUcontext,
    wake: Wake,
    stream: CUstream,
    start: CUevent,
    events: [CUevent; SLOTS],
    busy: [bool; SLOTS],
    next: usize,
}

impl Wire {
    /// A new wire in a context, for a thread that waits in this way.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn new<L: Links>(links: &L, context: CUcontext, wake: Wake) -> Result<Self> {
        let mut events = [CUevent::NULL; SLOTS];
        for event in &mut events {
            *event = links.event(context, wake)?;
        }
        let (start, stream) = (links.event(context, wake)?, links.stream(context)?);
        Ok(Self { context, wake, stream, start, events, busy: [false; SLOTS], next: 0 })
    }

    /// Does it fit a copy in this context?
    pub fn fits(&self, context: CUcontext, wake: Wake) -> bool {
        (self.context, self.wake) == (context, wake)
    }

    /// The context that it belongs to, and ends with.
    pub fn context(&self) -> CUcontext {
        self.context
    }

    /// Starts a copy behind all that is in the user's stream now.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn begin<L: Links>(&mut self, links: &L, user: User) -> Result<()> {
        links.record(user.context, self.start, user.stream)?;
        links.order(self.context, self.stream, self.start)
    }

    /// Blocks until all that is in the user's stream now is done.
    ///
    /// # Errors
    /// A sticky error of the context.
    pub fn follow<L: Links>(&mut self, links: &L, user: User) -> Result<()> {
        links.record(user.context, self.start, user.stream)?;
        links.wait(self.context, self.start)
    }

    /// The slot that the next piece will take.
    pub fn slot(&self) -> usize {
        self.next
    }

    /// Enqueues one piece.
    ///
    /// # Errors
    /// Those of the driver: they are the program's.
    pub fn carry<L: Links>(&mut self, links: &L, direction: Direction, cargo: Cargo) -> Result<()> {
        links.copy(self.context, self.stream, whole(direction, cargo))?;
        links.record(self.context, self.events[self.next], self.stream)?;
        self.busy[self.next] = true;
        self.next = (self.next + 1) % SLOTS;
        Ok(())
    }

    /// Has the last piece in a slot arrived?
    ///
    /// # Errors
    /// A sticky error of the context.
    pub fn arrived<L: Links>(&self, links: &L, slot: usize) -> Result<bool> {
        if self.busy[slot] { links.passed(self.context, self.events[slot]) } else { Ok(true) }
    }

    /// Blocks until the last piece in a slot has arrived.
    ///
    /// # Errors
    /// A sticky error of the context.
    pub fn settle<L: Links>(&self, links: &L, slot: usize) -> Result<()> {
        if self.busy[slot] { links.wait(self.context, self.events[slot]) } else { Ok(()) }
    }

    /// Blocks until the stream is empty, as far as it can still tell.
    pub fn drain<L: Links>(&self, links: &L) {
        let _ = links.drain(self.context, self.stream);
    }

    /// Gives everything back. The stream is drained first.
    pub fn close<L: Links>(self, links: &L) {
        self.drain(links);
        links.retire(self.context, self.stream, &self.events);
        links.retire(self.context, CUstream::NULL, &[self.start]);
    }
}

/// A piece in one hop.
pub fn whole(direction: Direction, cargo: Cargo) -> Transfer {
    let Cargo { host, device, bytes } = cargo;
    match direction {
        Direction::In => Transfer { hop: Hop::HostToDevice, to: device, from: host, bytes },
        Direction::Out => Transfer { hop: Hop::DeviceToHost, to: host, from: device, bytes },
    }
}
