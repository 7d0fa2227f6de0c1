//! Our policy: what comes next if the program repeats itself, else what was used lately.

use std::collections::HashMap;

use super::heat::Heat;
use super::horizon::{self, Future};
use super::repetition::{EventKind, Repetition};
use super::residency::Residency;

/// What a mover is to do at a stop. Moves are made in their order, or the device would be too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierMove {
    /// So many bytes of a block leave the device.
    Leave {
        /// The block.
        block: u64,
        /// Whole chunks, or all of it.
        bytes: u64,
    },
    /// So many bytes of a block come to the device.
    Come {
        /// The block.
        block: u64,
        /// Whole chunks, or all of it.
        bytes: u64,
    },
}

/// What a policy has to keep to.
#[derive(Debug, Clone, Copy)]
pub struct TierSettings {
    /// Most bytes on the device.
    pub capacity: u64,
    /// Bytes that one stop moves or makes room for, roughly.
    pub batch: u64,
}

impl TierSettings {
    /// A stop for each sixteenth of the device.
    pub fn of_capacity(capacity: u64) -> Self {
        Self { capacity, batch: (capacity / 16).max(super::CHUNK) }
    }
}

/// A hot block trades places with one that is so much colder.
const COLDER: f64 = 2.0;

/// After so many plans in a row without moves, the next one is two to the power of this many events away: a program whose future is
/// hopeless is not planned for at every launch.
const MOST_IDLE: u32 = 6;

/// Decides what lies on the device. Blocks are named by their users, and a name may come again after its free.
#[derive(Debug)]
pub struct TierPlacer {
    settings: TierSettings,
    residency: Residency,
    past: Repetition,
    heat: Heat,
    launches: u64,
    /// The number of the event that allocated each live block, and back.
    births: HashMap<u64, u64>,
    by_birth: HashMap<u64, u64>,
    /// Number of the first event that the last plan does not serve.
    planned: u64,
    /// Plans in a row without moves.
    idle: u32,
}

impl TierPlacer {
    /// Nothing is allocated yet.
    pub fn new(settings: TierSettings) -> Self {
        Self {
            settings,
            residency: Residency::new(settings.capacity),
            past: Repetition::default(),
            heat: Heat::default(),
            launches: 0,
            births: HashMap::new(),
            by_birth: HashMap::new(),
            planned: 0,
            idle: 0,
        }
    }

    /// A block is allocated. Returns its bytes on the device, after the moves.
    pub fn allocate(&mut self, block: u64, bytes: u64, moves: &mut Vec<TierMove>) -> u64 {
        self.free(block);
        if self.residency.room() < bytes {
            match self.past.period() {
                Some(_) => self.stop(1, moves),
                None => self.let_oldest_leave(bytes, moves),
            }
        }
        let on_device = self.residency.insert(block, bytes);
        self.heat.allocated(block, self.launches);
        let born = self.past.now();
        self.births.insert(block, born);
        self.by_birth.insert(born, block);
        self.past.add(EventKind::Allocate, bytes, born);
        on_device
    }

    /// A kernel is about to be launched that uses these blocks.
    pub fn launch(&mut self, blocks: &[u64], moves: &mut Vec<TierMove>) {
        self.launches += 1;
        let misses = |block: &u64| self.residency.get(*block).is_some_and(|placed| placed.elsewhere() > 0);
        if blocks.iter().any(misses) {
            self.stop(blocks.len() as u64, moves);
        }
        for block in blocks {
            let Some(placed) = self.residency.get(*block) else { continue };
            let born = self.births.get(block).copied().unwrap_or(0);
            self.past.add(EventKind::Use, placed.bytes, born);
            self.heat.used(*block, self.launches);
        }
    }

    /// A block is freed.
    pub fn free(&mut self, block: u64) {
        let Some(placed) = self.residency.get(block) else { return };
        self.residency.remove(block);
        self.heat.remove(block);
        let born = self.births.remove(&block).unwrap_or(0);
        self.past.add(EventKind::Free, placed.bytes, born);
        self.by_birth.remove(&born);
    }

    /// Nothing is in flight, and moves cost only their bytes.
    pub fn quiescent(&mut self, moves: &mut Vec<TierMove>) {
        match self.past.period() {
            Some(_) if self.residency.is_all_on_device() => {}
            Some(_) => self.stop(1, moves),
            None => self.trade(moves),
        }
    }

    /// Moves for what comes next, if it is known and the last plan does not serve the next `events` of it.
    fn stop(&mut self, events: u64, moves: &mut Vec<TierMove>) {
        let now = self.past.now();
        if now + events <= self.planned {
            return;
        }
        let Some(future) = Future::of(&self.past, &self.by_birth) else { return };
        let plan = horizon::plan(future, &self.residency, self.settings.batch);
        let is_idle = plan.leave.is_empty() && plan.come.is_empty();
        self.idle = if is_idle { (self.idle + 1).min(MOST_IDLE) } else { 0 };
        self.planned = now + plan.serves.max(u64::from(is_idle) << self.idle);
        for (block, bytes) in plan.leave {
            self.leave(block, bytes, moves);
        }
        for (block, bytes) in plan.come {
            self.come(block, bytes, moves);
        }
    }

