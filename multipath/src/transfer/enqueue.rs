//! An asynchronous copy over several paths: all its work is enqueued, and the call returns.
//!
//! One event in the user's stream marks the copy's start: the relays' lanes wait for it. The direct
//! share is an ordinary copy in that stream, so it keeps the stream's priority and starts at once;
//! relays' chunks follow in turns, so that all links start early; last, the user's stream waits for
//! the lanes.
//!
//! The legacy default stream and blocking streams wait for each other's work, but not every command
//! in them counts as work: an event that is recorded in a blocking stream does not wait for the
//! legacy one (`docs/dev/ordering.md`). A copy does. So in these streams the direct share's first
//! bytes go ahead of that event, and its last ones behind the waits. A link may idle during each
//! call, so there are few calls (`multipath/tests/copies/calls.rs` counts them). The driver itself
//! answers queries of the stream, of an event behind the copy, and of the context correctly.
//!
//! A pull at run time is not possible here: a thread would have to hand out chunks as links become
//! free, and the user's stream would wait for that thread. A device that waits for a thread of the
//! host can wait for ever. So the split is fixed by measured rates (see [`crate::plan`]).
//!
//! A driver's queues are finite, and a caller that fills one waits until the device has made room.
//! Behind a stream that the host holds back, that wait could last for ever. So lanes take a bounded
//! number of chunks ahead of the device ([`RelayPipeline::has_room`]); the direct path carries the
//! remainder of a share.
//!
//! The caller does not wait for a lane that fails either: the user's stream waits for all work that
//! the lane may still do, and then copies the share itself.

use std::sync::Arc;

use wm_abi::CUdevice;

use crate::driver::{CopyDriver, DriverResult};
use crate::plan::{RelayShare, Split, chunks};
use crate::transfer::copy_timer::{CopyTimer, TimerEvent};
use crate::transfer::direct_pipeline::direct_transfer;
use crate::transfer::relay_pipeline::RelayPipeline;
use crate::transfer::stream_event::StreamEvent;
use crate::vocabulary::chunk::Chunk;
use crate::vocabulary::copy::HostDeviceCopy;
use crate::vocabulary::sizes::GRAIN;
use crate::vocabulary::stream::{ProgramStream, StreamOrdering};

/// A relay's share on its way.
struct RelayTransfer<'a> {
    share: RelayShare,
    lane: &'a mut RelayPipeline,
    /// The part that the relay does not carry, because its lane is full.
    left: Option<Chunk>,
    failed: bool,
}

impl RelayTransfer<'_> {
    fn attempt<D: CopyDriver>(
        &mut self,
        driver: &D,
        step: impl FnOnce(&D, &mut RelayPipeline) -> DriverResult<()>,
    ) {
        if !self.failed {
            self.failed = step(driver, self.lane).is_err();
        }
    }

    fn carry<D: CopyDriver>(&mut self, driver: &D, copy: &HostDeviceCopy, chunk: Chunk) {
        if self.left.is_some() || self.failed {
            return;
        }
        if self.lane.has_room(driver) {
            self.attempt(driver, |driver, lane| lane.carry(driver, copy.direction, copy.addrs(chunk)));
        } else {
            let end = self.share.part.end();
            self.left = Some(Chunk { offset: chunk.offset, bytes: end - chunk.offset });
        }
    }

    /// The part of its share that goes the direct way after all.
    fn returned(&self) -> Option<Chunk> {
        if self.failed { Some(self.share.part) } else { self.left }
    }
}

/// The outcome of a relay's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carried {
    /// The relay.
    pub relay: CUdevice,
    /// Bytes that went through the relay; the direct path carried the remainder of its share.
    pub bytes: usize,
    /// The relay was at fault.
    pub failed: bool,
}

