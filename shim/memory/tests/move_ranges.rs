//! Hazard (wrong result): of many handles that migrate together one is forgotten, is filled with
//! another handle's bytes, or migrates although it is pinned.

mod support;

use support::model::MIB;
use support::scene::{Filled, LONG, S, Scene, both_ways, order, settings};
use wm_driver::Tier;
use wm_memory::{FirstTier, ManagerSettings, MoveOrder, MoveRefusal, Order, RangeMove, SpareSource};

const MB: usize = MIB as usize;

#[test]
fn a_block_of_many_handles_goes_out_and_comes_back() {
    let scene = Scene::new(512, settings());
    let block = scene.filled(300, 1000);
    for (to, host) in [(Tier::Host, 300), (Tier::Device, 0)] {
        let moved = scene.go(&order(&block, to));
        assert!(moved.count > 1 && moved.bytes >= block.bytes, "{moved:?}");
        assert_eq!((moved.refusal, moved.next >= block.address + block.bytes), (None, true));
        assert_eq!(scene.tiers(&block).host, host * MIB);
        scene.check(&block);
    }
    scene.end();
}

/// Copies of a batch are begun before one is waited for.
#[test]
fn it_is_looked_once_and_waited_after_all_copies_of_a_batch() {
    let scene = Scene::new(512, settings());
    let block = scene.filled(120, 1);
    let moved = scene.go(&order(&block, Tier::Host));
    assert!(moved.count > 3);
    assert_eq!(scene.0.gpu().calls("is_settled"), 1);
    scene.end();
}

/// Every call of a batch fails once: each handle has moved or has not, and the block's bytes are
/// there.
#[test]
fn a_failure_in_a_batch_leaves_whole_handles() {
    for count in [1, 3] {
        for k in 1..80 {
            let scene = Scene::new(256, settings());
            let block = scene.filled(24, 77);
            scene.0.gpu().fail_in(k, count);
            let moved = scene.0.move_range(&order(&block, Tier::Host), LONG);
            scene.0.gpu().fail_no_more();
            assert!(!matches!(moved, Err(MoveRefusal::Lost(_))), "call {k}");
            let host = moved.map_or(0, |moved| moved.bytes);
            assert_eq!(scene.tiers(&block).host, host.min(block.bytes), "call {k}: {moved:?}");
            scene.check(&block);
            scene.0.trim(0);
            scene.0.give_back_elsewhere();
            scene.go(&order(&block, Tier::Device));
            scene.check(&block);
            scene.end();
        }
    }
}

/// Hazard: the block that comes waits until all of the block that leaves has left, or for room that
/// there never is.
#[test]
fn on_a_full_device_one_block_leaves_while_another_one_comes() {
    for movable in [false, true] {
        // The host has little room beside the block there: it holds spares, which are used again
        // and again.
        let limits = ManagerSettings { movable, host_limit: 160 * MIB, ..settings() };
        let scene = Scene::new(256, limits);
        let blocks = [scene.filled(128, 1), scene.filled(128, 500), scene.filled(128, 900)];
        assert_eq!([0, 1, 2].map(|at| scene.tiers(&blocks[at]).host), [0, 0, 128 * MIB]);
        let mut ranges = both_ways(&blocks[0], &blocks[2]);
        let before = scene.0.gpu().calls("is_settled");
        scene.0.swap(&mut ranges, || false).expect("nothing is in the way");
        assert_eq!(scene.0.gpu().calls("is_settled") - before, 1);
        for range in &ranges {
            assert_eq!((range.moved.bytes, range.moved.refusal), (128 * MIB, None), "movable: {movable}");
        }
        assert_eq!([0, 1, 2].map(|at| scene.tiers(&blocks[at]).host), [128 * MIB, 0, 0]);
        blocks.iter().for_each(|block| scene.check(block));
        scene.end();
    }
}

