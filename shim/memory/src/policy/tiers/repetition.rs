//! A program that repeats itself: where was it one period ago? What it did from there on is what it does next.
//!
//! The last events are kept. An event *matches* an earlier one if both are of one kind and size, and of the same block, or of blocks
//! that were allocated as long before. So a loop over equal layers, which use other weights each, does not pass for a period, and a
//! step of training does, whose tensors are new each time.
//!
//! Invariants: `period` is the distance at which recent events match, or nothing is known; a look-up touches a bounded part of the past.

use std::collections::{HashMap, VecDeque};

/// Events that are kept.
const KEPT: usize = 1 << 19;

/// Events that have to match before a period is believed.
const PROOF: u64 = 48;

/// Events that a search is for; some more or fewer in between do not match.
const WINDOW: usize = 16;

/// Earlier places that are looked at in one search.
const PLACES: usize = 64;

/// Of the last `PROOF` events, those that may differ before the period is given up.
const SLIPS: u32 = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum EventKind {
    Allocate,
    Use,
    Free,
}

/// Something that happened to a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct PastEvent {
    pub(super) kind: EventKind,
    pub(super) bytes: u64,
    /// Number of the event that allocated its block.
    pub(super) born: u64,
    /// Number of the event before which the same happened, as far as the window tells.
    earlier: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Repetition {
    events: VecDeque<PastEvent>,
    /// Number of the first event that is kept.
    first: u64,
    /// By what the last `WINDOW` events were, the number of the last such place.
    places: HashMap<u64, u64>,
    period: Option<u64>,
    /// A bit for each of the last events: it did not match.
    slips: u64,
}

impl Repetition {
    /// Number of the next event.
    pub(super) fn now(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Events a period, if the program repeats itself.
    pub(super) fn period(&self) -> Option<u64> {
        self.period
    }

    pub(super) fn get(&self, number: u64) -> Option<&PastEvent> {
        self.events.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    pub(super) fn add(&mut self, kind: EventKind, bytes: u64, born: u64) {
        self.events.push_back(PastEvent { kind, bytes, born, earlier: None });
        let number = self.now() - 1;
        let earlier = self.places.insert(self.window(), number);
        if let Some(event) = self.events.back_mut() {
            event.earlier = earlier;
        }
        self.follow(number);
        if self.period.is_none() {
            self.period = self.search(number);
            self.slips = 0;
        }
        if self.events.len() > KEPT {
            self.shorten();
        }
    }

    /// Looks whether the period holds.
    fn follow(&mut self, number: u64) {
        let Some(period) = self.period else { return };
        let slip = !number.checked_sub(period).is_some_and(|before| self.matches(number, before));
        self.slips = (self.slips << 1 | u64::from(slip)) & ((1 << PROOF) - 1);
        if self.slips.count_ones() > SLIPS {
            self.period = None;
        }
    }

    fn matches(&self, now: u64, before: u64) -> bool {
        let (Some(one), Some(other)) = (self.get(now), self.get(before)) else { return false };
        let same_block = one.born == other.born || now - one.born == before.wrapping_sub(other.born);
        one.kind == other.kind && one.bytes == other.bytes && same_block
    }

    /// What the last events were, whatever blocks they were of.
    fn window(&self) -> u64 {
        let last = self.events.iter().rev().take(WINDOW);
        last.fold(0, |mixed: u64, event| {
            let word = event.bytes.wrapping_mul(4).wrapping_add(event.kind as u64);
            (mixed.rotate_left(7) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    }

    /// The nearest place from which the program came here.
    fn search(&self, number: u64) -> Option<u64> {
        let mut place = self.get(number)?.earlier;
        for _ in 0..PLACES {
            let before = place.filter(|place| *place >= self.first + PROOF)?;
            if (0..PROOF).all(|back| self.matches(number - back, before - back)) {
                return Some(number - before);
            }
            place = self.get(before)?.earlier;
        }
        None
    }

    /// Forgets the older half.
    fn shorten(&mut self) {
        let half = self.events.len() / 2;
        self.events.drain(..half);
        self.first += half as u64;
        let (first, left) = (self.first, self.events.len() as u64);
        self.period = self.period.filter(|period| *period <= left);
        self.places.retain(|_, place| *place >= first);
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a loop within a step passes for the step, and what is foretold is wrong.
    use super::*;

    /// Steps of a loop over layers with weights of their own and a temporary each.
    fn play(steps: u64, layers: u64) -> (Repetition, u64) {
        let mut past = Repetition::default();
        for weight in 0..layers {
            past.add(EventKind::Allocate, 100, weight);
        }
        let mut length = 0;
        for _ in 0..steps {
            let start = past.now();
            for weight in 0..layers {
                let born = past.now();
                past.add(EventKind::Allocate, 7, born);
                past.add(EventKind::Use, 100, weight);
                past.add(EventKind::Use, 7, born);
                past.add(EventKind::Free, 7, born);
            }
            length = past.now() - start;
        }
        (past, length)
    }

    #[test]
    fn a_step_is_found_and_a_layer_is_not_one() {
        let (past, length) = play(3, 20);
        assert_eq!(past.period(), Some(length));
        let (past, _) = play(1, 200);
        assert_eq!(past.period(), None, "the layers have other weights each");
    }

    #[test]
    fn a_period_that_ends_is_given_up() {
        let (mut past, _) = play(3, 20);
        for other in 0..PROOF {
            past.add(EventKind::Use, 5000 + other, 0);
        }
        assert_eq!(past.period(), None);
    }

    #[test]
    fn the_past_is_bounded() {
        let (past, length) = play(KEPT as u64 * 2 / 80, 20);
        assert!(past.events.len() <= KEPT + 1 && past.places.len() <= KEPT + 1);
        assert_eq!(past.period(), Some(length));
    }
}
