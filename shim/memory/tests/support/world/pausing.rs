//! A step of a program that is paused: its memory leaves the device and is not mapped, the program
//! frees and has idle memory given back, some of what left comes back, and the rest is mapped. In
//! half of the steps memory that other processes use leaves, too.

use wm_driver::Tier;
use wm_memory::{MoveOrder, MoveRefusal, Order, RangeMove};

use super::World;

impl World {
    /// Each failure is asked for in one of the three calls: as memory leaves, as it comes, and as
    /// what is left is mapped.
    pub fn pause(&mut self, frees: &[usize], comes: u8, fails: [Option<(u64, u64)>; 3]) {
        let quiet = self.model().is_quiet();
        let ranges = |world: &Self| -> Vec<_> {
            let blocks = world.live.iter().map(|live| live.address..live.address + live.bytes);
            let pieces = world.pieces.iter().filter(|piece| piece.is_adopted()).map(|piece| piece.range());
            blocks.chain(pieces).collect()
        };
        let unshares = comes.is_multiple_of(2);
        let order = |range, to| MoveOrder { unmaps: to == Tier::Host, unshares, ..MoveOrder::new(range, to) };
        let moves = |world: &mut Self, ranges: Vec<_>, to, fail: Option<(u64, u64)>| {
            let mut ranges: Vec<_> =
                ranges.into_iter().map(|range| RangeMove::new(order(range, to), u64::MAX)).collect();
            fail.into_iter().for_each(|(k, count)| world.model().fail_in(k, count));
            let refused = world.manager.swap_paused(&mut ranges, || false).err();
            world.model().fail_no_more();
            let refusals = ranges.iter().map(|range| range.moved.refusal).chain([refused]);
            refusals
                .for_each(|refusal| assert!(!matches!(refusal, Some(MoveRefusal::Lost(_))), "{refusal:?}"));
            ranges.iter().map(|range| range.moved.bytes).sum::<u64>()
        };
        let all = ranges(self);
        let left = moves(self, all, Tier::Host, fails[0]);
        assert!(quiet || left == 0, "memory moves while work may be touching it");
        self.manager.audit().expect("the books balance");
        for index in frees {
            self.free(*index, Order::Device);
            self.manager.audit().expect("the books balance");
        }
        self.manager.trim(0);
        self.manager.give_back_elsewhere();
        self.manager.audit().expect("the books balance");
        let mut back = ranges(self);
        back.truncate(back.len() * usize::from(comes) / 256);
        moves(self, back, Tier::Device, fails[1]);
        self.manager.audit().expect("the books balance");
        if let Some((k, count)) = fails[2] {
            self.model().fail_in(k, count);
            let _failed = self.manager.map_unmapped();
            self.model().fail_no_more();
            self.manager.audit().expect("the books balance");
        }
        // Copies that are under way to such addresses hold them until they end.
        let mapped = self.manager.map_unmapped();
        let was_slow = self.model().copies_take_long(false);
        assert!(mapped.is_ok() || was_slow && mapped == Err(MoveRefusal::Slow), "{mapped:?}");
        self.manager.map_unmapped().expect("no failure");
        self.model().copies_take_long(was_slow);
        let model = self.manager.gpu();
        self.live.iter_mut().for_each(|live| live.places = model.resolve(live.address, live.bytes));
        self.moved += left;
    }
}
