//! The program's next events, turned into the blocks that have to leave and to come at a stop.
//!
//! Belady's rule, on a future that is a guess: the block that is used last leaves first. A block
//! that is used once, and not much sooner than the one that would leave for it, stays where it is,
//! because reading it over the link once costs as much as its move. A stop serves a part of the
//! future, so that one pays for many launches. It ends before an event for which a block would
//! leave that is used sooner than much of what the events before need: that leaves at the next
//! stop.
//!
//! Invariants: moves are possible in their order; a block that leaves at a stop does not come at
//! it, and a block that comes does not leave; a block is named once.

use super::arrangement::BlockExchange;
use super::groups::Groups;
use super::keys::BlockKey;
use super::order::LeavingOrder;
use super::repetition::{EventKind, PastEvent, Repetition};
use super::residency::{CHUNK, PlacedBlock, Residency, SMALLEST, TierMove};
use super::stop_list::StopList;
use crate::vocabulary::sizes::movable_handle;

/// Events that one stop looks ahead at most.
const FARTHEST: u64 = 2048;

/// A block that comes is used that many times sooner than the block that leaves for it: that one
/// crosses the link, too, and the farther use is guessed worse.
const GAIN: u64 = 3;

/// One part in so many of the room stays when blocks come back for which nothing is foretold.
const SPARED_PART: u64 = 16;

/// A larger part of the device is not brought for one use, however eager one is: other operands of
/// the same kernel would have to leave for it.
const EAGER_PART: u64 = 3;

/// A block that needs more than half of the device, and is so many times larger than another one,
/// does not make it leave while it lives itself: of the blocks of a kernel the largest is used
/// least by the byte. A gather, say, reads each row of a small table many times for a large one.
const LARGER: u64 = 4;

/// A stop ends early for one part in so many of the device: to wait for less is not worth a stop.
const LATER_PART: u64 = 8;

/// The block that room is made for.
#[derive(Debug, Clone, Copy)]
struct Life {
    /// Bytes of the whole block.
    block: u64,
    /// When it is used, and when it is freed.
    until: u64,
    end: u64,
}

/// A stop under way.
pub(super) struct Stop<'a> {
    pub(super) residency: &'a mut Residency,
    pub(super) order: &'a mut LeavingOrder,
    pub(super) moves: &'a mut Vec<TierMove>,
    now: u64,
    /// A used block comes before its use, and any block that is used later leaves for it.
    eager: bool,
    leaves: StopList,
    /// Blocks that come, or are used so soon that they would.
    comes: StopList,
    /// Room that later allocations will take, and memory that will be freed before them.
    reserved: u64,
    later: u64,
    /// The part of the reserved room that is for huge blocks: blocks that are used with them, and
    /// are much smaller, take of it.
    huge: u64,
    /// For each use that is served so far: when the block is used again, and its bytes.
    served: Vec<(u64, u64)>,
    /// The next stop makes the rest of the room for the event that is served, and for later ones.
    is_early: bool,
}

impl<'a> Stop<'a> {
    pub(super) fn new(
        residency: &'a mut Residency,
        order: &'a mut LeavingOrder,
        moves: &'a mut Vec<TierMove>,
        now: u64,
        eager: bool,
    ) -> Self {
        order.prepare(now);
        Self {
            residency,
            order,
            moves,
            now,
            eager,
            leaves: StopList::default(),
            comes: StopList::default(),
            reserved: 0,
            later: 0,
            huge: 0,
            served: Vec::new(),
            is_early: false,
        }
    }

    fn room(&self) -> u64 {
        self.residency.room().saturating_sub(self.reserved)
    }

    /// The blocks of a launch stay. Returns how long ago each was used.
    pub(super) fn hold(&mut self, blocks: &[BlockKey]) -> Vec<(BlockKey, u64)> {
        let mut ages = Vec::with_capacity(blocks.len());
        for block in blocks {
            let Some(placed) = self.residency.get(*block) else { continue };
            let last = self.order.last_use(*block).unwrap_or(self.now);
            ages.push((*block, self.now - last));
            self.order.used(*block, self.now, Some(self.now), placed.can_leave());
        }
        ages
    }

