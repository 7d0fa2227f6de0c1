//! The order in which the devices of a process take of its one host limit.
//!
//! Each manager counts its own bytes, and asks the others for theirs. Both happen under this lock
//! before memory of the host is planned or charged, so two devices cannot spend the same bytes:
//! the use of others may fall meanwhile, but not grow. No driver call is made under it.
//!
//! A plan that fails gives its bytes back. A request that the limit refuses meanwhile waits for the
//! end of the plans that are under way, and is decided again.

use std::sync::PoisonError;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// One for all managers of a process.
#[derive(Debug, Default)]
pub struct HostBudget {
    plans: Mutex<HostPlans>,
    ended: Condvar,
}

/// The plans that make memory of the host.
#[derive(Debug, Default)]
pub(super) struct HostPlans {
    pub(super) under_way: usize,
    ended: u64,
}

impl HostPlans {
    /// The generation to wait for, if a plan is under way.
    pub(super) fn awaited(&self) -> Option<u64> {
        (self.under_way > 0).then_some(self.ended)
    }
}

/// A plan that was counted. It ends with this.
pub(super) struct HostPlan<'b>(pub(super) &'b HostBudget);

impl Drop for HostPlan<'_> {
    fn drop(&mut self) {
        let mut plans = self.0.lock();
        plans.under_way -= 1;
        plans.ended += 1;
        drop(plans);
        self.0.ended.notify_all();
    }
}

impl HostBudget {
    pub(super) fn lock(&self) -> MutexGuard<'_, HostPlans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of one of the plans that were under way in a generation.
    pub(super) fn wait<'b>(
        &'b self,
        mut plans: MutexGuard<'b, HostPlans>,
        seen: u64,
    ) -> MutexGuard<'b, HostPlans> {
        while plans.awaited() == Some(seen) {
            plans = self.ended.wait(plans).unwrap_or_else(PoisonError::into_inner);
        }
        plans
    }
}
