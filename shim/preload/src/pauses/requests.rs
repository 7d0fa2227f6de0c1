//! What a request changes, also while a step of another one is under way. The last request counts:
//! in the end the process stands as if it had been the only one.

use std::time::Duration;

use wm_abi::CUdevice;
use wm_driver::thread::KernelThread;

use super::PauseBook;
use super::files::StorePlace;
use super::outcome::PauseExtent;
use super::plan::{DEADLINE, PauseGoal, PausePhase, PauseStep};

/// Each request returns `true` if a thread is to be started for it.
impl PauseBook {
    /// A pause of all memory. In a process that is paused already it stays where it is, and what
    /// stayed on the device when the process gave way leaves, too.
    pub(super) fn ask_pause(
        &mut self,
        files: Option<StorePlace>,
        deadline: Duration,
        asker: Option<KernelThread>,
    ) -> bool {
        if self.course.phase != PausePhase::Paused {
            (self.deadline, self.files) = (deadline, files);
            self.failure = None;
        }
        self.asker = asker.or(self.asker);
        (self.extent, self.is_for_others) = (PauseExtent::All, false);
        if self.is_of_part { self.course.ask_more() } else { self.course.ask(PauseGoal::Paused) }
    }

    /// The end of a pause.
    pub(super) fn ask_resume(&mut self) -> bool {
        self.course.ask(PauseGoal::Running)
    }

    /// So many bytes of some devices for another process.
    pub(super) fn ask_way(&mut self, bytes: Vec<(CUdevice, u64)>) -> bool {
        if self.is_paused_on_request() {
            // All that can leaves anyway.
            return false;
        }
        if self.course.goal == PauseGoal::Running {
            (self.deadline, self.failure, self.is_for_others) = (DEADLINE, None, true);
            self.files = None;
        }
        self.extent = PauseExtent::Bytes(bytes);
        self.course.ask_more()
    }

    /// Was the process asked to pause, and not only to give way? Memory in files was.
    fn is_paused_on_request(&self) -> bool {
        self.stored.is_some() || self.course.goal == PauseGoal::Paused && !self.is_for_others
    }

    /// The next step begins.
    pub(super) fn begin(&mut self) -> PauseStep {
        let step = self.course.next();
        if step == PauseStep::Pause {
            self.is_of_part = self.files.is_none() && self.extent.is_part();
        }
        step
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): a process is asked to pause, and part of its memory stays.
    use proptest::prelude::*;

    use super::*;

    /// A process, by what its steps do.
    struct Process {
        book: PauseBook,
        under_way: Option<(PauseStep, PauseExtent)>,
        /// All has left, in the pause that is there.
        all_left: bool,
    }

    impl Process {
        /// The step that is under way ends, or the next one begins. `false`: none is left.
        fn goes_on(&mut self) -> bool {
            let Some((step, extent)) = self.under_way.take() else {
                let step = self.book.begin();
                self.under_way = (step != PauseStep::End).then(|| (step, self.book.extent.clone()));
                return self.under_way.is_some();
            };
            let all = !extent.is_part();
            match step {
                PauseStep::Pause => self.all_left = all,
                PauseStep::LeaveMore => self.all_left |= all,
                _ => self.all_left = false,
            }
            if matches!(step, PauseStep::Pause | PauseStep::LeaveMore) {
                self.book.is_of_part &= !all;
            }
            self.book.course.ended(true);
            true
        }

        fn request(&mut self, number: u8) {
            let _starts = match number {
                0 => self.book.ask_pause(None, DEADLINE, None),
                1 => self.book.ask_resume(),
                _ => self.book.ask_way(vec![(CUdevice::default(), 1)]),
            };
        }
    }

    #[test]
    fn a_pause_after_a_resume_during_a_part_is_of_all() {
        let mut process = Process { book: PauseBook::new(), under_way: None, all_left: false };
        process.request(2);
        assert!(process.goes_on(), "a part leaves");
        for request in [0, 1, 0] {
            process.request(request);
        }
        while process.goes_on() {}
        assert!(process.all_left && process.book.course.phase == PausePhase::Paused);
    }

    proptest! {
        /// Whatever comes before it, at whatever moment.
        #[test]
        fn the_last_request_counts(
            requests in proptest::collection::vec((0..3_u8, 0..4_usize), 1..40)
        ) {
            let mut process = Process { book: PauseBook::new(), under_way: None, all_left: false };
            let (mut asked, mut last) = (false, 1);
            for (request, steps) in requests {
                process.request(request);
                // A process that is paused on request gives no way.
                last = if request == 2 && last == 0 { 0 } else { request };
                asked |= last == 0;
                let _ended = (0..steps).all(|_| process.goes_on());
            }
            while process.goes_on() {}
            let phase = process.book.course.phase;
            prop_assert_eq!(phase == PausePhase::Paused, last != 1);
            prop_assert!(last != 0 || process.all_left, "part of the memory stays");
            prop_assert!(asked || !process.all_left, "more leaves than anything asked for");
        }
    }
}
