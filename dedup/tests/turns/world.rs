//! Programs on one GPU that take turns by a table, millisecond by millisecond. A program does what
//! the library does in its process.

use std::time::Duration;

use wm_dedup::turns::message::{GpuUse, TurnOrder, TurnPhase, TurnReport, TurnTask};
use wm_dedup::turns::pace::{self, GivingPace};
use wm_dedup::turns::{HEARTBEAT, MemberNumber, TurnTable};

const GPU: [u8; 16] = [1; 16];

/// Units of memory that move in a millisecond, in each direction.
const RATE: u64 = 10;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Doing {
    Launches,
    /// It launches for `long` of each `each` milliseconds.
    Bursts {
        each: u64,
        long: u64,
        first: u64,
    },
    Nothing,
}

impl Doing {
    fn launches_at(self, now: u64) -> bool {
        match self {
            Self::Launches => true,
            Self::Bursts { each, long, first } => now >= first && (now - first) % each < long,
            Self::Nothing => false,
        }
    }
}

#[derive(Debug)]
struct Giving {
    until: u64,
    bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Program {
    number: MemberNumber,
    size: u64,
    present: u64,
    phase: TurnPhase,
    launched: u64,
    giving: Option<Giving>,
    /// The last order to give way or to say something.
    seen: u64,
    report: TurnReport,
    given: u64,
    reported: u64,
    asked_at: u64,
    is_last: bool,
    /// The last order to come.
    come: u64,
    /// A call waits for its memory.
    is_waiting: bool,
    pub(crate) doing: Doing,
    pub(crate) is_stopped: bool,
    pub(crate) was_stopped: bool,
    pub(crate) is_dead: bool,
    /// Milliseconds in which it launched.
    pub(crate) ran: u64,
    pub(crate) asks_ended: u64,
    pub(crate) longest_wait: u64,
    now: u64,
}

pub(crate) struct World {
    pub(crate) table: TurnTable,
    pub(crate) programs: Vec<Program>,
    pub(crate) problems: Vec<String>,
    capacity: u64,
    now: u64,
}

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

impl World {
    /// All programs begin without memory on the GPU.
    pub(crate) fn new(capacity: u64, programs: impl IntoIterator<Item = (u64, Doing)>) -> Self {
        let mut table = TurnTable::default();
        let programs = programs.into_iter().map(|(size, doing)| Program {
            number: table.join(at(0)),
            size,
            present: 0,
            phase: TurnPhase::Away,
            launched: 0,
            giving: None,
            seen: 0,
            report: TurnReport::default(),
            given: 0,
            reported: 0,
            asked_at: 0,
            is_last: false,
            come: 0,
            is_waiting: false,
            doing,
            is_stopped: false,
            was_stopped: false,
            is_dead: false,
            ran: 0,
            asks_ended: 0,
            longest_wait: 0,
            now: 0,
        });
        let programs = programs.collect();
        Self { table, programs, problems: Vec::new(), capacity, now: 0 }
    }

    fn free(&self) -> u64 {
        let present: u64 = self.programs.iter().map(|program| program.present).sum();
        self.capacity - present
    }

    pub(crate) fn run(&mut self, milliseconds: u64) {
        self.run_until(self.now + milliseconds);
    }

    pub(crate) fn run_until(&mut self, end: u64) {
        while self.now < end {
            self.step();
            self.now += 1;
        }
    }

    /// The system ends its connection and frees its memory.
    pub(crate) fn kill(&mut self, index: usize) {
        let program = &mut self.programs[index];
        (program.is_dead, program.present, program.is_waiting) = (true, 0, false);
        self.table.gone(program.number, at(self.now));
    }

    fn step(&mut self) {
        for index in 0..self.programs.len() {
            let free = self.free();
            let program = &mut self.programs[index];
            program.now = self.now;
            if program.is_stopped || program.is_dead {
                continue;
            }
            let mut is_news = false;
            while let Some(order) = self.table.take_order(program.number) {
                is_news |= !matches!(order.task, TurnTask::Wait | TurnTask::Come { .. });
                program.obey(order, free, self.now, &mut self.problems);
            }
            is_news |= program.step(free, self.now);
            let has_to_speak = program.report.ask > 0 || program.giving.is_some();
            let is_due = has_to_speak && self.now >= program.reported + HEARTBEAT.as_millis() as u64;
            if is_news || is_due {
                let report = program.told(free, self.now);
                self.table.report(program.number, report, at(self.now));
            }
        }
        if self.table.next_due().is_some_and(|due| due <= at(self.now)) {
            self.table.tick(at(self.now));
            if self.table.next_due().is_some_and(|due| due <= at(self.now)) {
                self.problems.push(format!("{} ms: a deadline stays", self.now));
            }
        }
    }
}

impl Program {
    fn missing(&self) -> u64 {
        self.size - self.present
    }

