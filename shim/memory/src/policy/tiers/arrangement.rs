//! Which blocks change places, once and for all: those that are used often and lie on the host,
//! with those that are used seldom and lie on the device. After that nothing moves, and what stays
//! on the host is read from there.
//!
//! A training uses the states of its optimizer once a step, and its activations many times; the
//! first were allocated first, so they have the device where memory stays as it was allocated.
//!
//! What is used often by chance for a while does not stay so, and a program may work in phases. So
//! exchanges have a budget: a share of the time over the link, which is small in the long run.
//!
//! Plain functions and values: the moves are told, and made by the caller.

use std::collections::BTreeSet;
use std::time::Duration;

use super::keys::BlockKey;
use super::residency::{CHUNK, PlacedBlock};

/// A block that comes is used more often than each that leaves for it, by so many uses and so many
/// standard deviations of their difference: counts of a few uses differ by chance, and equal blocks
/// must not change places for ever.
const MORE: u32 = 2;
const DEVIATIONS: u64 = 2;

/// Exchanges take at most one part in so many of the time, until all that is on the host could have
/// changed places once; and one in so many after that.
const EARLY_PART: u32 = 8;
const LATE_PART: u32 = 32;

/// Bytes that cross the link in a microsecond, in both directions together.
const LINK: u64 = 50_000;

/// A block, and how often it was used lately.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsedBlock {
    pub(super) block: BlockKey,
    pub(super) placed: PlacedBlock,
    pub(super) uses: u32,
}

/// Bytes that leave, and bytes that come.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BlockExchange {
    pub(super) leave: Vec<(BlockKey, u64)>,
    pub(super) come: Vec<(BlockKey, u64)>,
}

impl BlockExchange {
    /// Bytes that cross the link.
    fn bytes(&self) -> u64 {
        self.leave.iter().chain(&self.come).map(|(_, bytes)| bytes).sum()
    }
}

/// Bytes that exchanges have moved, and may move.
#[derive(Debug, Default)]
pub(super) struct ExchangeBudget {
    moved: u64,
}

impl ExchangeBudget {
    /// Bytes that may move by now: the shortage has lasted for that time, and so many bytes are on
    /// the host.
    pub(super) fn left(&self, elsewhere: u64, time: Duration) -> u64 {
        let over_link = |part: u32| LINK.saturating_mul((time / part).as_micros() as u64);
        let once = elsewhere.saturating_mul(2);
        over_link(EARLY_PART).min(once.saturating_add(over_link(LATE_PART))).saturating_sub(self.moved)
    }

    pub(super) fn spend(&mut self, exchange: &BlockExchange) {
        self.moved = self.moved.saturating_add(exchange.bytes());
    }
}

/// Bytes that launches used from the host, where blocks lie now and where they were allocated.
#[derive(Debug, Default)]
pub(super) struct HostReads {
    now: u64,
    at_home: u64,
}

impl HostReads {
    #[inline]
    pub(super) fn add(&mut self, now: u64, at_home: u64) {
        (self.now, self.at_home) = (self.now.saturating_add(now), self.at_home.saturating_add(at_home));
    }

    /// Less by a tenth at least.
    pub(super) fn are_less(&self) -> bool {
        self.now < self.at_home - self.at_home / 10
    }
}

/// Is a block that was used so often to change places with one that was used less?
fn is_used_more(hot: u32, cold: u32) -> bool {
    let beyond = u64::from(hot.saturating_sub(cold).saturating_sub(MORE));
    let chance = DEVIATIONS * DEVIATIONS * (u64::from(hot) + u64::from(cold));
    beyond > 0 && beyond * beyond >= chance
}

/// The exchange that puts the blocks that are used most on the device, beside `room` bytes that are
/// unused there, and moves at most `most` bytes. A block comes whole or not at all.
pub(super) fn exchange(mut blocks: Vec<UsedBlock>, mut room: u64, mut most: u64) -> BlockExchange {
    blocks.sort_by_key(|it| (it.uses, it.block));
    let mut cold = blocks.iter().filter(|it| it.placed.can_leave()).peekable();
    let (mut exchange, mut left) = (BlockExchange::default(), BTreeSet::new());
    for hot in blocks.iter().rev().filter(|it| it.placed.elsewhere() > 0 && !it.placed.stays) {
        // A part of it was on the device, and has left for one that is used more.
        if left.contains(&hot.block) {
            break;
        }
        let missing = hot.placed.elsewhere();
        let before = exchange.leave.len();
        while room < missing {
            let is_colder = |cold: &&UsedBlock| is_used_more(hot.uses, cold.uses) && cold.block != hot.block;
            let Some(leaver) = cold.next_if(is_colder) else { break };
            exchange.leave.push((leaver.block, leaver.placed.on_device));
            left.insert(leaver.block);
            room += leaver.placed.on_device;
        }
        let leaving: u64 = exchange.leave[before..].iter().map(|(_, bytes)| bytes).sum();
        if room < missing || leaving + missing > most {
            // Those that would have left for it alone stay.
            exchange.leave.truncate(before);
            break;
        }
        exchange.come.push((hot.block, missing));
        (room, most) = (room - missing, most - missing - leaving);
    }
    exchange
}

