//! Which block leaves first: the one whose next use is farthest, as the past foretells it; of a
//! block of which nothing is foretold, it is as far away as the last one. A free counts as a use:
//! what is about to be freed stays, since to keep it costs nothing for long.
//!
//! The lists are made when they are first asked for, so that a program that fits the device pays
//! for none.
//!
//! Invariants: what is not on the device, and what is too small to be worth a move, is in neither
//! list; each block is in at most one.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

/// Events for which a block that was used does not leave, if another one can: what was used a
/// moment ago may be used again before the past says so, and in a loop that is much longer another
/// one is as good.
const YOUNG: u64 = 64;

/// Blocks that are looked at for one that is not young.
const LOOKS: usize = 64;

#[derive(Debug, Clone, Copy)]
struct OrderEntry {
    last: u64,
    next: Option<u64>,
    can_leave: bool,
}

/// Times are numbers of events.
#[derive(Debug, Default)]
pub(super) struct LeavingOrder {
    entries: FxHashMap<u64, OrderEntry>,
    is_listing: bool,
    /// Blocks by their next use.
    foretold: BTreeSet<(u64, u64)>,
    /// Blocks by their last use.
    strangers: BTreeSet<(u64, u64)>,
}

impl LeavingOrder {
    /// Used now, and next at that time.
    pub(super) fn used(&mut self, block: u64, now: u64, next: Option<u64>, can_leave: bool) {
        let entry = OrderEntry { last: now, next, can_leave };
        if let Some(old) = self.entries.insert(block, entry) {
            self.list(block, old, false);
        }
        self.list(block, entry, true);
    }

    /// Enters the block as `entry` says, or takes it out.
    fn list(&mut self, block: u64, entry: OrderEntry, is_in: bool) {
        if !self.is_listing || !entry.can_leave {
            return;
        }
        let (list, key) = match entry.next {
            Some(next) => (&mut self.foretold, (next, block)),
            None => (&mut self.strangers, (entry.last, block)),
        };
        if is_in {
            list.insert(key);
        } else {
            list.remove(&key);
        }
    }

    /// Some of it is on the device, or nothing is.
    pub(super) fn set_can_leave(&mut self, block: u64, can_leave: bool) {
        let Some(entry) = self.entries.get_mut(&block).filter(|entry| entry.can_leave != can_leave) else {
            return;
        };
        entry.can_leave = true;
        let listed = *entry;
        entry.can_leave = can_leave;
        self.list(block, listed, can_leave);
    }

    pub(super) fn remove(&mut self, block: u64) {
        if let Some(old) = self.entries.remove(&block) {
            self.list(block, old, false);
        }
    }

    /// When the block was used last.
    pub(super) fn last_use(&self, block: u64) -> Option<u64> {
        self.entries.get(&block).map(|entry| entry.last)
    }

    /// Makes the lists if there are none. What did not come true is no longer believed.
    pub(super) fn prepare(&mut self, now: u64) {
        if !self.is_listing {
            self.is_listing = true;
            let entries: Vec<_> = self.entries.iter().map(|(block, entry)| (*block, *entry)).collect();
            entries.into_iter().for_each(|(block, entry)| self.list(block, entry, true));
        }
        while let Some(&(next, block)) = self.foretold.first().filter(|(next, _)| *next < now) {
            self.foretold.remove(&(next, block));
            if let Some(entry) = self.entries.get_mut(&block) {
                entry.next = None;
                let entry = *entry;
                self.list(block, entry, true);
            }
        }
    }

    /// The block on the device that is used last, and when, of those that may leave.
    pub(super) fn farthest(&self, now: u64, may_leave: impl Fn(u64, u64) -> bool) -> Option<(u64, u64)> {
        let may_leave = |(next, block): &(u64, u64)| may_leave(*block, *next);
        let strangers = self.strangers.iter().map(|(last, block)| (2 * now - last, *block));
        let stranger = strangers.take(LOOKS).find(may_leave);
        let is_young = |block: u64| self.last_use(block).is_some_and(|last| last + YOUNG > now);
        let mut foretold = self.foretold.iter().rev().copied().filter(may_leave).take(LOOKS);
        let old = foretold.find(|(_, block)| !is_young(*block));
        old.max(stranger).or_else(|| self.foretold.iter().rev().copied().find(may_leave))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: what was used a moment ago leaves and is used again at once; or nothing can leave
    //! where all is young.
    use super::*;

    #[test]
    fn the_farthest_that_is_not_young_leaves() {
        let mut order = LeavingOrder::default();
        order.used(1, 0, Some(1000), true);
        order.used(2, 90, Some(2000), true);
        order.used(3, 95, Some(3000), false);
        order.prepare(100);
        assert_eq!(order.farthest(100, |_, _| true), Some((1000, 1)), "3 cannot leave, and 2 is young");
        assert_eq!(order.farthest(90 + YOUNG, |_, _| true), Some((2000, 2)));
        assert_eq!(order.farthest(90 + YOUNG, |block, next| block != 2 && next > 100), Some((1000, 1)));
        order.remove(1);
        assert_eq!(order.farthest(100, |_, _| true), Some((2000, 2)), "there is no other");
    }

    #[test]
    fn what_did_not_come_true_is_no_longer_believed() {
        let mut order = LeavingOrder::default();
        order.prepare(0);
        order.used(1, 0, Some(50), true);
        order.used(2, 10, Some(400), true);
        order.prepare(300);
        assert_eq!(order.farthest(300, |_, _| true), Some((600, 1)), "as far away as the last use");
    }
}
