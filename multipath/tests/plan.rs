//! Hazard (wrong result): a plan assigns a byte to no path or to two, or a piece overruns its
//! staging slot.

use proptest::prelude::*;
use wm_multipath::LinkDirection;
use wm_multipath::measured::Costs;
use wm_multipath::parts::{
    Chunk, ChunkQueue, CopyPlan, EDGE, GRAIN, LANES, LEAST_SPLIT, Path, RangeEnd, SLOT, SMALLEST_CHUNK,
    chunks, fillers, split, threshold,
};

fn paths() -> impl Strategy<Value = Vec<Path>> {
    prop::collection::vec(1e8..1e11_f64, 1..9).prop_map(|rates| {
        let path = |(device, rate): (usize, f64)| Path { device: device as i32, rate };
        rates.into_iter().enumerate().map(path).collect()
    })
}

fn costs() -> impl Strategy<Value = Costs> {
    (0.0..1e-3, 0.0..1e-4).prop_map(|(lag, step)| Costs { lag, step, ..Costs::default() })
}

/// Do pieces cover `bytes` exactly once?
fn partitions(mut chunks: Vec<Chunk>, bytes: usize) -> bool {
    chunks.sort_by_key(|chunk| chunk.offset);
    let end = chunks.iter().try_fold(0, |end, chunk| (chunk.offset == end).then(|| chunk.end()));
    end == Some(bytes)
}