/// Hazard: the device holds idle handles of one size, and the block that is to come has handles of
/// another size.
#[test]
fn idle_handles_of_other_sizes_give_their_memory_to_what_comes() {
    let scene = Scene::new(256, ManagerSettings { movable: true, ..settings() });
    let blocks = [scene.filled(256, 1), scene.filled(24, 500)];
    let handles =
        |block: &Filled| block.bytes / scene.0.gpu().resolve(block.address, block.bytes).len() as u64;
    assert_eq!((handles(&blocks[0]), handles(&blocks[1])), (64 * MIB, 4 * MIB));
    assert_eq!(scene.tiers(&blocks[1]).host, 24 * MIB);
    let mut ranges = both_ways(&blocks[0], &blocks[1]);
    scene.0.swap(&mut ranges, || false).expect("nothing is in the way");
    assert_eq!(ranges[1].moved.refusal, None);
    assert_eq!([0, 1].map(|at| scene.tiers(&blocks[at]).device), [0, 24 * MIB]);
    blocks.iter().for_each(|block| scene.check(block));
    scene.end();
}

/// A block whose extent maps idle memory of the host behind it: no other memory of the host is
/// idle.
fn beside_idle_host_memory() -> (Scene, Filled) {
    let scene = Scene::new(512, ManagerSettings { movable: true, ..settings() });
    let whole = scene.filled(256, 1);
    let behind = MoveOrder {
        range: whole.address + 128 * MIB..whole.address + 256 * MIB,
        ..order(&whole, Tier::Host)
    };
    assert_eq!(scene.go(&behind).bytes, 128 * MIB);
    scene.0.free(whole.address, S).expect("live");
    scene.0.gpu().drain_all();
    scene.0.passed_all();
    let block = scene.filled(128, 500);
    assert_eq!((block.address, scene.tiers(&block).host), (whole.address, 0), "it is in the same extent");
    (scene, block)
}

/// Hazard: idle memory of the host that is mapped in the block's own extent serves no move, and
/// more is pinned in each period; or the extent has one handle twice.
#[test]
fn idle_memory_of_the_same_extent_takes_a_handles_place() {
    let (scene, block) = beside_idle_host_memory();
    let before = scene.0.usage().reserved.host;
    assert_eq!(scene.go(&order(&block, Tier::Host)).bytes, 128 * MIB);
    assert_eq!((scene.0.usage().reserved.host, before), (128 * MIB, 128 * MIB), "nothing is made");
    scene.check(&block);
    scene.go(&order(&block, Tier::Device));
    scene.check(&block);
    scene.end();
}

#[test]
fn so_it_does_where_a_call_fails() {
    for k in 1..60 {
        let (scene, block) = beside_idle_host_memory();
        scene.0.gpu().fail_in(k, 1);
        let moved = scene.0.move_range(&order(&block, Tier::Host), LONG);
        scene.0.gpu().fail_no_more();
        assert!(!matches!(moved, Err(MoveRefusal::Lost(_))), "call {k}");
        scene.check(&block);
        scene.go(&order(&block, Tier::Host));
        scene.check(&block);
        scene.0.trim(0);
        scene.0.give_back_elsewhere();
        scene.go(&order(&block, Tier::Device));
        scene.check(&block);
        scene.end();
    }
}

/// Hazard (wrong result): an idle view is mapped anew for each handle that is evicted, or shows
/// other memory afterwards.
#[test]
fn idle_views_of_what_leaves_go() {
    let scene = Scene::new(256, ManagerSettings { movable: true, ..settings() });
    let parts = [scene.filled(128, 1), scene.filled(128, 500)];
    parts.iter().for_each(|part| scene.0.free(part.address, S).expect("live"));
    let view = scene.filled(256, 900);
    assert!(parts.iter().all(|part| part.address != view.address), "stitched from both");
    scene.0.free(view.address, S).expect("live");
    scene.0.gpu().drain_all();
    scene.0.passed_all();
    let block = scene.filled(128, 700);
    assert!(parts.iter().any(|part| part.address == block.address), "it lies where it is at home");
    let maps = scene.0.gpu().calls("map");
    let moved = scene.go(&order(&block, Tier::Host));
    // Each handle is mapped where it is filled and where the block is.
    assert_eq!(scene.0.gpu().calls("map") - maps, 2 * moved.count);
    scene.check(&block);
    scene.end();
}

