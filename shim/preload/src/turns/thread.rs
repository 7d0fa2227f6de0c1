//! The thread that speaks with the broker. It waits for orders, for threads of the program, and for
//! the steps of pauses; each time it looks at the whole state, so no event has to be kept.
//!
//! Without a broker the process goes on alone: what has no room lies on the host.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wm_dedup::client::TurnClient;
use wm_dedup::turns::message::{TurnOrder, TurnPhase, TurnReport, TurnTask};
use wm_dedup::turns::{HEARTBEAT, PATIENCE};
use wm_driver::thread;

use super::giving::{Giving, GivingNext};
use super::holdings;
use super::state::TurnParts;
use super::wake::TurnWake;
use crate::dedup::broker_start;
use crate::gate::GATE;
use crate::pauses::{PausePhase, Pauses, TurnState};
use crate::process::{self, preserve_errno};
use crate::registry;

const STACK: usize = 512 << 10;

/// Starts it.
pub(super) fn start(parts: TurnParts) {
    let wake = match TurnWake::new() {
        Ok(wake) => wake,
        Err(error) => return log::warn!("WMSHIM_SHARE has no effect: no pipe could be made: {error}"),
    };
    let _is_first = parts.turns.wake.set(wake);
    let started = preserve_errno(|| thread::spawn(c"wmshim-turns", STACK, move || run(parts)));
    if let Err(error) = started {
        log::warn!("WMSHIM_SHARE has no effect: no thread could be started: {error}");
    }
}

fn run(parts: TurnParts) {
    match broker_start::location() {
        Ok(home) => TurnThread::new(parts, TurnClient::new(home, broker_start::start)).run(),
        Err(error) => log::warn!("WMSHIM_SHARE has no effect: {error}"),
    }
}

/// First and longest time until a process asks again for memory that found no room.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A program that has made no call for that time does not need its memory now.
const RESTING: Duration = Duration::from_secs(1);

/// An ask that is under way.
#[derive(Debug, Clone, Copy)]
struct OpenAsk {
    number: u64,
    since: Instant,
}

struct TurnThread {
    parts: TurnParts,
    client: TurnClient,
    ask: Option<OpenAsk>,
    last_ask: u64,
    giving: Option<Giving>,
    /// The last order to give way or to say something, and the last one to give way.
    seen: u64,
    gives: u64,
    /// When the broker spoke last, or was asked.
    heard_at: Instant,
    reported_at: Instant,
    /// The broker is to hear of a change.
    has_news: bool,
    /// As it has heard last, like the bytes that were given.
    short: u64,
    given: u64,
    /// It was said that there is no broker.
    is_told: bool,
    /// What is to be looked at again then.
    look_at: Option<Instant>,
    /// When the process asks again for memory that found no room, and how long it waits after that.
    rest_at: Instant,
    backoff: Duration,
}

impl TurnThread {
    fn new(parts: TurnParts, client: TurnClient) -> Self {
        let now = Instant::now();
        Self {
            parts,
            client,
            ask: None,
            last_ask: 0,
            giving: None,
            seen: 0,
            gives: 0,
            heard_at: now,
            reported_at: now,
            has_news: false,
            short: 0,
            given: 0,
            is_told: false,
            look_at: None,
            rest_at: now,
            backoff: RETRY.0,
        }
    }

    fn run(mut self) {
        while !process::exiting() && !process::forked() {
            self.look_at = None;
            self.connect();
            self.hear();
            self.give();
            self.want();
            self.stand_aside();
            self.report();
            self.show();
            self.wait();
        }
    }

    fn state(&self) -> TurnState {
        self.parts.paused.pauses.turn_state()
    }

    fn connect(&mut self) {
        if self.client.is_connected() {
            return;
        }
        match self.client.connect() {
            Some(Ok(())) => {
                log::info!("takes turns with other processes");
                // This broker numbers its orders from one on.
                (self.seen, self.gives, self.has_news) = (0, 0, true);
                self.parts.turns.lock().is_alone = false;
            }
            Some(Err(error)) => {
                let level = if self.is_told { log::Level::Info } else { log::Level::Warn };
                log::log!(level, "takes no turns with other processes: {error}");
                self.is_told = true;
            }
            None => {}
        }
    }

    /// No other process gives way now. What has no room lies on the host.
    fn be_alone(&mut self, why: &dyn std::fmt::Display) {
        log::info!("the broker of turns is lost: {why}");
        self.client.lose();
        let mut book = self.parts.turns.lock();
        book.is_alone = true;
        book.end_ask();
        drop(book);
        self.parts.turns.told.notify_all();
        self.ask = None;
        self.giving = self.giving.take().filter(Giving::is_leaving);
    }

    fn hear(&mut self) {
        while self.client.is_connected() {
            match self.client.order() {
                Ok(Some(order)) => self.obey(order),
                Ok(None) => break,
                Err(error) => self.be_alone(&error),
            }
        }
        let is_waiting = self.client.is_connected() && self.ask.is_some();
        if is_waiting && self.heard_at.elapsed() > PATIENCE {
            self.be_alone(&"it does not answer");
        }
    }

