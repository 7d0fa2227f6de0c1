//! Which way of placing memory is the fastest for this program: each is measured.
//!
//! A program that repeats itself has a pace, the time of an event averaged over whole periods. The
//! cost of a way is the program's pace with it, with all waits and copies. Reading memory over the
//! link once costs as much as its move, if the kernel reads as fast as the link carries. Some
//! kernels do not: one that gathers rows, or multiplies large matrices, reads the same bytes many
//! times. The driver does not tell which kernel is of that kind, so no rule is better than the
//! measurement.
//!
//! | way | what moves |
//! |---|---|
//! | [`Way::Leave`] | nothing, and no call waits |
//! | [`Way::Arrange`] | at waits of the host, blocks that are used often, in place of others; no call waits |
//! | [`Way::Follow`] | blocks that are used much sooner than those that leave for them |
//! | [`Way::Bring`] | each block of a kernel, before the kernel |
//!
//! Until a way is measured blocks are brought, since that is seldom much slower than another way,
//! and often many times faster. A *careful* trial arranges them, which costs no wait, and tries a
//! way that moves memory only where the program is so slow that this promises a gain. A measurement
//! begins and ends at a wait of the host, where a step of most programs ends. It ends early where
//! it has become slower than the best way, so a trial costs little more than a period of the best.
//! None begins while memory of the host is still being made, or while the chosen way becomes
//! faster. Between two measurements of a way that moves nothing at launches there is a recess, in
//! which launches are not recorded. Invariant: while the waits of a trial are not earned
//! ([`super::wait_budget`]), calls wait within their share.
//!
//! A plain value: time, events and credit are told.

mod costs;
mod recess;
mod shown;
mod steady;
mod way;

use std::time::Duration;

use smallvec::SmallVec;

use super::wait_budget::{WAIT, WaitWorth, link_time};
use costs::WayCosts;
use recess::Recess;
use steady::SteadyPeriod;
pub(super) use way::Way;
use way::{CAREFUL_WAYS, WAYS};

/// Events that a measurement takes at least.
const EVENTS: u64 = 64;

/// Events between two looks at the clock while a way is tried.
const LOOK: u64 = 16;

/// A measurement ends after so many times the best way's time; while memory comes to lie as the way
/// has it, after so many.
const OVERDUE: f64 = 1.1;
const UNSETTLED: f64 = 3.0;

/// Within a step it goes on for so many times longer: behind kernels that were submitted ahead, and
/// read memory from the host, no wait of the next way would end in time until the step is over.
const MID_STEP: f64 = 1.5;

/// A measurement takes this time, where the program does not repeat itself, and events up to these.
const WINDOW: Duration = Duration::from_secs(2);
const LONGEST_WINDOW: u64 = 1 << 15;

/// The first measurement of such a program begins after this time: the first steps of a training,
/// in which memory of the host is made, pass before it is seen to repeat itself.
const UNTOLD: Duration = Duration::from_secs(8);

/// The same of a careful trial, which goes on with the way of those steps, and then takes a recess.
const CAREFUL_UNTOLD: Duration = Duration::from_secs(3);

/// Memory of the host is still being made while one part in so many more lies there than at the
/// begin. A careful trial does not begin then, for that time at most.
const GROWN_PART: u64 = 16;
const LONGEST_UNTOLD: Duration = Duration::from_secs(60);

/// A measurement ends without a wait of the host after so many times its events.
const UNALIGNED: u64 = 8;

/// A trial begins with credit for waits of one part in so many of a period.
const EARNED: u32 = 8;

/// Each trial that used it up doubles it so many times for the next one.
const STARVED: u32 = 2;

/// Credit that is enough for a trial of any program.
const ENOUGH: Duration = Duration::from_secs(2);

/// Waits that brought moves, in a measurement of a way that makes them.
const WAITS: u32 = 4;

/// Waits that brought moves, in the first steps, after which bringing is worth another trial.
const PROVEN: u32 = 2 * WAITS;

/// Periods in which there were fewer: then they gain nothing.
const TOO_FEW: u64 = 4;

