//! What steps of all kinds do with all devices.

use std::time::{Duration, Instant};

use wm_driver::{Gpu, Tier};
use wm_memory::{Manager, MoveRefusal};

use super::outcome::{LeftBlocks, PauseError};
use crate::moves::Migrations;
use crate::moves::paused::{DrainLimit, Undrained};
use crate::{physical, registry};

/// Waits until work of all devices has ended.
pub(super) fn drain(moves: &Migrations, limit: DrainLimit) -> Result<(), PauseError> {
    registry::all().try_for_each(|manager| moves.drain(manager, limit)).map_err(undrained)
}

fn undrained(why: Undrained) -> PauseError {
    match why {
        Undrained::Late { is_held: true } => PauseError::Held,
        Undrained::Late { is_held: false } => PauseError::Busy,
        Undrained::Exiting => PauseError::Exiting,
        Undrained::Unknown(code) => PauseError::Unknown(code),
    }
}

/// How long the library's own copies may take to be seen done.
const SETTLED: Duration = Duration::from_secs(1);

/// Copies were waited for by other threads, and one of them may have failed on the way.
pub(super) fn see_copies_end(moves: &Migrations) -> Result<(), PauseError> {
    drain(moves, (Instant::now() + SETTLED).into())
}

/// Bytes of the host that may be taken.
pub(super) fn host_available() -> u64 {
    registry::all().map(|manager| manager.gpu().host_available()).min().unwrap_or(0)
}

/// What was left behind goes to the driver, and idle memory of the device.
pub(super) fn give_back() {
    for manager in registry::all() {
        physical::cache().give_back(manager, Tier::Device, u64::MAX);
        manager.relieve(u64::MAX);
    }
}

/// Maps memory of the host at its addresses where a pause has left it unmapped. To be called before
/// the gate opens.
pub(super) fn map_all() -> Result<(), MoveRefusal> {
    registry::all().try_for_each(Manager::map_unmapped)
}

/// Bytes of these blocks on the host.
pub(super) fn rest_of<'a>(left: impl IntoIterator<Item = &'a LeftBlocks>) -> u64 {
    let of_device = |LeftBlocks { device, ids }: &LeftBlocks| {
        let blocks = registry::existing(*device).map(|manager| manager.large_blocks(0)).unwrap_or_default();
        blocks.iter().filter(|block| ids.contains(&block.id)).map(|block| block.tiers.host).sum::<u64>()
    };
    left.into_iter().map(of_device).sum()
}
