//! The steps of the thread that carries requests out, and what becomes of each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use wm_driver::thread;

use super::outcome::{LeftBlocks, PauseError, PauseExtent, Paused, Pausing, Resumed, merged};
use super::plan::{PauseGoal, PausePhase, PauseStep};
use super::{PauseBook, PausedParts, STACK, work};
use crate::black_box;
use crate::gate::GATE;
use crate::process::{self, preserve_errno};

impl PausedParts {
    /// `note` says whether a thread is to be started.
    pub(super) fn ask(self, note: impl FnOnce(&mut PauseBook) -> bool) -> Result<(), PauseError> {
        if !self.pauses.is_on() {
            return Err(PauseError::Off);
        }
        if process::forked() || process::exiting() {
            return Err(PauseError::Exiting);
        }
        let mut book = self.pauses.lock();
        if self.pauses.is_deep() {
            return Err(PauseError::Deep);
        }
        if !note(&mut book) {
            return Ok(());
        }
        drop(book);
        let started = preserve_errno(|| thread::spawn(c"wmshim-pause", STACK, move || self.work()));
        started.or_else(|error| self.without_thread(&error))
    }

    /// A resume is carried out by the calling thread.
    fn without_thread(self, error: &std::io::Error) -> Result<(), PauseError> {
        log::warn!("no thread to pause or resume the process: {error}");
        let mut book = self.pauses.lock();
        if (book.course.phase, book.course.goal) == (PausePhase::Paused, PauseGoal::Running) {
            drop(book);
            self.work();
            return Ok(());
        }
        book.course.give_up();
        book.show();
        self.pauses.changed.notify_all();
        Err(PauseError::NoThread)
    }

    fn work(self) {
        loop {
            let (step, pausing) = self.pauses.next();
            let made = catch_unwind(AssertUnwindSafe(|| match step {
                PauseStep::Pause => self.pause_now(pausing),
                PauseStep::Resume if pausing.stored.is_some() => self.resume_files(pausing),
                PauseStep::Resume => {
                    self.resume_now(|| work::resume(self, &pausing.left));
                }
                PauseStep::Refill => self.resume_now(|| work::refill(self.moves, pausing)),
                PauseStep::LeaveMore => self.leave_more(pausing),
                PauseStep::FillArena => self.fill_arena(),
                PauseStep::End => {}
            }));
            match (made, step) {
                (Ok(()), PauseStep::End) => return,
                (Ok(()), _) => {}
                (Err(_), _) => self.after_panic(),
            }
        }
    }

    /// A bug of ours. The gate opened as the panic passed it: the program goes on, and memory is
    /// where it is. Where memory is in files the gate stays closed.
    fn after_panic(self) {
        log::warn!("a pause or a resume panicked; the program goes on");
        self.pauses.ended(|book| {
            book.failure = Some(PauseError::Panicked);
            GATE.is_kept() == (book.course.phase == PausePhase::Pausing)
        });
    }

    fn pause_now(self, pausing: Pausing) {
        let done = work::pause(self, &pausing);
        self.has_paused(done, &pausing.extent, pausing.left);
        if process::exiting() {
            return self.open_for_waiters();
        }
        // A call that came before the gate was kept closed has not seen that it is.
        let is_auto = || self.pauses.is_auto.load(Relaxed) && !self.pauses.lock().is_for_others;
        if GATE.is_kept() && is_auto() && GATE.is_awaited() {
            self.pauses.lock().course.ask(PauseGoal::Running);
        }
    }

    fn leave_more(self, pausing: Pausing) {
        if pausing.stored.is_some() {
            // All of it lies in files.
            return self.pauses.ended(|_| true);
        }
        let done = GATE.while_kept(|| work::leave_more(self, &pausing.extent));
        self.has_paused(done, &pausing.extent, pausing.left);
    }

    /// `left`: what an earlier resume left on the host, or what has left before.
    fn has_paused(self, done: Result<Paused, PauseError>, extent: &PauseExtent, left: Vec<LeftBlocks>) {
        match &done {
            Ok(paused) => {
                let [out, stayed] = [paused.out, paused.stayed_bytes()].map(|bytes| bytes >> 20);
                log::info!("paused: {out} MiB left in {:.1?}, {stayed} MiB stay", paused.took);
                let place = if paused.stored.is_some() { "files" } else { "the host" };
                black_box::mark(&format!("paused: {out} MiB to {place}"));
            }
            Err(failure) => log::info!("not paused: {failure}"),
        }
        self.pauses.ended(|book| match done {
            Ok(paused) => {
                paused.note(&mut book.figures);
                book.is_of_part &= extent.is_part();
                book.failure = paused.unmapped.map(PauseError::Unmapped);
                book.stored = paused.stored;
                book.left = merged(paused.left.into_iter().chain(left).collect());
                true
            }
            Err(failure) => {
                book.left = left;
                book.failure = Some(failure);
                book.asker = None;
                book.is_for_others &= book.course.phase == PausePhase::Paused;
                false
            }
        });
    }

    fn resume_now(self, resume: impl FnOnce() -> Resumed) {
        let begin = Instant::now();
        let resumed = resume();
        self.resumed(begin, resumed);
    }

    pub(super) fn resumed(self, begin: Instant, resumed: Resumed) {
        let [came, rest] = [resumed.came, resumed.rest].map(|bytes| bytes >> 20);
        log::info!("resumed: {came} MiB to the device in {:.1?}, {rest} MiB on the host", begin.elapsed());
        black_box::mark(&format!("resumed: {rest} MiB on the host"));
        self.pauses.ended(|book| {
            if let Some(why) = resumed.unmapped {
                book.failure = Some(PauseError::Unmapped(why));
                book.left = resumed.left;
                return false;
            }
            if book.stored.take().is_some() {
                book.failure = None;
            }
            book.figures.resume_s = begin.elapsed().as_secs_f64();
            (book.figures.in_bytes, book.figures.left_bytes) = (resumed.came, resumed.rest);
            book.asker = None;
            // It may have been asked to give way meanwhile.
            book.is_for_others &= book.course.goal == PauseGoal::Paused;
            book.course.has_rest = !resumed.left.is_empty();
            book.left = resumed.left;
            true
        });
    }
}
