//! Hazard: a move of memory that is dead, that is not there, or for which there is no room.
use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::policy::tiers::CHUNK;

mod graph_network;

#[derive(Debug, Clone)]
enum Op {
    Allocate(u64),
    /// Blocks, of which so many are used as one.
    Launch(Vec<usize>, usize),
    Free(usize),
    Quiescent,
}

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![1..6 * CHUNK, (1..6_u64).prop_map(|chunks| chunks * CHUNK), Just(512)];
    prop_oneof![
        3 => bytes.prop_map(Op::Allocate),
        4 => (proptest::collection::vec(any::<usize>(), 0..6), 1..4_usize).prop_map(|(set, together)| Op::Launch(set, together)),
        2 => any::<usize>().prop_map(Op::Free),
        1 => Just(Op::Quiescent),
    ]
}

/// The state of the device after the moves.
#[derive(Default)]
struct Mirror {
    /// Bytes, and those on the device.
    blocks: HashMap<u64, (u64, u64)>,
    moved: u64,
}

impl Mirror {
    fn used(&self) -> u64 {
        self.blocks.values().map(|(_, on_device)| on_device).sum()
    }

    fn make(&mut self, moves: &mut Vec<TierMove>, capacity: u64) {
        let named = moves.iter().map(|(TierMove::Leave { block, .. } | TierMove::Come { block, .. })| block);
        let blocks: std::collections::HashSet<_> = named.collect();
        assert_eq!(blocks.len(), moves.len(), "a block leaves for itself, or in parts: {moves:?}");
        for step in moves.drain(..) {
            match step {
                TierMove::Leave { block, bytes } => {
                    let (_, on_device) = self.blocks.get_mut(&block).expect("dead memory leaves");
                    *on_device = on_device.checked_sub(bytes).expect("it is not there");
                    self.moved += bytes;
                }
                TierMove::Come { block, bytes } => {
                    let (all, on_device) = self.blocks.get_mut(&block).expect("dead memory comes");
                    *on_device += bytes;
                    assert!(*on_device <= *all, "more than there is of it");
                    self.moved += bytes;
                }
            }
            assert!(self.used() <= capacity, "no room");
        }
    }
}

/// Plays the operations `periods` times, and frees the blocks that are left in between. Returns
/// the bytes that were moved.
fn play(ops: &[Op], periods: usize, capacity: u64) -> u64 {
    let mut placer = TierPlacer::new(TierSettings::of_capacity(capacity));
    let (mut mirror, mut live, mut moves, mut next) = (Mirror::default(), Vec::new(), Vec::new(), 0);
    for _ in 0..periods {
        for op in ops {
            match op {
                Op::Allocate(bytes) => {
                    let on_device = placer.allocate(next, *bytes, &mut moves);
                    mirror.make(&mut moves, capacity);
                    mirror.blocks.insert(next, (*bytes, on_device));
                    live.push(next);
                    next += 1;
                }
                Op::Launch(set, together) if !live.is_empty() => {
                    let set: Vec<_> = set.iter().map(|index| live[index % live.len()]).collect();
                    placer.launch(set.chunks(*together).map(|group| group.iter().copied()), &mut moves);
                }
                Op::Free(index) if !live.is_empty() => {
                    let block = live.swap_remove(index % live.len());
                    placer.free(block);
                    mirror.blocks.remove(&block);
                }
                Op::Quiescent => placer.quiescent(&mut moves),
                Op::Launch(..) | Op::Free(_) => {}
            }
            mirror.make(&mut moves, capacity);
            assert!(mirror.used() <= capacity, "more on the device than it holds");
        }
        for block in live.drain(..) {
            placer.free(block);
            mirror.blocks.remove(&block);
        }
    }
    mirror.moved
}

proptest! {
    #[test]
    fn moves_are_possible_and_the_device_is_large_enough(
        ops in proptest::collection::vec(op(), 1..80),
        periods in 1..5_usize,
        capacity in 0..12 * CHUNK,
    ) {
        play(&ops, periods, capacity);
    }

    #[test]
    fn where_all_fits_nothing_moves(ops in proptest::collection::vec(op(), 1..60), periods in 1..5_usize) {
        prop_assert_eq!(play(&ops, periods, 60 * 6 * CHUNK), 0);
    }
}

