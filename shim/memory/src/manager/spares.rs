//! Memory that moves need, made while calls of other threads go on.
//!
//! Memory of the host takes long to make, 170 ms for each GiB. So moves behind a closed gate take
//! only what is idle, and tell what they lack; it is made once the gate is open, and the next ones
//! take it. Another thread may take it first: then it is lacking again.

use std::collections::BTreeMap;
use std::ops::Range;

use wm_driver::{Gpu, Handle, Tier};

use super::Manager;
use super::swap::WINDOW;
use crate::state::swap::way;
use crate::vocabulary::moves::{MadeAhead, MoveRefusal, RangeMove, SpareLack, SpareSource};
use crate::vocabulary::plan::{Build, ExtentPart, Undo};

impl<G: Gpu> Manager<G> {
    /// Makes memory that moves from a source have lacked, as long as the caller `goes_on`. Returns
    /// where the next ones get theirs; `None`: there is none, as the ranges tell where the caller
    /// still `goes_on`.
    pub fn make_spares(
        &self,
        ranges: &mut [RangeMove],
        lacks: &[SpareLack],
        source: SpareSource,
        goes_on: impl Fn() -> bool,
    ) -> Option<SpareSource> {
        // The idle handles that an idle source does not give are kept copies.
        let has_kept = |lack: &SpareLack| {
            source == SpareSource::Idle
                && lack.tier == Tier::Host
                && self.count_idle(lack.tier, lack.bytes) > 0
        };
        if lacks.iter().any(has_kept) && !self.may_make_beside_copies() {
            return Some(SpareSource::Kept);
        }
        let make = |lack: &SpareLack| {
            let (wanted, is_beside) = (self.count_wanted(ranges, lack), has_kept(lack));
            let goes_on = || goes_on() && self.make_spare(lack.tier, lack.bytes).is_ok();
            let made = (0..wanted).take_while(|_| goes_on()).count();
            if is_beside {
                self.lock().kept_worth.record(made as u64 * lack.bytes);
            }
            made
        };
        if lacks.iter().map(make).sum::<usize>() > 0 {
            return Some(SpareSource::Idle);
        }
        if source == SpareSource::Idle {
            return Some(SpareSource::Kept);
        }
        if !goes_on() {
            return None;
        }
        // Idle handles of other sizes may have the memory.
        if lacks.iter().any(|lack| self.relieve_tier(lack.tier, lack.bytes) > 0 && make(lack) > 0) {
            return Some(SpareSource::Idle);
        }
        lacks.iter().for_each(|lack| self.note_full(lack, ranges));
        None
    }

    /// Where moves out get their memory first: kept copies count as idle where no more memory is
    /// made for them.
    pub fn first_source(&self) -> SpareSource {
        if self.may_make_beside_copies() { SpareSource::Idle } else { SpareSource::Kept }
    }

    /// Is memory made although kept copies of other handles have it?
    fn may_make_beside_copies(&self) -> bool {
        let state = self.lock();
        state.kept_worth.may_make(state.moves.clean_bytes)
    }

    /// Makes memory of the host ahead of moves out, as long as the caller `goes_on`: as many
    /// handles of each size as the ranges have on the device, less those that lie idle. `goes_on`
    /// is asked before each one, with its bytes.
    pub fn make_spares_ahead(&self, ranges: &[Range<u64>], goes_on: impl Fn(u64) -> bool) -> MadeAhead {
        let lacks = self.sizes_on_device(ranges).into_iter().map(|(bytes, wanted)| {
            let idle = self.count_idle(Tier::Host, bytes);
            (bytes, wanted.saturating_sub(idle))
        });
        let lacks: Vec<(u64, usize)> = lacks.collect();
        let lacking = lacks.iter().map(|(bytes, count)| bytes * *count as u64).sum();
        let mut made = MadeAhead { lacking, is_full: false };
        let before = made.lacking;
        for bytes in lacks.into_iter().flat_map(|(bytes, count)| (0..count).map(move |_| bytes)) {
            if !goes_on(bytes) {
                break;
            }
            if self.make_spare(Tier::Host, bytes).is_err() {
                made.is_full = true;
                break;
            }
            made.lacking -= bytes;
        }
        if made.lacking < before {
            self.show();
        }
        made
    }

