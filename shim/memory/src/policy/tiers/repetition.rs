//! A program that repeats itself: where was it one period ago? The events from there on are the
//! ones that it makes next.
//!
//! The last events are kept, each linked with the one before and the one after of its block.
//! `position` is the event of the past that the last one answers to. Two blocks *answer to* each
//! other if one had the same use a period ago as the other has now: a block that lives through
//! periods answers to itself, and a newer one to one that was freed since. So a loop over equal
//! layers, which use other weights each, does not pass for a period. Where some events are more or
//! fewer than a period ago, the blocks' own links tell where to go on. Sizes vary with a step's
//! input, so all that is asked of them is their order of magnitude: it tells a prompt from the
//! tokens that follow it, whose launches are the same.
//!
//! Invariants: an event costs a bounded number of looks at the past; so much of it is kept and no
//! more; a forgotten event is found by no link.

use super::keys::{BlockKey, BySlot};

/// Events that are kept, a power of two: 10 MB.
const KEPT: usize = 1 << 18;

/// Events that have to match before a period is believed.
const PROOF: u64 = 48;

/// Events that are compared at most: the longest match wins, since a part of a period can be like
/// another.
const LONGEST: u64 = 192;

/// Earlier uses of a block from which the program may have come here.
const PLACES: usize = 12;

/// Events between two searches. A prime: where every other event is of a block that all of the
/// program uses, the others have their turn, too.
const PAUSE: u64 = 17;

/// Events that may be more or fewer than a period ago before the place is searched for anew.
const JUMP: u64 = 512;

/// Of the last 64 events, those that may differ before the period is given up.
const SLIPS: u32 = 40;

/// A block that is so many times larger or smaller does not answer to another, if one of the two is
/// large.
const UNLIKE: u64 = 16;
const LARGE: u64 = 1 << 20;

/// Uses of a block that are looked at for the end of its life.
const USES: usize = 256;

/// No block answers to this one.
const NOBODY: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    Allocate,
    Use,
    Free,
    /// A group of blocks is used for the first time, and for the last time: begin and end of what
    /// is followed, without any memory.
    Meet,
    Part,
}

impl EventKind {
    fn is_birth(self) -> bool {
        matches!(self, Self::Allocate | Self::Meet)
    }
}

/// Something that happened to a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct PastEvent {
    pub(super) kind: EventKind,
    /// Of an allocation: the block was freed.
    freed: bool,
    /// The block's number then.
    slot: u32,
    pub(super) bytes: u64,
    /// Number of the event that allocated the block.
    born: u64,
    /// Of an allocation, `born` of the block that answers to this one.
    heir: u64,
    /// Events since the block's one before, and until its next; 0 is none.
    since: u32,
    until: u32,
}

impl PastEvent {
    /// Events until the next one of its block.
    pub(super) fn until_next(&self) -> Option<u64> {
        (self.until > 0).then_some(self.until.into())
    }

    /// Roughly.
    fn has_size_of(&self, other: &Self) -> bool {
        let (small, large) = (self.bytes.min(other.bytes), self.bytes.max(other.bytes));
        large < LARGE || large / UNLIKE <= small
    }
}

#[derive(Debug, Clone, Copy)]
struct FollowedBlock {
    born: u64,
    /// Number of its last event, and of the one a period ago that this one answers to.
    last: u64,
    answers: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Repetition {
    /// Each at its number modulo [`KEPT`].
    events: Vec<PastEvent>,
    /// Number of the next event.
    now: u64,
    live: BySlot<FollowedBlock>,
    position: Option<u64>,
    /// A bit for each of the last events: it did not match.
    slips: u64,
    /// Number of the event before which no search is made.
    rests_until: u64,
}

impl Repetition {
    /// Number of the next event.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// The event of the past that the last one answers to, if the program repeats itself.
    pub(super) fn position(&self) -> Option<u64> {
        self.position
    }

    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<&PastEvent> {
        if self.is_kept(number) { self.events.get(number as usize % KEPT) } else { None }
    }

