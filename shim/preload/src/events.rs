//! Blocks that the program is given and gives back, as events for the subsystems that subscribe.
//!
//! Subscribers are told in the order in which they subscribed: the trace, moves, sharing. A call of
//! the program pays for one load if there are none.

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

/// What a subsystem does at these events.
pub(crate) struct BlockSubscriber {
    pub(crate) allocated: fn(&BlockAllocated),
    /// Called before the manager takes the block back: at once afterwards another thread may be
    /// given a block at that address. The free may still fail.
    pub(crate) freed: fn(&BlockFreed),
}

static SUBSCRIBERS: [OnceLock<BlockSubscriber>; 3] = [const { OnceLock::new() }; 3];

/// Adds a subscriber. To be called before the first hook is connected.
pub(crate) fn subscribe(subscriber: BlockSubscriber) {
    let mut subscriber = Some(subscriber);
    for slot in &SUBSCRIBERS {
        if let Some(waiting) = subscriber.take() {
            subscriber = slot.set(waiting).err();
        }
    }
    debug_assert!(subscriber.is_none(), "a slot for each subsystem that subscribes");
    PROCESS_HOT.blocks_observed.store(true, Relaxed);
}

#[inline]
fn is_observed() -> bool {
    PROCESS_HOT.blocks_observed.load(Relaxed)
}

fn subscribers() -> impl Iterator<Item = &'static BlockSubscriber> {
    SUBSCRIBERS.iter().map_while(OnceLock::get)
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
    subscribers().for_each(|subscriber| (subscriber.allocated)(event));
}

#[cold]
#[inline(never)]
fn tell_freed(event: &BlockFreed) {
    subscribers().for_each(|subscriber| (subscriber.freed)(event));
}