    /// How many handles of each size some ranges have on the device. They are in order.
    fn sizes_on_device(&self, ranges: &[Range<u64>]) -> BTreeMap<u64, usize> {
        // Two ranges may lie on one handle.
        let (mut sizes, mut counted) = (BTreeMap::new(), 0);
        for range in ranges {
            let mut next = range.start.max(counted);
            while next < range.end {
                let Some((handle, tier)) = self.lock().occupied_range(next) else {
                    next = (next / self.rules.granularity + 1) * self.rules.granularity;
                    continue;
                };
                if tier == Tier::Device {
                    *sizes.entry(handle.end - handle.start).or_default() += 1;
                }
                (next, counted) = (handle.end, handle.end);
            }
        }
        sizes
    }

    fn count_idle(&self, tier: Tier, bytes: u64) -> usize {
        let state = self.lock();
        state.holdings.ledger.handles().idle(tier).filter(|(_, idle)| *idle == bytes).count()
    }

    /// How many handles of the size that is lacking are still to move that way. Those that move the
    /// other way leave their memory behind.
    fn count_wanted(&self, ranges: &[RangeMove], lack: &SpareLack) -> usize {
        let is_that_way = |range: &&RangeMove| way(range.order.to) == way(lack.tier);
        let count = |range: &RangeMove| self.count_left(range, lack.bytes);
        let forth = ranges.iter().filter(is_that_way).map(count).sum::<usize>();
        let back = ranges.iter().filter(|range| !is_that_way(range)).map(count).sum::<usize>();
        forth.min(forth.saturating_sub(back).max(WINDOW))
    }

    /// Handles of a size in a range that are still to move.
    fn count_left(&self, range: &RangeMove, bytes: u64) -> usize {
        let RangeMove { order, moved, from, most, begun } = range;
        let (mut next, mut left, mut count) = (moved.next, most.saturating_sub(*begun), 0);
        while next < order.range.end && left > 0 {
            let Some((handle, tier)) = self.lock().occupied_range(next) else {
                next = (next / self.rules.granularity + 1) * self.rules.granularity;
                continue;
            };
            next = handle.end;
            if tier != order.to && from.is_none_or(|from| tier == from) {
                left = left.saturating_sub(handle.end - handle.start);
                count += usize::from(handle.end - handle.start == bytes);
            }
        }
        count
    }

    /// Makes an idle handle, mapped where moves fill it if it stays mapped there. Memory of the
    /// host that lies idle elsewhere in the process comes first.
    fn make_spare(&self, tier: Tier, bytes: u64) -> Result<(), MoveRefusal> {
        let found = if tier == Tier::Host { self.gpu.idle_host_memory(bytes) } else { None };
        let draft = self.draft_on(tier, |room| self.lock().draft_spare(tier, bytes, room, &self.rules));
        let draft = draft.inspect_err(|_| {
            let _left = found.map(|handle| self.gpu.release(handle));
        })?;
        let made = found.map_or_else(|| self.gpu.create(tier, bytes as usize), Ok);
        let made = made.map_err(|code| (code.into(), Vec::new()));
        let made = made.and_then(|handle| Ok((handle, self.stage(tier, handle, bytes)?)));
        let (steps, outcome) = match made {
            Ok((handle, staging)) => (self.lock().commit_spare(&draft, handle, staging), Ok(())),
            Err((refusal, steps)) => {
                self.lock().roll_back_spare(&draft);
                (steps, Err(refusal))
            }
        };
        let failed = self.dismantle(&steps);
        self.lock().quarantine_uncommitted(failed);
        self.waiters.notify();
        outcome
    }

    /// Maps new memory of another tier than the device where moves fill it. A failure comes with
    /// the steps that give the memory up.
    fn stage(&self, tier: Tier, handle: Handle, bytes: u64) -> Result<Option<u64>, (MoveRefusal, Vec<Undo>)> {
        if tier == Tier::Device {
            return Ok(None);
        }
        let parts = vec![ExtentPart::Existing { handle, bytes }];
        self.build(&Build { parts, gap: 0 }).map(|built| Some(built.base)).map_err(|failure| {
            let mut steps = failure.not_undone;
            steps.push(Undo::Release { handle, tier, bytes });
            (failure.code.into(), steps)
        })
    }
}
