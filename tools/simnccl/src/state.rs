//! The state of one communicator, which its calls, its thread and the streams share.
//!
//! Invariants: a stream that has reached an operation is blocked until the operation is done, or
//! until the communicator is stopped and its thread does not use the operation's memory; after an
//! error nothing but a stop frees a stream, as with NCCL.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::abi::{Code, Outcome};

/// See the file's text.
#[derive(Debug)]
pub(crate) struct State<J> {
    progress: Mutex<Progress<J>>,
    changed: Condvar,
    /// Abort was called: every wait ends.
    stopped: AtomicBool,
}

/// How far a job is. Changes under the lock of its state.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    /// The stream has reached it.
    arrived: AtomicBool,
    /// Its messages are exchanged.
    done: AtomicBool,
}

#[derive(Debug)]
struct Progress<J> {
    error: Option<Code>,
    initialising: bool,
    /// Groups that a thread is handing to streams.
    launching: usize,
    /// Jobs in the order of the calls.
    queue: VecDeque<Arc<J>>,
    /// Does the communicator's thread use the memory of a job?
    working: bool,
    finalizing: bool,
    finalized: bool,
    /// The communicator's thread has ended.
    ended: bool,
}

/// What the communicator's thread does next.
#[derive(Debug)]
pub(crate) enum Next<J> {
    Work(Arc<J>),
    Finalize,
    Stop,
}

impl<J: AsRef<Stage>> State<J> {
    pub(crate) const fn new() -> Self {
        let progress = Progress {
            error: None,
            initialising: true,
            launching: 0,
            queue: VecDeque::new(),
            working: false,
            finalizing: false,
            finalized: false,
            ended: false,
        };
        Self { progress: Mutex::new(progress), changed: Condvar::new(), stopped: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Progress<J>> {
        crate::lock(&self.progress)
    }

    fn change(&self, change: impl FnOnce(&mut Progress<J>)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait_until(&self, mut ready: impl FnMut(&Progress<J>) -> bool) -> MutexGuard<'_, Progress<J>> {
        let waiting = self.changed.wait_while(self.lock(), |progress| !ready(progress));
        waiting.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// The answer of `ncclCommGetAsyncError`.
    pub(crate) fn code(&self) -> Code {
        self.lock().code()
    }

    /// # Errors
    /// If the communicator takes no operation now.
    pub(crate) fn ready(&self) -> Outcome {
        let progress = self.lock();
        match progress.code() {
            Code::SUCCESS if progress.finalizing => Err(Code::INVALID_USAGE),
            Code::IN_PROGRESS => Err(Code::INVALID_ARGUMENT),
            code => code.ok(),
        }
    }

    /// The first error stays.
    pub(crate) fn fail(&self, code: Code) {
        self.change(|progress| {
            progress.error.get_or_insert(code);
        });
    }

    pub(crate) fn initialised(&self) {
        self.change(|progress| progress.initialising = false);
    }

    /// Waits for the end of the initialisation.
    pub(crate) fn wait_initialised(&self) -> Outcome {
        self.wait_until(|progress| !progress.initialising || progress.ended).code().ok()
    }

    pub(crate) fn begin_launch(&self) {
        self.change(|progress| progress.launching += 1);
    }

    pub(crate) fn end_launch(&self, outcome: Outcome) {
        self.change(|progress| {
            progress.launching -= 1;
            if let Err(code) = outcome {
                progress.error.get_or_insert(code);
            }
        });
    }

    pub(crate) fn push(&self, job: Arc<J>) {
        self.change(|progress| progress.queue.push_back(job));
    }

    /// The next work of the communicator's thread: the oldest job, once its stream has reached it.
    pub(crate) fn next(&self) -> Next<J> {
        let mut progress = self.wait_until(|progress| self.is_stopped() || progress.has_next());
        if self.is_stopped() {
            return Next::Stop;
        }
        match progress.queue.pop_front() {
            Some(job) => {
                progress.working = true;
                Next::Work(job)
            }
            None => Next::Finalize,
        }
    }

    /// The communicator's thread is done with a job's memory.
    pub(crate) fn end_work(&self, job: &J, outcome: Outcome<bool>) {
        self.change(|progress| {
            progress.working = false;
            match outcome {
                Ok(complete) => job.as_ref().done.store(complete, Ordering::Release),
                Err(code) => {
                    progress.error.get_or_insert(code);
                }
            }
        });
    }

    /// A stream has reached a job. Returns when the stream may continue.
    pub(crate) fn pass(&self, job: &J) {
        self.change(|_| job.as_ref().arrived.store(true, Ordering::Release));
        let _passed = self.wait_until(|progress| {
            job.as_ref().done.load(Ordering::Acquire) || self.is_stopped() && !progress.working
        });
    }

    pub(crate) fn finalize(&self) {
        self.change(|progress| progress.finalizing = true);
    }

    pub(crate) fn finalized(&self) {
        self.change(|progress| progress.finalized = true);
    }

    /// Waits for the end of a finalization, or for an error or an abort.
    pub(crate) fn wait_finalized(&self) -> Outcome {
        let over = |progress: &Progress<J>| progress.finalized || progress.error.is_some() || progress.ended;
        match self.wait_until(over).code() {
            Code::IN_PROGRESS => Err(Code::INTERNAL),
            code => code.ok(),
        }
    }

    pub(crate) fn end(&self) {
        self.change(|progress| {
            progress.ended = true;
            progress.queue.clear();
        });
    }

    /// Stops the communicator: streams continue, its thread ends. Did the thread end in time?
    pub(crate) fn stop(&self, patience: Duration) -> bool {
        self.change(|_| self.stopped.store(true, Ordering::Release));
        let waiting = self.changed.wait_timeout_while(self.lock(), patience, |progress| !progress.ended);
        waiting.unwrap_or_else(PoisonError::into_inner).0.ended
    }
}

impl<J: AsRef<Stage>> Progress<J> {
    fn code(&self) -> Code {
        let busy = self.initialising || self.launching > 0 || self.finalizing && !self.finalized;
        self.error.unwrap_or(if busy { Code::IN_PROGRESS } else { Code::SUCCESS })
    }

    /// Is there work, or a finalization that nothing precedes? After an error there is none.
    fn has_next(&self) -> bool {
        let finalizes = self.finalizing && !self.finalized && self.launching == 0;
        let has_come = |job: &Arc<J>| J::as_ref(job).arrived.load(Ordering::Acquire);
        let next = self.queue.front().map_or(finalizes, has_come);
        self.error.is_none() && next
    }
}