proptest! {
    #[test]
    fn a_split_partitions_the_range(bytes in 0..usize::MAX >> 8, paths in paths(), costs in costs()) {
        let CopyPlan::Split(split) = split(bytes, 1 << 20, &paths, &costs) else { return Ok(()) };
        let parts = split.shares.iter().map(|share| share.part);
        prop_assert!(partitions(parts.clone().chain([split.direct]).collect(), bytes));
        prop_assert!(parts.clone().all(|part| part.bytes >= SMALLEST_CHUNK && part.bytes % GRAIN == 0));
        prop_assert!(split.shares.iter().all(|share| share.relay != paths[0].device));
    }

    #[test]
    fn all_paths_end_at_once(bytes in 1_usize << 26..1_usize << 40, paths in paths(), costs in costs()) {
        let CopyPlan::Split(split) = split(bytes, 0, &paths, &costs) else { return Ok(()) };
        let direct = split.direct.bytes as f64 / paths[0].rate;
        for (index, (share, path)) in split.shares.iter().zip(&paths[1..]).enumerate() {
            let relay = costs.lag + index as f64 * costs.step + share.part.bytes as f64 / path.rate;
            // Rounded down, each relay leaves the direct path up to one grain more.
            let grains = (GRAIN * paths.len()) as f64 / paths[0].rate + GRAIN as f64 / path.rate;
            prop_assert!((relay - direct).abs() <= grains + 1e-9 * direct, "{relay} {direct}");
        }
    }

    #[test]
    fn several_lanes_of_a_relay_divide_its_share(bytes in 1_usize << 20..1_usize << 40, paths in paths(), lanes in 1..=LANES) {
        let CopyPlan::Split(split) = split(bytes, 0, &paths, &Costs::default()) else { return Ok(()) };
        let relays = split.shares.iter().flat_map(|share| std::iter::repeat_n(share.relay, lanes));
        let relays: Vec<_> = relays.collect();
        let over = split.over(&relays);
        prop_assert_eq!(over.shares.iter().map(|share| share.relay).collect::<Vec<_>>(), relays);
        let parts = over.shares.iter().map(|share| share.part).chain([over.direct]);
        prop_assert!(partitions(parts.collect(), bytes));
    }

    #[test]
    fn pieces_partition_a_part_and_fit_the_slots(offset in 0..1_usize << 40, bytes in 1..1_usize << 30, into: bool, largest in 1..SLOT) {
        let (part, direction) = (Chunk { offset, bytes }, if into { LinkDirection::In } else { LinkDirection::Out });
        let cut: Vec<_> = chunks(part, direction, SLOT).collect();
        prop_assert!(cut.iter().all(|chunk| chunk.bytes <= SLOT && chunk.bytes > 0));
        prop_assert!(cut.len() <= bytes.div_ceil(SLOT) + 1, "as few as may be");
        prop_assert!(cut.is_sorted_by_key(|chunk| chunk.offset));
        let small: Vec<_> = chunks(part, direction, largest).collect();
        prop_assert!(small.iter().all(|chunk| chunk.bytes <= largest.next_multiple_of(GRAIN).max(EDGE)));
        let moved = |cut: &[Chunk]| cut.iter().map(|chunk| Chunk { offset: chunk.offset - offset, ..*chunk }).collect();
        prop_assert!(partitions(moved(&cut), bytes));
        prop_assert!(partitions(moved(&small), bytes));
    }

    #[test]
    fn pulling_from_both_ends_partitions_the_range(
        bytes in 0..1_usize << 26, largest in 1..1_usize << 23, paths in 1..9_usize,
        ends in prop::collection::vec((any::<bool>(), 0..8_u8), 1..64),
    ) {
        let (mut work, mut done) = (ChunkQueue::new(bytes, largest.max(bytes / 500), paths), Vec::new());
        let mut ends = ends.iter().cycle();
        loop {
            let (head, fails) = ends.next().expect("a cycle");
            // If only the head takes chunks at the end, it also takes the returned ones.
            let end = if *head { RangeEnd::Head } else { RangeEnd::Tail };
            let Some(chunk) = work.take(end).or_else(|| work.take(RangeEnd::Head)) else { break };
            prop_assert!(chunk.bytes > 0 && chunk.bytes <= largest.max(bytes / 500));
            if end == RangeEnd::Tail && *fails == 0 {
                work.give_back([chunk]);
            } else {
                done.push(chunk);
            }
            if ends.clone().take(64).all(|(head, fails)| !head && *fails == 0) { break; }
        }
        while let Some(chunk) = work.take(RangeEnd::Head) { done.push(chunk); }
        prop_assert!(partitions(done, bytes));
    }

    #[test]
    fn below_the_threshold_and_without_relays_the_plan_is_the_plain_copy(bytes in 0..1_usize << 40, paths in paths()) {
        prop_assert_eq!(split(bytes, bytes + 1, &paths, &Costs::default()), CopyPlan::Direct);
        prop_assert_eq!(split(bytes, 0, &paths[..1], &Costs::default()), CopyPlan::Direct);
        prop_assert_eq!(split(bytes, 0, &[], &Costs::default()), CopyPlan::Direct);
    }

    #[test]
    fn the_direct_path_never_gets_less_than_its_rate_says(
        bytes in 1_usize << 26..1_usize << 40, paths in paths(), costs in costs(),
    ) {
        if let CopyPlan::Split(split) = split(bytes, 0, &paths, &costs) {
            let total: f64 = paths.iter().map(|path| path.rate).sum();
            prop_assert!(split.direct.bytes as f64 + 1.0 >= (bytes as f64 * paths[0].rate / total).floor() * 0.999_999);
        }
    }

    #[test]
    fn threads_stay_within_their_number_and_each_relay_within_its_lanes(most in 0..256_usize, paths in paths()) {
        let threads = fillers(most, &paths);
        prop_assert!(threads.iter().sum::<usize>() <= most.max(1));
        prop_assert!(threads[0] >= 1);
        prop_assert!(threads[1..].iter().all(|count| *count <= LANES));
    }
}

#[test]
fn an_abandoned_copy_has_nothing_left() {
    let mut work = ChunkQueue::new(100, 10, 2);
    let chunk = work.take(RangeEnd::Tail).expect("something");
    work.give_back([chunk]);
    work.abandon();
    assert_eq!((work.take(RangeEnd::Head), work.take(RangeEnd::Tail)), (None, None));
}

#[test]
fn the_threshold_grows_with_what_cutting_costs() {
    let at = |fixed| threshold(55e9, 110e9, fixed);
    assert_eq!(at(0.0), LEAST_SPLIT);
    assert!((at(1e-4) as f64 / 22e6 - 1.0).abs() < 0.01, "{}", at(1e-4));
    assert_eq!(threshold(55e9, 55e9, 1e-4), usize::MAX);
    assert_eq!(threshold(0.0, 0.0, 1e-4), usize::MAX);
}
