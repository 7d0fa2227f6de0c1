//! Hazard (wrong result): a fact survives the write that ends it, or a lease is lost.
use proptest::prelude::*;

use super::*;
use crate::readers::FunctionKey;

fn parameter(number: u32) -> ParameterKey {
    ParameterKey { function: FunctionKey(number.into()), offset: 0 }
}

/// A block of eight chunks, all loaded and fingerprinted.
fn loaded() -> BlockFacts {
    let mut facts = BlockFacts::new(8 * CHUNK_BYTES, Instant::now());
    facts.candidates.loaded(0..8 * CHUNK_BYTES);
    facts.fingerprints = (0..8).map(|index| (index, Fingerprint(index.into()))).collect();
    facts.unchanged = 1;
    facts
}

#[test]
fn a_write_voids_every_fingerprint() {
    let mut facts = loaded();
    facts.overwritten(Instant::now());
    assert_eq!(facts.unchanged, 0);
    assert_eq!(facts.ask(8), []);
    assert_eq!(facts.fingerprints().count(), 0);
}

/// Hazard (process crash): the broker tells another process that this one has bytes which
/// it has no longer, and the other one's memory is shared with no process.
#[test]
fn a_chunk_waits_for_as_long_as_it_has_the_bytes() {
    let mut facts = loaded();
    let asked = facts.ask(3);
    for (index, name) in &asked {
        facts.waits(*index, *name, Lease(*index));
    }
    assert_eq!((facts.ask(8).len(), facts.withdrawn()), (5, vec![]), "these are not asked about again");
    assert_eq!(facts.usage().shared, 0);
    facts.arrived(|name| name == asked[1].1);
    assert_eq!((facts.withdrawn(), facts.ask(8)), (vec![Lease(1)], vec![asked[1]]));
    facts.overwritten(Instant::now());
    assert_eq!(facts.withdrawn(), [Lease(0), Lease(2)]);
    facts.waits(1, asked[1].1, Lease(9));
    assert_eq!(facts.withdrawn(), [Lease(9)], "the answer came after the write");
    assert_eq!(facts.freed(), []);
}

#[test]
fn a_shared_block_needs_a_private_copy_before_each_kind_of_write() {
    assert_eq!(WriteAnswer::to(UseTime::Now, true), WriteAnswer::CopyNow);
    assert_eq!(WriteAnswer::to(UseTime::InGraph, true), WriteAnswer::CopyBeforeGraph);
    for time in [UseTime::Now, UseTime::InGraph] {
        assert_eq!(WriteAnswer::to(time, false), WriteAnswer::Proceed);
    }
}

#[test]
fn the_second_private_copy_excludes_the_block() {
    let mut facts = loaded();
    facts.count_private_copy();
    assert_eq!(facts.exclusion(), None);
    facts.count_private_copy();
    assert_eq!(facts.exclusion(), Some(Exclusion::RepeatedWrites));
}

#[test]
fn kernels_without_end_exclude_the_block() {
    let mut facts = loaded();
    for number in 0..MOST_PARAMETERS as u32 {
        assert!(facts.used_by(parameter(number)));
    }
    assert!(!facts.used_by(parameter(0)), "it is known");
    assert_eq!(facts.exclusion(), None);
    facts.used_by(parameter(u32::MAX));
    assert_eq!(facts.exclusion(), Some(Exclusion::ManyKernels));
}

