//! Pauses: the device memory of the process goes to the host and to the driver, and its calls wait
//! until it is resumed (`wmctl pause`, `wmshim_pause`, `WMSHIM_PAUSE`).
//!
//! A thread of its own carries requests out, one after the other: a request is a goal
//! ([`plan::Course`]), and a client looks how far the process has come, or waits.
//!
//! Invariants:
//! * A pause that fails changes nothing that the program sees: memory that had left comes back, and
//!   the gate opens.
//! * A resume never fails: what does not come back lies on the host, at its addresses, where the
//!   GPU reads it. From files it waits for room, and stays paused while they cannot be read.
//! * The thread that has asked for a pause is not held by it: a call of it that would wait resumes
//!   the process. With `WMSHIM_PAUSE=auto` a call of any thread does.
//! * No lock is held across a driver call, and none while memory moves.
//! * While the process is paused, what has left is mapped at no address of the program, on the host
//!   as in files. The gate opens once all is mapped.
//! * The exit does not wait, except for a step that moves memory. The first call that needs memory
//!   then has it mapped. A forked child passes the gate anyway.

mod arena;
mod coming_back;
mod common;
mod deep;
mod devices;
mod exit;
mod files;
mod filing;
mod filling;
mod for_others;
mod from_files;
mod giving_way;
mod outcome;
mod plan;
mod requests;
mod steps;
mod unmapped;
mod work;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use wm_driver::lock;
use wm_driver::thread::KernelThread;
use wm_schema::{ArenaStats, PauseStats};

use crate::black_box;
use crate::gate::GATE;
use crate::moves::Migrations;
use crate::process;
use crate::settings::{Pause, Settings};
use arena::Arena;
use common::CommonCopies;
pub(crate) use files::{FileFailure, StorePlace};
use files::{FileProgress, StoredPause};
use outcome::{LeftBlocks, PauseExtent, Pausing};
pub(crate) use outcome::{PauseError, PauseEvents, TurnState};
use plan::{Course, PauseGoal, PauseStep};
pub(crate) use plan::{DEADLINE, PausePhase};
use unmapped::UnmappedMemory;

/// Stack of the thread, bytes.
const STACK: usize = 512 << 10;

/// Pauses of the process.
pub(crate) struct Pauses {
    /// Decided at load.
    is_on: AtomicBool,
    is_auto: AtomicBool,
    unmapped: UnmappedMemory,
    /// A step writes files or reads them.
    is_filing: AtomicBool,
    /// Calls of the driver wait: see [`deep`].
    is_deep: AtomicBool,
    progress: FileProgress,
    book: Mutex<PauseBook>,
    /// A step has ended.
    changed: Condvar,
    /// For other subsystems.
    events: OnceLock<PauseEvents>,
    /// Host memory that is made ahead.
    arena: Arena,
    /// Copies that processes have in common.
    common: CommonCopies,
}

/// The course of the process, and the outcome of its last steps.
struct PauseBook {
    course: Course,
    deadline: Duration,
    /// Where the next pause brings memory; `None`: to the host.
    files: Option<StorePlace>,
    /// Memory that lies in files, or of which there is a copy in common with other processes.
    stored: Option<Arc<StoredPause>>,
    /// The thread of the program that has asked for the pause.
    asker: Option<KernelThread>,
    /// How much leaves.
    extent: PauseExtent,
    /// The pause that is there or under way is of a part of the memory.
    is_of_part: bool,
    /// The process is paused for another one, and not because it was asked for.
    is_for_others: bool,
    /// Blocks that left the device in the last pause and have not come back.
    left: Vec<LeftBlocks>,
    /// Host memory is to be made for all that could leave, whatever the setting says.
    prepares: bool,
    figures: PauseStats,
    failure: Option<PauseError>,
}

/// The parts of the process that a pause works on.
#[derive(Clone, Copy)]
pub(crate) struct PausedParts {
    pub(crate) pauses: &'static Pauses,
    pub(crate) moves: &'static Migrations,
}