/// Hazard: a block of which a part was asked for comes whole, and takes the room of another one.
#[test]
fn no_more_is_begun_than_is_asked_for() {
    let scene = Scene::new(256, ManagerSettings { movable: true, ..settings() });
    let block = scene.filled(160, 1);
    let mut ranges = [RangeMove::new(order(&block, Tier::Host), 64 * MIB)];
    scene.0.swap(&mut ranges, || false).expect("nothing is in the way");
    assert_eq!((ranges[0].moved.bytes, scene.tiers(&block).host), (64 * MIB, 64 * MIB));
    scene.check(&block);
    scene.end();
}

/// Hazard (wrong result): the fingerprints of what came are taken while it leaves again, or while a
/// copy reads it that was given up. They are refused until it leaves, so that all are due then.
#[test]
fn fingerprints_leave_out_what_came_and_leaves_again_in_the_same_swap() {
    for is_given_up in [false, true] {
        let scene = Scene::new(256, ManagerSettings { chunked: true, ..settings() });
        let blocks = [scene.filled(16, 1), scene.filled(64, 100)];
        scene.0.gpu().refuse_fingerprints(true);
        // The pace of copies is known afterwards, so several are under way at a time.
        for to in [Tier::Host, Tier::Device, Tier::Host] {
            scene.go(&order(&blocks[1], to));
        }
        let is_over = || {
            let leaves = scene.0.usage().moves.out_bytes >= (2 * 64 + 16) * MIB;
            scene.0.gpu().refuse_fingerprints(!leaves);
            scene.0.gpu().copies_take_long(leaves && is_given_up);
            false
        };
        let ways = [(0, Tier::Host), (1, Tier::Device), (1, Tier::Host)];
        let mut ranges = ways.map(|(at, to)| RangeMove::new(order(&blocks[at], to), u64::MAX));
        scene.0.swap(&mut ranges, is_over).expect("nothing is in the way");
        let leaves = if is_given_up {
            ranges[2].moved.refusal == Some(MoveRefusal::Slow)
        } else {
            ranges[2].moved.count > 0
        };
        assert!(leaves, "{ranges:?}");
        scene.0.gpu().copies_take_long(false);
        blocks.iter().for_each(|block| scene.check(block));
        scene.go(&order(&blocks[1], Tier::Device));
        blocks.iter().for_each(|block| scene.check(block));
        scene.end();
    }
}

/// Hazard (latency): a signal or a call waits for a copy that takes long.
#[test]
fn copies_are_given_up_when_the_caller_says_so() {
    let scene = Scene::new(256, settings());
    let block = scene.filled(64, 1);
    scene.0.gpu().copies_take_long(true);
    let mut ranges = [RangeMove::new(order(&block, Tier::Host), u64::MAX)];
    let waits = scene.0.gpu().calls("wait_any");
    let source = SpareSource::Made;
    scene.0.swap_within(&mut ranges, source, || false, || true).expect("nothing is in the way");
    assert_eq!((ranges[0].moved.bytes, ranges[0].moved.refusal), (0, Some(MoveRefusal::Slow)));
    assert_eq!(scene.0.gpu().calls("wait_any") - waits, 1);
    scene.0.gpu().copies_take_long(false);
    assert_eq!(scene.go(&order(&block, Tier::Host)).bytes, 64 * MIB, "later it moves");
    scene.check(&block);
    scene.end();
}

/// Hazard (latency): other threads wait at a gate for memory of the host to be made.
#[test]
fn what_is_lacking_is_made_between_slices_and_none_within_one() {
    for movable in [false, true] {
        let scene = Scene::new(256, ManagerSettings { movable, ..settings() });
        let blocks = [scene.filled(64, 1), scene.filled(64, 500)];
        scene.go(&order(&blocks[1], Tier::Host));
        scene.0.trim(0);
        scene.0.give_back_elsewhere();
        let mut ranges = both_ways(&blocks[0], &blocks[1]);
        let (mut source, mut slices) = (SpareSource::Idle, 0);
        while !ranges.iter().all(RangeMove::is_over) {
            let made = scene.0.gpu().calls("create");
            let lacks = scene.0.swap_within(&mut ranges, source, || false, || false);
            assert_eq!(scene.0.gpu().calls("create"), made, "in a slice");
            let lacks = lacks.expect("nothing is in the way");
            scene.0.audit().expect("the books balance");
            if lacks.is_empty() {
                break;
            }
            slices += 1;
            source = scene.0.make_spares(&mut ranges, &lacks, source, || true).expect("there is room");
            assert_eq!(source, SpareSource::Idle);
            assert!(scene.0.gpu().calls("create") > made && slices < 9, "{lacks:?}");
            scene.0.audit().expect("the books balance");
        }
        assert!(slices > 0);
        assert_eq!([0, 1].map(|at| scene.tiers(&blocks[at]).host), [64 * MIB, 0]);
        blocks.iter().for_each(|block| scene.check(block));
        scene.end();
    }
}

