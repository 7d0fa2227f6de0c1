//! Steps of a program that has blocks which the CPU and the GPU use in turn.

use std::collections::BTreeMap;
use std::time::Duration;

use wm_driver::Tier;
use wm_memory::{AllocateError, FirstTier, MoveRefusal, Order, Processor};

use super::World;
use crate::support::model::GRANULARITY;

impl World {
    pub fn allocate_unified(&mut self, bytes: usize, order: Order) -> Result<u64, AllocateError> {
        self.allocate_by(bytes, order, true)
    }

    pub(super) fn ask_unified(&self, bytes: usize, order: Order) -> Result<u64, AllocateError> {
        self.manager.allocate_placed(bytes, order, FirstTier::Unified)
    }

    pub(super) fn unified_bytes(bytes: usize) -> u64 {
        (bytes as u64).next_multiple_of(GRANULARITY)
    }

    /// The program works on a block in a stream only where it is the GPU's.
    pub(super) fn is_the_gpus(&self, index: usize) -> bool {
        matches!(self.live[index].unified, None | Some(Some(Processor::Gpu)))
    }

    /// Hands a block over. One that is the CPU's gets other bytes by it.
    pub fn hand_over(
        &mut self,
        index: usize,
        to: Processor,
        fail: Option<(u64, u64)>,
    ) -> Option<MoveRefusal> {
        let index = index.checked_rem(self.live.len())?;
        let (address, bytes, before) =
            (self.live[index].address, self.live[index].bytes, self.live[index].unified);
        let quiet = self.model().is_quiet();
        fail.into_iter().for_each(|(k, count)| self.model().fail_in(k, count));
        let given = self.manager.hand_over(&(address..address + bytes), to, Duration::from_millis(20));
        self.model().fail_no_more();
        let range = address..address + bytes;
        match (before, given) {
            (None, given) => assert_eq!(given, Err(MoveRefusal::NoBlock), "no block of that kind"),
            (Some(_), Ok(())) => {
                let is_change = before != Some(Some(to));
                assert!(
                    quiet || !is_change || to == Processor::Gpu,
                    "work may be touching what the CPU gets"
                );
                self.live[index].unified = Some(Some(to));
            }
            (Some(Some(Processor::Gpu)), Err(_)) => {}
            (Some(_), Err(refusal)) => {
                assert!(!matches!(refusal, MoveRefusal::Lost(_)), "{refusal}");
                let is_cpus =
                    before == Some(Some(Processor::Cpu)) && self.model().bytes_on_cpu(&range) == bytes;
                self.live[index].unified = Some(is_cpus.then_some(Processor::Cpu));
            }
        }
        let model = self.manager.gpu();
        self.live.iter_mut().for_each(|live| live.places = model.resolve(live.address, live.bytes));
        if self.live[index].unified == Some(Some(Processor::Cpu)) {
            self.live[index].words = self.write_words(address, bytes);
        }
        given.err()
    }

    /// The CPU may use all of what is its own, which is on the host, and nothing of what is not.
    pub(super) fn check_processors(&self) {
        let model = self.model();
        for live in &self.live {
            let on_cpu = model.bytes_on_cpu(&(live.address..live.address + live.bytes));
            match live.unified {
                None | Some(Some(Processor::Gpu)) => {
                    assert_eq!(on_cpu, 0, "the CPU may use what is the GPU's")
                }
                Some(Some(Processor::Cpu)) => {
                    assert_eq!(on_cpu, live.bytes, "the CPU may not use all of its own")
                }
                Some(None) => {}
            }
            if on_cpu > 0 {
                let tiers = model.tiers(live.address, live.bytes);
                assert_eq!(tiers, BTreeMap::from([(Tier::Host, live.bytes)]));
            }
        }
        if self.live.iter().all(|live| matches!(live.unified, None | Some(Some(Processor::Gpu)))) {
            assert_eq!(model.bytes_on_cpu(&(0..u64::MAX)), 0, "the CPU may use what is free");
        }
    }
}