/// Enqueues a split copy, relays' shares in chunks of at most `largest` bytes. `lanes` are those of
/// the split's shares, in their order; `start` is recorded here; `timer` records the copy's times.
///
/// # Errors
/// The direct path's error. Later work of the user's stream waits for the relays' remaining work,
/// so the caller can make the plain call.
pub(crate) fn enqueue<D: CopyDriver>(
    driver: &D,
    copy: &HostDeviceCopy,
    split: &Split,
    largest: usize,
    lanes: &mut [RelayPipeline],
    start: &Arc<StreamEvent>,
    mut timer: Option<&mut CopyTimer>,
) -> DriverResult<Vec<Carried>> {
    let mut note = |moment| timer.iter_mut().for_each(|timer| timer.mark(driver, copy.user, moment));
    let [head, body, tail] = parts(split.direct, copy.user.kind);
    direct(driver, copy, head)?;
    start.record(driver, copy.user.stream)?;
    // The timer's event is behind the start, so that lanes do not wait for it, and before all other
    // work, so that the copy's own link starts first.
    note(TimerEvent::Start);
    direct(driver, copy, body)?;
    note(TimerEvent::Direct);
    let leg =
        |(share, lane): (&RelayShare, _)| RelayTransfer { share: *share, lane, left: None, failed: false };
    let mut legs: Vec<_> = split.shares.iter().zip(lanes).map(leg).collect();
    legs.iter_mut().for_each(|leg| leg.lane.engage(copy.user.stream, start));
    carry_in_turns(driver, copy, largest, &mut legs);
    legs.iter_mut().for_each(|leg| join(driver, copy, leg));
    note(TimerEvent::End);
    let carried = repair(driver, copy, &legs)?;
    direct(driver, copy, tail)?;
    Ok(carried)
}

/// The parts of the direct share ahead of the start, in between, and behind the end.
pub(crate) fn parts(share: Chunk, kind: StreamOrdering) -> [Chunk; 3] {
    let edge = GRAIN.min(share.bytes / 3);
    let (head, tail) = match kind {
        StreamOrdering::Alone => (0, 0),
        // In the legacy default stream an event is ordered like work.
        StreamOrdering::Legacy => (0, edge),
        StreamOrdering::Blocking => (edge, edge),
    };
    let body = share.bytes - head - tail;
    let at = |offset, bytes| Chunk { offset: share.offset + offset, bytes };
    [at(0, head), at(head, body), at(head + body, tail)]
}

pub(crate) fn direct<D: CopyDriver>(driver: &D, copy: &HostDeviceCopy, part: Chunk) -> DriverResult<()> {
    if part.bytes == 0 {
        return Ok(());
    }
    driver.copy(copy.user.home.context, copy.user.stream, direct_transfer(copy.direction, copy.addrs(part)))
}

/// Enqueues one chunk of each share in turn: no link waits until another share is enqueued.
fn carry_in_turns<D: CopyDriver>(
    driver: &D,
    copy: &HostDeviceCopy,
    largest: usize,
    legs: &mut [RelayTransfer<'_>],
) {
    let mut rest: Vec<_> = legs.iter().map(|leg| chunks(leg.share.part, copy.direction, largest)).collect();
    for leg in legs.iter_mut() {
        leg.attempt(driver, |driver, lane| lane.follow(driver, copy.direction));
    }
    let mut left = true;
    while left {
        left = false;
        for (leg, rest) in legs.iter_mut().zip(&mut rest) {
            if let Some(chunk) = rest.next() {
                left = true;
                leg.carry(driver, copy, chunk);
            }
        }
    }
}

/// The user's stream waits for a lane; if the lane is at fault, for all its work.
fn join<D: CopyDriver>(driver: &D, copy: &HostDeviceCopy, leg: &mut RelayTransfer<'_>) {
    let ProgramStream { home, stream, .. } = copy.user;
    leg.attempt(driver, |driver, lane| {
        lane.end().map_or(Ok(()), |mark| driver.order(home.context, stream, mark.event))
    });
    if leg.failed {
        leg.lane.give_up(driver, copy.user);
    }
}

/// The direct path carries the bytes that relays did not. If it succeeds, the relay was at fault.
fn repair<D: CopyDriver>(
    driver: &D,
    copy: &HostDeviceCopy,
    legs: &[RelayTransfer<'_>],
) -> DriverResult<Vec<Carried>> {
    let carried = |leg: &RelayTransfer<'_>| {
        let returned = leg.returned().unwrap_or(Chunk { offset: 0, bytes: 0 });
        let bytes = leg.share.part.bytes - returned.bytes;
        direct(driver, copy, returned).map(|()| Carried { relay: leg.share.relay, bytes, failed: leg.failed })
    };
    legs.iter().map(carried).collect()
}