/// Hazard: blocks that are used in turn, and read slowly where they lie, are carried to the
/// device whole in each period, or not at all.
#[test]
fn who_reads_the_host_slowly_has_what_it_uses_next_on_the_device() {
    const BLOCKS: u64 = 40;
    let (bytes, capacity) = (4 * CHUNK, 24 * 4 * CHUNK);
    let mut placer = TierPlacer::new(TierSettings::of_capacity(capacity));
    let (mut mirror, mut moves) = (Mirror::default(), Vec::new());
    for block in 0..BLOCKS {
        let on_device = placer.allocate(block, bytes, &mut moves);
        mirror.make(&mut moves, capacity);
        mirror.blocks.insert(block, (bytes, on_device));
    }
    let (mut moved, mut slow) = (Vec::new(), Vec::new());
    for period in 0..30 {
        placer.set_eager(period >= 4);
        let (before, mut elsewhere) = (mirror.moved, 0);
        for block in 0..BLOCKS {
            placer.launch([[block]], &mut moves);
            mirror.make(&mut moves, capacity);
            let (all, on_device) = mirror.blocks[&block];
            elsewhere += all - on_device;
        }
        moved.push((mirror.moved - before) / bytes);
        slow.push(elsewhere / bytes);
    }
    // Of 40 blocks 16 do not fit: both ways.
    let last = moved.len() - 1;
    assert!(slow[1] >= 15 && slow[last] <= 2, "used from the host: {slow:?}");
    assert!((28..=44).contains(&moved[last]), "moved: {moved:?}");
}

/// Hazard: a block that did not move, or cannot, is believed to have moved, or is tried at each
/// stop.
#[test]
fn what_is_told_is_believed() {
    let (mut placer, mut moves) = (TierPlacer::new(TierSettings::of_capacity(8 * CHUNK)), Vec::new());
    placer.placed(1, 4 * CHUNK, 4 * CHUNK);
    placer.placed(2, 4 * CHUNK, 4 * CHUNK);
    placer.make_room(2 * CHUNK, &mut moves);
    assert_eq!(moves, [TierMove::Leave { block: 1, bytes: 2 * CHUNK }]);
    placer.correct(1, 4 * CHUNK);
    placer.set_pinned(1, true);
    moves.clear();
    placer.make_room(2 * CHUNK, &mut moves);
    assert_eq!(moves, [TierMove::Leave { block: 2, bytes: 2 * CHUNK }], "the first one cannot");
    placer.correct(2, CHUNK);
    placer.set_capacity(6 * CHUNK);
    moves.clear();
    placer.make_room(2 * CHUNK, &mut moves);
    assert_eq!(moves, [TierMove::Leave { block: 2, bytes: CHUNK }]);
    placer.correct(7, CHUNK);
    placer.set_pinned(7, true);
    assert_eq!(placer.residency.room(), 2 * CHUNK);
}

/// The placer is told of blocks that were never allocated, and of names that come again.
/// Hazard (latency): a program is slower than without moves after a trial that gained nothing.
#[test]
fn blocks_go_back_to_where_they_lay() {
    const MIB: u64 = 1 << 20;
    let mut placer = TierPlacer::new(TierSettings::of_capacity(64 * MIB));
    let places = [(1, 32, 32), (2, 32, 24), (3, 32, 0), (4, 16, 8)];
    places.iter().for_each(|(name, bytes, on_device)| placer.placed(*name, bytes * MIB, on_device * MIB));
    let before = placer.placement();
    placer.free(4);
    placer.placed(5, 4 * MIB, 4 * MIB);
    [(1, 8), (2, 20), (3, 32)].iter().for_each(|(name, on_device)| {
        placer.correct(*name, on_device * MIB);
    });
    let mut moves = Vec::new();
    placer.restore(&before, &mut moves);
    let leave = TierMove::Leave { block: 3, bytes: 32 * MIB };
    let [one, two] = [(1, 24), (2, 4)].map(|(block, bytes)| TierMove::Come { block, bytes: bytes * MIB });
    assert_eq!(moves, [leave, one, two]);
    placer.restore(&before, &mut moves);
    assert_eq!(moves.len(), 3, "all lie as before");
    placer.set_pinned(1, true);
    placer.correct(1, 0);
    placer.restore(&before, &mut moves);
    assert_eq!(moves.len(), 3, "it cannot move");
}

