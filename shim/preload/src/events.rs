//! Blocks that the program is given and gives back, pieces that it makes itself, and requests that
//! are refused, as events for the subsystems that subscribe.
//!
//! Subscribers are told of blocks in the order in which they subscribed: the trace, the profile,
//! moves, sharing.
//! A call of the program pays for one load if there are none. The trace and the profile are told of
//! pieces and of refusals.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use wm_abi::CUdevice;
use wm_driver::Device;
use wm_memory::{Manager, Order};

use crate::process::PROCESS_HOT;

/// A manager has given out a block. The program does not know its address yet.
pub(crate) struct BlockAllocated {
    pub(crate) manager: &'static Manager<Device>,
    /// First byte.
    pub(crate) address: u64,
    /// Size that the program asked for.
    pub(crate) bytes: usize,
    pub(crate) order: Order,
}

/// The program frees an address of a manager's reservation. A block may begin there, or none.
pub(crate) struct BlockFreed {
    pub(crate) manager: &'static Manager<Device>,
    pub(crate) address: u64,
    pub(crate) order: Order,
}

impl BlockAllocated {
    pub(crate) fn device(&self) -> CUdevice {
        self.manager.gpu().ordinal()
    }
}

impl BlockFreed {
    pub(crate) fn device(&self) -> CUdevice {
        self.manager.gpu().ordinal()
    }
}

/// The functions that a subsystem has for these events.
pub(crate) struct BlockSubscriber {
    pub(crate) allocated: fn(&BlockAllocated),
    /// Called before the manager takes the block back: at once afterwards another thread may be
    /// given a block at that address. The free may still fail.
    pub(crate) freed: fn(&BlockFreed),
}

/// Subscribers in the order in which they subscribed.
struct SubscriberList<S, const MOST: usize>([OnceLock<S>; MOST]);

impl<S, const MOST: usize> SubscriberList<S, MOST> {
    const fn new() -> Self {
        Self([const { OnceLock::new() }; MOST])
    }

    /// Adds a subscriber. Gives it back if there are `MOST` already.
    fn add(&self, subscriber: S) -> Result<(), S> {
        let mut waiting = subscriber;
        for slot in &self.0 {
            match slot.set(waiting) {
                Ok(()) => return Ok(()),
                Err(subscriber) => waiting = subscriber,
            }
        }
        Err(waiting)
    }

    fn iter(&self) -> impl Iterator<Item = &S> {
        self.0.iter().map_while(OnceLock::get)
    }
}

/// Those of the process: each hook that gives out or frees blocks tells them.
static SUBSCRIBERS: SubscriberList<BlockSubscriber, 4> = SubscriberList::new();

/// Adds a subscriber. To be called before the first hook is connected.
pub(crate) fn subscribe(subscriber: BlockSubscriber) {
    let is_added = SUBSCRIBERS.add(subscriber).is_ok();
    debug_assert!(is_added, "a slot for each subsystem that subscribes");
    PROCESS_HOT.blocks_observed.store(true, Relaxed);
}

#[inline]
fn is_observed() -> bool {
    PROCESS_HOT.blocks_observed.load(Relaxed)
}

/// Tells subscribers that the program is given a block.
#[inline]
pub(crate) fn allocated(event: impl FnOnce() -> BlockAllocated) {
    if is_observed() {
        tell_allocated(&event());
    }
}

/// Tells subscribers that the program frees a block. To be called before the manager takes it back.
#[inline]
pub(crate) fn freed(event: impl FnOnce() -> BlockFreed) {
    if is_observed() {
        tell_freed(&event());
    }
}

#[cold]
#[inline(never)]
fn tell_allocated(event: &BlockAllocated) {
    SUBSCRIBERS.iter().for_each(|subscriber| (subscriber.allocated)(event));
}

#[cold]
#[inline(never)]
fn tell_freed(event: &BlockFreed) {
    SUBSCRIBERS.iter().for_each(|subscriber| (subscriber.freed)(event));
}

/// What became of a piece that this process made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceStep {
    /// It was made, with one reference.
    Made { bytes: u64 },
    /// There is one more mapping of it.
    Mapped,
    /// There is one less. The driver is about to unmap it, or has done so.
    Unmapped,
    /// Its last reference is about to be released.
    Released,
    /// It has a reference again: the release failed, or the program asked for the handle of mapped
    /// memory.
    Held,
}

/// A piece and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PieceEvent {
    pub(crate) device: CUdevice,
    /// No other piece of the process had this number.
    pub(crate) number: u64,
    pub(crate) step: PieceStep,
}

/// The functions that a subsystem has for pieces and refusals.
pub(crate) struct PieceSubscriber {
    pub(crate) piece: fn(&PieceEvent),
    /// A request for so many bytes was refused, because all tiers of the device are full.
    pub(crate) refused: fn(CUdevice, u64),
}

/// Those that are told of pieces and refusals.
static PIECE_SUBSCRIBERS: SubscriberList<PieceSubscriber, 2> = SubscriberList::new();

/// Has a subsystem be told of each piece and refusal. To be called before the first hook is
/// connected.
pub(crate) fn subscribe_to_pieces(subscriber: PieceSubscriber) {
    let is_added = PIECE_SUBSCRIBERS.add(subscriber).is_ok();
    debug_assert!(is_added, "a slot for each subsystem that subscribes");
}

/// Tells the subscribers of pieces.
pub(crate) fn tell_of_pieces(events: &[PieceEvent]) {
    events.iter().for_each(|event| PIECE_SUBSCRIBERS.iter().for_each(|it| (it.piece)(event)));
}

/// Tells the subscribers of a refused request.
pub(crate) fn tell_of_refusal(device: CUdevice, asked: u64) {
    PIECE_SUBSCRIBERS.iter().for_each(|it| (it.refused)(device, asked));
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): a subsystem has subscribed and is told of no block, or is told
    //! before one that subscribed earlier.
    use super::*;

    #[test]
    fn subscribers_are_told_in_the_order_in_which_they_subscribed() {
        let subscribers = SubscriberList::<_, 3>::new();
        assert_eq!(subscribers.iter().count(), 0);
        for (count, name) in ["trace", "moves", "sharing"].into_iter().enumerate() {
            subscribers.add(name).expect("a slot");
            assert_eq!(subscribers.iter().count(), count + 1);
        }
        assert_eq!(subscribers.iter().copied().collect::<Vec<_>>(), ["trace", "moves", "sharing"]);
        assert_eq!(subscribers.add("a fourth"), Err("a fourth"), "none is replaced");
    }

    #[test]
    fn without_a_subscriber_no_event_is_made() {
        allocated(|| panic!("an event was made"));
        freed(|| panic!("an event was made"));
    }
}
