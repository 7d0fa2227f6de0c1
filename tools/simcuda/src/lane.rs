//! Lanes: queues of work with one worker thread each. A stream is a lane with a handle.
//!
//! Work of one lane runs in the order in which it was pushed. Between lanes only the points in
//! `after` give an order; with `SIMCUDA_SEED` every piece of work is delayed at random, so that a
//! missing point shows.
//!
//! Invariants: work waits only for work that was pushed earlier, so there are no circular waits; a
//! lane's worker starts with its first work and ends when the lane is closed and empty; the worker
//! takes none of the program's signals; work behind a fault of the context is skipped, as on a
//! device that has stopped.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wm_abi::CUresult;
use wm_kernels::pattern;

use crate::entry::Outcome;
use crate::races::{self, Stamp, Uses};
use crate::settings::settings;

/// Work of a lane. It may run more than once: graphs replay it.
pub(crate) type Work = Arc<dyn Fn() -> Outcome + Send + Sync>;

/// The first error of a context's work. It stays, and every later call returns it.
#[derive(Debug, Default)]
pub(crate) struct Fault(AtomicU32);

impl Fault {
    /// The error, if there was one.
    ///
    /// # Errors
    /// That error.
    pub(crate) fn check(&self) -> Outcome {
        CUresult(self.0.load(Ordering::Acquire)).ok()
    }

    /// Records an error. The first one stays.
    pub(crate) fn set(&self, error: CUresult) {
        let _ = self.0.compare_exchange(0, error.0, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// The progress of a lane.
#[derive(Debug, Default)]
struct Timeline {
    done: Mutex<u64>,
    passed: Condvar,
}

impl Timeline {
    fn done(&self) -> MutexGuard<'_, u64> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn advance(&self, number: u64) {
        *self.done() = number;
        self.passed.notify_all();
    }
}

/// A place in a lane's work that can be waited for.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    timeline: Arc<Timeline>,
    number: u64,
    stamp: Option<Arc<Stamp>>,
}

impl Point {
    /// The work that is done when the lane has passed it, if races are checked.
    pub(crate) fn stamp(&self) -> Option<&Arc<Stamp>> {
        self.stamp.as_ref()
    }

    /// Has the lane passed it? The host's clock does not change.
    pub(crate) fn is_passed(&self) -> bool {
        *self.timeline.done() >= self.number
    }

    /// Has the lane passed it? If so, the host's clock includes it.
    pub(crate) fn is_done(&self) -> bool {
        let done = self.is_passed();
        races::see(self.stamp().filter(|_| done));
        done
    }

    /// Blocks the host until the lane has passed it.
    pub(crate) fn wait(&self) {
        self.reach();
        races::see(self.stamp());
    }

