//! The arena is filled, and given back on request. See [`arena`](super::arena).

use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use wm_memory::Manager;

use super::arena::ready_bytes;
use super::common::leaving;
use super::outcome::{PauseError, blocks_that_leave};
use super::work::may_leave;
use super::{PausedParts, Pauses, plan};
use crate::idle::{self, IdleCheck, IdleKind};
use crate::{process, registry};

/// How far it is behind the program: a model is allocated in many requests.
const BEHIND: Duration = Duration::from_millis(200);

/// An arena after it was filled.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FilledArena {
    /// Bytes that it lacks.
    pub(super) lacking: u64,
    /// The host has no room for them.
    pub(super) is_full: bool,
    /// Another request came first.
    pub(super) is_interrupted: bool,
}

impl Pauses {
    /// The program's memory has changed. `look` calls [`Pauses::follow`], a moment later and in
    /// another thread.
    pub(crate) fn memory_changed(&self, look: IdleCheck) {
        if self.arena.follows() && !self.arena.is_due.swap(true, SeqCst) {
            idle::look_at(Instant::now() + BEHIND, IdleKind::Arena, look);
        }
    }

    /// Has the arena filled, if it follows the program.
    pub(crate) fn follow(parts: PausedParts) {
        let arena = &parts.pauses.arena;
        // What changes from now on is looked at again.
        arena.is_due.store(false, SeqCst);
        if arena.follows() && parts.pauses.is_on() {
            let _started = parts.ask(|book| book.course.ask_arena());
        }
    }

    /// Asks for host memory for all that could leave, once.
    ///
    /// # Errors
    /// The process cannot be paused, or is detached, or no thread could be started.
    pub(crate) fn prepare(parts: PausedParts) -> Result<(), PauseError> {
        if process::detached() {
            return Err(PauseError::Detached);
        }
        parts.pauses.arena.is_given_back.store(false, Relaxed);
        parts.ask(|book| {
            book.prepares = true;
            book.course.ask_arena()
        })
    }

    /// Waits until it is filled, or as far as it can be now.
    ///
    /// # Errors
    /// The host has no room for all of it.
    pub(crate) fn wait_prepared(&self) -> Result<(), PauseError> {
        let mut book = self.lock();
        while book.course.is_filling() {
            book = self.changed.wait(book).unwrap_or_else(PoisonError::into_inner);
        }
        if book.figures.arena.is_full { Err(PauseError::HostFull) } else { Ok(()) }
    }

    /// Host memory that nothing uses goes back from now on, and none is made ahead until that is
    /// asked for.
    pub(crate) fn let_arena_go(&self) {
        self.arena.is_given_back.store(true, Relaxed);
        let mut book = self.lock();
        (book.course.wants_arena, book.prepares) = (false, false);
        (book.figures.arena.lacking_bytes, book.figures.arena.is_full) = (0, false);
        drop(book);
        registry::all().for_each(Manager::let_go_elsewhere);
    }

    /// The arena is what the setting says again.
    pub(crate) fn set_arena_again(&self) {
        self.arena.is_given_back.store(false, Relaxed);
    }
}

impl PausedParts {
    pub(super) fn fill_arena(self) {
        let pauses = self.pauses;
        let most = if pauses.lock().prepares { u64::MAX } else { pauses.arena.most.load(Relaxed) };
        let is_over =
            || process::exiting() || process::detached() || pauses.arena.is_given_back.load(Relaxed);
        let is_asked = || pauses.lock().course.is_under_way();
        let filled = fill(self, most, is_over, is_asked);
        pauses.ended(|book| {
            // The rest is made once the process runs again.
            book.course.wants_arena |= filled.is_interrupted;
            book.prepares &= filled.is_interrupted;
            let arena = &mut book.figures.arena;
            (arena.lacking_bytes, arena.is_full) = (filled.lacking, filled.is_full);
            true
        });
    }
}

/// Makes host memory for all that could leave, and would need some, up to so many bytes.
fn fill(
    parts: PausedParts,
    most: u64,
    is_over: impl Fn() -> bool,
    is_asked: impl Fn() -> bool,
) -> FilledArena {
    let (interrupted, mut filled) = (Cell::new(false), FilledArena::default());
    let goes_on = |bytes: u64| {
        interrupted.set(is_asked());
        !interrupted.get() && !is_over() && ready_bytes().saturating_add(bytes) <= most
    };
    let common = leaving::ranges(parts);
    for manager in registry::all().filter(|manager| may_leave(manager)) {
        manager.hold_elsewhere();
        let blocks = blocks_that_leave(parts.moves, manager);
        let leaving = plan::without(plan::leaving(&blocks), &common);
        let made = manager.make_spares_ahead(&leaving, goes_on);
        filled.lacking += made.lacking;
        filled.is_full |= made.is_full;
    }
    let is_interrupted = interrupted.get() && !is_over();
    FilledArena { is_interrupted, ..filled }
}
