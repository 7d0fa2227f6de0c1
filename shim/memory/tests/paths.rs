//! Hazard (latency): a path makes more driver calls than its promise in `docs/dev/memory.md`, or
//! gives another answer. There is one test a promise.

mod support;

use std::time::Duration;

use support::model::{GRANULARITY, MIB, Model};
use wm_abi::CUresult;
use wm_driver::{OomAnswer, StreamId, Tier};
use wm_memory::{AllocateError, FreeError, Manager, ManagerSettings, MoveOrder, Order};

const S: Order = Order::Stream(StreamId(0));
const T: Order = Order::Stream(StreamId(1));
const MB: usize = MIB as usize;

fn manager(device: u64, overflow: Vec<Tier>) -> Manager<Model> {
    let settings = ManagerSettings { headroom: 0, overflow, ..ManagerSettings::default() };
    Manager::new(Model::new(device * MIB, 256 * MIB), settings)
}

fn take(manager: &Manager<Model>, bytes: usize, order: Order) -> u64 {
    manager.allocate(bytes, order).expect("there is room")
}

/// Driver calls that make, map, give back or ask for memory. Those on events cost a hundredth of
/// these.
fn calls_of(manager: &Manager<Model>, action: impl FnOnce(&Manager<Model>)) -> u64 {
    let gpu = manager.gpu();
    let calls = || gpu.all_calls() - gpu.calls("record") - gpu.calls("is_done");
    let before = calls();
    action(manager);
    calls() - before
}

/// Every other one of eight blocks of 32 MiB that fill the device is free.
fn fragmented(overflow: Vec<Tier>) -> Manager<Model> {
    let manager = manager(256, overflow);
    let blocks: Vec<u64> = (0..8).map(|_| take(&manager, 32 * MB, S)).collect();
    blocks.iter().step_by(2).for_each(|address| manager.free(*address, S).expect("live"));
    manager
}