/// A way that moves memory is tried where the best way takes so many times as long as all that is
/// on the host takes to come, and as much to leave.
const PROMISE: f64 = 1.5;

/// Where blocks that changed places have made the program faster than so many times its first
/// steps, or are used less from the host, the places before are tried last.
const GAINED: f64 = 0.8;

/// Periods of the best way before another one is tried again; twice as many after each vain trial,
/// and in any case so many times as long as the trial took.
const REST: u32 = 4;
const LONGEST_REST: u32 = 256;
const REST_OF_TRIAL: u32 = 48;

/// The first pace of a way that is the best one's divided by that, or less, is measured twice: a
/// burst of allocations passes for events.
const DOUBTFUL: f64 = 2.0;

/// How far the program has come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TrialClock {
    pub(super) event: u64,
    pub(super) time: Duration,
    /// Waits of the host for its own work so far.
    pub(super) host_waits: u64,
    /// The time that waits may take by now.
    pub(super) credit: Duration,
    /// Events of a period that is believed, as the kernels tell.
    pub(super) rhythm: Option<u64>,
    /// Bytes that are not on the device.
    pub(super) elsewhere: u64,
    /// Bytes that launches have used from the host so far.
    pub(super) host_bytes: u64,
    /// Blocks have changed places since they were allocated.
    pub(super) is_arranged: bool,
    /// So launches use less from the host, as far as is known.
    pub(super) reads_less: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    /// No way was measured.
    #[default]
    Untold,
    /// The program still finds its memory as another way has left it.
    Settling(Way),
    Measuring(Way),
    /// The best of those that were measured. A number of periods goes by until the next trial.
    Chosen(Way, u32),
}

/// See above.
#[derive(Debug, Default)]
pub(super) struct WayTrial {
    /// Nothing moves at launches until it was measured what it costs to leave memory in place.
    is_careful: bool,
    phase: Phase,
    begin: TrialClock,
    looked: TrialClock,
    period: SteadyPeriod,
    /// No period is believed at present.
    is_rough: bool,
    /// Trials in a row that used their waits up before anything was measured.
    starved: u32,
    /// Waits that brought moves, since the begin.
    waits: u32,
    costs: WayCosts,
    /// Seconds of an event before any way was measured, and of a period.
    first: f64,
    step: f64,
    /// The cost of [`Way::Bring`] is that of the program's first steps, in which memory of the host
    /// was made.
    is_provisional: bool,
    trials: usize,
    /// Trials in a row that brought nothing.
    vain: u32,
    /// The way that was chosen before the present or the last trial.
    before: Option<Way>,
    /// When the present or the last trial began, and when the next one may.
    trial_since: Duration,
    rests_until: Duration,
    /// The pace of a measurement that was too good to be believed.
    doubted: Option<f64>,
    recess: Recess,
}

impl WayTrial {
    /// Nothing is measured yet.
    pub(super) fn new(is_careful: bool) -> Self {
        Self { is_careful, ..Self::default() }
    }

    /// Is new memory placed as without moves?
    pub(super) fn leaves_in_place(&self) -> bool {
        self.is_careful && !self.way().moves_at_launches()
    }

    /// The way that is chosen, if none is tried.
    pub(super) fn chosen(&self) -> Option<Way> {
        match self.phase {
            Phase::Chosen(way, _) => Some(way),
            Phase::Untold | Phase::Settling(_) | Phase::Measuring(_) => None,
        }
    }

    /// Do blocks change places at waits of the host?
    pub(super) fn arranges(&self) -> bool {
        self.way() == Way::Arrange
    }

