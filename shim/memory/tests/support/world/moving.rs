//! Steps of a program whose memory moves between tiers.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use wm_driver::Tier;
use wm_memory::{MoveOrder, MoveRefusal, RangeMove, SpareSource};

use super::World;

impl World {
    /// Moves a piece of a block; the memory of the other pieces stays.
    pub fn relocate(
        &mut self,
        index: usize,
        part: u8,
        to: Tier,
        fail: Option<(u64, u64)>,
    ) -> Option<MoveRefusal> {
        let live = &self.live[index.checked_rem(self.live.len())?];
        let address = live.address + live.bytes * u64::from(part) / 256;
        let quiet = self.model().is_quiet();
        fail.into_iter().for_each(|(k, count)| self.model().fail_in(k, count));
        let moved = self.manager.move_handle(address, to);
        self.model().fail_no_more();
        let moved = match moved {
            Err(refusal) => {
                assert!(!matches!(refusal, MoveRefusal::Lost(_)), "{refusal}");
                return Some(refusal);
            }
            Ok(moved) => moved,
        };
        assert!(quiet, "memory moves while work may be touching it");
        assert_eq!(self.model().tiers(address, 1), BTreeMap::from([(to, 1)]));
        assert!(moved.copied <= moved.bytes);
        let range = moved.address..moved.address + moved.bytes;
        let model = self.manager.gpu();
        for live in &mut self.live {
            if live.address < range.end && range.start < live.address + live.bytes {
                live.places = model.resolve(live.address, live.bytes);
            }
        }
        self.moved += moved.bytes;
        None
    }

    /// One block leaves the device from a piece on, while another one comes, and leaves again as
    /// far as it has.
    pub(super) fn swap(&mut self, indices: [usize; 2], parts: [u8; 2], fail: Option<(u64, u64)>) {
        let range = |at: usize| {
            let live = &self.live[indices[at].checked_rem(self.live.len())?];
            Some(live.address + live.bytes * u64::from(parts[at]) / 256..live.address + live.bytes)
        };
        let [Some(out), Some(back)] = [range(0), range(1)] else { return };
        let most = out.end - out.start;
        let again = (out.clone(), Tier::Host, u64::MAX);
        let ways = [
            (out, Tier::Host, most / 2),
            (back.clone(), Tier::Device, most),
            again,
            (back, Tier::Host, most),
        ];
        let order = |(range, to, most)| RangeMove::new(MoveOrder::new(range, to), most);
        let mut ranges = ways.map(order);
        let quiet = self.model().is_quiet();
        fail.into_iter().for_each(|(k, count)| self.model().fail_in(k, count));
        let refused = if parts[0].is_multiple_of(2) {
            self.manager.swap(&mut ranges, || false).err()
        } else {
            self.swap_in_slices(&mut ranges)
        };
        self.model().fail_no_more();
        let refusal = ranges.iter().map(|range| range.moved.refusal).chain([refused]);
        refusal.for_each(|refusal| assert!(!matches!(refusal, Some(MoveRefusal::Lost(_))), "{refusal:?}"));
        let bytes: u64 = ranges.iter().map(|range| range.moved.bytes).sum();
        assert!(quiet || bytes == 0, "memory moves while work may be touching it");
        assert!(refused.is_none() || bytes == 0);
        let model = self.manager.gpu();
        self.live.iter_mut().for_each(|live| live.places = model.resolve(live.address, live.bytes));
        self.moved += bytes;
    }

    /// As [`Manager::swap`], with memory that is made between slices of a few handles.
    fn swap_in_slices(&self, ranges: &mut [RangeMove]) -> Option<MoveRefusal> {
        let mut source = SpareSource::Idle;
        for _ in 0..100 {
            let (made, asked) = (self.model().calls("create"), Cell::new(0));
            let is_over = || asked.replace(asked.get() + 1) > 8;
            let lacks = match self.manager.swap_within(ranges, source, is_over, || false) {
                Ok(lacks) => lacks,
                Err(refusal) => return (self.moved_by(ranges) == 0).then_some(refusal),
            };
            assert_eq!(self.model().calls("create"), made, "memory is made in a slice");
            if !lacks.is_empty() {
                let Some(next) = self.manager.make_spares(ranges, &lacks, source, || true) else { break };
                source = next;
            }
        }
        None
    }

    fn moved_by(&self, ranges: &[RangeMove]) -> u64 {
        ranges.iter().map(|range| range.moved.bytes).sum()
    }

    /// Moves all of a block from a piece on.
    pub(super) fn relocate_rest(&mut self, index: usize, part: u8, to: Tier, fail: Option<(u64, u64)>) {
        let Some(index) = index.checked_rem(self.live.len()) else { return };
        let live = &self.live[index];
        let range = live.address + live.bytes * u64::from(part) / 256..live.address + live.bytes;
        let order = MoveOrder { alone: part % 4 == 1, ..MoveOrder::new(range, to) };
        let quiet = self.model().is_quiet();
        fail.into_iter().for_each(|(k, count)| self.model().fail_in(k, count));
        let moved = self.manager.move_range(&order, Duration::from_secs(60));
        self.model().fail_no_more();
        let refusal = moved.map_or_else(Some, |moved| moved.refusal);
        assert!(!matches!(refusal, Some(MoveRefusal::Lost(_))), "{refusal:?}");
        let Ok(moved) = moved else { return };
        assert!(quiet || moved.bytes == 0, "memory moves while work may be touching it");
        let model = self.manager.gpu();
        self.live.iter_mut().for_each(|live| live.places = model.resolve(live.address, live.bytes));
        self.moved += moved.bytes;
    }
}
