//! A paused process of which the driver has taken the rest (`wmctl pause --deep`): its calls of the
//! driver wait until the driver gives it back, and so would the library's.
//!
//! So the library makes none meanwhile, and refuses what would need one. Another process makes the
//! checkpoint, and tells this one before and after.

use std::sync::atomic::Ordering::SeqCst;

use super::Pauses;
use super::outcome::PauseError;
use super::plan::{PauseGoal, PausePhase};
use crate::{black_box, registry};

/// As the black box has it.
const DEEP: u64 = 5;

impl Pauses {
    /// The driver is about to take the rest of the process.
    ///
    /// # Errors
    /// It is not paused, or something is under way, or it has pinned memory of the host.
    pub(crate) fn go_deep(&self) -> Result<(), PauseError> {
        let is_pinned = registry::all().any(|manager| manager.usage().together.reserved.host > 0);
        let book = self.lock();
        let is_there = (book.course.phase, book.course.goal) == (PausePhase::Paused, PauseGoal::Paused);
        if !is_there || book.course.is_under_way() || book.is_for_others {
            return Err(PauseError::NotPaused);
        }
        if is_pinned {
            return Err(PauseError::HostPinned);
        }
        self.is_deep.store(true, SeqCst);
        black_box::show_pause(DEEP, [book.figures.out_bytes, book.figures.stayed_bytes]);
        Ok(())
    }

    /// The driver has given it back, or has not taken it.
    pub(crate) fn leave_deep(&self) {
        let book = self.lock();
        self.is_deep.store(false, SeqCst);
        book.show();
    }

    /// May a call of the driver wait until another process lets it go on?
    pub(crate) fn is_deep(&self) -> bool {
        self.is_deep.load(SeqCst)
    }
}
