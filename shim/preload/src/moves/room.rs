//! Room on the device: who leaves for a block that finds none or for the driver, and who comes back at the host's waits.
//!
//! Who leaves is what no launch has used for longest. In doubt a block stays, and what finds no room goes to another tier as it would without moves. A block comes back
//! only if it was used while it was away, and only into memory that is unused at that moment.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use wm_driver::{Device, Gpu, Tier};
use wm_memory::{Manager, MoveOrder, Stays};

use super::refusals::WhyNot;
use super::turns::{carry_out, ends};
use super::{obstacle, pace, recency, switch};
use crate::gate;

/// How long a request that finds no room waits for the GPU to have nothing to do. It would be served by slow memory otherwise; and it may be that the work
/// waits for the thread that waits here.
const PATIENCE: Duration = Duration::from_secs(2);

/// So long no request waits again, after one has waited in vain.
const AFTER_VAIN: Duration = Duration::from_secs(30);

/// Least bytes that leave at once: a stop of the GPU is to serve several requests.
const LEAST: u64 = 32 << 20;

/// One part in so many of unused device memory stays unused when blocks come back, for what the program allocates next.
const SPARED_PART: u64 = 16;

/// Until when no request waits.
static VAIN_UNTIL: Mutex<Option<Instant>> = Mutex::new(None);

/// A block that may move.
struct Candidate {
    range: Range<u64>,
    id: u64,
    bytes: u64,
    /// The last launch that used it; blocks that no launch used are taken for the last ones.
    used: u64,
}

fn candidates(manager: &Manager<Device>, tier: impl Fn(&wm_memory::TierBytes) -> u64) -> Vec<Candidate> {
    let live = manager.blocks().into_iter().filter_map(|entry| manager.block(entry.address));
    let there = live.filter_map(|block| {
        let bytes = tier(&block.tiers);
        let range = block.address..block.address + block.tiers.total();
        (bytes > 0).then(|| {
            let used = recency::last(&range).unwrap_or(u64::MAX);
            Candidate { range, id: block.id, bytes, used }
        })
    });
    there.collect()
}

/// Moves a block, or about as much of it as `most`; bytes that moved, and why no other one will move now.
fn move_block(manager: &Manager<Device>, block: &Candidate, to: Tier, most: u64) -> (u64, Option<WhyNot>) {
    let Some(live) = manager.block(block.range.start).filter(|live| live.id == block.id) else {
        return (0, None);
    };
    let range = live.address..live.address + live.tiers.total();
    let (moved, refusal) = carry_out(manager, &MoveOrder { range, to, alone: true, discards: false }, most);
    if moved > 0 && to == Tier::Host {
        recency::left(block.range.start, block.id);
    }
    let is_its_own =
        |why: &WhyNot| matches!(why, WhyNot::Stays(stays) if !ends(*stays) && *stays != Stays::InUse);
    (moved, refusal.filter(|why| !is_its_own(why)))
}

/// The driver has no room for what it needs itself: blocks move to the host until so many bytes of the device are unused or no block is left; bytes that moved. Their memory on the device
/// is unused then, and still the manager's. Small blocks stay: others lie on the same memory. Waits as [`make_for`]: the program's call would fail otherwise.
pub(crate) fn leave_device(manager: &Manager<Device>, bytes: u64) -> u64 {
    if !switch::is_on() || obstacle::of_process().is_some() {
        0
    } else if is_vain() {
        leave(manager, bytes).0
    } else {
        leave_for(manager, bytes)
    }
}

/// Blocks move to the host; bytes that moved, and why no more did, if it does not concern single blocks.
fn leave(manager: &Manager<Device>, bytes: u64) -> (u64, Option<WhyNot>) {
    let mut blocks = candidates(manager, |tiers| tiers.device);
    recency::retain(|address, id| manager.block(address).is_some_and(|block| block.id == id));
    blocks.sort_unstable_by_key(|block| (block.used, block.id));
    let mut left = 0;
    for block in blocks {
        let (moved, refusal) = move_block(manager, &block, Tier::Host, bytes - left);
        left += moved;
        if left >= bytes || refusal.is_some() {
            return (left, refusal);
        }
    }
    (left, None)
}

/// The device has no room for a block of so many bytes: others leave. Waits, for a bounded time, until the GPU has nothing to do. `false`: nothing has changed.
pub(crate) fn make_for(manager: &Manager<Device>, bytes: u64) -> bool {
    // Asked again behind the closed gate: here it spares a wait for nothing.
    if !switch::is_on() || is_vain() || obstacle::of_process().is_some() {
        return false;
    }
    let missing = bytes.saturating_sub(manager.device_room());
    if missing == 0 {
        return false;
    }
    pace::within_share(|| leave_for(manager, missing.max(LEAST))).is_some_and(|left| left > 0)
}

/// Waits for the GPU, and lets blocks leave until so many bytes are unused; bytes that moved.
fn leave_for(manager: &Manager<Device>, bytes: u64) -> u64 {
    let until = Instant::now() + PATIENCE;
    while manager.gpu().is_settled(until.saturating_duration_since(Instant::now())).unwrap_or(false) {
        match leave(manager, bytes) {
            // Other threads have submitted work meanwhile, or are about to.
            (0, Some(WhyNot::Crowded | WhyNot::Stays(Stays::InUse))) if Instant::now() < until => {}
            (0, _) => break,
            (left, _) => return left,
        }
    }
    *VAIN_UNTIL.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + AFTER_VAIN);
    0
}

fn is_vain() -> bool {
    VAIN_UNTIL.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| Instant::now() < until)
}

/// The host has waited: blocks that were used while they were elsewhere come back as far as there is room, those that were used last before others.
pub(crate) fn come_back(manager: &Manager<Device>) {
    if !switch::is_on() || gate::kept().is_some() || manager.usage().live.host == 0 {
        return;
    }
    pace::within_share(|| bring_back(manager));
}

fn bring_back(manager: &Manager<Device>) {
    let mut blocks = candidates(manager, |tiers| tiers.host);
    blocks.retain(|block| recency::was_missed(&block.range, block.id));
    blocks.sort_unstable_by_key(|block| Reverse(block.used));
    for block in blocks {
        let room = manager.device_room();
        if room - room / SPARED_PART < block.bytes {
            continue;
        }
        if move_block(manager, &block, Tier::Device, u64::MAX).1.is_some() {
            break;
        }
    }
}
