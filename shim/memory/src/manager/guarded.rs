//! Guarded blocks, for a program that is suspected of writing past an end. The normal path knows nothing of them but
//! the class of a request.

use wm_abi::CUresult;
use wm_driver::Gpu;

use super::Manager;
use crate::vocabulary::error::AllocateError;
use crate::vocabulary::guard::Guard;
use crate::vocabulary::order::Order;
use crate::vocabulary::request::Request;
use crate::vocabulary::sizes::GUARDED_VIEWS;

impl<G: Gpu> Manager<G> {
    /// As [`Manager::allocate`], with a guard. The address of a block that has an extent of its own is a multiple
    /// of 256.
    ///
    /// # Errors
    /// As [`Manager::allocate`].
    pub fn allocate_guarded(&self, bytes: usize, order: Order, guard: Guard) -> Result<u64, AllocateError> {
        let request = Request::guarded(bytes, order, guard).ok_or(CUresult::INVALID_VALUE)?;
        let met = self.serve(request)?;
        if guard == Guard::Page {
            self.end_views(GUARDED_VIEWS);
        }
        Ok(met)
    }

    /// Unmaps what guarded blocks have left, as far as the GPU is known to be done with it: a late access then faults.
    /// Asks the GPU only about more than `unasked` of it, and never waits: as many views stay as the program is ahead.
    pub fn end_views(&self, unasked: usize) {
        let doubts = self.lock().overdue_views(unasked);
        if !doubts.is_empty() {
            self.inquire(doubts);
        }
        self.evict();
    }
}
