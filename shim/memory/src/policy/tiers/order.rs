//! Which block leaves first: the one whose next use is farthest, as the past foretells it; for a
//! block without a foretold use, the next use is as far away as the last one. A free counts as a
//! use: a block that is about to be freed stays, since to keep it costs nothing for long.
//!
//! A use changes an entry only. The lists are brought up to date when a victim is asked for, so
//! that a launch pays for none of them.
//!
//! Invariants: a block that is not on the device, or is too small to be worth a move, is in neither
//! list after an update; each block is in at most one.

use std::collections::BTreeSet;

use super::keys::{BlockKey, BySlot};

/// Events for which a block that was used does not leave, if another one can: a block that was used
/// a moment ago may be used again before the past says so, and in a loop that is much longer
/// another one is as good.
const YOUNG: u64 = 64;

/// Blocks that are looked at for one that is not young.
const LOOKS: usize = 64;

/// Blocks that are looked at for one that may leave at all.
const MOST: usize = 1024;

/// Changes after which the lists are updated, if there are fewer than half as many blocks.
const CHANGES: usize = 1 << 10;

/// Which list a block is in, and the time that it has there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListPlace {
    Foretold(u64),
    Stranger(u64),
}

#[derive(Debug, Clone, Copy)]
struct OrderEntry {
    last: u64,
    next: Option<u64>,
    can_leave: bool,
    /// Uses since they were counted last, and half of those before.
    uses: u32,
    /// Where the block is listed, which may lag behind the fields above.
    listed: Option<ListPlace>,
    /// The block is in [`LeavingOrder::changed`].
    is_changed: bool,
}

impl OrderEntry {
    fn place(&self) -> Option<ListPlace> {
        let place = self.next.map_or(ListPlace::Stranger(self.last), ListPlace::Foretold);
        self.can_leave.then_some(place)
    }
}

/// Times are numbers of events.
#[derive(Debug, Default)]
pub(super) struct LeavingOrder {
    entries: BySlot<OrderEntry>,
    count: usize,
    /// Blocks whose entries have changed since the last update. Some of them may be freed.
    changed: Vec<BlockKey>,
    /// Blocks by their next use.
    foretold: BTreeSet<(u64, BlockKey)>,
    /// Blocks by their last use.
    strangers: BTreeSet<(u64, BlockKey)>,
}

impl LeavingOrder {
    /// Used now, and next at that time.
    #[inline]
    pub(super) fn used(&mut self, block: BlockKey, now: u64, next: Option<u64>, can_leave: bool) {
        let Some(entry) = self.entries.get_mut(block) else {
            self.count += 1;
            let fresh = OrderEntry { last: now, next, can_leave, uses: 1, listed: None, is_changed: true };
            self.entries.insert(block, fresh);
            return self.note_change(block);
        };
        (entry.last, entry.next, entry.can_leave) = (now, next, can_leave);
        entry.uses = entry.uses.saturating_add(1);
        if !std::mem::replace(&mut entry.is_changed, true) {
            self.note_change(block);
        }
    }

    /// Some of it is on the device, or nothing is.
    pub(super) fn set_can_leave(&mut self, block: BlockKey, can_leave: bool) {
        let Some(entry) = self.entries.get_mut(block) else { return };
        entry.can_leave = can_leave;
        if !std::mem::replace(&mut entry.is_changed, true) {
            self.note_change(block);
        }
    }

    /// Freed blocks may make the list longer than the entries.
    fn note_change(&mut self, block: BlockKey) {
        self.changed.push(block);
        if self.changed.len() > CHANGES.max(2 * self.count) {
            self.update();
        }
    }

    pub(super) fn remove(&mut self, block: BlockKey) {
        if let Some(old) = self.entries.remove(block) {
            self.count -= 1;
            self.unlist(block, old.listed);
        }
    }

    fn unlist(&mut self, block: BlockKey, place: Option<ListPlace>) {
        match place {
            Some(ListPlace::Foretold(next)) => self.foretold.remove(&(next, block)),
            Some(ListPlace::Stranger(last)) => self.strangers.remove(&(last, block)),
            None => false,
        };
    }

    /// Lists each changed block where its entry says.
    fn update(&mut self) {
        while let Some(block) = self.changed.pop() {
            self.list(block);
        }
    }

    fn list(&mut self, block: BlockKey) {
        let Some(entry) = self.entries.get_mut(block) else { return };
        entry.is_changed = false;
        let place = entry.place();
        let old = std::mem::replace(&mut entry.listed, place);
        if old == place {
            return;
        }
        self.unlist(block, old);
        match place {
            Some(ListPlace::Foretold(next)) => self.foretold.insert((next, block)),
            Some(ListPlace::Stranger(last)) => self.strangers.insert((last, block)),
            None => false,
        };
    }

    /// How often the block was used lately.
    pub(super) fn uses(&self, block: BlockKey) -> u32 {
        self.entries.get(block).map_or(0, |entry| entry.uses)
    }

