//! The gate of a paused process: it stays closed after the thread that closed it has gone on, and
//! another thread opens it.
//!
//! Invariants: a thread that arrives meanwhile is seen by the one that has kept the gate closed, or
//! sees that it is kept closed and says so; a thread whose call is under way does not keep the gate
//! closed, because it would wait for itself at the end of that call; at exit the gate opens without
//! a wait.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use wm_memory::NotClosed;

use super::{Mover, SubmissionGate, VISITOR};
use crate::process;

/// How long a thread that waited stays out of the driver when the process exits. A thread that
/// joins it at exit waits as long.
const AT_EXIT: Duration = Duration::from_secs(3);

/// How often the exit tries to wake threads that wait outside, while another thread has the lock.
const TRIES: usize = 100;

impl SubmissionGate {
    /// A thread that finds the gate kept closed calls this before it waits. To be called once,
    /// before the gate is kept closed.
    pub(crate) fn tell_of_arrivals(&self, arrived: fn()) {
        let _is_first = self.arrived.set(arrived);
    }

    /// Does the gate stay closed until the process is resumed?
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(SeqCst)
    }

    /// Waits as long as the gate is kept closed, for a call that does not pass it and takes memory
    /// of the device. Costs one load otherwise.
    #[inline]
    pub(crate) fn await_resume(&self) {
        if self.is_kept() && !self.is_inside() && !process::forked() {
            self.enter();
            self.leave();
        }
    }

    /// Does the driver serve requests for memory, because the library is detached? The caller's
    /// request waits first as long as the gate is kept closed.
    #[inline]
    pub(crate) fn lets_driver_allocate(&self) -> bool {
        let is_detached = process::detached();
        if is_detached {
            self.await_resume();
        }
        is_detached
    }

    /// Does a call of the program wait for the gate to open?
    pub(crate) fn is_awaited(&self) -> bool {
        self.gate.is_awaited()
    }

    /// Is a call of the calling thread under way?
    pub(crate) fn is_inside(&self) -> bool {
        let visitor = VISITOR.get();
        visitor.inside || visitor.moving
    }

    /// Enters once the gate is open.
    #[cold]
    pub(super) fn enter_late(&self, stripe: usize) {
        self.gate.enter_announced(stripe, || {
            if self.is_kept()
                && let Some(arrived) = self.arrived.get()
            {
                arrived();
            }
        });
        // The call would meet a driver that is shutting down. Without the pause it had been over.
        if self.kept_at_exit.load(SeqCst) {
            std::thread::sleep(AT_EXIT);
        }
    }

    /// Runs `body` with the gate closed, and leaves it closed if that succeeds. `None`: the gate
    /// could not be closed by the deadline, since a call was being made; or it is off, or kept
    /// closed already, or the thread is inside.
    pub(crate) fn keep_closed<R, E>(
        &self,
        deadline: Instant,
        body: impl FnOnce() -> Result<R, E>,
    ) -> Option<Result<R, E>> {
        if !self.is_on() || self.is_inside() || self.is_kept() || process::forked() {
            return None;
        }
        let left = || deadline.saturating_duration_since(Instant::now());
        while self.gate.let_pass(left()) {
            let _mover = Mover::begin(self);
            match self.gate.close(left()) {
                Ok(closed) => {
                    let done = body();
                    if done.is_ok() {
                        self.kept.store(true, SeqCst);
                        closed.keep();
                    }
                    return Some(done);
                }
                Err(NotClosed::Occupied) => return None,
                Err(NotClosed::Awaited) => {}
            }
        }
        None
    }

    /// Runs `body` behind the gate that is kept closed, and leaves it so.
    pub(crate) fn while_kept<R>(&self, body: impl FnOnce() -> R) -> R {
        let _mover = Mover::begin(self);
        body()
    }

    /// Runs `body` behind the gate that is kept closed, and opens it if `body` says so. A panic
    /// leaves it closed.
    pub(crate) fn open_if<R>(&self, body: impl FnOnce() -> (R, bool)) -> R {
        let _mover = Mover::begin(self);
        let (done, opens) = body();
        if opens {
            self.open_kept();
        }
        done
    }

    /// Opens it, if it is kept closed.
    pub(crate) fn open_kept(&self) {
        if self.kept.swap(false, SeqCst) {
            self.gate.open();
        }
    }

    /// The process exits: its memory is where it is, and calls go on. Waits for no lock.
    pub(crate) fn open_at_exit(&self) {
        if self.kept.swap(false, SeqCst) {
            self.kept_at_exit.store(true, SeqCst);
            let _is_told = (0..TRIES).any(|_| {
                let is_told = self.gate.open_now();
                if !is_told {
                    std::thread::yield_now();
                }
                is_told
            });
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): a call waits at the gate of a process that is resumed, or a thread keeps
    //! it closed from within a call of its own.
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use wm_abi::CUresult;

    use super::*;
    use crate::gate::Passage;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn closed_gate() -> SubmissionGate {
        let gate = SubmissionGate::new();
        gate.turn_on();
        assert_eq!(gate.keep_closed(soon(), || Ok::<_, ()>(7)), Some(Ok(7)));
        gate
    }

    #[test]
    fn calls_wait_until_it_is_opened_and_say_that_they_came() {
        static ARRIVED: AtomicUsize = AtomicUsize::new(0);
        let gate = closed_gate();
        gate.tell_of_arrivals(|| {
            ARRIVED.fetch_add(1, SeqCst);
        });
        assert!(gate.keep_closed(soon(), || Ok::<_, ()>(())).is_none(), "it is kept closed");
        assert!(gate.with_quiesced(Duration::ZERO, |_| ()).is_none(), "and no other thread moves memory");
        thread::scope(|scope| {
            let call = scope.spawn(|| gate.pass(Passage::Pass, || CUresult::NOT_READY));
            while !gate.is_awaited() {
                thread::yield_now();
            }
            assert!(!call.is_finished());
            let passed = gate.open_if(|| (gate.pass(Passage::Pass, || CUresult::UNKNOWN), true));
            assert_eq!(passed, CUresult::UNKNOWN, "the thread that opens it passes");
            assert_eq!(call.join().expect("no panic"), CUresult::NOT_READY);
        });
        assert!(ARRIVED.load(SeqCst) <= 1 && !gate.is_kept());
        assert!(gate.with_quiesced(Duration::from_secs(60), |_| ()).is_some());
    }

    #[test]
    fn after_a_failure_it_is_open() {
        let gate = SubmissionGate::new();
        assert!(gate.keep_closed(soon(), || Ok::<_, ()>(())).is_none(), "it is off");
        gate.turn_on();
        assert_eq!(gate.keep_closed(soon(), || Err::<(), _>("no room")), Some(Err("no room")));
        assert_eq!(gate.pass(Passage::Pass, || CUresult::SUCCESS), CUresult::SUCCESS);
    }

    #[test]
    fn a_thread_inside_a_call_does_not_keep_it_closed() {
        let gate = SubmissionGate::new();
        gate.turn_on();
        let code = gate.pass(Passage::Pass, || {
            assert!(gate.keep_closed(soon(), || Ok::<_, ()>(())).is_none());
            CUresult::NOT_READY
        });
        assert_eq!(code, CUresult::NOT_READY);
    }

    /// Hazard (wrong result): a call passes whose memory is in files still.
    #[test]
    fn it_opens_where_the_body_says_so() {
        let gate = closed_gate();
        assert_eq!(gate.open_if(|| (1, false)), 1);
        assert!(gate.is_kept());
        let fails = std::panic::AssertUnwindSafe(|| gate.open_if(|| -> ((), bool) { panic!("a bug") }));
        assert!(std::panic::catch_unwind(fails).is_err() && gate.is_kept());
        assert_eq!(gate.open_if(|| (2, true)), 2);
        assert_eq!(gate.pass(Passage::Pass, || CUresult::SUCCESS), CUresult::SUCCESS);
    }

    #[test]
    fn the_exit_opens_it() {
        let gate = closed_gate();
        gate.open_at_exit();
        assert_eq!(gate.pass(Passage::Pass, || CUresult::SUCCESS), CUresult::SUCCESS);
        gate.open_at_exit();
    }
}