    /// Makes room for a new block, which is used soon, where nothing is known of what comes next.
    fn let_oldest_leave(&mut self, bytes: u64, moves: &mut Vec<TierMove>) {
        let missing = |residency: &Residency| bytes.saturating_sub(residency.room());
        let mut needed = missing(&self.residency);
        let on_device = |block: &u64| self.residency.get(*block).map_or(0, |placed| placed.on_device);
        let oldest: Vec<_> = self
            .heat
            .oldest()
            .take_while(|block| {
                let go_on = needed > 0;
                needed = needed.saturating_sub(on_device(block));
                go_on
            })
            .collect();
        for block in oldest {
            self.leave(block, missing(&self.residency), moves);
        }
    }

    fn leave(&mut self, block: u64, bytes: u64, moves: &mut Vec<TierMove>) -> u64 {
        let bytes = self.residency.leave(block, bytes);
        if bytes > 0 {
            moves.push(TierMove::Leave { block, bytes });
        }
        bytes
    }

    fn come(&mut self, block: u64, bytes: u64, moves: &mut Vec<TierMove>) -> u64 {
        let bytes = self.residency.come(block, bytes);
        if bytes > 0 {
            moves.push(TierMove::Come { block, bytes });
        }
        bytes
    }

    /// Hot blocks that lie elsewhere trade places with cold ones.
    fn trade(&mut self, moves: &mut Vec<TierMove>) {
        let heat = |block: u64| self.heat.of(block, self.launches);
        let blocks = || self.residency.blocks();
        let mut hot: Vec<_> =
            blocks().filter(|(_, b)| b.elsewhere() > 0).map(|(key, _)| (heat(key), key)).collect();
        let mut cold: Vec<_> =
            blocks().filter(|(_, b)| b.on_device > 0).map(|(key, _)| (heat(key), key)).collect();
        hot.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
        cold.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
        let mut budget = self.settings.batch;
        for (heat, block) in hot {
            let Some(placed) = self.residency.get(block).filter(|_| budget > 0 && heat > 0.0) else { return };
            while self.residency.room() < placed.elsewhere() {
                let Some((_, colder)) = cold.pop_if(|cold| cold.0 * COLDER + 1.0 < heat) else { break };
                let wanted = placed.elsewhere() - self.residency.room();
                self.leave(colder, wanted, moves);
            }
            budget = budget.saturating_sub(self.come(block, placed.elsewhere(), moves));
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a move of memory that is dead, that is not there, or for which there is no room.
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::policy::tiers::CHUNK;

    #[derive(Debug, Clone)]
    enum Op {
        Allocate(u64),
        Launch(Vec<usize>),
        Free(usize),
        Quiescent,
    }

    fn op() -> impl Strategy<Value = Op> {
        let bytes = prop_oneof![1..6 * CHUNK, (1..6_u64).prop_map(|chunks| chunks * CHUNK), Just(512)];
        prop_oneof![
            3 => bytes.prop_map(Op::Allocate),
            4 => proptest::collection::vec(any::<usize>(), 0..4).prop_map(Op::Launch),
            2 => any::<usize>().prop_map(Op::Free),
            1 => Just(Op::Quiescent),
        ]
    }

    /// What the moves amount to.
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

    /// Plays the operations `periods` times, with what is left freed in between. Returns the bytes that were moved.
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
                    Op::Launch(set) if !live.is_empty() => {
                        let set: Vec<_> = set.iter().map(|index| live[index % live.len()]).collect();
                        placer.launch(&set, &mut moves);
                    }
                    Op::Free(index) if !live.is_empty() => {
                        let block = live.swap_remove(index % live.len());
                        placer.free(block);
                        mirror.blocks.remove(&block);
                    }
                    Op::Quiescent => placer.quiescent(&mut moves),
                    Op::Launch(_) | Op::Free(_) => {}
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

    /// The placer is told of blocks that nobody allocated, and of names that come again.
    #[test]
    fn strange_names_change_nothing() {
        let (mut placer, mut moves) = (TierPlacer::new(TierSettings::of_capacity(4 * CHUNK)), Vec::new());
        placer.free(7);
        placer.launch(&[7, 8], &mut moves);
        assert_eq!(placer.allocate(7, 3 * CHUNK, &mut moves), 3 * CHUNK);
        assert_eq!(placer.allocate(7, 4 * CHUNK, &mut moves), 4 * CHUNK);
        assert_eq!(placer.allocate(8, 0, &mut moves), 0);
        assert_eq!((placer.births.len(), placer.by_birth.len()), (2, 2));
    }
}
