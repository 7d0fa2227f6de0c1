//! Blocks that have to be private before a graph runs again: nothing can be waited for during a
//! capture, and what a graph launches is not named.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::part;
use super::watched::WatchedBlock;

static PENDING: Mutex<Vec<Arc<WatchedBlock>>> = Mutex::new(Vec::new());

/// There are some: launches of graphs look here, and take no lock for it.
static ARE_THERE: AtomicBool = AtomicBool::new(false);

fn pending() -> MutexGuard<'static, Vec<Arc<WatchedBlock>>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// They are private before the next graph is instantiated, changed or launched.
pub(super) fn add(blocks: impl IntoIterator<Item = Arc<WatchedBlock>>) {
    let mut pending = pending();
    pending.extend(blocks);
    ARE_THERE.store(!pending.is_empty(), Relaxed);
}

/// Makes all of them private. A block stays listed until it was tried, so that no other thread's
/// graph is launched meanwhile.
pub(super) fn settle() {
    if !ARE_THERE.load(Relaxed) {
        return;
    }
    let blocks = pending().clone();
    for block in blocks.iter().filter(|block| block.is_shared()) {
        part::note_write(block);
        part::make_private(block);
    }
    let mut pending = pending();
    pending.retain(|left| !blocks.iter().any(|tried| Arc::ptr_eq(left, tried)));
    ARE_THERE.store(!pending.is_empty(), Relaxed);
}