#[test]
fn a_hit_and_a_free_make_no_driver_call() {
    let manager = manager(256, vec![]);
    let first = take(&manager, 40 * MB, S);
    let calls = calls_of(&manager, |manager| {
        for order in [S, T, Order::Device] {
            manager.free(first, S).expect("live");
            assert_eq!(take(manager, 40 * MB, S), first);
            manager.free(first, order).expect("live");
            manager.passed_all();
            assert_eq!(take(manager, 40 * MB, order), first);
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn splitting_and_joining_make_no_driver_call() {
    let manager = manager(256, vec![]);
    let whole = take(&manager, 128 * MB, S);
    let calls = calls_of(&manager, |manager| {
        manager.free(whole, S).expect("live");
        let parts: Vec<u64> = [30, 50, 40].iter().map(|mib| take(manager, mib * MB, S)).collect();
        parts.iter().for_each(|part| manager.free(*part, S).expect("live"));
        assert_eq!(take(manager, 128 * MB, S), whole);
    });
    assert_eq!(calls, 0);
}

/// Free memory in four pieces serves one request for all of it, without new handles.
#[test]
fn stitching_makes_nothing_and_its_extent_is_found_again() {
    let manager = fragmented(vec![]);
    let created = manager.gpu().calls("create");
    let stitched = take(&manager, 128 * MB, S);
    assert_eq!(manager.gpu().calls("create"), created);
    assert_eq!(manager.gpu().calls("unmap"), 0);
    manager.free(stitched, S).expect("live");
    let calls = calls_of(&manager, |manager| {
        let parts: Vec<u64> = (0..4).map(|_| take(manager, 32 * MB, S)).collect();
        assert_eq!(manager.usage().live.device, 256 * MIB);
        parts.iter().for_each(|part| manager.free(*part, S).expect("live"));
        assert_eq!(take(manager, 128 * MB, S), stitched);
    });
    assert_eq!(calls, 0, "pieces and whole are views of one memory");
}

/// Two views in turn: each claims back the handles that the other had.
#[test]
fn views_take_turns_without_a_driver_call() {
    let manager = fragmented(vec![]);
    let large = take(&manager, 128 * MB, S);
    manager.free(large, S).expect("live");
    let (first, second) = (take(&manager, 96 * MB, S), take(&manager, 32 * MB, S));
    let calls = calls_of(&manager, |manager| {
        for _ in 0..3 {
            manager.free(first, S).expect("live");
            manager.free(second, S).expect("live");
            let whole = take(manager, 128 * MB, S);
            manager.free(whole, S).expect("live");
            assert_eq!((take(manager, 96 * MB, S), take(manager, 32 * MB, S)), (first, second));
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn small_blocks_share_one_handle_and_never_pin_a_large_one() {
    let manager = manager(256, vec![]);
    let large = take(&manager, 64 * MB, S);
    manager.free(large, S).expect("live");
    let small: Vec<u64> = (0..100).map(|_| take(&manager, 10_000, S)).collect();
    assert!(small.iter().all(|address| !(large..large + 64 * MIB).contains(address)));
    assert!(manager.usage().reserved.device <= 64 * MIB + GRANULARITY);
}

/// The separation of classes is worth less than a block.
#[test]
fn a_full_device_gives_small_requests_what_large_ones_leave() {
    let manager = manager(32, vec![]);
    let _large = take(&manager, 31 * MB, S);
    assert_eq!(
        calls_of(&manager, |manager| assert_ne!(take(manager, 10_000, S), 0)),
        1,
        "the room is asked for"
    );
    assert_ne!(take(&manager, 500_000, S), 0);
    assert_eq!(manager.usage().reserved.device, 32 * MIB);
}

/// A program that comes back to its peak and needs a little more there: the memory made for that
/// must not change where the blocks of its next period lie before they come to the peak.
#[test]
fn memory_that_only_a_peak_needed_is_used_last() {
    let manager = manager(4 << 10, vec![]);
    let early = take(&manager, 1024 * MB, S);
    manager.free(early, S).expect("live");
    assert_eq!(take(&manager, 1024 * MB, S), early);
    let late = take(&manager, 40 * MB, S);
    [early, late].iter().for_each(|block| manager.free(*block, S).expect("live"));
    let calls = calls_of(&manager, |manager| {
        assert_eq!(take(manager, 40 * MB, S), early, "not where it would fit best");
        assert_eq!(take(manager, 984 * MB, S), early + 40 * MIB);
        assert_eq!(take(manager, 40 * MB, S), late);
    });
    assert_eq!(calls, 0);
}

#[test]
fn medium_blocks_share_an_extent() {
    let manager = manager(256, vec![]);
    let blocks: Vec<u64> = (0..24).map(|_| take(&manager, 1_200_000, S)).collect();
    let usage = manager.usage();
    assert_eq!(usage.extents, 1);
    assert!(usage.utilization > 0.8, "{}", usage.utilization);
    drop(blocks);
}

/// Memory that one stream freed goes to another behind an event, on the GPU; the host does not
/// wait.
#[test]
fn another_stream_is_ordered_on_the_gpu() {
    let manager = manager(64, vec![]);
    let _other = take(&manager, 1000, T);
    let block = take(&manager, 60 * MB, S);
    manager.gpu().touch(StreamId(0), block, 60 * MIB);
    manager.free(block, S).expect("live");
    assert_eq!(take(&manager, 60 * MB, T), block);
    assert_eq!((manager.gpu().calls("order"), manager.gpu().calls("wait_any")), (1, 0));
}

/// `cuMemFree` has waited: any stream may have its memory at once, without an event.
#[test]
fn memory_that_is_past_is_anybodys_at_once() {
    let manager = manager(64, vec![]);
    let block = take(&manager, 60 * MB, S);
    manager.gpu().touch(StreamId(0), block, 60 * MIB);
    manager.gpu().drain_all();
    manager.free(block, Order::Device).expect("live");
    let calls = calls_of(&manager, |manager| {
        for order in [Order::Device, T, S] {
            assert_eq!(take(manager, 60 * MB, order), block);
            manager.free(block, Order::Device).expect("live");
        }
    });
    assert_eq!(calls, 0);
}

/// Memory for any stream is new before it is slow, and the host waits only where the alternative is
/// to refuse.
#[test]
fn memory_for_any_stream_is_new_then_elsewhere_then_waited_for() {
    for (overflow, waits, elsewhere) in [(vec![Tier::Host], 0, 52 * MIB), (vec![], 1, 0)] {
        let manager = manager(128, overflow);
        let block = take(&manager, 60 * MB, S);
        manager.gpu().touch(StreamId(0), block, 60 * MIB);
        manager.free(block, S).expect("live");
        assert_ne!(take(&manager, 60 * MB, Order::Device), block);
        assert_eq!(manager.gpu().calls("wait_any"), 0);
        let last = take(&manager, 60 * MB, Order::Device);
        let usage = manager.usage();
        assert_eq!((manager.gpu().calls("wait_any"), usage.reserved.host), (waits, elsewhere));
        assert_eq!(last == block, waits == 1);
    }
}

/// Hazard (resource leak): a stream gets new memory without a wait, and the memory that it could
/// have had is never found again.
#[test]
fn what_another_stream_freed_is_found_once_it_is_past() {
    let manager = manager(256, vec![]);
    let block = take(&manager, 60 * MB, S);
    manager.gpu().touch(StreamId(0), block, 60 * MIB);
    manager.free(block, S).expect("live");
    let other = take(&manager, 60 * MB, T);
    assert_ne!(other, block, "new memory before an order of our making");
    manager.gpu().drain(StreamId(0));
    assert_eq!(take(&manager, 60 * MB, T), block, "asked, the event tells");
    assert_eq!((manager.gpu().calls("order"), manager.gpu().calls("wait_any")), (0, 0));
}

/// A stream's own memory is its at once, though another stream's lies beside it in one free run.
#[test]
fn neighbours_that_others_freed_keep_nobody_waiting() {
    let manager = manager(256, vec![]);
    let blocks: Vec<u64> = (0..4).map(|_| take(&manager, 8 * MB, S)).collect();
    manager.gpu().touch(StreamId(1), blocks[1], 8 * MIB);
    manager.free(blocks[1], T).expect("live");
    manager.free(blocks[2], S).expect("live");
    manager.free(blocks[3], S).expect("live");
    assert_eq!(take(&manager, 16 * MB, S), blocks[2]);
    assert_eq!(manager.gpu().calls("order"), 0);
}

/// A program that forbids it never has a stream wait for another one's free.
#[test]
fn dependencies_that_are_forbidden_are_not_made() {
    for (allowed, orders) in [(true, 1), (false, 0)] {
        let manager = manager(64, vec![Tier::Host]);
        manager.allow_dependencies(allowed);
        // Where several streams use memory, the free has an event that another one could be made to
        // wait for.
        let _other = take(&manager, 1000, T);
        let block = take(&manager, 60 * MB, S);
        manager.gpu().touch(StreamId(0), block, 60 * MIB);
        manager.free(block, S).expect("live");
        assert_eq!(take(&manager, 60 * MB, T) == block, allowed);
        let usage = manager.usage();
        assert_eq!((usage.counters.orders, usage.reserved.host > 0), (orders, !allowed));
    }
}

/// Nothing can be recorded in a stream that is gone: memory that was freed in it gets its event
/// before.
#[test]
fn memory_of_a_destroyed_stream_is_not_lost() {
    let manager = manager(64, vec![]);
    let block = take(&manager, 60 * MB, S);
    manager.gpu().touch(StreamId(0), block, 60 * MIB);
    manager.free(block, S).expect("live");
    manager.retire_stream(StreamId(0));
    assert_eq!(take(&manager, 60 * MB, T), block);
    assert!(manager.gpu().comes_after(Some(StreamId(1)), StreamId(0), 1));
}

#[test]
fn a_captured_stream_keeps_its_memory_to_itself() {
    let manager = manager(64, vec![]);
    let block = take(&manager, 60 * MB, S);
    manager.gpu().set_capturing(StreamId(0), true);
    manager.free(block, S).expect("live");
    assert!(matches!(manager.allocate(40 * MB, T), Err(AllocateError::OutOfMemory(_))));
    assert_eq!(take(&manager, 40 * MB, S), block);
    manager.gpu().set_capturing(StreamId(0), false);
}

#[test]
fn overflow_takes_the_last_of_the_device_and_comes_back_to_it() {
    let manager = manager(100, vec![Tier::Host]);
    let first = take(&manager, 80 * MB, S);
    let mixed = take(&manager, 50 * MB, S);
    let tiers = manager.block(mixed).expect("live").tiers;
    assert_eq!((tiers.device, tiers.host), (20 * MIB, 30 * MIB));
    manager.free(mixed, S).expect("live");
    manager.free(first, S).expect("live");
    let again = take(&manager, 50 * MB, S);
    assert_eq!(manager.block(again).expect("live").tiers.elsewhere(), 0, "the device has room again");
}

#[test]
fn who_needs_the_device_is_refused_where_others_get_memory_of_the_host() {
    let manager = manager(100, vec![Tier::Host]);
    let first = take(&manager, 80 * MB, S);
    manager.free(take(&manager, 50 * MB, S), S).expect("live");
    manager.gpu().answer_oom_with(OomAnswer::Fail);
    let refused = manager.allocate(50 * MB, S).expect_err("only the host has room").to_string();
    assert!(refused.ends_with("needs memory of the device itself"), "{refused}");
    take(&manager, 20 * MB, S);
    manager.free(first, S).expect("live");
    let again = take(&manager, 50 * MB, S);
    assert_eq!(manager.block(again).expect("live").tiers.elsewhere(), 0);
    manager.gpu().answer_oom_with(OomAnswer::Spill);
    take(&manager, 50 * MB, S);
    assert!(manager.usage().live.host > 0);
}

#[test]
fn no_request_is_refused_while_a_tier_has_room() {
    let manager = manager(64, vec![Tier::Peer(1), Tier::Host]);
    let settings_room = 64 + 256 + 256;
    let blocks: Vec<u64> = (0..settings_room / 32).map(|_| take(&manager, 32 * MB, S)).collect();
    assert_eq!(blocks.len(), 18);
    let error = manager.allocate(1, S).expect_err("everything is full");
    assert!(error.to_string().contains("device 64.0 MiB live of 64.0 MiB held"), "{error}");
    manager.free(blocks[17], S).expect("live");
    assert!(manager.allocate(1, S).is_ok());
}

#[test]
fn requests_without_a_sense_are_refused() {
    let manager = manager(64, vec![]);
    let error = manager.allocate(0, S).expect_err("no such size");
    assert!(matches!(error, AllocateError::Driver(CUresult::INVALID_VALUE)), "{error}");
    for bytes in [usize::MAX, 1 << 60] {
        let error = manager.allocate(bytes, S).expect_err("no memory has as much");
        assert!(matches!(error, AllocateError::OutOfMemory(_)), "{error}");
    }
    assert_eq!((manager.gpu().all_calls(), manager.usage().counters.out_of_memory), (0, 2));
}

#[test]
fn frees_are_checked() {
    let manager = manager(64, vec![]);
    let block = take(&manager, 4 * MB, S);
    assert_eq!(manager.free(block + 1, S), Err(FreeError::Interior));
    assert_eq!(manager.free(0, S), Err(FreeError::NotOurs));
    assert_eq!(manager.free(block, S), Ok(()));
    assert_eq!(manager.free(block, S), Err(FreeError::AlreadyFree));
    manager.trim(0);
    manager.give_back_elsewhere();
    assert_eq!(manager.free(block, S), Err(FreeError::NotOurs));
}

#[test]
fn blocks_are_found_by_any_address_and_never_share_an_id() {
    let manager = manager(64, vec![]);
    let first = take(&manager, 5000, S);
    let block = manager.block(first + 4999).expect("inside");
    assert_eq!((block.address, block.bytes), (first, 5000));
    manager.free(first, S).expect("live");
    assert!(manager.block(first).is_none() && manager.owns(first), "ours, but not live");
    assert_eq!(take(&manager, 5000, S), first);
    assert!(manager.block(first).expect("live").id > block.id);
}

/// Each mapping costs the same, however large: where there is plenty of memory few large handles
/// are made, and where there is not, small ones, so that a full device has little waste.
#[test]
fn handles_are_large_while_there_is_plenty() {
    let manager = manager(16 << 10, vec![]);
    let creates = |count: u64| {
        let before = manager.gpu().calls("create");
        (0..count).for_each(|_| assert_ne!(take(&manager, 96 * MB, S), 0));
        manager.gpu().calls("create") - before
    };
    assert_eq!(creates(32), 32 * 12, "of 8 MiB");
    creates(20);
    assert_eq!(creates(8), 8 * 24, "of 4 MiB");
    creates(60);
    assert_eq!(creates(16), 16 * 48, "of 2 MiB");
    manager.audit().expect("the books balance");
}

/// The driver needs memory for itself: device memory is given back, and no more than it takes.
#[test]
fn relief_gives_back_free_device_memory() {
    let manager = fragmented(vec![]);
    let released = manager.relieve(20 * MIB);
    assert!((20 * MIB..24 * MIB).contains(&released), "{released}");
    assert_eq!(manager.gpu().held(Tier::Device), 256 * MIB - released);
    assert_eq!(manager.trim(0), 128 * MIB - released);
}

#[test]
fn idle_views_are_bounded() {
    let settings =
        ManagerSettings { headroom: 0, stitch_views: 2, overflow: vec![], ..ManagerSettings::default() };
    let manager = Manager::new(Model::new(256 * MIB, 0), settings);
    let blocks: Vec<u64> = (0..8).map(|_| take(&manager, 32 * MB, S)).collect();
    blocks.iter().step_by(2).for_each(|address| manager.free(*address, S).expect("live"));
    for mib in (34..128).step_by(2) {
        let view = take(&manager, mib * MB, S);
        manager.free(view, S).expect("live");
        manager.passed(StreamId(0));
    }
    assert!(
        manager.usage().idle_views <= 3,
        "the one in use and two idle ones: {}",
        manager.usage().idle_views
    );
    manager.audit().expect("the books balance");
}

#[test]
fn a_program_in_overflow_does_not_ask_the_driver_at_every_allocation() {
    let manager = manager(32, vec![Tier::Host]);
    let _full = take(&manager, 32 * MB, S);
    let calls = calls_of(&manager, |manager| {
        for _ in 0..100 {
            let block = take(manager, 20 * MB, S);
            manager.free(block, S).expect("live");
        }
    });
    assert!(calls < 40, "{calls} calls for a hundred allocations");
}

/// Hazard: a block lies on the host, which is read at the speed of the link each time, while the
/// device has room.
#[test]
fn what_the_device_has_left_goes_before_idle_memory_of_the_host() {
    let manager = manager(128, vec![Tier::Host]);
    let (low, high) = (take(&manager, 128 * MB, S), take(&manager, 192 * MB, S));
    [low, high].iter().for_each(|block| manager.free(*block, S).expect("live"));
    manager.passed_all();
    assert_eq!(manager.relieve(128 * MIB), 128 * MIB, "the device is empty, and the host has 192 MiB idle");
    let again = manager.block(take(&manager, 160 * MB, S)).expect("a live block");
    assert_eq!((again.tiers.device, again.tiers.host), (128 * MIB, 32 * MIB));
}

/// The same where its memory is idle, and an extent is there that has more of the host.
#[test]
fn an_extent_that_lies_on_the_host_is_not_used_again_while_the_device_is_idle() {
    let settings = ManagerSettings {
        headroom: 0,
        overflow: vec![Tier::Host],
        movable: true,
        ..ManagerSettings::default()
    };
    let manager = Manager::new(Model::new(128 * MIB, 256 * MIB), settings);
    let block = take(&manager, 128 * MB, S);
    manager.gpu().drain_all();
    let order = MoveOrder::new(block..block + 128 * MIB, Tier::Host);
    let moved = manager.move_range(&order, Duration::from_secs(60)).expect("nothing is in the way");
    assert_eq!(moved.bytes, 128 * MIB);
    manager.free(block, S).expect("live");
    let again = manager.block(take(&manager, 160 * MB, S)).expect("a live block");
    assert_eq!((again.tiers.device, again.tiers.host), (128 * MIB, 32 * MIB));
}

/// Hazard (out of memory): a program that never overflows has less of its device, because its
/// handles are made for moves.
#[test]
fn handles_are_made_for_moves_from_the_first_shortage_on() {
    let manager = manager(512, vec![Tier::Host]);
    let handles_of = |bytes| {
        let before = manager.gpu().created_and_released().0;
        take(&manager, bytes, S);
        manager.gpu().created_and_released().0 - before
    };
    assert_eq!(handles_of(64 * MB), 32, "of the least size");
    manager.expect_moves();
    assert_eq!(handles_of(64 * MB), 4);
}

#[test]
fn usage_is_serializable_and_peaks_start_anew() {
    let manager = manager(64, vec![]);
    let block = take(&manager, 3 * MB, S);
    manager.free(block, S).expect("live");
    manager.reset_live_peak();
    let usage = serde_json::to_value(manager.usage()).expect("plain data");
    assert_eq!(usage["live_peak"]["device"], 0);
    assert_eq!(usage["cached"], 3 * MIB);
    let kept = take(&manager, 3 * MB, Order::Device);
    let blocks = serde_json::to_value(manager.blocks()).expect("plain data");
    assert_eq!((&blocks[0]["address"], &blocks[0]["stream"]), (&kept.into(), &serde_json::Value::Null));
}
