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
//! * At exit the gate opens without a wait. Where memory is in files, the first call that needs it
//!   brings it back. A forked child passes the gate anyway.

mod devices;
mod files;
mod filing;
mod for_others;
mod from_files;
mod giving_way;
mod outcome;
mod plan;
mod requests;
mod work;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use wm_driver::lock;
use wm_driver::thread::{self, KernelThread};
use wm_schema::PauseStats;

use crate::black_box;
use crate::gate::GATE;
use crate::moves::Migrations;
use crate::process::{self, preserve_errno};
use crate::settings::{Pause, Settings};
pub(crate) use files::FileFailure;
use files::{FileProgress, StoredPause};
use outcome::{LeftBlocks, PauseExtent, Paused, Pausing, Resumed, merged};
pub(crate) use outcome::{PauseError, TurnEvents, TurnState};
use plan::{Course, PauseGoal, PauseStep};
pub(crate) use plan::{DEADLINE, PausePhase};

/// How long the exit waits for files that are being written or read: they end at a chunk.
const FILING: Duration = Duration::from_secs(3);
const AWAITED: Duration = Duration::from_micros(200);

/// Stack of the thread, bytes.
const STACK: usize = 512 << 10;

/// Pauses of the process.
pub(crate) struct Pauses {
    /// Decided at load.
    is_on: AtomicBool,
    is_auto: AtomicBool,
    /// Memory lies in files. Read at exit, which takes no lock.
    holds_files: AtomicBool,
    /// A step writes files or reads them.
    is_filing: AtomicBool,
    progress: FileProgress,
    book: Mutex<PauseBook>,
    /// A step has ended.
    changed: Condvar,
    /// For pauses for other processes.
    events: OnceLock<TurnEvents>,
}

/// The course of the process, and the outcome of its last steps.
struct PauseBook {
    course: Course,
    deadline: Duration,
    /// Where the next pause brings memory; `None`: to the host.
    folder: Option<PathBuf>,
    /// Memory that lies in files.
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
        let figures = PauseStats {
            state: String::new(),
            is_awaited: false,
            pauses: 0,
            pause_s: 0.0,
            resume_s: 0.0,
            out_bytes: 0,
            clean_bytes: 0,
            file_bytes: 0,
            done_bytes: 0,
            whole_bytes: 0,
            in_bytes: 0,
            left_bytes: 0,
            stayed_bytes: 0,
            stayed: Vec::new(),
            problem: None,
        };
        let course = Course {
            phase: PausePhase::Running,
            goal: PauseGoal::Running,
            is_working: false,
            has_rest: false,
            wants_rest: false,
            wants_more: false,
            leaves_more: false,
        };
        let book = PauseBook {
            course,
            deadline: DEADLINE,
            folder: None,
            stored: None,
            asker: None,
            extent: PauseExtent::All,
            is_of_part: false,
            is_for_others: false,
            left: Vec::new(),
            figures,
            failure: None,
        };
        Self {
            is_on: AtomicBool::new(false),
            is_auto: AtomicBool::new(false),
            holds_files: AtomicBool::new(false),
            is_filing: AtomicBool::new(false),
            progress: FileProgress::new(),
            book: Mutex::new(book),
            changed: Condvar::new(),
            events: OnceLock::new(),
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
        GATE.tell_of_arrivals(arrived);
        let mut book = self.lock();
        if settings.pause == Pause::Paused {
            let is_kept = GATE.keep_closed(Instant::now(), false, || Ok::<_, PauseError>(()));
            if is_kept.is_some() {
                (book.course.phase, book.course.goal) = (PausePhase::Paused, PauseGoal::Paused);
            }
        }
        book.show();
    }

    fn events(&self) -> &TurnEvents {
        self.events.get().unwrap_or(&TurnEvents::NONE)
    }

    /// Can the process be paused?
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, PauseBook> {
        lock(&self.book)
    }