#[test]
fn a_chunk_is_asked_about_once() {
    let mut facts = loaded();
    assert_eq!(facts.ask(3).into_iter().map(|(index, _)| index).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(facts.ask(9).len(), 5);
    assert_eq!(facts.ask(9), []);
}

#[test]
fn an_unanswered_chunk_is_asked_about_again_and_a_refused_one_is_not() {
    let mut facts = loaded();
    facts.ask(2);
    facts.answered(0, None);
    facts.answered(1, Some(ChunkState::Refused));
    assert_eq!(facts.ask(1), [(0, Fingerprint(0))]);
    facts.answered(1, None);
    assert!(facts.ask(9).iter().all(|(index, _)| *index != 1));
}

#[test]
fn an_answer_that_comes_late_ends_no_sharing() {
    let mut facts = loaded();
    let taken = ChunkState::Taken { handle: 7, lease: Lease(3) };
    facts.shared(0, taken);
    facts.answered(0, Some(ChunkState::Refused));
    facts.answered(0, None);
    assert_eq!((facts.handle(0), facts.freed()), (Some(7), vec![Lease(3)]));
}

#[test]
fn only_a_given_chunk_without_a_lease_is_registered() {
    let mut facts = loaded();
    facts.ask(1);
    assert!(!facts.registered(0, Lease(1)), "asked about");
    facts.shared(0, ChunkState::Given { handle: 7, lease: None });
    assert!(facts.registered(0, Lease(2)));
    assert!(!facts.registered(0, Lease(3)), "registered before");
    facts.shared(1, ChunkState::Taken { handle: 8, lease: Lease(4) });
    assert!(!facts.registered(1, Lease(5)), "another process's");
    assert!(!facts.registered(2, Lease(6)), "private again");
    assert_eq!(facts.freed(), [Lease(2), Lease(4)]);
}

#[test]
fn unregistered_chunks_are_runs() {
    let mut facts = loaded();
    for index in [0, 1, 2, 4, 6, 7] {
        facts.shared(index, ChunkState::Given { handle: index, lease: None });
    }
    facts.registered(1, Lease(1));
    assert_eq!(facts.unregistered(), [0..1, 2..3, 4..5, 6..8]);
}

#[test]
fn private_chunks_give_their_leases_back_and_shared_ones_do_not() {
    let mut facts = loaded();
    facts.ask(1);
    facts.shared(1, ChunkState::Taken { handle: 1, lease: Lease(1) });
    facts.shared(2, ChunkState::Given { handle: 2, lease: None });
    facts.shared(3, ChunkState::Taken { handle: 3, lease: Lease(3) });
    assert_eq!(facts.became_private(|index| index == 3), (2, vec![Lease(1)]));
    assert_eq!((facts.handle(1), facts.handle(3)), (None, Some(3)));
    facts.answered(0, None);
    assert_eq!(facts.ask(1).len(), 1, "the question about chunk 0 was still open");
}

#[test]
fn usage_counts_leases_and_memory_of_others() {
    let mut facts = loaded();
    facts.candidates.written(0..1);
    facts.shared(1, ChunkState::Taken { handle: 1, lease: Lease(1) });
    facts.shared(2, ChunkState::Given { handle: 2, lease: Some(Lease(2)) });
    facts.shared(3, ChunkState::Given { handle: 3, lease: None });
    let usage = BlockUsage { candidates: 7, shared: 3, saved: 1 };
    let bytes = |usage: BlockUsage| [usage.candidates, usage.shared, usage.saved];
    assert_eq!(bytes(facts.usage()), bytes(usage).map(|chunks| chunks * CHUNK_BYTES));
}

#[test]
fn every_reason_differs() {
    use Exclusion::{GraphMayWrite, GraphWrites, ManyKernels, RepeatedWrites};
    let all = [ManyKernels, RepeatedWrites, GraphWrites, GraphMayWrite].map(Exclusion::reason);
    assert_eq!(std::collections::BTreeSet::from(all).len(), all.len());
}

proptest! {
    /// Any order of events: each lease that comes in goes out once.
    #[test]
    fn no_lease_is_lost_or_doubled(steps in prop::collection::vec((0..6_u8, 0..8_u64), 0..80)) {
        let (mut facts, mut held, mut back) = (loaded(), Vec::new(), Vec::new());
        for (number, (step, index)) in steps.into_iter().enumerate() {
            let lease = Lease(number as u64);
            let is_private = facts.handle(index).is_none();
            match step {
                0 => drop(facts.ask(2)),
                1 => facts.answered(index, None),
                2 if is_private => {
                    facts.shared(index, ChunkState::Taken { handle: index, lease });
                    held.push(lease);
                }
                3 if is_private => facts.shared(index, ChunkState::Given { handle: index, lease: None }),
                4 if facts.registered(index, lease) => held.push(lease),
                5 => back.extend(facts.became_private(|other| other != index).1),
                _ => {}
            }
        }
        back.extend(facts.freed());
        back.sort_unstable();
        prop_assert_eq!(back, held);
    }
}