    /// Room for a block of so many bytes that is allocated after the stop.
    pub(super) fn reserve(&mut self, bytes: u64) {
        let found = bytes.min(self.residency.room());
        self.reserve_of(bytes, found);
    }

    /// The same where `found` bytes are known to be had.
    fn reserve_of(&mut self, bytes: u64, found: u64) {
        self.reserved += found;
        self.huge += if self.is_huge(bytes) { found } else { 0 };
    }

    fn is_huge(&self, bytes: u64) -> bool {
        bytes > self.residency.capacity() / 2
    }

    /// As much of `bytes` as there is room for, after blocks that are used later than `until` have
    /// left.
    pub(super) fn make_room(&mut self, bytes: u64, until: u64) -> u64 {
        self.make_room_for(Life { block: bytes, until, end: until }, bytes)
    }

    /// Room for a new block of so many bytes that lives from `until` to `end`.
    pub(super) fn make_room_for_life(&mut self, bytes: u64, until: u64, end: u64) -> u64 {
        self.make_room_for(Life { block: bytes, until, end }, bytes)
    }

    /// Room for a part of a block. Where that is huge, much smaller ones stay that are used while
    /// it lives.
    fn make_room_for(&mut self, life: Life, bytes: u64) -> u64 {
        let is_huge = self.is_huge(life.block);
        self.take_of_huge(bytes);
        while self.room() < bytes {
            let size = |block| self.residency.get(block).map_or(0, |placed| placed.bytes);
            let is_small = |block| is_huge && size(block) < life.block / LARGER;
            let comes = &self.comes;
            let may_leave = |block, next| (next > life.end || !is_small(block)) && !comes.has(block);
            let Some((next, block)) = self.order.farthest(self.now, life.until, may_leave) else { break };
            let missing = bytes.saturating_add(self.reserved) - self.residency.room();
            if self.has_better_victims(next, missing) {
                self.is_early = true;
                break;
            }
            let bytes = self.residency.leave(block, missing, self.now);
            self.leaves.add(block, bytes);
            if self.residency.get(block).is_none_or(|placed| placed.on_device == 0) {
                self.order.set_can_leave(block, false);
            }
        }
        bytes.min(self.room())
    }

    /// Does the device hold so much, at the event that is served, that is used again later than a
    /// victim of now? It is needed before that event, so it cannot leave at this stop.
    fn has_better_victims(&self, next: u64, missing: u64) -> bool {
        let later = self.served.iter().filter(|(again, _)| *again > next).map(|(_, bytes)| *bytes);
        later.sum::<u64>() >= missing.max(self.residency.capacity() / LATER_PART)
    }

    /// Much smaller blocks come before the end of a huge one.
    fn take_of_huge(&mut self, bytes: u64) {
        if bytes < self.huge / LARGER {
            let taken = bytes.saturating_sub(self.room());
            (self.reserved, self.huge) = (self.reserved - taken, self.huge - taken);
        }
    }

    /// The missing part of a block comes, if the block is used again, at `until`, before the blocks
    /// that leave for it. Returns its bytes.
    pub(super) fn come(&mut self, block: BlockKey, until: u64) -> u64 {
        let Some(placed) = self.residency.get(block) else { return 0 };
        let missing = placed.elsewhere();
        if missing == 0 || self.leaves.has(block) {
            return 0;
        }
        // From here on it does not leave, not even for itself.
        self.comes.add(block, 0);
        let found = self.make_room_for(Life { block: placed.bytes, until, end: u64::MAX }, missing);
        if found < missing.min(movable_handle(placed.bytes, CHUNK)) {
            return 0;
        }
        let bytes = self.residency.come(block, found);
        if bytes > 0 {
            self.comes.add(block, bytes);
            self.order.set_can_leave(block, placed.bytes >= SMALLEST && !placed.stays);
        }
        bytes
    }

    /// Does a block, or a group of so many bytes, come in place of any block that is used later?
    fn is_eager_for(&self, bytes: u64) -> bool {
        self.eager && bytes <= self.residency.capacity() / EAGER_PART
    }