impl Pauses {
    pub(crate) const fn new() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            is_auto: AtomicBool::new(false),
            unmapped: UnmappedMemory::new(),
            is_filing: AtomicBool::new(false),
            is_deep: AtomicBool::new(false),
            progress: FileProgress::new(),
            book: Mutex::new(PauseBook::new()),
            changed: Condvar::new(),
            events: OnceLock::new(),
            arena: Arena::new(),
            common: CommonCopies::new(),
        }
    }

    /// Decides for the whole process whether it can be paused: where memory can move. To be called
    /// after [`Migrations::choose`]. `arrived` calls [`Pauses::arrived`].
    pub(crate) fn choose(&self, settings: &Settings, moves: &Migrations, arrived: fn()) {
        if !moves.is_on() {
            return;
        }
        self.is_auto.store(settings.pause == Pause::Auto, Relaxed);
        self.is_on.store(true, Relaxed);
        self.arena.choose(settings.pause_arena);
        GATE.tell_of_arrivals(arrived);
        let mut book = self.lock();
        if settings.pause == Pause::Paused {
            let is_kept = GATE.keep_closed(Instant::now(), || Ok::<_, PauseError>(()));
            if is_kept.is_some() {
                (book.course.phase, book.course.goal) = (PausePhase::Paused, PauseGoal::Paused);
            }
        }
        book.show();
    }

    fn events(&self) -> &PauseEvents {
        self.events.get().unwrap_or(&PauseEvents::NONE)
    }

    /// Can the process be paused?
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, PauseBook> {
        lock(&self.book)
    }

    /// Asks for a pause, to `files` or to pinned memory of the host. A process that is paused
    /// already stays so, where it is. `asker`: the thread of the program that asks.
    ///
    /// # Errors
    /// The process cannot be paused, or no thread could be started.
    pub(crate) fn pause_to(
        parts: PausedParts,
        files: Option<StorePlace>,
        deadline: Duration,
        asker: Option<KernelThread>,
    ) -> Result<(), PauseError> {
        parts.ask(|book| book.ask_pause(files, deadline, asker))
    }

    /// Asks for the end of a pause. In a process that runs, what the last resume left on the host
    /// comes back, as far as there is room now.
    ///
    /// # Errors
    /// The process cannot be paused, or no thread could be started. Then the gate opens all the
    /// same, and all memory is where it was.
    pub(crate) fn resume(parts: PausedParts) -> Result<(), PauseError> {
        parts.ask(PauseBook::ask_resume)
    }

    /// Waits until no pause and no resume is under way.
    ///
    /// # Errors
    /// Why the last pause failed.
    pub(crate) fn wait(&self) -> Result<(), PauseError> {
        let mut book = self.lock();
        while book.course.is_under_way() {
            book = self.changed.wait(book).unwrap_or_else(PoisonError::into_inner);
        }
        book.failure.map_or(Ok(()), Err)
    }

    /// A thread of the program is about to wait at the gate.
    pub(crate) fn arrived(parts: PausedParts) {
        if process::exiting() {
            return parts.resume_at_exit();
        }
        if parts.pauses.is_deep() {
            return;
        }
        let book = parts.pauses.lock();
        let (asker, is_for_others) = (book.asker, book.is_for_others);
        drop(book);
        let is_asker = asker == Some(KernelThread::current());
        if is_asker {
            log::warn!("the thread that has paused the process makes a call that waits: it is resumed");
        }
        if is_asker || parts.pauses.is_auto.load(Relaxed) && !is_for_others {
            let _started = Self::resume(parts);
        }
    }

    /// The figures for statistics; `None`: the process cannot be paused.
    pub(crate) fn figures(&self) -> Option<PauseStats> {
        self.is_on().then(|| {
            let ready = arena::ready_bytes();
            let book = self.lock();
            let [done_bytes, whole_bytes] =
                if self.is_filing.load(SeqCst) { self.progress.read() } else { [0; 2] };
            PauseStats {
                done_bytes,
                whole_bytes,
                state: book.course.text().to_owned(),
                is_awaited: book.course.phase == PausePhase::Paused && GATE.is_awaited(),
                is_deep: self.is_deep(),
                problem: book.failure.map(|failure| failure.to_string()),
                arena: book.arena(ready),
                ..book.figures.clone()
            }
        })
    }

    /// The next step, or the end of the thread.
    fn next(&self) -> (PauseStep, Pausing) {
        let mut book = self.lock();
        let step = book.begin();
        let pausing = Pausing {
            limit: book.deadline,
            files: book.files.clone(),
            stored: book.stored.clone(),
            extent: book.extent.clone(),
            left: book.left.clone(),
        };
        if step == PauseStep::End {
            self.changed.notify_all();
            drop(book);
            (self.events().ended)();
            return (step, Pausing::default());
        }
        let is_filing = match step {
            PauseStep::Pause => pausing.files.is_some(),
            PauseStep::Resume => pausing.stored.is_some(),
            _ => false,
        };
        self.is_filing.store(is_filing, SeqCst);
        book.show();
        (step, pausing)
    }

    /// A step has ended.
    fn ended(&self, note: impl FnOnce(&mut PauseBook) -> bool) {
        let mut book = self.lock();
        let has_succeeded = note(&mut book);
        book.course.ended(has_succeeded);
        book.show();
        self.is_filing.store(false, SeqCst);
        self.changed.notify_all();
        drop(book);
        (self.events().ended)();
    }
}

impl PauseBook {
    /// Of a process that runs, and was never paused.
    const fn new() -> Self {
        let figures = PauseStats {
            state: String::new(),
            is_awaited: false,
            is_deep: false,
            pauses: 0,
            pause_s: 0.0,
            resume_s: 0.0,
            out_bytes: 0,
            clean_bytes: 0,
            file_bytes: 0,
            common_bytes: 0,
            is_in_memory: false,
            done_bytes: 0,
            whole_bytes: 0,
            in_bytes: 0,
            left_bytes: 0,
            stayed_bytes: 0,
            stayed: Vec::new(),
            problem: None,
            arena: ArenaStats { bytes: 0, lacking_bytes: 0, is_filling: false, is_full: false },
        };
        let course = Course {
            phase: PausePhase::Running,
            goal: PauseGoal::Running,
            is_working: false,
            has_rest: false,
            wants_rest: false,
            wants_more: false,
            leaves_more: false,
            wants_arena: false,
            fills_arena: false,
        };
        Self {
            course,
            deadline: DEADLINE,
            files: None,
            stored: None,
            asker: None,
            extent: PauseExtent::All,
            is_of_part: false,
            is_for_others: false,
            left: Vec::new(),
            prepares: false,
            figures,
            failure: None,
        }
    }

    /// The figures of host memory that is made ahead. `ready`: its bytes now.
    fn arena(&self, ready: u64) -> ArenaStats {
        let is_filling = self.course.is_filling();
        ArenaStats { bytes: ready, is_filling, ..self.figures.arena.clone() }
    }

    /// Shows the phase in the black box.
    fn show(&self) {
        let figures = &self.figures;
        black_box::show_pause(self.course.shown() as u64 + 1, [figures.out_bytes, figures.stayed_bytes]);
    }
}