    #[inline]
    fn get_mut(&mut self, number: u64) -> Option<&mut PastEvent> {
        if self.is_kept(number) { self.events.get_mut(number as usize % KEPT) } else { None }
    }

    #[inline]
    fn is_kept(&self, number: u64) -> bool {
        self.now.wrapping_sub(number).wrapping_sub(1) < KEPT as u64
    }

    /// The new event, in place of the oldest one.
    #[inline]
    fn push(&mut self, event: PastEvent) {
        match self.events.get_mut(self.now as usize % KEPT) {
            Some(oldest) => *oldest = event,
            None => self.events.push(event),
        }
        self.now += 1;
    }

    /// Number of the event that follows this one for its block.
    fn next_of(&self, number: u64) -> Option<u64> {
        let event = self.get(number).filter(|event| event.until > 0)?;
        Some(number + u64::from(event.until))
    }

    /// Something happens to a block; all but an allocation to one that was allocated. Returns the
    /// number that the block's next event will have, if the past tells.
    pub(super) fn add(&mut self, kind: EventKind, block: BlockKey, bytes: u64) -> Option<u64> {
        let number = self.now;
        let live = match kind {
            EventKind::Allocate | EventKind::Meet => {
                FollowedBlock { born: number, last: number, answers: None }
            }
            EventKind::Use | EventKind::Free | EventKind::Part => *self.live.get(block)?,
        };
        let since = u32::try_from(number - live.last).unwrap_or(0);
        if let Some(last) = self.get_mut(live.last) {
            last.until = since;
        }
        let (born, heir, slot) = (live.born, NOBODY, block.slot);
        let event = PastEvent { kind, freed: false, slot, bytes, born, heir, since, until: 0 };
        self.push(event);
        let answers = self.follow(number, &event, live.answers);
        match kind {
            EventKind::Allocate | EventKind::Meet => {
                self.live.insert(block, FollowedBlock { answers, ..live });
            }
            EventKind::Use => {
                let followed = FollowedBlock { born, last: number, answers };
                self.live.get_mut(block).into_iter().for_each(|live| *live = followed);
            }
            EventKind::Free | EventKind::Part => {
                self.live.remove(block);
                self.get_mut(born).into_iter().for_each(|birth| birth.freed = true);
            }
        }
        let answered = answers?;
        Some(number + (self.next_of(answered)? - answered))
    }

    /// Number of the event that this one answers to. `answered`: that which its block's event
    /// before answered to.
    fn follow(&mut self, number: u64, event: &PastEvent, answered: Option<u64>) -> Option<u64> {
        let Some(position) = self.position else {
            self.position = self.search(number);
            self.slips = 0;
            return self.position;
        };
        let own = || {
            let own = answered.and_then(|answered| self.next_of(answered))?;
            let is_near = own.abs_diff(position) <= JUMP && self.get(own)?.kind == event.kind;
            is_near.then_some(own)
        };
        let next = position + 1;
        let found = if self.answers(number, event, next, answered.is_some()) { Some(next) } else { own() };
        self.slips = self.slips << 1 | u64::from(found != Some(next));
        if let Some(found) = found {
            self.position = Some(found);
            self.pair(event.born, found);
        }
        if self.slips.count_ones() > SLIPS || self.position.is_some_and(|position| !self.is_kept(position)) {
            self.position = None;
        }
        found
    }

    /// Whether the event answers to that one of the past; `is_paired` if its block answers to one
    /// already.
    #[inline]
    fn answers(&self, number: u64, event: &PastEvent, before: u64, is_paired: bool) -> bool {
        let Some(old) = self.get(before).filter(|_| before < number) else { return false };
        if event.kind != old.kind {
            return false;
        }
        if event.kind.is_birth() {
            return event.has_size_of(old);
        }
        event.born == old.born || self.can_answer(event, old, before, is_paired)
    }