    /// The missing parts of blocks that a launch uses as one come. They stay on the host if their
    /// last use is longer ago than that of the blocks that would leave for them.
    pub(super) fn come_used(&mut self, blocks: &[(BlockKey, u64)]) {
        let bytes =
            blocks.iter().filter_map(|(block, _)| self.residency.get(*block)).map(|it| it.bytes).sum();
        let is_eager = self.is_eager_for(bytes);
        for (block, age) in blocks {
            self.come(*block, if is_eager { self.now } else { self.now + age });
        }
    }

    /// Blocks that were used since they left come, if there is room for all of them: the program
    /// has become smaller. Where it has not, a block that comes now would leave for the next
    /// allocation.
    pub(super) fn bring_back(&mut self) {
        let was_missed =
            |block, placed: PlacedBlock| self.order.last_use(block).is_some_and(|last| last > placed.away);
        let missed = self.residency.elsewhere().filter(|(block, placed)| was_missed(*block, *placed));
        let missed: Vec<_> = missed.collect();
        let bytes: u64 = missed.iter().map(|(_, placed)| placed.elsewhere()).sum();
        if bytes <= self.room() - self.room() / SPARED_PART {
            for (block, _) in missed {
                self.come(block, self.now);
            }
        }
    }

    /// All blocks come that there is room for, those that were used last before the others: none
    /// can come later.
    pub(super) fn bring_home(&mut self) {
        let last = |block| self.order.last_use(block);
        let mut away: Vec<_> = self.residency.elsewhere().map(|(block, _)| (last(block), block)).collect();
        away.sort_unstable_by(|one, other| other.cmp(one));
        for (_, block) in away {
            let bytes = self.residency.come(block, self.room());
            self.comes.add(block, bytes);
        }
    }

    /// Some blocks leave, and then others come as far as there is room.
    pub(super) fn exchange(&mut self, exchange: &BlockExchange) {
        for (block, bytes) in &exchange.leave {
            let left = self.residency.leave(*block, *bytes, self.now);
            self.leaves.add(*block, left);
        }
        for (block, bytes) in &exchange.come {
            let came = self.residency.come(*block, *bytes);
            self.comes.add(*block, came);
        }
        for (block, _) in exchange.leave.iter().chain(&exchange.come) {
            let can_leave = self.residency.get(*block).is_some_and(|placed| placed.can_leave());
            self.order.set_can_leave(*block, can_leave);
        }
    }

    /// Serves the events after the next `skipped` ones, until `batch` bytes are moved or made room
    /// for. Returns the number of the first event that needs another stop.
    pub(super) fn serve(&mut self, past: &Repetition, groups: &Groups, skipped: u64, batch: u64) -> u64 {
        let Some(position) = past.position() else { return self.now };
        let mut served = 0;
        let ahead = FARTHEST.min(self.now - position - 1);
        for distance in skipped..ahead {
            match self.serve_one(past, groups, position + 1 + distance, self.now + distance) {
                Some(bytes) if !self.is_early => served += bytes,
                _ => return self.now + distance,
            }
            if served > batch {
                return self.now + distance + 1;
            }
        }
        self.now + ahead
    }

    /// Bytes that were moved or made room for; `None` where the next stop has to be.
    fn serve_one(&mut self, past: &Repetition, groups: &Groups, number: u64, when: u64) -> Option<u64> {
        let event = past.get(number)?;
        match (event.kind, past.heir(event)) {
            (EventKind::Allocate, _) => {
                let again = self.later.min(event.bytes);
                self.later -= again;
                let end = when + past.life(number);
                let found = self.make_room_for_life(event.bytes - again, when, end);
                self.reserve_of(event.bytes, found);
                (found + again == event.bytes).then_some(found)
            }
            (EventKind::Use, Some(used)) => {
                let blocks = groups.members(&used).iter();
                let served = blocks.map(|block| self.serve_use(*block, event, number, when)).sum();
                let again = event.until_next().map_or(u64::MAX, |until| when + until);
                self.served.push((again, event.bytes));
                served
            }
            (EventKind::Use, None) | (EventKind::Meet | EventKind::Part, _) => Some(0),
            (EventKind::Free, Some(block)) => {
                self.later += self.residency.get(block).map_or(0, |placed| placed.on_device);
                Some(0)
            }
            (EventKind::Free, None) => {
                self.later += event.bytes;
                Some(0)
            }
        }
    }

