//! Blocks that have to be private before a graph runs again. No thread can wait for the GPU during
//! a capture, and the driver does not name the kernels that a graph's launch runs.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use wm_driver::lock;

use super::tracked_blocks::TrackedBlock;

/// See above.
pub(super) struct PendingBlocks {
    blocks: Mutex<Vec<Arc<TrackedBlock>>>,
    /// Launches of graphs read this, and take no lock for it.
    any: AtomicBool,
}

impl PendingBlocks {
    pub(super) const fn new() -> Self {
        Self { blocks: Mutex::new(Vec::new()), any: AtomicBool::new(false) }
    }

    fn blocks(&self) -> MutexGuard<'_, Vec<Arc<TrackedBlock>>> {
        lock(&self.blocks)
    }

    /// These are private before the next graph is instantiated, changed or launched.
    pub(super) fn add(&self, new: impl IntoIterator<Item = Arc<TrackedBlock>>) {
        let mut blocks = self.blocks();
        blocks.extend(new);
        self.any.store(!blocks.is_empty(), Relaxed);
    }

    /// Makes all shared ones private. A block stays listed until that was tried, so no other
    /// thread launches a graph meanwhile.
    pub(super) fn settle(&self, make_private: impl Fn(&TrackedBlock)) {
        if !self.any.load(Relaxed) {
            return;
        }
        let tried = self.blocks().clone();
        tried.iter().filter(|block| block.is_shared()).for_each(|block| make_private(block));
        let mut blocks = self.blocks();
        blocks.retain(|left| !tried.iter().any(|tried| Arc::ptr_eq(left, tried)));
        self.any.store(!blocks.is_empty(), Relaxed);
    }
}