    /// How long the ask has waited that is under way.
    pub(crate) fn waits(&self) -> u64 {
        if self.is_waiting { self.now - self.asked_at } else { 0 }
    }

    fn told(&mut self, free: u64, now: u64) -> TurnReport {
        self.reported = now;
        if self.giving.is_none() {
            self.report.done = self.seen;
        }
        let gpus = vec![GpuUse {
            gpu: GPU,
            present: self.present,
            missing: self.missing(),
            free,
            given: self.given,
        }];
        TurnReport { phase: self.phase, idle: at(now - self.launched), gpus, ..self.report.clone() }
    }

    fn obey(&mut self, order: TurnOrder, free: u64, now: u64, problems: &mut Vec<String>) {
        match order.task {
            TurnTask::Wait => {}
            TurnTask::Report => self.seen = order.number,
            TurnTask::GiveWay { after, bytes } => {
                let bytes = bytes[0].1;
                // The broker knows what one that was stopped had when it reported last.
                if bytes > self.present && !self.was_stopped || bytes == 0 {
                    problems.push(format!("{now} ms: {bytes} of {} with {free} free", self.present));
                }
                if self.phase == TurnPhase::Coming {
                    // The broker has not heard from it for long.
                    self.is_last = true;
                    if !self.was_stopped {
                        problems.push(format!("{now} ms: one that comes gives way"));
                    }
                }
                (self.given, self.report.giving, self.report.moved) = (0, order.number, Duration::ZERO);
                self.seen = order.number;
                self.giving = Some(Giving { until: now + after.as_millis() as u64, bytes });
            }
            TurnTask::Stay => {
                self.seen = order.number;
                if self.phase != TurnPhase::Leaving {
                    self.giving = None;
                }
            }
            TurnTask::Come { ask, is_last } if ask == self.report.ask && ask > 0 => {
                (self.is_last, self.come) = (is_last, order.number);
                if self.phase == TurnPhase::Away && self.giving.is_none() {
                    self.phase = TurnPhase::Coming;
                    self.report.moved = Duration::ZERO;
                }
            }
            TurnTask::Come { .. } => {}
        }
    }

    /// One millisecond. `true`: the broker is to hear of it.
    fn step(&mut self, free: u64, now: u64) -> bool {
        let mut is_news = false;
        if let Some(Giving { until, .. }) = self.giving
            && matches!(self.phase, TurnPhase::Running | TurnPhase::Away)
        {
            let left = if self.phase == TurnPhase::Away { 0 } else { until.saturating_sub(now) };
            if pace::of(at(left), at(now - self.launched), || false) == GivingPace::Now {
                self.phase = TurnPhase::Leaving;
                is_news = true;
            }
        }
        match self.phase {
            TurnPhase::Leaving => is_news |= self.leave(),
            TurnPhase::Coming => is_news |= self.come(free, now),
            TurnPhase::Running | TurnPhase::Away => {}
        }
        if self.doing.launches_at(now) {
            is_news |= self.launch(now);
        }
        is_news
    }

    fn leave(&mut self) -> bool {
        let Some(Giving { bytes, .. }) = self.giving else { return false };
        let part = RATE.min(self.present).min(bytes - self.given);
        (self.present, self.given) = (self.present - part, self.given + part);
        self.report.moved += at(1);
        if self.given == bytes || self.present == 0 {
            self.phase = TurnPhase::Away;
            self.giving = None;
            return true;
        }
        self.given.is_multiple_of(8 * RATE)
    }

    fn come(&mut self, free: u64, now: u64) -> bool {
        let part = RATE.min(self.missing()).min(free);
        self.present += part;
        self.report.moved += at(u64::from(part > 0));
        if self.missing() == 0 || self.is_last && part == 0 {
            self.phase = TurnPhase::Running;
            (self.report.ask, self.report.short, self.is_last) = (0, 0, false);
            (self.is_waiting, self.asks_ended) = (false, self.asks_ended + 1);
            self.longest_wait = self.longest_wait.max(now - self.asked_at);
            return true;
        }
        // It takes what is free before it says that it lacks more.
        let short = if part == 0 { self.come } else { 0 };
        std::mem::replace(&mut self.report.short, short) != short
    }

    fn launch(&mut self, now: u64) -> bool {
        if self.phase == TurnPhase::Running {
            (self.launched, self.ran) = (now, self.ran + 1);
            return false;
        }
        if std::mem::replace(&mut self.is_waiting, true) {
            return false;
        }
        self.asked_at = now;
        self.report.ask = self.asks_ended + 1;
        true
    }
}
