//! Which blocks change places, once and for all: those that are used often and lie on the host,
//! with those that are used seldom and lie on the device. After that nothing moves, and what stays
//! on the host is read from there.
//!
//! A training uses the states of its optimizer once a step, and its activations many times; the
//! first were allocated first, so they have the device where memory stays as it was allocated.
//!
//! A plain function: the moves are told, and made by the caller.

use std::collections::BTreeSet;

use super::keys::BlockKey;
use super::residency::{CHUNK, PlacedBlock};

/// A block that comes is used so many times as often as each that leaves for it: counts of a few
/// uses differ by chance, and equal blocks must not change places for ever.
const OFTENER: u32 = 2;

/// And so many times more.
const MORE: u32 = 2;

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

/// The exchange that puts the blocks that are used most on the device, beside `room` bytes that are
/// unused there. A block comes whole or not at all.
pub(super) fn exchange(mut blocks: Vec<UsedBlock>, mut room: u64) -> BlockExchange {
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
            let is_colder = |cold: &&&UsedBlock| {
                hot.uses >= cold.uses.saturating_mul(OFTENER).saturating_add(MORE) && cold.block != hot.block
            };
            let Some(leaver) = cold.next_if(|cold| is_colder(&cold)) else { break };
            exchange.leave.push((leaver.block, leaver.placed.on_device));
            left.insert(leaver.block);
            room += leaver.placed.on_device;
        }
        if room < missing {
            // Those that would have left for it alone stay.
            exchange.leave.truncate(before);
            break;
        }
        exchange.come.push((hot.block, missing));
        room -= missing;
    }
    exchange
}

/// The exchange after which so many bytes of each block are on the device as before, where there is
/// room.
pub(super) fn back_to(before: impl Iterator<Item = (BlockKey, PlacedBlock, u64)>) -> BlockExchange {
    let mut exchange = BlockExchange::default();
    for (block, placed, bytes) in before {
        let beyond = placed.on_device.saturating_sub(bytes) / CHUNK * CHUNK;
        if beyond > 0 && placed.can_leave() {
            exchange.leave.push((block, beyond));
        }
        if placed.on_device < bytes {
            exchange.come.push((block, bytes - placed.on_device));
        }
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
            placed: PlacedBlock { bytes, on_device, stays: false, away: 0 },
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
        assert_eq!(exchange(blocks.to_vec(), 0), expected);
        assert_eq!(exchange(made(&blocks, &expected), 0), BlockExchange::default());
        let alike = [block(1, 8, 8, 10), block(2, 8, 0, 12)];
        assert_eq!(exchange(alike.to_vec(), 0), BlockExchange::default(), "chance");
        let room = BlockExchange { come: vec![(2.into(), 8 * CHUNK)], ..BlockExchange::default() };
        assert_eq!(exchange(alike.to_vec(), 8 * CHUNK), room, "no other leaves for it");
    }

    proptest! {
        #[test]
        fn an_exchange_is_possible_and_ends(
            blocks in proptest::collection::vec((2..20_u64, 0..20_u64, 0..30_u32), 1..30), room in 0..30_u64,
        ) {
            let list = |(name, (chunks, on_device, uses)): (usize, &(u64, u64, u32))| {
                block(name as u64, *chunks, *on_device.min(chunks), *uses)
            };
            let blocks: Vec<UsedBlock> = blocks.iter().enumerate().map(list).collect();
            let mut left = room * CHUNK;
            let first = exchange(blocks.clone(), left);
            let sum = |list: &[(BlockKey, u64)]| list.iter().map(|(_, bytes)| bytes).sum::<u64>();
            prop_assert!(sum(&first.come) <= left + sum(&first.leave));
            let both: BTreeSet<_> = first.come.iter().chain(&first.leave).map(|(block, _)| *block).collect();
            prop_assert_eq!(both.len(), first.come.len() + first.leave.len(), "each block once");
            left = left + sum(&first.leave) - sum(&first.come);
            let next = exchange(made(&blocks, &first), left);
            prop_assert!(next.leave.is_empty(), "{:?} after {:?}", next, first);
        }
    }
}
