//! When kernel launches used which block last: who leaves first where the device is full, and who may come back.
//!
//! Only blocks that move by themselves are noted, those of whole handles. Copies and memsets are no uses here. An entry names the block by its number, so one of a block
//! that is gone tells nothing of its address' next one.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dashmap::DashMap;

use crate::launches::{Touched, TouchedBlock};

/// Smaller blocks share their memory with others.
const LEAST: u64 = 2 << 20;

/// Launches so far.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Clone, Copy)]
struct LastUse {
    id: u64,
    /// The launch's number, from 1.
    used: u64,
    /// The last launch before the block left the device; 0 if it did not.
    left: u64,
}

fn uses() -> &'static DashMap<u64, LastUse> {
    static USES: OnceLock<DashMap<u64, LastUse>> = OnceLock::new();
    USES.get_or_init(DashMap::new)
}

/// A launch that may touch these blocks.
pub(super) fn note(touched: &Touched) {
    let Touched::Blocks(blocks) = touched else { return };
    let used = LAUNCHES.fetch_add(1, Relaxed) + 1;
    for TouchedBlock { address, id, .. } in blocks.iter().filter(|block| block.bytes >= LEAST) {
        let mut entry = uses().entry(*address).or_insert(LastUse { id: *id, used, left: 0 });
        *entry = LastUse { id: *id, used, left: if entry.id == *id { entry.left } else { 0 } };
    }
}

/// The number of the last launch that used a block; `None` if none did.
pub(super) fn last(address: u64, id: u64) -> Option<u64> {
    uses().get(&address).filter(|entry| entry.id == id).map(|entry| entry.used)
}

/// A block has left the device.
pub(super) fn left(address: u64, id: u64) {
    let left = LAUNCHES.load(Relaxed);
    let mut entry = uses().entry(address).or_insert(LastUse { id, used: 0, left });
    *entry = LastUse { id, used: if entry.id == id { entry.used } else { 0 }, left };
}

/// Was it used since it left the device?
pub(super) fn was_missed(address: u64, id: u64) -> bool {
    uses().get(&address).is_some_and(|entry| entry.id == id && entry.used > entry.left)
}

/// Forgets blocks that are gone.
pub(super) fn retain(is_live: impl Fn(u64, u64) -> bool) {
    uses().retain(|address, entry| is_live(*address, entry.id));
}

#[cfg(test)]
mod tests {
    //! Hazard: a block is taken for one that lay at its address before, or one comes back that nothing uses.
    use smallvec::smallvec;

    use super::*;

    fn launch(address: u64, id: u64, bytes: u64) {
        note(&Touched::Blocks(smallvec![TouchedBlock { address, bytes, id, device: 0 }]));
    }

    #[test]
    fn the_last_use_is_the_blocks_own_and_small_ones_have_none() {
        launch(0x1000, 7, LEAST);
        launch(0x2000, 8, LEAST - 1);
        assert!(last(0x1000, 7).is_some());
        assert_eq!((last(0x1000, 9), last(0x2000, 8)), (None, None));
        left(0x1000, 7);
        assert!(!was_missed(0x1000, 7));
        launch(0x1000, 7, LEAST);
        assert!(was_missed(0x1000, 7));
        launch(0x1000, 9, LEAST);
        assert!(!was_missed(0x1000, 7) && last(0x1000, 7).is_none());
        left(0x1000, 11);
        assert_eq!((was_missed(0x1000, 11), last(0x1000, 11)), (false, Some(0)));
        retain(|_, _| false);
        assert!(last(0x1000, 11).is_none());
    }
}
