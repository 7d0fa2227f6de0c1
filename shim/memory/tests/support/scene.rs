//! A manager with blocks of known bytes, which moves them.

use std::time::Duration;

use wm_driver::{StreamId, Tier};
use wm_memory::{Manager, ManagerSettings, MoveOrder, MovedRange, Order, RangeMove, TierBytes};

use super::model::{MIB, Model};

pub const S: Order = Order::Stream(StreamId(0));
pub const LONG: Duration = Duration::from_secs(60);

/// A block at an address. Each of its MiB begins with a word of its own.
pub struct Filled {
    pub address: u64,
    pub bytes: u64,
    pub word: u64,
}

/// A manager on its own, and blocks whose bytes are known.
pub struct Scene(pub Manager<Model>);

impl Scene {
    pub fn new(device: u64, settings: ManagerSettings) -> Self {
        Self(Manager::new(Model::new(device * MIB, 512 * MIB), settings))
    }

    pub fn filled(&self, mib: u64, word: u64) -> Filled {
        let address = self.0.allocate(mib as usize * MIB as usize, S).expect("there is room");
        (0..mib).for_each(|at| self.0.gpu().write(address + at * MIB, word + at));
        Filled { address, bytes: mib * MIB, word }
    }

    pub fn check(&self, block: &Filled) {
        self.0.audit().expect("the books balance");
        for at in 0..block.bytes / MIB {
            assert_eq!(self.0.gpu().read(block.address + at * MIB), Some(block.word + at), "MiB {at}");
        }
    }

    pub fn tiers(&self, block: &Filled) -> TierBytes {
        self.0.block(block.address).expect("a live block").tiers
    }

    pub fn go(&self, order: &MoveOrder) -> MovedRange {
        self.0.move_range(order, LONG).expect("nothing is in the way")
    }

    pub fn end(self) {
        self.0.gpu().drain_all();
        self.0.discard();
        assert_eq!(self.0.gpu().objects(), [0; 4]);
    }
}

pub fn settings() -> ManagerSettings {
    ManagerSettings { headroom: 0, overflow: vec![Tier::Host], ..ManagerSettings::default() }
}

pub fn order(block: &Filled, to: Tier) -> MoveOrder {
    MoveOrder::new(block.address..block.address + block.bytes, to)
}

/// One block leaves while another one comes.
pub fn both_ways(out: &Filled, back: &Filled) -> [RangeMove; 2] {
    [(out, Tier::Host), (back, Tier::Device)].map(|(block, to)| RangeMove::new(order(block, to), u64::MAX))
}
