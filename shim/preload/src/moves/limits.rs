//! Memory leaves a device until no more than its limit is held there, or comes back to it, because
//! an operator or the program asks for that.
//!
//! It is done in steps of bounded time ([`super::step`]). The caller repeats them, so no thread is
//! kept by a program with a busy GPU. The library's own waits for an idle GPU have a share of the
//! program's time ([`super::waits`]). Here others wait for the memory, so the gate is also closed
//! until the GPU has no work left ([`super::step_pace`]): the GPU has work meanwhile. It is not
//! done while the host may hold a stream.

use std::time::{Duration, Instant};

use wm_driver::thread::Uncancelled;
use wm_driver::{Device, Gpu, Tier, lock};
use wm_memory::{Block, LimitDescent, Manager, MoveOrder, MoveRefusal, RangeMove};

use super::leaving::{Leaver, count_for, sort};
use super::predictor::{SMALLEST, range_of};
use super::refusals::WhyNot;
use super::slices::SliceCost;
use super::step::{StepEnd, StepTerms};
use super::step_pace::StepPace;
use super::stops::SoleMover;
use super::wait_budget::{LOOK, WAIT};
use super::{Migrations, pin_reason};
use crate::gate::GATE;
use crate::process;

/// How long calls of the program wait for memory that moves after that. An operator waits for it,
/// and each slice waits for the GPU anew: in slices of 40 ms half of the time is waiting.
const CALLS: Duration = Duration::from_millis(150);

/// Free memory that stays, in words.
const UNUSED: &str = "it is free, and work may still be touching it";
/// Memory of the host that stays, in words.
const NO_ROOM: &str = "it lies on the host, and the device has no room for it";
/// Memory of `cuMemCreate` that stays, in words.
const PIECES: &str = "memory of cuMemCreate that does not move";

impl Migrations {
    /// One step towards the device's limit.
    pub(crate) fn step_to_limit(&self, manager: &Manager<Device>, terms: &StepTerms<'_>) -> StepEnd {
        let _whole = Uncancelled::new();
        let mut end = StepEnd::default();
        let excess = || manager.bytes_beyond_limit();
        let descent = manager.descend_to_limit();
        end.given += (terms.give_back)(descent.unused_beyond_limit());
        if excess() == 0 {
            return end;
        }
        if let Some(why) = self.forbids() {
            end.note(why.reason(), manager.live().device);
        } else if let Some(_mover) = SoleMover::begin(&self.is_moving) {
            manager.expect_moves();
            if self.is_migrating() {
                self.start_predictor(manager);
            }
            self.at_pace(|pace| self.let_leave(manager, terms, &mut end, (pace, &descent)));
        } else {
            end.goes_on = true;
        }
        if !end.goes_on {
            // No block leaves any more.
            end.given += (terms.give_back)(excess());
        }
        if excess() > 0 {
            note_others(manager, &mut end);
        }
        end
    }

    /// One step of bringing back what lies on the host, as far as there is room.
    pub(crate) fn step_home(&self, manager: &Manager<Device>, terms: &StepTerms<'_>) -> StepEnd {
        let _whole = Uncancelled::new();
        let mut end = StepEnd::default();
        if manager.movable_on_host() == 0 {
            return end;
        }
        if let Some(why) = self.forbids() {
            end.note(why.reason(), manager.live().host);
        } else if let Some(_mover) = SoleMover::begin(&self.is_moving) {
            self.at_pace(|pace| self.let_come(manager, terms, &mut end, pace));
        } else {
            end.goes_on = true;
        }
        end
    }

    /// Why nothing moves in this process, or not now.
    fn forbids(&self) -> Option<WhyNot> {
        if !self.is_on() {
            return Some(WhyNot::Off);
        }
        // Its memory has left the device, and the gate is another thread's.
        if GATE.is_kept() {
            return Some(WhyNot::Paused);
        }
        pin_reason::of_process().map(WhyNot::Pinned)
    }

    /// One step moves at a time.
    fn at_pace(&self, step: impl FnOnce(&mut StepPace)) {
        let mut pace = lock(&self.step_pace).begin(Instant::now());
        step(&mut pace);
        *lock(&self.step_pace) = pace.end(Instant::now());
    }

