//! The turns of the process, as one value: for threads of the program, for the thread that pauses,
//! and for the one that speaks with the broker.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use wm_abi::CUdevice;
use wm_dedup::turns::HEARTBEAT;
use wm_driver::thread::Uncancelled;
use wm_driver::{Device, lock};
use wm_memory::Manager;
use wm_schema::TurnStats;

use super::book::TurnBook;
use super::wake::TurnWake;
use crate::gate::GATE;
use crate::pauses::PausedParts;
use crate::process;
use crate::settings::{Settings, Share};

/// How long a request for memory waits for others at most. The broker's own limits are shorter,
/// unless several processes hang.
const LONGEST: Duration = Duration::from_secs(120);

/// The turns of the process.
pub(crate) struct Turns {
    /// Decided at load.
    is_on: AtomicBool,
    pub(super) started: Once,
    pub(super) wake: OnceLock<TurnWake>,
    book: Mutex<TurnBook>,
    /// The book has changed.
    pub(super) told: Condvar,
}

/// The parts of the process that turns work on.
#[derive(Clone, Copy)]
pub(crate) struct TurnParts {
    pub(crate) turns: &'static Turns,
    pub(crate) paused: PausedParts,
}

impl Turns {
    pub(crate) const fn new() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            started: Once::new(),
            wake: OnceLock::new(),
            book: Mutex::new(TurnBook::new()),
            told: Condvar::new(),
        }
    }

    /// Decides for the whole process. To be called after pauses have decided.
    pub(crate) fn choose(&self, settings: &Settings, can_pause: bool) {
        if settings.share == Share::Turns && can_pause {
            self.is_on.store(true, Relaxed);
            GATE.time_calls();
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.can_wake() && !process::detached()
    }

    /// Memory of a detached process that is away comes back by an ask, too.
    fn can_wake(&self) -> bool {
        self.is_on.load(Relaxed) && !process::forked() && !process::exiting()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, TurnBook> {
        lock(&self.book)
    }

    /// A thread of the program waits at the gate of the paused process.
    pub(crate) fn arrived(&self) {
        if self.can_wake() {
            self.wake();
        }
    }

    /// The thread that speaks with the broker looks at everything again.
    pub(super) fn wake(&self) {
        self.wake.get().into_iter().for_each(TurnWake::send);
        self.told.notify_all();
    }

    /// A device lacks room for so many bytes: waits until others have given way. `false`: there is
    /// none. The calling thread must not be inside the gate, and must hold no lock.
    pub(crate) fn make_room(&self, manager: &Manager<Device>, bytes: u64) -> bool {
        self.make_room_within(manager, bytes, None)
    }

    /// The same for a block: the manager asks again if the room is of no use to it.
    pub(crate) fn make_room_for_block(&self, manager: &Manager<Device>, bytes: u64) -> bool {
        self.make_room_within(manager, bytes, Some(manager.usage().counters.allocations))
    }

    fn make_room_within(&self, manager: &Manager<Device>, bytes: u64, allocations: Option<u64>) -> bool {
        if !self.is_on() || GATE.is_inside() || !self.started.is_completed() {
            return false;
        }
        let _whole = Uncancelled::new();
        let device = manager.gpu().ordinal();
        let Some(ticket) = self.lock().request(device, bytes, allocations) else { return false };
        self.wake();
        let has_room = self.await_answer(ticket);
        // It may have given way since.
        GATE.await_resume();
        has_room
    }

    fn await_answer(&self, ticket: u64) -> bool {
        let until = Instant::now() + LONGEST;
        let mut book = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if let Some(has_room) = book.take_answer(ticket, left.is_zero() || process::exiting()) {
                return has_room;
            }
            let waited = self.told.wait_timeout(book, left.min(HEARTBEAT));
            book = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// So many bytes of a device are the driver's now.
    pub(crate) fn gave(&self, device: CUdevice, bytes: u64) {
        self.lock().gave(device, bytes);
        self.wake();
    }

    /// Adds to the time for which memory has moved.
    pub(crate) fn moved(&self, time: Duration) {
        self.lock().moved += time;
    }

    /// Memory that comes back has no room. Waits until there may be some; `false`: there will be
    /// none.
    pub(crate) fn has_more_room(&self) -> bool {
        if !self.can_wake() {
            return false;
        }
        let mut book = self.lock();
        loop {
            if let Some(has_more) = book.room_news() {
                return has_more;
            }
            self.wake.get().into_iter().for_each(TurnWake::send);
            if process::exiting() {
                return false;
            }
            let waited = self.told.wait_timeout(book, HEARTBEAT);
            book = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A step of a pause or of a resume has ended.
    pub(crate) fn step_ended(&self) {
        if self.can_wake() {
            self.wake();
        }
    }

    /// The process exits: nothing waits any more. Takes no lock.
    pub(crate) fn stop(&self) {
        if self.is_on.load(Relaxed) {
            self.wake();
        }
    }

    /// The figures for statistics; `None`: the process takes no turns.
    pub(crate) fn figures(&self) -> Option<TurnStats> {
        self.is_on.load(Relaxed).then(|| self.lock().figures.clone())
    }
}
