//! A resume from files: the one that waits for room, and that can fail.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::files::{StoredPause, Transferring};
use super::outcome::{PauseError, Pausing};
use super::plan::PauseGoal;
use super::{PauseBook, PausedParts, filing};
use crate::process;

/// How often a resume from files looks for room.
const LOOK: Duration = Duration::from_millis(50);

impl PausedParts {
    /// Brings memory back from files; waits for room, until another pause is asked for.
    pub(super) fn resume_files(self, pausing: Pausing) {
        let Some(stored) = pausing.stored else { return };
        let (begin, mut sum) = (Instant::now(), 0);
        loop {
            let (came, mut resumed) = filing::resume(self, &stored, &pausing.left, Transferring::Usual);
            sum += resumed.came;
            resumed.came = sum;
            if came.is_all() {
                self.release(stored);
                return self.resumed(begin, resumed);
            }
            let failure = came.unread.map_or(PauseError::NoRoom, |(why, _)| PauseError::Unread(why));
            if self.gives_up(failure, came.unread.is_some()) {
                return log::warn!("not resumed: {failure}");
            }
        }
    }

    /// All memory is back: the folder has its room before the process counts as running.
    fn release(self, stored: Arc<StoredPause>) {
        let mut book = self.pauses.lock();
        book.failure = None;
        let kept = book.stored.take();
        drop(book);
        drop((stored, kept));
    }

    /// Some memory lies in files still. Does the process stay paused?
    fn gives_up(self, failure: PauseError, is_unread: bool) -> bool {
        let mut book = self.pauses.lock();
        book.failure = Some(failure);
        let gives_up =
            |book: &PauseBook| is_unread || book.course.goal == PauseGoal::Paused || process::exiting();
        if !gives_up(&book) {
            let waited = self.pauses.changed.wait_timeout(book, LOOK);
            book = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let gives_up = gives_up(&book);
        drop(book);
        if gives_up {
            self.pauses.ended(|_| false);
        }
        gives_up
    }

    /// The process exits, and a call needs memory that lies in files.
    pub(super) fn read_at_exit(self) {
        let stored = self.pauses.lock().stored.take();
        let Some(stored) = stored else { return };
        let (came, _) = filing::resume(self, &stored, &[], Transferring::AtExit);
        if !came.is_all() {
            log::error!("memory of the paused process is not back at its exit; a call waits");
        }
        self.pauses.lock().stored = Some(stored);
    }
}
