//! The direct path of a pageable copy: a stream of ours on the target's own link, one a thread.
//!
//! The host has seen the copy's start before any chunk is enqueued, so nothing here waits for the
//! program's stream, and the work in a direct pipeline ends by itself. Several threads that shared
//! the program's stream would wait for each other's chunks.

use wm_abi::{CUevent, CUstream};

use crate::driver::{CopyDriver, DriverResult, Hop, Transfer, WaitMode};
use crate::transfer::resource_guard::ResourceGuard;
use crate::vocabulary::chunk::ChunkAddrs;
use crate::vocabulary::copy::LinkDirection;
use crate::vocabulary::sizes::SLOTS;
use crate::vocabulary::stream::Home;

/// A stream on the target's link, with an event for each chunk in flight.
#[derive(Debug)]
pub struct DirectPipeline {
    home: Home,
    stream: CUstream,
    events: [CUevent; SLOTS],
    busy: [bool; SLOTS],
    next: usize,
}

impl DirectPipeline {
    /// A new direct pipeline in a home.
    ///
    /// # Errors
    /// Those of the driver; objects made before the error are destroyed.
    pub fn new<D: CopyDriver>(driver: &D, home: Home) -> DriverResult<Self> {
        let mut guard = ResourceGuard::new(driver, home.context);
        let (stream, events) = (guard.stream()?, guard.events(WaitMode::Sleeping)?);
        guard.keep();
        Ok(Self { home, stream, events, busy: [false; SLOTS], next: 0 })
    }

    /// The context that it belongs to, and ends with.
    pub fn home(&self) -> Home {
        self.home
    }

    /// The slot that the next chunk will take.
    pub fn slot(&self) -> usize {
        self.next
    }

    /// Enqueues one chunk.
    ///
    /// # Errors
    /// Those of the driver: they are errors of the copy.
    pub fn carry<D: CopyDriver>(
        &mut self,
        driver: &D,
        direction: LinkDirection,
        addrs: ChunkAddrs,
    ) -> DriverResult<()> {
        driver.copy(self.home.context, self.stream, direct_transfer(direction, addrs))?;
        driver.record(self.home.context, self.events[self.next], self.stream)?;
        self.busy[self.next] = true;
        self.next = (self.next + 1) % SLOTS;
        Ok(())
    }

    /// Blocks until the last chunk in a slot has arrived.
    ///
    /// # Errors
    /// A sticky error of the context.
    pub fn settle<D: CopyDriver>(&self, driver: &D, slot: usize) -> DriverResult<()> {
        if self.busy[slot] { driver.wait(self.home.context, self.events[slot]) } else { Ok(()) }
    }

    /// Blocks until the stream is empty. A lost context ends the wait.
    pub fn drain<D: CopyDriver>(&self, driver: &D) {
        let _ = driver.drain(self.home.context, self.stream);
    }
}

/// A chunk in one hop.
pub fn direct_transfer(direction: LinkDirection, addrs: ChunkAddrs) -> Transfer {
    let ChunkAddrs { host, device, bytes } = addrs;
    match direction {
        LinkDirection::In => Transfer { hop: Hop::HostToDevice, to: device, from: host, bytes },
        LinkDirection::Out => Transfer { hop: Hop::DeviceToHost, to: host, from: device, bytes },
    }
}