    /// In the order of trials.
    fn ways(&self) -> &'static [Way] {
        if self.is_careful { &CAREFUL_WAYS } else { &WAYS }
    }

    pub(super) fn worth(&self) -> WaitWorth {
        match self.phase {
            Phase::Untold if self.is_careful => WaitWorth::Costs,
            Phase::Untold => WaitWorth::Unknown,
            Phase::Settling(way) | Phase::Measuring(way) | Phase::Chosen(way, _)
                if !way.moves_at_launches() =>
            {
                WaitWorth::Costs
            }
            Phase::Chosen(..) if self.cost(Way::Leave).is_some() => WaitWorth::Pays,
            Phase::Settling(_) | Phase::Measuring(_) | Phase::Chosen(..) => WaitWorth::Trial,
        }
    }

    /// The way of the moment.
    pub(super) fn way(&self) -> Way {
        match self.phase {
            Phase::Untold if self.is_careful => Way::Arrange,
            Phase::Untold => Way::Bring,
            Phase::Settling(way) | Phase::Measuring(way) | Phase::Chosen(way, _) => way,
        }
    }

    /// Is memory arranged at the host's own waits, for a program that goes on without others? What
    /// it uses often is to be on the device then.
    pub(super) fn is_arranging(&self) -> bool {
        self.phase == Phase::Settling(Way::Leave)
    }

    /// The best way, and the one that is tried in its place, where a careful trial begins and the
    /// best moves nothing at launches.
    pub(super) fn beside_best(&self) -> Option<(Way, Way)> {
        let (Phase::Settling(tried), best) = (self.phase, self.best().0) else { return None };
        (self.is_careful && tried != best && !best.moves_at_launches()).then_some((best, tried))
    }

    /// For how long launches need not be recorded from now on, if that has just begun.
    pub(super) fn take_recess(&mut self) -> Option<Duration> {
        self.recess.take()
    }

    /// Launches are recorded again.
    pub(super) fn resume(&mut self, now: TrialClock) {
        (self.begin, self.looked, self.period) = (now, now, SteadyPeriod::default());
    }

    /// A wait has brought moves.
    pub(super) fn count_wait(&mut self) {
        self.waits += 1;
    }

    /// An event; `period`: the events of a period, if the program repeats itself. Returns whether
    /// a trial has begun or ended.
    #[inline]
    pub(super) fn record(
        &mut self,
        event: u64,
        period: Option<u64>,
        clock: impl FnOnce() -> TrialClock,
    ) -> bool {
        event - self.looked.event >= LOOK && {
            let (before, now) = (self.phase, clock());
            let period = self.period.at(event, period).or(now.rhythm);
            let untold = if self.is_careful { CAREFUL_UNTOLD } else { UNTOLD };
            let may_begin = period.is_some() || now.time >= untold;
            self.note_step(period, now);
            self.is_rough = period.is_none();
            self.look(period.unwrap_or_else(|| window(now)).max(EVENTS), may_begin, now);
            before != self.phase
        }
    }

    /// Where no period is known, a step has at least one wait of the host, and uses at least what
    /// is on the host.
    fn note_step(&mut self, period: Option<u64>, now: TrialClock) {
        let since = now.time.saturating_sub(self.begin.time).as_secs_f64();
        let waits = (now.host_waits - self.begin.host_waits) as f64;
        let uses = (now.host_bytes - self.begin.host_bytes) as f64 / now.elsewhere.max(1) as f64;
        let steps = [waits, uses].into_iter().filter(|most| *most >= 1.0).reduce(f64::min);
        match (period, steps) {
            (Some(period), _) => self.step = self.best().1.min(self.pace(now)) * period as f64,
            (None, Some(steps)) => self.step = since / steps,
            (None, None) => {}
        }
    }

    /// `length`: events of a measurement; `may_begin`: the first one may.
    fn look(&mut self, length: u64, may_begin: bool, now: TrialClock) {
        let events = now.event - self.begin.event;
        let is_step = now.host_waits != self.looked.host_waits;
        let is_whole = events >= length && (is_step || events >= UNALIGNED * length);
        self.looked = now;
        match self.phase {
            Phase::Untold if is_whole && may_begin && self.has_grown(now) => self.begin = now,
            Phase::Untold if is_whole && may_begin => self.begin_trials(now, length),
            Phase::Settling(way) => self.look_at_trial(way, now, length, (is_step, is_whole)),
            Phase::Measuring(way) => {
                let length = length.saturating_mul(self.costs.periods().into());
                self.look_at_trial(way, now, length, (is_step, is_whole && events >= length));
            }
            Phase::Chosen(way, rest) if is_whole => {
                let (pace, took) = (self.pace(now), now.time - self.begin.time);
                self.costs.note(way, pace, self.is_rough);
                self.is_provisional &= way != Way::Bring;
                self.recess.measured(took, self.is_rough);
                self.rest(way, rest, now, length);
                let rests = self.is_careful && is_step && !way.moves_at_launches();
                if !rests || self.chosen() != Some(way) || !self.costs.is_level() {
                    self.recess.cancel();
                }
            }
            Phase::Untold | Phase::Chosen(..) => {}
        }
    }

    /// Has a careful trial to wait for the program's memory?
    fn has_grown(&self, now: TrialClock) -> bool {
        let before = self.begin.elsewhere;
        self.is_careful && now.elsewhere > before + before / GROWN_PART && now.time < LONGEST_UNTOLD
    }

    /// A period is known, or the program has run for some time: its pace stands for
    /// [`Way::Bring`] until that is measured. A careful trial begins with [`Way::Arrange`].
    fn begin_trials(&mut self, now: TrialClock, length: u64) {
        (self.first, self.trial_since) = (self.pace(now), now.time);
        if self.is_careful {
            // The steps so far have made memory of the host, and blocks have changed places.
            return self.start(Phase::Measuring(Way::Arrange), now);
        }
        self.set_cost(Way::Bring, self.first);
        // Where hardly a wait found the GPU idle, none of a trial would.
        self.is_provisional = self.waits >= PROVEN;
        let is_earned = self.is_earned(now, length);
        self.start(Phase::Settling(if is_earned { Way::Bring } else { Way::Leave }), now);
    }

    /// A way is tried, or measured.
    fn look_at_trial(&mut self, way: Way, now: TrialClock, length: u64, (is_step, is_whole): (bool, bool)) {
        let events = now.event - self.begin.event;
        let is_settling = matches!(self.phase, Phase::Settling(_));
        if way.moves_at_launches() && now.credit < WAIT {
            // Its waits are used up, so what comes now would not be its cost.
            self.starved += 1;
            return self.start(Phase::Chosen(self.best().0, 1), now);
        }
        let least = length.max(events) as f64;
        let taken = (now.time - self.begin.time).as_secs_f64();
        let is_vain = way.moves_at_launches() && self.waits < WAITS;
        // Where hardly anything moves in a period, memory does not come to lie as the way has it.
        let is_unsettled = is_settling && !(is_vain && events > length);
        let most = self.best().1 * least * if is_unsettled { UNSETTLED } else { OVERDUE };
        if taken > if is_step { most } else { MID_STEP * most } {
            self.set_cost(way, taken / least);
            return self.choose(now);
        }
        if !is_whole || is_vain && events < TOO_FEW * length {
            return;
        }
        if is_settling && !is_vain {
            return self.start(Phase::Measuring(way), now);
        }
        let pace = self.pace(now);
        let known = self.best().1;
        if self.doubted.is_none() && known.is_finite() && DOUBTFUL * pace < known {
            self.doubted = Some(pace);
            (self.begin, self.waits) = (now, 0);
            return;
        }
        self.set_cost(way, self.doubted.map_or(pace, |before| before.max(pace)));
        self.choose(now);
    }

    /// A trial is over: the best way goes on.
    fn choose(&mut self, now: TrialClock) {
        let (tried, best) = (self.way(), self.costs.best_beside(self.ways(), self.before));
        self.starved = 0;
        self.vain = if best == tried { 0 } else { self.vain + 1 };
        self.rests_until = now.time + (now.time - self.trial_since).saturating_mul(REST_OF_TRIAL);
        self.start(Phase::Chosen(best, self.vain_rest()), now);
    }

    fn vain_rest(&self) -> u32 {
        (REST << self.vain.saturating_sub(1).min(10)).min(LONGEST_REST)
    }

    /// A period of the best way is over. The next trial is at once if a way was never measured.
    fn rest(&mut self, way: Way, rest: u32, now: TrialClock, length: u64) {
        if let Some(best) = self.costs.much_better(self.ways(), way) {
            // It has become slower. Perhaps the whole program has, or its trial met an easy part.
            self.vain += 1;
            return self.try_way(best, way, now, length);
        }
        // That it promises a gain may be known since a moment ago.
        let is_new = self.untried(now).is_some();
        let rests = !is_new && (rest > 1 || now.time < self.rests_until);
        if rests || !self.costs.is_level() {
            return self.start(Phase::Chosen(way, rest.saturating_sub(1).max(1)), now);
        }
        match self.untried(now).or_else(|| self.other(now)) {
            Some(next) => self.try_way(next, way, now, length),
            None => self.start(Phase::Chosen(way, REST), now),
        }
    }

    /// A way is tried beside the chosen one, if its waits are earned.
    fn try_way(&mut self, next: Way, chosen: Way, now: TrialClock, length: u64) {
        self.before = Some(chosen);
        let may_begin = !next.moves_at_launches() || self.is_earned(now, length);
        self.start(if may_begin { Phase::Settling(next) } else { Phase::Chosen(chosen, 1) }, now);
    }

    fn start(&mut self, phase: Phase, now: TrialClock) {
        self.trials += usize::from(matches!(phase, Phase::Measuring(_)));
        if matches!(phase, Phase::Settling(_)) {
            self.trial_since = now.time;
        }
        (self.phase, self.begin, self.waits, self.doubted) = (phase, now, 0, None);
    }

    /// Are the waits of a trial earned?
    fn is_earned(&self, now: TrialClock, length: u64) -> bool {
        let least = Duration::from_secs_f64(self.best().1.min(1e3) * length as f64) / EARNED;
        let doubled = (self.vain + STARVED * self.starved).min(8);
        now.credit >= least.saturating_mul(1 << doubled).min(ENOUGH)
    }

    fn pace(&self, now: TrialClock) -> f64 {
        (now.time - self.begin.time).as_secs_f64() / (now.event - self.begin.event).max(1) as f64
    }

    fn cost(&self, way: Way) -> Option<f64> {
        self.costs.of(way)
    }

    fn best(&self) -> (Way, f64) {
        self.costs.best(self.ways())
    }

    fn set_cost(&mut self, way: Way, cost: f64) {
        self.is_provisional &= way != Way::Bring;
        self.costs.set(way, cost, self.is_rough);
    }

    fn untried(&self, now: TrialClock) -> Option<Way> {
        let has_gained = self.is_careful && (now.reads_less || self.best().1 <= GAINED * self.first);
        let is_untried = |way: Way| {
            self.cost(way).is_none() && !(has_gained && way == Way::Leave)
                || self.is_provisional && way == Way::Bring
        };
        let is_next = |way: &Way| is_untried(*way) && self.is_promising(*way, now);
        self.ways().iter().copied().find(is_next)
    }

    /// May a way be faster than the best one? Any may, where the trial is not careful.
    fn is_promising(&self, way: Way, now: TrialClock) -> bool {
        match way {
            _ if !self.is_careful => true,
            Way::Arrange => true,
            Way::Leave => now.is_arranged,
            Way::Follow | Way::Bring => {
                let moving = link_time(now.elsewhere.saturating_mul(2)).as_secs_f64();
                self.step >= PROMISE * moving
            }
        }
    }

    /// The ways that are not the best take turns.
    fn other(&self, now: TrialClock) -> Option<Way> {
        let is_other = |way: &Way| *way != self.way() && self.is_promising(*way, now);
        let others: SmallVec<[Way; 3]> = self.ways().iter().copied().filter(is_other).collect();
        (!others.is_empty()).then(|| others[self.trials % others.len()])
    }
}

/// The events of [`WINDOW`], at the pace so far.
fn window(now: TrialClock) -> u64 {
    let part = WINDOW.as_secs_f64() / now.time.as_secs_f64().max(WINDOW.as_secs_f64());
    ((now.event as f64 * part) as u64).min(LONGEST_WINDOW)
}

#[cfg(test)]
mod tests;