    /// Asks for a pause, to files in a `folder` or to the host. A process that is paused already
    /// stays so, where it is. `asker`: the thread of the program that asks.
    ///
    /// # Errors
    /// The process cannot be paused, or no thread could be started.
    pub(crate) fn pause_to(
        parts: PausedParts,
        folder: Option<PathBuf>,
        deadline: Duration,
        asker: Option<KernelThread>,
    ) -> Result<(), PauseError> {
        parts.ask(|book| book.ask_pause(folder, deadline, asker))
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

    /// Waits until nothing is under way.
    ///
    /// # Errors
    /// Why the last pause failed.
    pub(crate) fn wait(&self) -> Result<(), PauseError> {
        let mut book = self.lock();
        while book.course.is_working {
            book = self.changed.wait(book).unwrap_or_else(PoisonError::into_inner);
        }
        book.failure.map_or(Ok(()), Err)
    }

    /// A thread of the program is about to wait at the gate.
    pub(crate) fn arrived(parts: PausedParts) {
        if process::exiting() {
            return parts.resume_at_exit();
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
            let book = self.lock();
            let [done_bytes, whole_bytes] =
                if self.is_filing.load(SeqCst) { self.progress.read() } else { [0; 2] };
            PauseStats {
                done_bytes,
                whole_bytes,
                state: book.course.text().to_owned(),
                is_awaited: book.course.phase == PausePhase::Paused && GATE.is_awaited(),
                problem: book.failure.map(|failure| failure.to_string()),
                ..book.figures.clone()
            }
        })
    }

    /// The process exits: nothing waits any more, except for memory in files. Takes no lock.
    pub(crate) fn stop(&self) {
        let begin = Instant::now();
        while self.is_filing.load(SeqCst) && begin.elapsed() < FILING {
            std::thread::sleep(AWAITED);
        }
        if self.is_on() && !self.holds_files.load(SeqCst) {
            GATE.open_at_exit();
        }
    }

    /// The next step, or the end of the thread.
    fn next(&self) -> (PauseStep, Pausing) {
        let mut book = self.lock();
        let step = book.begin();
        let pausing = Pausing {
            limit: book.deadline,
            folder: book.folder.clone(),
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
            PauseStep::Pause => pausing.folder.is_some(),
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
    /// Shows the phase in the black box.
    fn show(&self) {
        let figures = &self.figures;
        black_box::show_pause(self.course.shown() as u64 + 1, [figures.out_bytes, figures.stayed_bytes]);
    }
}

impl PausedParts {
    /// `note` says whether a thread is to be started.
    fn ask(self, note: impl FnOnce(&mut PauseBook) -> bool) -> Result<(), PauseError> {
        if !self.pauses.is_on() {
            return Err(PauseError::Off);
        }
        if process::forked() || process::exiting() {
            return Err(PauseError::Exiting);
        }
        let mut book = self.pauses.lock();
        if !note(&mut book) {
            return Ok(());
        }
        drop(book);
        let started = preserve_errno(|| thread::spawn(c"wmshim-pause", STACK, move || self.work()));
        started.map_err(|error| self.without_thread(&error))
    }

    /// A resume opens the gate here: memory stays on the host, where the GPU reads it.
    fn without_thread(self, error: &std::io::Error) -> PauseError {
        log::warn!("no thread to pause or resume the process: {error}");
        let mut book = self.pauses.lock();
        if (book.course.phase, book.course.goal) == (PausePhase::Paused, PauseGoal::Running) {
            let _resume = book.course.next();
            book.course.ended(true);
            GATE.open_kept();
        }
        book.course.give_up();
        book.show();
        self.pauses.changed.notify_all();
        PauseError::NoThread
    }

    fn work(self) {
        loop {
            let (step, pausing) = self.pauses.next();
            let made = catch_unwind(AssertUnwindSafe(|| match step {
                PauseStep::Pause => self.pause_now(pausing),
                PauseStep::Resume if pausing.stored.is_some() => self.resume_files(pausing),
                PauseStep::Resume => {
                    self.resume_now(|| work::resume(self.moves, &pausing.left, self.pauses.events()));
                }
                PauseStep::Refill => self.resume_now(|| work::refill(self.moves, pausing)),
                PauseStep::LeaveMore => self.leave_more(pausing),
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
        let done = work::pause(self.moves, &pausing, self.pauses.events(), &self.pauses.progress);
        self.has_paused(done, &pausing.extent, pausing.left);
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
        let events = self.pauses.events();
        let done = GATE.while_kept(|| work::leave_more(self.moves, &pausing.extent, events));
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
                self.pauses.holds_files.store(paused.stored.is_some(), SeqCst);
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

    fn resumed(self, begin: Instant, resumed: Resumed) {
        let [came, rest] = [resumed.came, resumed.rest].map(|bytes| bytes >> 20);
        log::info!("resumed: {came} MiB to the device in {:.1?}, {rest} MiB on the host", begin.elapsed());
        black_box::mark(&format!("resumed: {rest} MiB on the host"));
        self.pauses.ended(|book| {
            self.pauses.holds_files.store(false, SeqCst);
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