    fn let_leave(
        &self,
        manager: &Manager<Device>,
        terms: &StepTerms<'_>,
        end: &mut StepEnd,
        (pace, descent): (&mut StepPace, &LimitDescent<'_, Device>),
    ) {
        for least in [SMALLEST, 0] {
            let mut leavers = self.leavers(manager, |block| {
                let whole = block.tiers.total();
                block.tiers.device > 0 && whole >= least && (least > 0 || whole < SMALLEST)
            });
            sort(&mut leavers);
            let mut rest = &leavers[..];
            while !rest.is_empty() {
                let missing = manager.bytes_beyond_limit();
                if missing == 0 || is_over(terms) {
                    end.goes_on |= missing > 0;
                    return;
                }
                let (batch, later) = rest.split_at(count_for(rest, missing.min(pace.batch())));
                rest = later;
                let order = |leaver: &Leaver| {
                    let range = leaver.range.clone();
                    let order = MoveOrder::new(range, Tier::Host);
                    RangeMove::new(order, missing).only_from(Tier::Device)
                };
                let mut ranges: Vec<RangeMove> = batch.iter().map(order).collect();
                let why = self.move_when_idle(manager, &mut ranges, terms, pace);
                let moved = end.moved(&ranges);
                end.given += (terms.give_back)(descent.unused_beyond_limit());
                descent.has_left();
                ranges.iter().for_each(|range| note_stay(manager, range, why, end));
                // All others would stay, too.
                if why.is_some() && moved == 0 {
                    return;
                }
            }
        }
    }

    fn let_come(
        &self,
        manager: &Manager<Device>,
        terms: &StepTerms<'_>,
        end: &mut StepEnd,
        pace: &mut StepPace,
    ) {
        let mut comers = self.leavers(manager, |block| block.tiers.host > 0);
        sort(&mut comers);
        while !comers.is_empty() {
            if is_over(terms) {
                end.goes_on = true;
                return;
            }
            let mut ranges = batch_that_fits(manager, &mut comers, pace.batch(), end);
            let why = self.move_when_idle(manager, &mut ranges, terms, pace);
            let moved = end.moved(&ranges);
            ranges.iter().for_each(|range| note_stay(manager, range, why, end));
            if why.is_some() && moved == 0 {
                return;
            }
        }
    }

    fn leavers(&self, manager: &Manager<Device>, may: impl Fn(&Block) -> bool) -> Vec<Leaver> {
        let blocks = manager.large_blocks(1).into_iter().filter(|block| may(block));
        let leaver = |block: Block| {
            let range = range_of(&block);
            let last_use = self.last_use.number_of(&range);
            Leaver { range, bytes: block.tiers.device, last_use }
        };
        blocks.map(leaver).collect()
    }

    /// Makes moves once the GPU is idle. Returns why some were not made, if the reason is not one
    /// of single blocks.
    fn move_when_idle(
        &self,
        manager: &Manager<Device>,
        ranges: &mut [RangeMove],
        terms: &StepTerms<'_>,
        pace: &mut StepPace,
    ) -> Option<WhyNot> {
        if ranges.is_empty() {
            return None;
        }
        let (begin, mut tries) = (Instant::now(), Tries::default());
        let why = self.try_until_over(manager, ranges, terms, (pace, &mut tries));
        let (mib, took) = (bytes_moved(ranges) >> 20, begin.elapsed());
        pace.moved(why.is_none(), took);
        let (Tries { count, made_for }, drain) = (tries, pace.drain());
        log::debug!(
            "{mib} MiB moved in {took:.1?}, of which {made_for:.1?} made memory, by {count} tries; \
             calls wait for {drain:?}"
        );
        why
    }

    fn try_until_over(
        &self,
        manager: &Manager<Device>,
        ranges: &mut [RangeMove],
        terms: &StepTerms<'_>,
        (pace, tries): (&mut StepPace, &mut Tries),
    ) -> Option<WhyNot> {
        loop {
            let holds = GATE.holds();
            // Where calls may be held until the GPU has no work left, nothing else is waited for.
            let may_hold = terms.drains && !self.waits.is_held();
            let usual = SliceCost {
                calls: if may_hold { CALLS } else { SliceCost::USUAL.calls },
                makes_for: terms.left(),
                ..SliceCost::USUAL
            };
            let cost = match manager.gpu().is_settled(if may_hold { LOOK } else { WAIT }) {
                Ok(true) => {
                    self.waits.end_holds(holds);
                    Some(usual)
                }
                Ok(false) => may_hold.then(|| SliceCost { drain: pace.drain(), ..usual }),
                Err(code) => return Some(WhyNot::Refused(code.into())),
            };
            let mut why = WhyNot::Refused(MoveRefusal::InUse);
            if let Some(cost) = cost {
                let end = self.swap_at(manager, ranges, WAIT, cost);
                tries.made_for += end.made_for;
                // It was closed for that long, and the GPU had work all the time.
                let is_busy = matches!(end.why, Some(WhyNot::Crowded | WhyNot::Refused(MoveRefusal::InUse)));
                if !cost.drain.is_zero() && is_busy {
                    pace.was_busy();
                }
                why = end.why.unwrap_or(why);
            }
            tries.count += 1;
            ranges.iter().for_each(|range| self.doubt(manager, &range.order.range));
            let general = ranges.iter().find_map(|range| range.moved.refusal.filter(|why| is_general(*why)));
            if general.is_some() || ranges.iter().all(RangeMove::is_over) {
                return general.map(WhyNot::Refused);
            }
            if !passes(why) || is_over(terms) {
                return Some(why);
            }
        }
    }
}

/// What it took to move a batch.
#[derive(Debug, Default)]
struct Tries {
    count: u32,
    made_for: Duration,
}

/// The last blocks, as many as are moved at a time and as the device has room for. Of the others
/// the bytes are noted.
fn batch_that_fits(
    manager: &Manager<Device>,
    comers: &mut Vec<Leaver>,
    most: u64,
    end: &mut StepEnd,
) -> Vec<RangeMove> {
    let room = manager.device_room().saturating_sub(manager.room_at_limit());
    let (mut ranges, mut sum) = (Vec::new(), 0);
    while sum < most
        && let Some(last) = comers.pop()
    {
        let Some(block) = manager.block(last.range.start) else { continue };
        if block.tiers.host > room {
            end.note(NO_ROOM, block.tiers.host);
            continue;
        }
        if sum + block.tiers.host > room {
            // Some before it may stay: the next batch knows how much room is left.
            comers.push(last);
            break;
        }
        sum += block.tiers.host;
        ranges.push(RangeMove::new(MoveOrder::new(last.range, Tier::Device), u64::MAX).only_from(Tier::Host));
    }
    ranges
}

fn bytes_moved(ranges: &[RangeMove]) -> u64 {
    ranges.iter().map(|range| range.moved.bytes).sum()
}

/// Does the reason pass with time?
fn passes(why: WhyNot) -> bool {
    use MoveRefusal::{Busy, InUse, Slow};
    matches!(why, WhyNot::Crowded | WhyNot::Refused(InUse | Busy | Slow))
}

/// Would other blocks stay for that reason, too?
fn is_general(refusal: MoveRefusal) -> bool {
    use MoveRefusal::{Busy, Driver, Fixed, Full, Lost, Slow};
    matches!(refusal, Busy | Driver(_) | Fixed | Full | Lost(_) | Slow)
}

fn is_over(terms: &StepTerms<'_>) -> bool {
    terms.is_over() || process::exiting()
}

/// What of a block stays where it is, and why.
fn note_stay(manager: &Manager<Device>, range: &RangeMove, why: Option<WhyNot>, end: &mut StepEnd) {
    let Some(why) = range.moved.refusal.map(WhyNot::Refused).or(why) else { return };
    let tiers = manager.block(range.order.range.start).map(|block| block.tiers).unwrap_or_default();
    let stays = if range.order.to == Tier::Host { tiers.device } else { tiers.host };
    end.note(why.reason(), stays);
    end.goes_on |= stays > 0 && passes(why);
}

/// The memory on the device that no block has: it was not tried.
fn note_others(manager: &Manager<Device>, end: &mut StepEnd) {
    let usage = manager.usage();
    end.note(UNUSED, usage.idle.device + usage.pieces.idle.device);
    let of_blocks: u64 = manager.large_blocks(1).iter().map(|block| block.tiers.device).sum();
    end.note(PIECES, usage.together.live.device.saturating_sub(of_blocks));
}