    /// The same of two blocks that are not one.
    fn can_answer(&self, event: &PastEvent, old: &PastEvent, before: u64, is_paired: bool) -> bool {
        let Some(birth) = self.get(old.born) else { return false };
        let has_heir = birth.heir != NOBODY && self.get(birth.heir).is_some_and(|heir| !heir.freed);
        birth.heir == event.born || (birth.freed && !has_heir && !is_paired && event.born > before)
    }

    /// From now on the block that was born then answers to the block of `before`.
    #[inline]
    fn pair(&mut self, born: u64, before: u64) {
        let Some(old_born) = self.get(before).map(|old| old.born).filter(|old| *old != born) else { return };
        self.get_mut(old_born).into_iter().for_each(|birth| birth.heir = born);
    }

    /// The place from which the program came here, as long a way as can be.
    fn search(&mut self, number: u64) -> Option<u64> {
        let mut place = self.get(number).filter(|event| event.kind == EventKind::Use).copied()?;
        if number < self.rests_until {
            return None;
        }
        self.rests_until = number + PAUSE;
        let (mut before, mut best) = (number, (PROOF - 1, None));
        for _ in 0..PLACES {
            before = before.checked_sub(u64::from(place.since)).filter(|_| place.since > 0).unwrap_or(0);
            let Some(earlier) = self.get(before).filter(|event| event.born == place.born) else { break };
            place = *earlier;
            let alike =
                (0..LONGEST.min(before)).take_while(|back| self.is_alike(number - back, before - back));
            let alike = alike.count() as u64;
            if alike > best.0 {
                best = (alike, Some(before));
            }
        }
        best.1
    }

    /// Whether one event may answer to another, as far as can be said before any block does.
    fn is_alike(&self, number: u64, before: u64) -> bool {
        let (Some(event), Some(old)) = (self.get(number), self.get(before)) else { return false };
        let is_gone = || self.get(old.born).is_some_and(|birth| birth.freed);
        let can_answer = || event.born == old.born || (event.born > before && is_gone());
        event.kind == old.kind && (!event.kind.is_birth() || event.has_size_of(old)) && can_answer()
    }

    /// Events from an allocation of the past until its block was freed, or as far as is looked.
    pub(super) fn life(&self, birth: u64) -> u64 {
        let mut last = birth;
        for _ in 0..USES {
            match self.next_of(last) {
                Some(next) => last = next,
                None => break,
            }
        }
        last - birth
    }

    /// The live block that the event will be of, if it comes again; `None` of one that will be
    /// allocated before.
    pub(super) fn heir(&self, event: &PastEvent) -> Option<BlockKey> {
        let born = self.get(event.born).map_or(NOBODY, |birth| birth.heir);
        let heir = self.get(born).filter(|heir| !heir.freed).and_then(|heir| self.born_at(heir.slot, born));
        heir.or_else(|| self.born_at(event.slot, event.born))
    }

    /// The live block with a number, if it was born then.
    fn born_at(&self, slot: u32, born: u64) -> Option<BlockKey> {
        let (block, live) = self.live.at(slot)?;
        (live.born == born).then_some(block)
    }