/// Hazard (silent degradation): what leaves is given memory once for each of its handles.
#[test]
fn all_that_an_eviction_lacks_is_made_at_once() {
    let scene = Scene::new(256, ManagerSettings { movable: true, ..settings() });
    let block = scene.filled(128, 1);
    let mut ranges = [RangeMove::new(order(&block, Tier::Host), u64::MAX)];
    let slice = |ranges: &mut [RangeMove]| {
        scene.0.swap_within(ranges, SpareSource::Idle, || false, || false).expect("nothing is in the way")
    };
    let lacks = slice(&mut ranges);
    let made = scene.0.make_spares(&mut ranges, &lacks, SpareSource::Idle, || true);
    assert_eq!((made, slice(&mut ranges).len()), (Some(SpareSource::Idle), 0));
    assert_eq!((ranges[0].moved.bytes, ranges[0].moved.refusal), (128 * MIB, None));
    assert_eq!(scene.0.usage().idle.host, 0, "none too many");
    scene.check(&block);
    scene.end();
}

#[test]
fn where_no_memory_can_be_made_idle_memory_of_other_sizes_goes_and_then_the_range_is_refused() {
    let limits = ManagerSettings { host_limit: 32 * MIB, movable: true, ..settings() };
    let scene = Scene::new(256, limits);
    let [large, small] = [scene.filled(128, 1), scene.filled(32, 500)];
    // Idle memory of the host, of another size.
    scene.go(&order(&small, Tier::Host));
    scene.go(&order(&small, Tier::Device));
    assert_eq!(scene.0.usage().idle.host, 32 * MIB);
    let mut ranges = [RangeMove::new(order(&large, Tier::Host), u64::MAX)];
    let (mut source, mut sources) = (SpareSource::Idle, Vec::new());
    loop {
        let lacks = scene.0.swap_within(&mut ranges, source, || false, || false);
        let lacks = lacks.expect("nothing is in the way");
        let Some(next) = scene.0.make_spares(&mut ranges, &lacks, source, || true) else { break };
        source = next;
        sources.push(next);
        assert!(sources.len() < 20, "{sources:?}");
    }
    assert!(sources.starts_with(&[SpareSource::Kept, SpareSource::Idle]), "{sources:?}");
    assert_eq!(ranges[0].moved.refusal, Some(MoveRefusal::Full));
    let host = ranges[0].moved.bytes;
    assert!(host > 16 * MIB && host <= 32 * MIB, "{host}");
    [large, small].iter().for_each(|block| scene.check(block));
    scene.end();
}

/// Each call fails once that makes a spare: nothing is left behind.
#[test]
fn a_failure_while_memory_is_made_leaves_nothing() {
    for k in 1..20 {
        let scene = Scene::new(256, settings());
        let block = scene.filled(64, 1);
        let mut ranges = [RangeMove::new(order(&block, Tier::Host), u64::MAX)];
        let source = SpareSource::Idle;
        let lacks = scene.0.swap_within(&mut ranges, source, || false, || false).expect("it is idle");
        scene.0.gpu().fail_in(k, 1);
        let _none = scene.0.make_spares(&mut ranges, &lacks, source, || true);
        scene.0.gpu().fail_no_more();
        scene.check(&block);
        scene.end();
    }
}

#[test]
fn as_much_comes_to_the_device_as_has_room_there() {
    let scene = Scene::new(256, settings());
    let blocks = [scene.filled(128, 1), scene.filled(64, 500)];
    scene.go(&order(&blocks[1], Tier::Host));
    scene.0.trim(0);
    scene.0.give_back_elsewhere();
    let filler = scene.filled(96, 900);
    let moved = scene.go(&order(&blocks[1], Tier::Device));
    assert_eq!(moved.refusal, Some(MoveRefusal::Full));
    let device = scene.tiers(&blocks[1]).device;
    assert!(device > 0 && device < 64 * MIB && device + (128 + 96) * MIB > 256 * MIB - 16 * MIB, "{device}");
    blocks.iter().chain([&filler]).for_each(|block| scene.check(block));
    scene.end();
}