    /// Blocks until the lane has passed it, without a change of the host's clock.
    fn reach(&self) {
        let mut done = self.timeline.done();
        while *done < self.number {
            done = self.timeline.passed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

struct Item {
    number: u64,
    after: Vec<Point>,
    work: Work,
}

#[derive(Default)]
struct Line {
    items: VecDeque<Item>,
    last: u64,
    /// The stamp of the last work.
    stamp: Option<Arc<Stamp>>,
    started: bool,
    closed: bool,
}

struct Shared {
    line: Mutex<Line>,
    changed: Condvar,
    timeline: Arc<Timeline>,
    fault: Arc<Fault>,
}

impl Shared {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next item, or `None` when the lane is closed and empty.
    fn next(&self) -> Option<Item> {
        let mut line = self.line();
        loop {
            if let Some(item) = line.items.pop_front() {
                return Some(item);
            }
            if line.closed {
                return None;
            }
            line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run(&self, mut delays: Delays) {
        while let Some(item) = self.next() {
            item.after.iter().for_each(Point::reach);
            delays.pass();
            if self.fault.check().is_ok() {
                let outcome =
                    catch_unwind(AssertUnwindSafe(|| (item.work)())).unwrap_or(Err(CUresult::UNKNOWN));
                outcome.unwrap_or_else(|error| self.fault.set(error));
            }
            drop(item.work);
            self.timeline.advance(item.number);
        }
    }
}

/// A queue of work and its worker.
pub(crate) struct Lane {
    shared: Arc<Shared>,
    /// Do it and the legacy default stream wait for each other?
    pub(crate) blocking: bool,
    serial: u64,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("serial", &self.serial).finish_non_exhaustive()
    }
}

impl Lane {
    /// An empty lane whose errors go to `fault`.
    pub(crate) fn new(fault: Arc<Fault>, blocking: bool) -> Arc<Self> {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let shared =
            Shared { line: Mutex::default(), changed: Condvar::new(), timeline: Arc::default(), fault };
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { shared: Arc::new(shared), blocking, serial })
    }

    /// Queues work behind everything in this lane and behind the points in `after`.
    ///
    /// # Errors
    /// `CONTEXT_IS_DESTROYED` if the lane is closed, `OPERATING_SYSTEM` if the worker cannot be
    /// started.
    pub(crate) fn push(&self, after: Vec<Point>, work: Work) -> Outcome<Point> {
        let uses = Uses::of(&work);
        let mut line = self.shared.line();
        if line.closed {
            return Err(CUresult::CONTEXT_IS_DESTROYED);
        }
        if !line.started {
            self.start()?;
            line.started = true;
        }
        line.last += 1;
        let number = line.last;
        let stamp = races::stamp(self.serial, number, line.stamp.as_ref(), &after);
        line.stamp.clone_from(&stamp);
        let point = Point { timeline: Arc::clone(&self.shared.timeline), number, stamp };
        line.items.push_back(Item { number, after, work });
        self.shared.changed.notify_one();
        drop(line);
        uses.enter(&point);
        Ok(point)
    }

    fn start(&self) -> Outcome {
        let shared = Arc::clone(&self.shared);
        let delays = Delays::new(self.serial);
        let run = move || {
            ignore_signals();
            shared.run(delays);
        };
        let name = format!("simcuda-{}", self.serial);
        std::thread::Builder::new().name(name).spawn(run).map_err(|_| CUresult::OPERATING_SYSTEM)?;
        Ok(())
    }

    /// The end of the lane's last work; `None` if there was none.
    pub(crate) fn tail(&self) -> Option<Point> {
        let line = self.shared.line();
        let (timeline, number) = (Arc::clone(&self.shared.timeline), line.last);
        (number > 0).then(|| Point { timeline, number, stamp: line.stamp.clone() })
    }

    /// Is all work done? If so, the host's clock includes it.
    pub(crate) fn is_idle(&self) -> bool {
        self.tail().is_none_or(|tail| tail.is_done())
    }

    /// Refuses new work. Queued work still runs.
    pub(crate) fn close(&self) {
        self.shared.line().closed = true;
        self.shared.changed.notify_one();
    }

    /// Is it closed, with all work done?
    pub(crate) fn is_over(&self) -> bool {
        self.shared.line().closed && self.is_idle()
    }
}

/// Blocks the program's signals, except those that a fault raises in this very thread.
fn ignore_signals() {
    // SAFETY: plain operations on a signal set of our own.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
            libc::sigdelset(&raw mut set, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Random but repeatable delays: `SIMCUDA_SEED`.
struct Delays(Option<u64>);

impl Delays {
    fn new(serial: u64) -> Self {
        Self(settings().seed.map(|seed| pattern(seed ^ pattern(serial, 0), 0)))
    }

    /// Waits for a random time: the latency of a device that is busy with other work.
    fn pass(&mut self) {
        const MICROSECONDS: [u64; 8] = [0, 0, 0, 20, 50, 200, 500, 2000];
        if let Some(state) = &mut self.0 {
            *state = pattern(*state, 0);
            match MICROSECONDS[(*state % 8) as usize] {
                0 => {}
                delay => std::thread::sleep(Duration::from_micros(delay)),
            }
        }
    }
}
