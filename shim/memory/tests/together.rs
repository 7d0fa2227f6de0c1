//! Hazard (wrong report): blocks and pieces of different times are added, or memory that was never
//! made counts.

mod support;

use proptest::prelude::*;
use support::model::{MIB, Model};
use wm_driver::{StreamId, Tier};
use wm_memory::{Charge, Manager, ManagerSettings, Order, TierBytes, Together};

const S: Order = Order::Stream(StreamId(0));

fn manager() -> Manager<Model> {
    let settings = ManagerSettings { headroom: 0, keep_idle: 0, ..ManagerSettings::default() };
    Manager::new(Model::new(400 * MIB, 400 * MIB), settings)
}

#[derive(Debug, Clone)]
enum Step {
    Allocate(u64),
    Free(usize),
    Piece(Tier, u64),
    /// A piece that the driver refuses.
    Refused(u64),
    Drop(usize),
    ResetPeaks,
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..9_u64).prop_map(|mib| Step::Allocate(2 * mib * MIB)),
        4 => any::<usize>().prop_map(Step::Free),
        2 => (1..9_u64).prop_map(|mib| Step::Piece(Tier::Device, 2 * mib * MIB)),
        1 => (1..9_u64).prop_map(|mib| Step::Piece(Tier::Host, 2 * mib * MIB)),
        1 => (1..9_u64).prop_map(|mib| Step::Refused(2 * mib * MIB)),
        2 => any::<usize>().prop_map(Step::Drop),
        1 => Just(Step::ResetPeaks),
        1 => Just(Step::Read),
    ]
}

/// The sums as a reader has them that looks after each step.
#[derive(Default)]
struct Reader(Together);

impl Reader {
    fn look(&mut self, live: TierBytes, reserved: TierBytes) {
        let Together { live_peaks, reserved_peaks, .. } = &mut self.0;
        live_peaks.raise_to(&live);
        reserved_peaks.raise_to(&reserved);
        (self.0.live, self.0.reserved) = (live, reserved);
    }
}

proptest! {
    #[test]
    fn the_sums_and_their_peaks_are_those_of_a_reader_after_each_step(
        steps in proptest::collection::vec(step(), 1..80)
    ) {
        let manager = manager();
        let mut blocks: Vec<u64> = Vec::new();
        let mut pieces: Vec<Charge<'_, Model>> = Vec::new();
        let mut reader = Reader::default();
        for step in steps {
            match step {
                Step::Allocate(bytes) => blocks.extend(manager.allocate(bytes as usize, S).ok()),
                Step::Free(index) if !blocks.is_empty() => {
                    let address = blocks.swap_remove(index % blocks.len());
                    manager.free(address, S).expect("it is live");
                }
                Step::Piece(tier, bytes) => {
                    let charge = manager.charge(tier, bytes, false).expect("it is not limited");
                    charge.made(false);
                    pieces.push(charge);
                }
                Step::Refused(bytes) => drop(manager.charge(Tier::Device, bytes, false)),
                Step::Drop(index) if !pieces.is_empty() => {
                    drop(pieces.swap_remove(index % pieces.len()));
                }
                Step::ResetPeaks => {
                    manager.reset_live_peak();
                    manager.reset_reserved_peak();
                }
                Step::Read => {
                    let _usage = manager.usage();
                }
                Step::Free(_) | Step::Drop(_) => {}
            }
            let usage = manager.usage();
            let made = pieces.iter().fold(TierBytes::default(), |sum, piece| sum.plus(piece.tiers()));
            reader.look(usage.live.plus(made), usage.reserved.plus(made));
            prop_assert_eq!(usage.together, reader.0);
        }
    }
}

#[test]
fn a_block_that_came_and_went_between_two_readings_counts_with_the_pieces_of_its_time() {
    let manager = manager();
    let piece = |bytes| {
        let charge = manager.charge(Tier::Device, bytes, false).expect("it is not limited");
        charge.made(false);
        charge
    };
    let first = piece(10 * MIB);
    let block = manager.allocate(100 << 20, S).expect("there is room");
    manager.free(block, S).expect("it is live");
    drop(first);
    let _second = piece(50 * MIB);
    let Together { live, live_peaks, reserved_peaks, .. } = manager.usage().together;
    assert_eq!((live.device, live_peaks.tiers.device), (50 * MIB, 110 * MIB));
    // The memory of the block is idle still.
    assert_eq!(reserved_peaks.total, 150 * MIB);
}