#[test]
fn neighbours_and_pinned_blocks_keep_their_memory() {
    let scene = Scene::new(256, settings());
    let small = [scene.filled(1, 5), scene.filled(1, 6)];
    let alone = MoveOrder { alone: true, ..order(&small[0], Tier::Host) };
    assert_eq!(scene.go(&alone).refusal, Some(MoveRefusal::Shared));
    assert!(scene.0.pin_to_device(small[1].address) && !scene.0.pin_to_device(small[1].address + 512));
    assert_eq!(scene.go(&order(&small[0], Tier::Host)).refusal, Some(MoveRefusal::Pinned));
    scene.0.free(small[1].address, S).expect("a live block");
    scene.0.gpu().drain_all();
    assert_eq!(scene.go(&alone).refusal, None);
    assert_eq!(scene.tiers(&small[0]).host, MIB);
    scene.check(&small[0]);
    scene.end();
}

#[test]
fn what_is_not_needed_is_not_copied_and_all_else_is() {
    let scene = Scene::new(256, settings());
    let blocks = [scene.filled(1, 5), scene.filled(1, 6)];
    scene.go(&order(&blocks[0], Tier::Host));
    let discards = MoveOrder { discards: true, ..order(&blocks[0], Tier::Device) };
    let before = scene.0.gpu().calls("copy");
    assert_eq!(scene.go(&discards).refusal, None);
    assert_eq!(scene.0.gpu().calls("copy") - before, 1, "the neighbour's");
    scene.check(&blocks[1]);
    assert_eq!(scene.tiers(&blocks[0]).device, MIB);
    scene.end();
}

#[test]
fn a_block_begins_where_it_is_asked_for() {
    let scene = Scene::new(64, ManagerSettings { host_limit: 64 * MIB, ..settings() });
    let ask = |mib: usize, first_tier| scene.0.allocate_placed(mib * MB, Order::Device, first_tier);
    let tiers = |address| scene.0.block(address).expect("a live block").tiers;
    for mib in [1, 30] {
        let host = ask(mib, FirstTier::Host).expect("there is room");
        assert_eq!(tiers(host).host, mib as u64 * MIB);
        scene.0.free(host, Order::Device).expect("a live block");
    }
    let again = ask(30, FirstTier::Host).expect("the first one's memory");
    assert!(ask(40, FirstTier::Host).is_err(), "beyond the limit");
    let device = ask(40, FirstTier::Device).expect("there is room");
    assert_eq!(tiers(device).device, 40 * MIB);
    assert!(ask(40, FirstTier::Device).is_err(), "the host is no substitute");
    assert!(ask(40, FirstTier::Anywhere).is_ok(), "but for who does not mind");
    let away = MoveOrder::new(device..device + 1, Tier::Host);
    assert_eq!(scene.go(&away).refusal, Some(MoveRefusal::Pinned));
    scene.0.free(again, Order::Device).expect("a live block");
    scene.0.audit().expect("the books balance");
    scene.end();
}

/// A handle that is mapped twice in an extent would be given out twice.
#[test]
fn a_neighbours_idle_memory_is_no_spare() {
    let scene = Scene::new(64, ManagerSettings { keep_idle: 64 * MIB, ..settings() });
    let whole = scene.filled(16, 1);
    let half = |block: u64| MoveOrder::new(block..block + 8 * MIB, Tier::Host);
    scene.go(&half(whole.address));
    scene.0.free(whole.address, Order::Device).expect("a live block");
    let rest = scene.filled(8, 100);
    assert!(
        (whole.address + 8 * MIB..whole.address + whole.bytes).contains(&rest.address),
        "the device's part"
    );
    assert_eq!(scene.go(&half(rest.address)).refusal, None);
    scene.check(&rest);
    scene.0.free(rest.address, Order::Device).expect("a live block");
    let blocks = [scene.filled(8, 200), scene.filled(16, 300), scene.filled(16, 400)];
    blocks.iter().for_each(|block| scene.check(block));
    scene.end();
}