/// The exchange after which as many bytes of each block are on the device as before, or more, where
/// there is room beside `room` bytes that are unused there. What came leaves only for what comes,
/// and first what was used least: it may be that a shortage has passed meanwhile.
pub(super) fn back_to(before: impl Iterator<Item = (UsedBlock, u64)>, mut room: u64) -> BlockExchange {
    let (mut exchange, mut beyond) = (BlockExchange::default(), Vec::new());
    for (UsedBlock { block, placed, uses }, bytes) in before {
        let more = placed.on_device.saturating_sub(bytes) / CHUNK * CHUNK;
        if more > 0 && placed.can_leave() {
            beyond.push((uses, block, more));
        }
        if placed.on_device < bytes {
            exchange.come.push((block, bytes - placed.on_device));
        }
    }
    beyond.sort_unstable();
    let missing: u64 = exchange.come.iter().map(|(_, bytes)| bytes).sum();
    for (_, block, bytes) in beyond {
        if room >= missing {
            break;
        }
        exchange.leave.push((block, bytes));
        room += bytes;
    }
    exchange
}

#[cfg(test)]
mod tests {
    //! Hazard (thrashing): blocks change places again and again. Hazard (silent degradation): what
    //! is used most stays on the host.
    use proptest::prelude::*;

    use super::*;

    fn block(name: u64, chunks: u64, on_device: u64, uses: u32) -> UsedBlock {
        let (bytes, on_device) = (chunks * CHUNK, on_device * CHUNK);
        UsedBlock {
            block: name.into(),
            placed: PlacedBlock { bytes, on_device, home: on_device, stays: false, away: 0 },
            uses,
        }
    }

    fn made(blocks: &[UsedBlock], exchange: &BlockExchange) -> Vec<UsedBlock> {
        let change = |it: &UsedBlock| {
            let sum = |list: &[(BlockKey, u64)]| -> u64 {
                list.iter().filter(|(block, _)| *block == it.block).map(|(_, bytes)| bytes).sum()
            };
            let on_device = it.placed.on_device + sum(&exchange.come) - sum(&exchange.leave);
            UsedBlock { placed: PlacedBlock { on_device, ..it.placed }, ..*it }
        };
        blocks.iter().map(change).collect()
    }

    #[test]
    fn what_is_used_often_changes_places_with_what_is_not() {
        let blocks = [block(1, 8, 8, 1), block(2, 8, 8, 9), block(3, 8, 0, 20), block(4, 8, 0, 1)];
        let expected =
            BlockExchange { leave: vec![(1.into(), 8 * CHUNK)], come: vec![(3.into(), 8 * CHUNK)] };
        assert_eq!(exchange(blocks.to_vec(), 0, u64::MAX), expected);
        assert_eq!(exchange(made(&blocks, &expected), 0, u64::MAX), BlockExchange::default());
        let alike = [block(1, 8, 8, 2), block(2, 8, 0, 9)];
        assert_eq!(exchange(alike.to_vec(), 0, u64::MAX), BlockExchange::default(), "chance");
        let room = BlockExchange { come: vec![(2.into(), 8 * CHUNK)], ..BlockExchange::default() };
        assert_eq!(exchange(alike.to_vec(), 8 * CHUNK, u64::MAX), room, "no other leaves for it");
        let often = [block(1, 8, 8, 1000), block(2, 8, 0, 1200)];
        assert_eq!(exchange(often.to_vec(), 0, u64::MAX).come, [(2.into(), 8 * CHUNK)], "no chance");
        assert_eq!(exchange(often.to_vec(), 0, 15 * CHUNK), BlockExchange::default(), "no budget");
    }

    /// Hazard (latency): a program whose phases use other blocks moves memory all the time.
    #[test]
    fn exchanges_have_a_share_of_the_time() {
        let (mut budget, elsewhere) = (ExchangeBudget::default(), 1_000 * CHUNK);
        assert_eq!(budget.left(elsewhere, Duration::ZERO), 0);
        let second = Duration::from_secs(1);
        assert_eq!(budget.left(elsewhere, second / 10), LINK * 100_000 / 8);
        let exchange =
            BlockExchange { leave: vec![(1.into(), elsewhere)], come: vec![(2.into(), elsewhere)] };
        budget.spend(&exchange);
        assert_eq!(budget.left(elsewhere, second), LINK * 1_000_000 / 32);
        assert_eq!(budget.left(elsewhere, second / 10), 0);
    }

    proptest! {
        #[test]
        fn an_exchange_is_possible_and_ends(
            blocks in proptest::collection::vec((2..20_u64, 0..20_u64, 0..30_u32), 1..30), room in 0..30_u64, most in 0..200_u64,
        ) {
            let list = |(name, (chunks, on_device, uses)): (usize, &(u64, u64, u32))| {
                block(name as u64, *chunks, *on_device.min(chunks), *uses)
            };
            let blocks: Vec<UsedBlock> = blocks.iter().enumerate().map(list).collect();
            let mut left = room * CHUNK;
            let first = exchange(blocks.clone(), left, most * CHUNK);
            prop_assert!(first.bytes() <= most * CHUNK);
            let sum = |list: &[(BlockKey, u64)]| list.iter().map(|(_, bytes)| bytes).sum::<u64>();
            prop_assert!(sum(&first.come) <= left + sum(&first.leave));
            let both: BTreeSet<_> = first.come.iter().chain(&first.leave).map(|(block, _)| *block).collect();
            prop_assert_eq!(both.len(), first.come.len() + first.leave.len(), "each block once");
            left = left + sum(&first.leave) - sum(&first.come);
            let whole = exchange(made(&blocks, &first), left, u64::MAX);
            let left = left + sum(&whole.leave) - sum(&whole.come);
            let last = exchange(made(&made(&blocks, &first), &whole), left, u64::MAX);
            prop_assert!(last.leave.is_empty(), "{:?} after {:?}", last, whole);
        }
    }
}