    fn obey(&mut self, TurnOrder { number, task }: TurnOrder) {
        self.heard_at = Instant::now();
        if !matches!(task, TurnTask::Wait | TurnTask::Come { .. }) {
            (self.seen, self.has_news) = (number, true);
        }
        match task {
            TurnTask::Wait | TurnTask::Report => {}
            TurnTask::GiveWay { after, bytes } => {
                self.gives = number;
                self.stop_coming();
                self.giving = Some(Giving::begin(self.parts, after, &bytes));
            }
            TurnTask::Stay => self.giving = self.giving.take().filter(Giving::is_leaving),
            TurnTask::Come { ask: 0, .. } => self.refill(),
            TurnTask::Come { ask, is_last } => {
                if self.ask.is_some_and(|open| open.number == ask) {
                    self.parts.turns.lock().tell_room(number, is_last);
                    self.parts.turns.told.notify_all();
                }
            }
        }
    }

    /// One that comes gives way only if the broker has given it up, as after a stop: then it comes
    /// no further, for it would wait for those that wait for it.
    fn stop_coming(&self) {
        self.parts.turns.lock().end_room();
        self.parts.turns.told.notify_all();
    }

    /// A neighbour has ended: what an earlier resume left on the host may have room now.
    fn refill(&self) {
        if self.state().phase == PausePhase::Running {
            let _asked = Pauses::resume(self.parts.paused);
        }
    }

    fn give(&mut self) {
        let Some(giving) = &mut self.giving else { return };
        match giving.go_on(self.parts) {
            GivingNext::Wait(time) => self.look_at = time.map(|time| Instant::now() + time),
            GivingNext::Over => {
                (self.giving, self.has_news) = (None, true);
                let mut book = self.parts.turns.lock();
                let given = book.given.sum();
                book.figures.gave_way += u64::from(given > 0);
                book.figures.given_bytes = given;
            }
        }
    }

    /// Does the program wait for memory?
    fn is_wanting(&self, state: TurnState) -> bool {
        let has_requests = self.parts.turns.lock().unanswered().next().is_some();
        match state.phase {
            PausePhase::Running => has_requests,
            PausePhase::Paused => state.is_for_others && (has_requests || GATE.is_awaited()),
            PausePhase::Pausing => self.ask.is_some() && has_requests,
            PausePhase::Resuming => self.ask.is_some(),
        }
    }

    fn want(&mut self) {
        let state = self.state();
        match self.ask {
            None if self.is_wanting(state) && self.client.is_connected() => self.begin_ask(),
            None if self.is_wanting(state) => self.go_on_alone(state),
            None => {}
            Some(open) => {
                self.come(state);
                if !self.is_wanting(self.state()) {
                    self.end_ask(open);
                }
            }
        }
    }

    fn begin_ask(&mut self) {
        self.last_ask += 1;
        let now = Instant::now();
        self.ask = Some(OpenAsk { number: self.last_ask, since: now });
        (self.heard_at, self.has_news) = (now, true);
        self.parts.turns.lock().begin_ask();
    }

    fn end_ask(&mut self, open: OpenAsk) {
        (self.ask, self.has_news) = (None, true);
        if !self.state().has_rest {
            self.backoff = RETRY.0;
        }
        self.rest_at = Instant::now() + self.backoff;
        let mut book = self.parts.turns.lock();
        book.end_ask();
        let waited = open.since.elapsed().as_secs_f64();
        book.figures.asks += 1;
        book.figures.wait_s = waited;
        book.figures.longest_wait_s = book.figures.longest_wait_s.max(waited);
    }

    /// Memory that found no room when the process was let in lies on the host, and its calls go on.
    /// After a while they wait once more, and the next one asks again.
    fn stand_aside(&mut self) {
        let state = self.state();
        let is_busy = self.ask.is_some() || self.giving.is_some() || state.is_working;
        if is_busy || !state.has_rest || state.phase != PausePhase::Running || !self.client.is_connected() {
            return;
        }
        let now = Instant::now();
        if now >= self.rest_at {
            self.rest_at = now + self.backoff;
            if GATE.since_last_call() < RESTING {
                self.backoff = (self.backoff * 2).min(RETRY.1);
                let _asked = Pauses::give_way(self.parts.paused, Vec::new());
            }
        }
        self.look_at = Some(self.look_at.unwrap_or(self.rest_at).min(self.rest_at));
    }

    /// Takes the room that there is.
    fn come(&mut self, state: TurnState) {
        if !self.parts.turns.lock().is_let_in() {
            return;
        }
        match state.phase {
            PausePhase::Paused if !state.is_working => {
                let _asked = Pauses::resume(self.parts.paused);
            }
            PausePhase::Running => self.answer_requests(),
            _ => {}
        }
    }