    /// The same for a use of a block at `when`, which answers to the event with that number.
    fn serve_use(&mut self, block: BlockKey, event: &PastEvent, number: u64, when: u64) -> Option<u64> {
        if self.leaves.has(block) {
            return None;
        }
        if self.is_eager_for(event.bytes) {
            return Some(self.come(block, when));
        }
        // A block that was not used since is used next a period later. It takes room that is there,
        // which needs no other stop.
        let next = |distance| self.now + (distance + when - self.now) * GAIN;
        let until = next(event.until_next().unwrap_or(self.now - number));
        let bytes = self.come(block, until);
        Some(if event.until_next().is_some() { bytes } else { 0 })
    }
}

/// However a stop ends, its chosen moves are told: first the leaves, since they make the room.
impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.moves
            .extend(self.leaves.moving().map(|(block, bytes)| TierMove::Leave { block: block.name, bytes }));
        self.moves
            .extend(self.comes.moving().map(|(block, bytes)| TierMove::Come { block: block.name, bytes }));
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: memory moves for nothing.
    use super::*;

    /// The moves of a stop at event 100, on a device that holds `blocks` as (name, chunks, chunks
    /// on the device, next use).
    fn moves(
        capacity: u64,
        blocks: &[(u64, u64, u64, u64)],
        ask: impl FnOnce(&mut Stop<'_>),
    ) -> Vec<TierMove> {
        let (mut residency, mut order) = (Residency::new(capacity * CHUNK), LeavingOrder::default());
        for (block, chunks, on_device, next) in blocks {
            residency.insert_as((*block).into(), chunks * CHUNK, on_device * CHUNK, 0);
            order.used((*block).into(), 0, Some(*next), *on_device > 0);
        }
        let mut moves = Vec::new();
        ask(&mut Stop::new(&mut residency, &mut order, &mut moves, 100, false));
        moves
    }

    #[test]
    fn a_block_does_not_leave_for_itself() {
        let come = |stop: &mut Stop<'_>| assert_eq!(stop.come(1.into(), 100), 0);
        assert_eq!(moves(4, &[(1, 8, 4, 1000)], come), []);
    }

    /// Hazard: a stop for less than a handle, again at each launch.
    #[test]
    fn less_than_a_handle_does_not_come() {
        let come = |stop: &mut Stop<'_>| assert_eq!(stop.come(1.into(), 100), 0);
        assert_eq!(moves(20, &[(1, 64, 17, 110)], come), [], "room for 3 chunks, and handles of 16");
    }

    #[test]
    fn what_is_used_with_a_huge_block_takes_of_its_room() {
        let serve = |stop: &mut Stop<'_>| {
            stop.reserve(12 * CHUNK);
            assert_eq!(stop.come(1.into(), 110), 2 * CHUNK);
        };
        let come = TierMove::Come { block: 1, bytes: 2 * CHUNK };
        assert_eq!(moves(16, &[(1, 2, 0, 110), (2, 4, 4, 500)], serve), [come]);
    }

    #[test]
    fn a_huge_block_does_not_come_for_small_ones_that_are_used() {
        let come = |stop: &mut Stop<'_>| assert_eq!(stop.come(1.into(), 100), 0);
        assert_eq!(moves(16, &[(1, 16, 14, 110), (2, 2, 2, 500)], come), []);
    }

    #[test]
    fn a_block_that_leaves_in_parts_is_named_once() {
        let leave = |stop: &mut Stop<'_>| {
            stop.make_room(CHUNK, 100);
            stop.reserve(CHUNK);
            stop.make_room(CHUNK, 100);
        };
        assert_eq!(moves(4, &[(1, 4, 4, 500)], leave), [TierMove::Leave { block: 1, bytes: 2 * CHUNK }]);
    }
}
