//! What a running process keeps of its copies.

use std::time::Instant;

use wm_driver::lock;

use super::LOOK;
use crate::gate::GATE;
use crate::idle::{self, IdleCheck, IdleKind};
use crate::pauses::Pauses;
use crate::process;

impl Pauses {
    /// A step has ended: the process may keep copies for its next pause. `look` calls
    /// [`Pauses::look_at_common_copies`].
    pub(crate) fn keep_common_copies(&self, look: IdleCheck) {
        let is_any = lock(&self.common.book).as_ref().is_some_and(|book| !book.kept.is_empty());
        if is_any {
            idle::look_at(Instant::now() + LOOK, IdleKind::CommonCopies, look);
        }
    }

    /// Forgets copies of a running process that are of no use. Returns when to look again.
    pub(crate) fn look_at_common_copies(&self) -> Option<Instant> {
        if process::forked() {
            return None;
        }
        let is_running = !self.lock().course.is_under_way() && !GATE.is_kept();
        if is_running { self.common.forget_some() } else { Some(Instant::now() + LOOK) }
    }
}
