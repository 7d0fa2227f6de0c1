//! What a running process keeps of its copies.

use std::time::Instant;

use wm_driver::lock;
use wm_memory::KeepCopies;

use super::LOOK;
use crate::gate::GATE;
use crate::idle::{self, IdleCheck, IdleKind};
use crate::pauses::Pauses;
use crate::{process, settings};

impl Pauses {
    /// A step has ended: the process may keep copies for its next pause. `look` calls
    /// [`Pauses::look_at_common_copies`].
    pub(crate) fn keep_common_copies(&self, look: IdleCheck) {
        let is_any = lock(&self.common.book).as_ref().is_some_and(|book| !book.kept.is_empty());
        if is_any {
            idle::look_at(Instant::now() + LOOK, IdleKind::CommonCopies, look);
        }
    }

    /// Copies that a running process keeps for its next pause go back, and the next pause compares
    /// with those of other processes again. Of a paused process none does.
    pub(crate) fn let_common_copies_go(&self) {
        if self.runs() {
            self.common.forget_all();
        }
    }

    fn runs(&self) -> bool {
        !self.lock().course.is_under_way() && !GATE.is_kept()
    }

    /// Forgets copies of a running process that are of no use. Returns when to look again. Of a
    /// process that is paused the next look is due after its resume.
    pub(crate) fn look_at_common_copies(&self) -> Option<Instant> {
        if process::forked() || !self.runs() {
            return None;
        }
        if settings::load().kept_copies == KeepCopies::Off {
            self.common.forget_all();
            return None;
        }
        self.common.forget_some()
    }
}
