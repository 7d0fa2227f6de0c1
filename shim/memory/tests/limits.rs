//! Hazard (out of memory): a limit that an operator changes while the program runs is not kept, or
//! a limit that was lifted still refuses.

mod support;

use std::ops::Range;
use std::time::Duration;

use support::model::{MIB, Model};
use wm_driver::{StreamId, Tier};
use wm_memory::{AllocateError, Manager, ManagerSettings, MoveOrder, Order};

const S: Order = Order::Stream(StreamId(0));
const T: Order = Order::Stream(StreamId(1));

/// A device of 100 MiB without a headroom.
fn manager(overflow: Vec<Tier>) -> Manager<Model> {
    let settings = ManagerSettings { headroom: 0, keep_idle: 0, overflow, ..ManagerSettings::default() };
    Manager::new(Model::new(100 * MIB, 100 * MIB), settings)
}

fn limit(manager: &Manager<Model>, bytes: u64) {
    manager.limit_device(bytes, u64::MAX);
}

fn take(manager: &Manager<Model>, bytes: u64) -> u64 {
    manager.allocate(bytes as usize, S).expect("there is room")
}

/// Moves a block to the host, as far as it goes.
fn evict(manager: &Manager<Model>, address: u64, bytes: u64) {
    let range = address..address + bytes;
    let order = MoveOrder::new(range, Tier::Host);
    manager.move_range(&order, Duration::from_secs(1)).expect("no work is in flight");
}

#[test]
fn at_a_lower_limit_later_blocks_go_elsewhere_and_earlier_ones_stay() {
    let manager = manager(vec![Tier::Host]);
    let early = take(&manager, 40 * MIB);
    limit(&manager, 20 * MIB);
    let late = take(&manager, 10 * MIB);
    let on_device = |address| manager.block(address).expect("it lives").tiers.device;
    assert_eq!((on_device(early), on_device(late)), (40 * MIB, 0));
    assert_eq!(manager.bytes_beyond_limit(), 20 * MIB);
}

#[test]
fn what_leaves_goes_to_the_driver_until_the_limit_is_kept() {
    let manager = manager(vec![Tier::Host]);
    let blocks: Vec<u64> = (0..4).map(|_| take(&manager, 10 * MIB)).collect();
    limit(&manager, 15 * MIB);
    for block in &blocks[..3] {
        evict(&manager, *block, 10 * MIB);
        manager.relieve(manager.bytes_beyond_limit());
    }
    assert_eq!(manager.bytes_beyond_limit(), 0);
    assert!(manager.held_on_device() <= 15 * MIB);
    assert_eq!(manager.gpu().held(Tier::Device), manager.held_on_device(), "the driver has the rest");
}

/// Hazard (silent degradation): operands that the program makes anew in each step come to lie on
/// the host while others leave, so its kernels are slow, and memory leaves only between kernels.
#[test]
fn what_is_freed_and_made_again_meanwhile_lies_on_the_device() {
    let manager = manager(vec![Tier::Host]);
    let blocks: Vec<u64> = (0..8).map(|_| take(&manager, 10 * MIB)).collect();
    limit(&manager, 20 * MIB);
    let mut transient = {
        let _descent = manager.descend_to_limit();
        take(&manager, 4 * MIB)
    };
    while manager.bytes_beyond_limit() > 0 {
        let descent = manager.descend_to_limit();
        manager.free(transient, S).expect("it lives");
        manager.relieve(descent.unused_beyond_limit());
        transient = take(&manager, 4 * MIB);
        assert_eq!(manager.block(transient).expect("it lives").tiers.device, 4 * MIB);
        let Some(leaver) =
            blocks.iter().find(|block| manager.block(**block).expect("it lives").tiers.device > 0)
        else {
            panic!("{} bytes stay", manager.bytes_beyond_limit())
        };
        evict(&manager, *leaver, 10 * MIB);
        manager.relieve(descent.unused_beyond_limit());
        descent.has_left();
    }
    take(&manager, 20 * MIB);
    assert!(manager.held_on_device() <= 20 * MIB, "the limit holds again");
}

/// Hazard (out of memory): the program grows as fast as its memory leaves.
#[test]
fn meanwhile_it_does_not_grow() {
    let manager = manager(vec![Tier::Host]);
    take(&manager, 64 * MIB);
    limit(&manager, 20 * MIB);
    let descent = manager.descend_to_limit();
    let grown: u64 = (0..8)
        .map(|_| take(&manager, 4 * MIB))
        .map(|late| manager.block(late).expect("it lives").tiers.device)
        .sum();
    assert!(grown <= 4 * MIB, "{grown} bytes more");
    drop(descent);
    limit(&manager, 90 * MIB);
    let descent = manager.descend_to_limit();
    assert_eq!(descent.unused_beyond_limit(), 0);
    take(&manager, 20 * MIB);
}

#[test]
fn a_limit_of_nothing_leaves_the_device_to_others() {
    let manager = manager(vec![Tier::Host]);
    let block = take(&manager, 10 * MIB);
    limit(&manager, 0);
    evict(&manager, block, 10 * MIB);
    manager.relieve(u64::MAX);
    assert_eq!(manager.held_on_device(), 0);
    take(&manager, MIB);
    assert_eq!(manager.held_on_device(), 0);
}