    #[cfg(test)]
    pub(super) fn blocks(&self) -> usize {
        self.live.iter().count()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a loop within a step passes for the step, or a step of another length passes for
    //! another program, and the foretold uses are wrong.
    use super::*;
    use std::collections::HashMap;

    /// Steps of a loop over layers with weights of their own and a temporary each, whose size and,
    /// with `workspace`, number differ from step to step. Returns how many uses of weights were
    /// foretold, and how many of these came true.
    fn play(past: &mut Repetition, steps: u64, layers: u64, workspace: bool) -> (u64, u64) {
        let mut names = 1000..;
        let (mut foretold, mut kept) = (HashMap::<u64, u64>::new(), 0);
        let mut count = 0;
        for weight in 0..layers {
            past.add(EventKind::Allocate, BlockKey::from(weight), 100);
        }
        for step in 0..steps {
            for weight in 0..layers {
                let temporary = names.next().unwrap_or_default();
                past.add(EventKind::Allocate, BlockKey::from(temporary), 7 + step);
                let now = past.now();
                kept += u64::from(foretold.get(&weight) == Some(&now));
                if let Some(next) = past.add(EventKind::Use, BlockKey::from(weight), 100) {
                    count += 1;
                    foretold.insert(weight, next);
                }
                if workspace && weight == step % layers {
                    let other = names.next().unwrap_or_default();
                    past.add(EventKind::Allocate, BlockKey::from(other), 1 << step);
                    past.add(EventKind::Use, BlockKey::from(other), 1 << step);
                    past.add(EventKind::Free, BlockKey::from(other), 1 << step);
                }
                past.add(EventKind::Use, BlockKey::from(temporary), 7 + step);
                past.add(EventKind::Free, BlockKey::from(temporary), 7 + step);
            }
        }
        (count, kept)
    }

    #[test]
    fn a_step_is_found_and_a_layer_is_not_one() {
        let mut past = Repetition::default();
        let (foretold, kept) = play(&mut past, 6, 20, false);
        assert_eq!(past.position(), Some(past.now() - 1 - 4 * 20), "one step ago");
        assert!(kept > 60 && kept + 20 >= foretold, "{kept} of {foretold}");
        let mut past = Repetition::default();
        assert_eq!(play(&mut past, 1, 200, false).0, 0, "the layers have other weights each");
    }

    #[test]
    fn a_step_with_some_more_events_is_still_one() {
        let mut past = Repetition::default();
        let (foretold, kept) = play(&mut past, 20, 20, true);
        assert!(past.position().is_some() && foretold > 300, "{foretold}");
        // One workspace came or went between most pairs of uses, which shifts the foretold use by
        // its three events.
        assert!(kept > 0, "{kept} of {foretold}");
    }

    /// Five steps with temporaries of 2 MiB and one with those of `bytes`. Returns of how many of
    /// these the use was foretold.
    fn temporaries_foretold(bytes: u64) -> usize {
        let mut past = Repetition::default();
        (0..20).for_each(|weight| {
            past.add(EventKind::Allocate, BlockKey::from(weight), 100);
        });
        let mut step = |bytes: u64| {
            let mut layer = |weight: u64| {
                let foretold = past.add(EventKind::Allocate, BlockKey::from(100_u64), bytes);
                past.add(EventKind::Use, BlockKey::from(weight), 100);
                past.add(EventKind::Use, BlockKey::from(100_u64), bytes);
                past.add(EventKind::Free, BlockKey::from(100_u64), bytes);
                foretold.is_some()
            };
            (0..20).filter(|weight| layer(*weight)).count()
        };
        [2 << 20, 2 << 20, 2 << 20, 2 << 20, 2 << 20, bytes].map(&mut step)[5]
    }

    #[test]
    fn blocks_of_another_order_of_magnitude_do_not_answer() {
        assert_eq!(temporaries_foretold(2 << 20), 20);
        assert_eq!(temporaries_foretold(30 << 20), 20);
        assert_eq!(temporaries_foretold(40 << 20), 0);
        assert_eq!(temporaries_foretold(100 << 10), 0);
    }

    #[test]
    fn a_period_that_ends_is_given_up() {
        let mut past = Repetition::default();
        play(&mut past, 3, 20, false);
        for step in 0..4 * u64::from(SLIPS) {
            past.add(
                EventKind::Use,
                BlockKey::from((step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 20),
                100,
            );
        }
        assert_eq!(past.position(), None);
    }

    #[test]
    fn the_past_is_bounded() {
        let mut past = Repetition::default();
        play(&mut past, KEPT as u64 * 2 / 80, 20, false);
        assert!(past.events.len() <= KEPT && past.blocks() == 20);
        assert!(past.position().is_some());
    }
}
