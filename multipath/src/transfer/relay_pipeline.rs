//! One pipeline through a relay: a stream on the relay's side, one on the target's, and slots of
//! staging memory between.
//!
//! A chunk makes two hops. The relay's engine moves it over the relay's PCIe link between host and
//! slot; the target's engine moves it over NVLink between slot and target. So devices share only
//! staging memory: no access right of the program's own memory is needed or changed.
//!
//! Each slot has an event on either side, recorded again for each chunk: the second hop waits for
//! the first one's event, and the slot's next chunk for the second one's. With two slots the PCIe
//! link never waits for NVLink.
//!
//! The relay's side is made in a context of ours, which the program cannot end. The target's side
//! is made in a context of the program, and the lane serves that one alone. When that context ends,
//! the target's side has ended too, and the relay's side is released when its own stream is empty.
//!
//! A lane has one owner: a copy takes it out of the pool, so its slots see one copy's calls at a
//! time without a lock. Work of two user streams may follow each other in a lane only after the
//! earlier copy's start: then the lane's earlier copies end by themselves, and a stream that the
//! host holds back delays no other stream.

use std::sync::Arc;

use wm_abi::{CUcontext, CUdevice, CUevent, CUresult, CUstream};

use crate::driver::{CopyDriver, DriverResult, Hop, Transfer, WaitMode};
use crate::transfer::resource_guard::ResourceGuard;
use crate::transfer::stream_event::StreamEvent;
use crate::vocabulary::chunk::ChunkAddrs;
use crate::vocabulary::copy::LinkDirection;
use crate::vocabulary::sizes::{SLOT, SLOTS};
use crate::vocabulary::stream::{Home, ProgramStream};

/// Chunks that a lane takes before the start of their copy has been seen. A driver's queues hold
/// some thousand commands; a chunk is three commands in each of two streams.
const AHEAD: usize = 128;

/// A record of an event: a wait for it is a wait for all earlier work in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedEvent {
    /// The event's context.
    pub context: CUcontext,
    /// The event.
    pub event: CUevent,
}

/// The objects of a lane in one of its two contexts.
#[derive(Debug)]
struct PipelineSide {
    context: CUcontext,
    stream: CUstream,
    /// One a slot.
    slots: [CUevent; SLOTS],
    /// Recorded behind the last chunk.
    end: CUevent,
}

/// The copy that a lane carried last.
#[derive(Debug)]
struct Last {
    stream: CUstream,
    start: Arc<StreamEvent>,
}

/// A pipeline through a relay.
#[derive(Debug)]
pub struct RelayPipeline {
    relay: CUdevice,
    home: Home,
    near: PipelineSide,
    far: PipelineSide,
    staging: u64,
    /// For each slot the end of its last chunk's second hop.
    ends: [Option<RecordedEvent>; SLOTS],
    next: usize,
    last: Option<Last>,
    /// Chunks enqueued since the start of a copy was last seen.
    ahead: usize,
}

impl RelayPipeline {
    /// Bytes of staging memory of one lane.
    pub const STAGING: usize = SLOT * SLOTS;

    /// A new lane through `relay`, where `context` is ours, for copies of a home.
    ///
    /// # Errors
    /// Those of the driver; objects made before the error are destroyed.
    pub fn new<D: CopyDriver>(
        driver: &D,
        relay: CUdevice,
        context: CUcontext,
        user: ProgramStream,
    ) -> DriverResult<Self> {
        let mut here = ResourceGuard::new(driver, context);
        let staging = here.staging(relay, Self::STAGING)?;
        driver.admit(staging, Self::STAGING, user.device)?;
        let mut there = ResourceGuard::new(driver, user.home.context);
        let (near, far) = (PipelineSide::new(&mut here)?, PipelineSide::new(&mut there)?);
        here.keep();
        there.keep();
        let (home, ends) = (user.home, [None; SLOTS]);
        Ok(Self { relay, home, near, far, staging, ends, next: 0, last: None, ahead: 0 })
    }

    /// The device between host and target.
    pub fn relay(&self) -> CUdevice {
        self.relay
    }

    /// The home whose copies it carries.
    pub fn home(&self) -> Home {
        self.home
    }

    /// May a copy in `stream` follow the copies in the lane?
    pub fn admits<D: CopyDriver>(&self, driver: &D, stream: CUstream) -> bool {
        let is_same = |last: &Last| last.stream == stream && stream != CUstream::PER_THREAD;
        self.last.as_ref().is_none_or(|last| is_same(last) || last.start.is_passed(driver))
    }

    /// Accepts a copy in `stream` that starts at an event which was recorded there.
    pub fn engage(&mut self, stream: CUstream, start: &Arc<StreamEvent>) {
        self.last = Some(Last { stream, start: Arc::clone(start) });
    }