#[test]
fn idle_memory_beyond_the_limit_is_not_kept() {
    let settings = ManagerSettings { headroom: 0, keep_idle: 50 * MIB, ..ManagerSettings::default() };
    let manager = Manager::new(Model::new(100 * MIB, 100 * MIB), settings);
    let block = take(&manager, 40 * MIB);
    limit(&manager, 20 * MIB);
    manager.free(block, Order::Device).expect("it lives");
    manager.give_back_idle(false);
    assert_eq!(manager.bytes_beyond_limit(), 0);
}

/// Hazard (out of memory): others serve later requests, and idle memory that nothing will ask for
/// stays.
#[test]
fn where_no_idle_memory_is_kept_all_of_it_goes() {
    let settings = ManagerSettings { headroom: 0, keep_idle: 50 * MIB, ..ManagerSettings::default() };
    let manager = Manager::new(Model::new(100 * MIB, 100 * MIB), settings);
    let block = take(&manager, 40 * MIB);
    manager.keep_idle(false);
    manager.free(block, Order::Device).expect("it lives");
    manager.give_back_idle(false);
    assert_eq!(manager.held_on_device(), 0);
    manager.keep_idle(true);
    let block = take(&manager, 40 * MIB);
    manager.free(block, Order::Device).expect("it lives");
    manager.give_back_idle(false);
    assert_eq!(manager.held_on_device(), 40 * MIB);
}

/// The device is asked anew: what was known of its room was known under the other limit.
#[test]
fn a_lifted_limit_lets_the_next_block_in() {
    let manager = manager(vec![]);
    limit(&manager, 20 * MIB);
    let refused = manager.allocate(30 << 20, S).expect_err("it is beyond the limit");
    let AllocateError::OutOfMemory(shortage) = refused else { panic!("{refused:?}") };
    assert_eq!(shortage.device_limit, 20 * MIB);
    limit(&manager, u64::MAX);
    take(&manager, 30 * MIB);
}

/// A request for more than all tiers have is refused without a look, by the limit of now.
#[test]
fn the_capacity_follows_the_limit() {
    let settings = ManagerSettings {
        headroom: 0,
        device_limit: 20 * MIB,
        capacity: 20 * MIB,
        overflow: vec![],
        ..ManagerSettings::default()
    };
    let manager = Manager::new(Model::new(100 * MIB, 0), settings);
    manager.allocate(30 << 20, S).expect_err("more than all tiers have");
    manager.limit_device(50 * MIB, 50 * MIB);
    take(&manager, 30 * MIB);
}

/// Pieces count against the limit of now, too.
#[test]
fn a_piece_is_charged_within_the_limit_of_now() {
    let manager = manager(vec![Tier::Host]);
    limit(&manager, 10 * MIB);
    assert!(manager.charge(Tier::Device, 16 * MIB, true).is_none());
    limit(&manager, 20 * MIB);
    assert!(manager.charge(Tier::Device, 16 * MIB, true).is_some());
}

/// Hazard (deadlock): at a limit that an operator has lowered a stream waits for another one, which
/// the host holds until this one has gone on.
#[test]
fn at_a_lowered_limit_no_stream_waits_for_another_one() {
    let manager = manager(vec![Tier::Host]);
    let free = free_in_another_stream(&manager);
    limit(&manager, 64 * MIB);
    let other = manager.allocate(50 << 20, T).expect("there is room");
    assert!(!free.contains(&other) && manager.block(other).expect("it lives").tiers.host > 0);
    assert_eq!(manager.gpu().calls("order"), 0);
}

/// The same at the limit that the program began with, while the host may hold a stream. While it
/// holds none, a wait of the GPU is better than slow memory.
#[test]
fn while_the_host_may_hold_a_stream_none_waits_for_another_one() {
    for (is_held, orders) in [(true, 0), (false, 1)] {
        let overflow = vec![Tier::Host];
        let settings =
            ManagerSettings { headroom: 0, device_limit: 64 * MIB, overflow, ..ManagerSettings::default() };
        let manager = Manager::new(Model::new(100 * MIB, 100 * MIB), settings);
        let free = free_in_another_stream(&manager);
        manager.gpu().hold(is_held);
        let other = manager.allocate(50 << 20, T).expect("there is room");
        assert_eq!(free.contains(&other), !is_held);
        assert_eq!(manager.block(other).expect("it lives").tiers.host > 0, is_held);
        assert_eq!(manager.gpu().calls("order"), orders);
    }
}

/// Addresses that one stream has freed, and still uses. Another one is known.
fn free_in_another_stream(manager: &Manager<Model>) -> Range<u64> {
    manager.allocate(1000, T).expect("there is room");
    let block = take(manager, 60 * MIB);
    manager.gpu().touch(StreamId(0), block, 60 * MIB);
    manager.free(block, S).expect("it lives");
    block..block + 60 * MIB
}
