//! Guarded blocks, for a program that may write past the end of a block.
//!
//! The state and the policy know no guards. They know requests without a class, whose block has an
//! extent of its own (ADR 0025 says why this is no adaptor beside the manager).

use wm_driver::Gpu;

use super::Manager;
use crate::vocabulary::error::AllocateError;
use crate::vocabulary::guard::BlockGuard;
use crate::vocabulary::order::Order;
use crate::vocabulary::request::Request;
use crate::vocabulary::sizes::GUARDED_VIEWS;

impl<G: Gpu> Manager<G> {
    /// As [`Manager::allocate`], with a guard. The address of a block that has an extent of its own
    /// is a multiple of 256.
    ///
    /// # Errors
    /// As [`Manager::allocate`].
    pub fn allocate_guarded(
        &self,
        bytes: usize,
        order: Order,
        guard: BlockGuard,
    ) -> Result<u64, AllocateError> {
        let request = self.possible(bytes, Request::guarded(bytes, order, guard))?;
        let met = self.serve(request)?;
        if guard == BlockGuard::Page {
            self.end_views(GUARDED_VIEWS);
        }
        Ok(met)
    }

    /// Unmaps the views of freed guarded blocks that the GPU is known to be done with: a late
    /// access then faults. Queries the GPU only where there are more than `unasked` of them, and
    /// never waits for it.
    pub fn end_views(&self, unasked: usize) {
        let queries = self.lock().overdue_views(unasked);
        if !queries.is_empty() {
            self.run_queries(queries);
        }
        self.evict();
    }
}