/// Hazard (thrashing): what lay on the host when it was allocated leaves a device that has room for
/// all by now.
#[test]
fn blocks_go_back_only_as_far_as_others_need_their_room() {
    const MIB: u64 = 1 << 20;
    let mut placer = TierPlacer::new(TierSettings::of_capacity(64 * MIB));
    let places = [(1, 32, 32), (2, 16, 0), (3, 16, 0)];
    places.iter().for_each(|(name, bytes, on_device)| placer.placed(*name, bytes * MIB, on_device * MIB));
    (0..100).for_each(|_| placer.used([[3]]));
    assert!([2, 3].iter().all(|name| placer.correct(*name, 16 * MIB)));
    let mut moves = Vec::new();
    placer.restore(&placer.home(), &mut moves);
    assert_eq!(moves, [], "all fit");
    placer.correct(1, 20 * MIB);
    placer.set_capacity(52 * MIB);
    placer.restore(&placer.home(), &mut moves);
    let (leave, come) =
        (TierMove::Leave { block: 2, bytes: 16 * MIB }, TierMove::Come { block: 1, bytes: 12 * MIB });
    assert_eq!(moves, [leave, come], "the one that is used less");
}

/// Hazard (silent degradation): what was allocated first has the device, and what is used in each
/// launch is read from the host.
#[test]
fn blocks_are_arranged_by_their_uses_and_then_stay() {
    const MIB: u64 = 1 << 20;
    let mut placer = TierPlacer::new(TierSettings::of_capacity(64 * MIB));
    placer.placed(1, 32 * MIB, 32 * MIB);
    placer.placed(2, 32 * MIB, 32 * MIB);
    placer.placed(3, 32 * MIB, 0);
    placer.used([[1]]);
    (0..300).for_each(|number| placer.used([[2 + number % 2]]));
    let mut moves = Vec::new();
    let hour = Duration::from_secs(3600);
    placer.arrange(Duration::ZERO, &mut moves);
    assert_eq!(moves, [], "no budget");
    (0..300).for_each(|number| placer.used([[2 + number % 2]]));
    placer.arrange(hour, &mut moves);
    let (leave, come) =
        (TierMove::Leave { block: 1, bytes: 32 * MIB }, TierMove::Come { block: 3, bytes: 32 * MIB });
    assert_eq!(moves, [leave, come]);
    assert!(!placer.reads_less(), "nothing was used since");
    (0..10).for_each(|number| placer.used([[2 + number % 2]]));
    assert!(placer.reads_less());
    (0..10_000).for_each(|number| {
        placer.used([[2 + number % 2]]);
        placer.arrange(hour, &mut moves);
    });
    assert_eq!(moves.len(), 2);
    placer.used([[1]]);
    (0..300_000).for_each(|_| {
        placer.used([[1]]);
        placer.arrange(hour, &mut moves);
    });
    assert_eq!(moves.len(), 4, "the program uses another one now");
    moves.clear();
    placer.restore(&placer.home(), &mut moves);
    assert_eq!(moves.len(), 2, "{moves:?}");
    assert_eq!(placer.bytes_elsewhere(), 32 * MIB);
    assert!(placer.placement().0.contains(&(3, 0)), "where it was allocated");
}

#[test]
fn strange_names_change_nothing() {
    let (mut placer, mut moves) = (TierPlacer::new(TierSettings::of_capacity(4 * CHUNK)), Vec::new());
    placer.free(7);
    placer.launch([[7], [8]], &mut moves);
    assert_eq!(placer.allocate(7, 3 * CHUNK, &mut moves), 3 * CHUNK);
    assert_eq!(placer.allocate(7, 4 * CHUNK, &mut moves), 4 * CHUNK);
    assert_eq!(placer.allocate(8, 0, &mut moves), 0);
    assert_eq!(placer.past.blocks(), 2);
}