    fn go_on_alone(&mut self, state: TurnState) {
        if state.phase == PausePhase::Paused {
            let _asked = Pauses::resume(self.parts.paused);
        } else {
            self.answer_requests();
        }
    }

    /// Threads that wait for memory hear whether there is some, as soon as that is known.
    fn answer_requests(&self) {
        let mut rooms: Vec<_> =
            registry::all().map(|manager| (manager.gpu().ordinal(), manager.device_room())).collect();
        let mut book = self.parts.turns.lock();
        let is_known = book.room.is_last || book.is_alone;
        for request in book.unanswered() {
            let room = rooms.iter_mut().find(|(device, _)| *device == request.device);
            let fits = room.is_some_and(|(_, room)| {
                let fits = request.bytes <= *room;
                *room = room.saturating_sub(request.bytes);
                fits
            });
            if fits || is_known {
                request.answer = Some(fits);
            }
        }
        if book.unanswered().next().is_some() {
            book.is_short();
        }
        drop(book);
        self.parts.turns.told.notify_all();
    }

    fn is_speaking(&self) -> bool {
        self.ask.is_some() || self.giving.is_some()
    }

    fn report(&mut self) {
        let is_due = self.is_speaking() && self.reported_at.elapsed() >= HEARTBEAT;
        let book = self.parts.turns.lock();
        let (short, given) = (book.short(), book.given.sum());
        drop(book);
        // The process that asks brings its memory as this one's leaves: what it can take is told at
        // once.
        let has_news = self.has_news || (short, given) != (self.short, self.given);
        if !self.client.is_connected() || !has_news && !is_due {
            return;
        }
        (self.has_news, self.short, self.given) = (false, short, given);
        self.reported_at = Instant::now();
        let report = self.told();
        if let Err(error) = self.client.report(&report) {
            self.be_alone(&error);
        }
    }

    fn told(&self) -> TurnReport {
        let state = self.state();
        let book = self.parts.turns.lock();
        let (moved, short) = (book.moved, book.short());
        let (requested, given) = (book.requested(), book.given.clone());
        drop(book);
        TurnReport {
            done: if self.giving.is_none() { self.seen } else { 0 },
            giving: self.gives,
            ask: self.ask.map_or(0, |open| open.number),
            phase: phase(state),
            idle: GATE.since_last_call(),
            moved,
            short: if self.ask.is_some() { short } else { 0 },
            gpus: holdings::all(self.parts.paused.pauses, &requested, &given),
        }
    }

    fn show(&self) {
        let state = self.state();
        let is_paused = state.phase != PausePhase::Running && !state.is_for_others;
        let state = match phase(state) {
            _ if is_paused => "paused",
            TurnPhase::Away if self.ask.is_some() => "waiting",
            TurnPhase::Running if self.ask.is_some() => "waiting",
            TurnPhase::Running if self.giving.is_some() => "asked",
            TurnPhase::Running => "running",
            TurnPhase::Leaving => "giving way",
            TurnPhase::Away => "away",
            TurnPhase::Coming => "coming",
        };
        let mut book = self.parts.turns.lock();
        book.figures.has_broker = !book.is_alone;
        if book.figures.state != state {
            book.figures.state = state.to_owned();
        }
    }

    /// Waits for an event, or until something is due.
    fn wait(&self) {
        let now = Instant::now();
        let beat = self.is_speaking().then(|| self.reported_at + HEARTBEAT);
        let retry = self.client.retry_at().filter(|_| !self.client.is_connected());
        let due = beat.into_iter().chain(retry).chain(self.look_at).min();
        // An event that was lost delays nothing for longer.
        let left = due.map_or(HEARTBEAT * 100, |due| due.saturating_duration_since(now));
        let Some(wake) = self.parts.turns.wake.get() else { return };
        let Some(reader) = wake.reader() else {
            // The program has closed the pipe.
            let book = self.parts.turns.lock();
            let _book = self.parts.turns.told.wait_timeout(book, left.min(HEARTBEAT));
            return;
        };
        await_events([Some(reader), self.client.socket()], left);
        wake.drain();
    }
}

fn await_events(sources: [Option<BorrowedFd<'_>>; 2], limit: Duration) {
    let sources = sources.into_iter().flatten();
    let mut entries: Vec<_> = sources.map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN)).collect();
    // A wait that ends a millisecond late saves a round just before the moment.
    let limit = limit + Duration::from_millis(1);
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    let _interrupted = poll(&mut entries, Some(&limit));
}

fn phase(state: TurnState) -> TurnPhase {
    match state.phase {
        PausePhase::Running => TurnPhase::Running,
        PausePhase::Pausing => TurnPhase::Leaving,
        PausePhase::Paused if state.is_working => TurnPhase::Leaving,
        PausePhase::Paused => TurnPhase::Away,
        PausePhase::Resuming => TurnPhase::Coming,
    }
}