    /// Later uses count twice as much as those so far.
    pub(super) fn age_uses(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.uses /= 2);
    }

    /// When the block was used last.
    pub(super) fn last_use(&self, block: BlockKey) -> Option<u64> {
        self.entries.get(block).map(|entry| entry.last)
    }

    /// Forgets the predictions that did not come true.
    pub(super) fn prepare(&mut self, now: u64) {
        self.update();
        while let Some(&(_, block)) = self.foretold.first().filter(|(next, _)| *next < now) {
            self.entries.get_mut(block).into_iter().for_each(|entry| entry.next = None);
            self.list(block);
        }
    }

    /// The block on the device that is used last, and when, of those that may leave and are used
    /// later than `until`. The cost does not grow with the number of blocks.
    pub(super) fn farthest(
        &mut self,
        now: u64,
        until: u64,
        may_leave: impl Fn(BlockKey, u64) -> bool,
    ) -> Option<(u64, BlockKey)> {
        self.update();
        let may_leave = |(next, block): &(u64, BlockKey)| *next > until && may_leave(*block, *next);
        let strangers = self.strangers.iter().map(|(last, block)| (2 * now - last, *block));
        let stranger = strangers.take(LOOKS).find(may_leave);
        let is_young = |block: BlockKey| self.last_use(block).is_some_and(|last| last + YOUNG > now);
        let later = || self.foretold.iter().rev().take_while(|(next, _)| *next > until).take(MOST).copied();
        let mut foretold = later().filter(may_leave).take(LOOKS);
        let old = foretold.find(|(_, block)| !is_young(*block));
        old.max(stranger).or_else(|| later().find(may_leave))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (thrashing): a block that was used a moment ago leaves and is used again at once; or
    //! no block can leave where all are young.
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Hazard: a list that lags behind its entries evicts another block than one that does not.
        #[test]
        fn late_updates_choose_the_same_victims(
            steps in proptest::collection::vec((0..5_u8, 0..12_u64, proptest::option::of(1..300_u64)), 0..300),
        ) {
            let (mut late, mut at_once) = (LeavingOrder::default(), LeavingOrder::default());
            for (now, (kind, block, next)) in (0..).zip(steps) {
                for order in [&mut late, &mut at_once] {
                    match kind {
                        0 | 1 => order.used(block.into(), now, next.map(|next| now + next), block % 5 > 0),
                        2 => order.set_can_leave(block.into(), next.is_some()),
                        3 => order.remove(block.into()),
                        _ => order.prepare(now),
                    }
                }
                at_once.update();
                if kind == 4 {
                    prop_assert_eq!(late.farthest(now, 0, |_, _| true), at_once.farthest(now, 0, |_, _| true));
                }
            }
        }
    }

    #[test]
    fn changes_are_bounded_where_no_victim_is_ever_asked_for() {
        let mut order = LeavingOrder::default();
        for block in 0..20 * CHANGES as u64 {
            order.used(block.into(), block, None, true);
            order.remove(block.into());
        }
        assert!(order.changed.len() <= CHANGES + 1 && order.strangers.is_empty());
    }

    #[test]
    fn the_farthest_that_is_not_young_leaves() {
        let mut order = LeavingOrder::default();
        order.used(1.into(), 0, Some(1000), true);
        order.used(2.into(), 90, Some(2000), true);
        order.used(3.into(), 95, Some(3000), false);
        order.prepare(100);
        assert_eq!(
            order.farthest(100, 0, |_, _| true),
            Some((1000, 1.into())),
            "3 cannot leave, and 2 is young"
        );
        assert_eq!(order.farthest(90 + YOUNG, 0, |_, _| true), Some((2000, 2.into())));
        assert_eq!(order.farthest(90 + YOUNG, 100, |block, _| block.name != 2), Some((1000, 1.into())));
        order.remove(1.into());
        assert_eq!(order.farthest(100, 0, |_, _| true), Some((2000, 2.into())), "there is no other");
    }

    /// Hazard (latency): a stop looks at each block of the program, because none may leave.
    #[test]
    fn the_blocks_that_are_looked_at_do_not_grow_with_their_number() {
        let looked_at = |until| {
            let mut order = LeavingOrder::default();
            for block in 0..100_000 {
                order.used(block.into(), block, Some(200_000 + block), true);
            }
            let count = std::cell::Cell::new(0);
            let found = order.farthest(100_000, until, |_, _| {
                count.set(count.get() + 1);
                false
            });
            assert_eq!(found, None);
            count.get()
        };
        assert_eq!(looked_at(300_000), 0, "all are used too soon");
        assert_eq!(looked_at(0), 2 * MOST, "once for one that is not young, and once for any");
    }

    #[test]
    fn what_did_not_come_true_is_no_longer_believed() {
        let mut order = LeavingOrder::default();
        order.prepare(0);
        order.used(1.into(), 0, Some(50), true);
        order.used(2.into(), 10, Some(400), true);
        order.prepare(300);
        assert_eq!(order.farthest(300, 0, |_, _| true), Some((600, 1.into())), "as far away as the last use");
    }
}