    /// Makes the first hop wait for the start of the accepted copy.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn follow<D: CopyDriver>(&mut self, driver: &D, direction: LinkDirection) -> DriverResult<()> {
        let start = &self.last.as_ref().ok_or(CUresult::ILLEGAL_STATE)?.start;
        let (first, _) = self.sides(direction);
        start.order(driver, first.context, first.stream)
    }

    /// Can one more chunk be enqueued without waiting for a stream that may be held back?
    pub fn has_room<D: CopyDriver>(&mut self, driver: &D) -> bool {
        if self.ahead >= AHEAD && self.last.as_ref().is_none_or(|last| last.start.is_passed(driver)) {
            self.ahead = 0;
        }
        self.ahead < AHEAD
    }

    /// The slot that the next chunk will take.
    pub fn slot(&self) -> usize {
        self.next
    }

    /// Enqueues one chunk, of at most [`SLOT`] bytes, of the accepted copy.
    ///
    /// # Errors
    /// Those of the driver. The chunk is then not copied, or not entirely; the lane must be given
    /// up.
    pub fn carry<D: CopyDriver>(
        &mut self,
        driver: &D,
        direction: LinkDirection,
        addrs: ChunkAddrs,
    ) -> DriverResult<()> {
        let index = self.next;
        let (into, out_of) = hops(direction, addrs, self.staging + (index * SLOT) as u64);
        let (first, second) = self.sides(direction);
        if let Some(last) = self.ends[index] {
            driver.order(first.context, first.stream, last.event)?;
        }
        driver.copy(first.context, first.stream, into)?;
        driver.record(first.context, first.slots[index], first.stream)?;
        driver.order(second.context, second.stream, first.slots[index])?;
        driver.copy(second.context, second.stream, out_of)?;
        driver.record(second.context, second.slots[index], second.stream)?;
        let end = RecordedEvent { context: second.context, event: second.slots[index] };
        self.ends[index] = Some(end);
        self.next = (index + 1) % SLOTS;
        self.ahead += 1;
        Ok(())
    }

    /// The sides of the first and the second hop.
    fn sides(&self, direction: LinkDirection) -> (&PipelineSide, &PipelineSide) {
        match direction {
            LinkDirection::In => (&self.near, &self.far),
            LinkDirection::Out => (&self.far, &self.near),
        }
    }

    /// The end of the last enqueued chunk. It is behind all earlier chunks of the copy: they end in
    /// one stream.
    pub fn end(&self) -> Option<RecordedEvent> {
        self.ends[(self.next + SLOTS - 1) % SLOTS]
    }

    /// Blocks until the last chunk in a slot has arrived.
    ///
    /// # Errors
    /// A sticky error of one of the two contexts.
    pub fn settle<D: CopyDriver>(&self, driver: &D, slot: usize) -> DriverResult<()> {
        self.ends[slot].map_or(Ok(()), |mark| driver.wait(mark.context, mark.event))
    }

    /// Blocks until both streams are empty. A lost context ends the wait. The host must have seen
    /// the copy's start.
    pub fn drain<D: CopyDriver>(&self, driver: &D) {
        self.near.drain(driver);
        self.far.drain(driver);
    }

    /// Makes the program's stream wait for all remaining work of a lane at fault. No more chunks
    /// may come.
    pub fn give_up<D: CopyDriver>(&self, driver: &D, user: ProgramStream) {
        for side in [&self.near, &self.far] {
            let ordered =
                side.close(driver).and_then(|()| driver.order(user.home.context, user.stream, side.end));
            if ordered.is_err() {
                // A lost context has nothing in flight, and the wait returns at once. If a living
                // context refuses to record an event, only this wait shows when its copies are
                // over.
                side.drain(driver);
            }
        }
    }

    /// The home has ended, and with it the lane's work there. Marks the end of the relay's side.
    ///
    /// # Errors
    /// Those of the driver. The end of the lane can then not be seen.
    pub fn orphan<D: CopyDriver>(&self, driver: &D) -> DriverResult<()> {
        self.near.close(driver)
    }

    /// Is all work over that [`RelayPipeline::give_up`] marked, or, if the home has ended,
    /// [`RelayPipeline::orphan`]? An error counts as no.
    pub fn is_over<D: CopyDriver>(&self, driver: &D, has_home: bool) -> bool {
        self.near.is_over(driver) && (!has_home || self.far.is_over(driver))
    }

    /// Destroys all objects that still exist. Both streams are empty.
    pub fn destroy<D: CopyDriver>(self, driver: &D, has_home: bool) {
        self.near.retire(driver);
        if has_home {
            self.far.retire(driver);
        }
        driver.discard(self.staging, Self::STAGING);
    }
}

impl PipelineSide {
    fn new<D: CopyDriver>(guard: &mut ResourceGuard<'_, D>) -> DriverResult<Self> {
        let (stream, slots) = (guard.stream()?, guard.events(WaitMode::Sleeping)?);
        Ok(Self { context: guard.context(), stream, slots, end: guard.event(WaitMode::Sleeping)? })
    }

    fn close<D: CopyDriver>(&self, driver: &D) -> DriverResult<()> {
        driver.record(self.context, self.end, self.stream)
    }

    fn is_over<D: CopyDriver>(&self, driver: &D) -> bool {
        driver.passed(self.context, self.end).unwrap_or(false)
    }

    fn drain<D: CopyDriver>(&self, driver: &D) {
        let _ = driver.drain(self.context, self.stream);
    }

    fn retire<D: CopyDriver>(&self, driver: &D) {
        let events: Vec<_> = self.slots.into_iter().chain([self.end]).collect();
        driver.retire(self.context, self.stream, &events);
    }
}

/// A chunk's two hops through a slot, in the order of time.
fn hops(direction: LinkDirection, addrs: ChunkAddrs, slot: u64) -> (Transfer, Transfer) {
    let ChunkAddrs { host, device, bytes } = addrs;
    match direction {
        LinkDirection::In => (
            Transfer { hop: Hop::HostToDevice, to: slot, from: host, bytes },
            Transfer { hop: Hop::DeviceToDevice, to: device, from: slot, bytes },
        ),
        LinkDirection::Out => (
            Transfer { hop: Hop::DeviceToDevice, to: slot, from: device, bytes },
            Transfer { hop: Hop::DeviceToHost, to: host, from: slot, bytes },
        ),
    }
}
