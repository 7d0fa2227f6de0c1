//! Hazard (out of memory): a block goes to the host although the device's limit leaves room once
//! others have left, or blocks come back to a device whose limit leaves none.

mod support;

use std::time::Duration;

use support::model::{MIB, Model};
use wm_driver::{Gpu, OomAnswer, StreamId, Tier};
use wm_memory::{Manager, ManagerSettings, MoveOrder, Order};

const S: Order = Order::Stream(StreamId(0));

/// A device of 100 MiB without a headroom.
fn manager(device_limit: u64) -> Manager<Model> {
    let settings = ManagerSettings { headroom: 0, device_limit, keep_idle: 0, ..ManagerSettings::default() };
    Manager::new(Model::new(100 * MIB, 100 * MIB), settings)
}

fn take(manager: &Manager<Model>, bytes: u64) {
    manager.allocate(bytes as usize, S).expect("there is room");
}

#[test]
fn the_room_ends_at_the_devices_limit() {
    let manager = manager(40 * MIB);
    assert_eq!(manager.device_room(), 40 * MIB);
    take(&manager, 30 * MIB);
    assert_eq!(manager.device_room(), 10 * MIB);
    let piece = manager.charge(Tier::Device, 8 * MIB, true).expect("there is room");
    assert_eq!(manager.device_room(), 2 * MIB);
    drop(piece);
    take(&manager, 10 * MIB);
    assert_eq!(manager.device_room(), 0);
}

#[test]
fn pieces_that_a_program_makes_beyond_the_limit_leave_no_room() {
    let manager = manager(40 * MIB);
    let _piece = manager.charge(Tier::Device, 50 * MIB, false).expect("it is not limited");
    assert_eq!(manager.device_room(), 0);
}

/// The driver's figure lacks the bytes of the piece, and nothing else tells of them.
#[test]
fn bytes_of_pieces_are_no_room() {
    let manager = manager(u64::MAX);
    take(&manager, 30 * MIB);
    let handle = manager.gpu().create(Tier::Device, 8 << 20).expect("there is room");
    let piece = manager.charge(Tier::Device, 8 * MIB, false).expect("there is room");
    assert_eq!(manager.device_room(), 62 * MIB);
    manager.gpu().release(handle).expect("it is mapped nowhere");
    drop(piece);
    assert_eq!(manager.device_room(), 70 * MIB);
}

/// Hazard (latency): a kernel reads its small operands from the host, because large memory has
/// taken the device's last bytes.
#[test]
fn large_pieces_leave_a_part_of_the_limit_to_small_ones() {
    let manager = manager(80 * MIB);
    assert!(manager.leaves_small_room(76 * MIB), "a sixty-fourth is less than a granule");
    let settings = ManagerSettings { device_limit: 2048 * MIB, ..ManagerSettings::default() };
    let manager = Manager::new(Model::new(4096 * MIB, 100 * MIB), settings);
    let _large = manager.charge(Tier::Device, 1996 * MIB, true).expect("there is room");
    assert!(manager.leaves_small_room(20 * MIB) && !manager.leaves_small_room(22 * MIB));
    let _small = manager.charge(Tier::Device, 22 * MIB, true).expect("there is room");
    assert!(manager.leaves_small_room(2 * MIB) && !manager.leaves_small_room(4 * MIB));
    manager.limit_device(u64::MAX, u64::MAX);
    assert!(manager.leaves_small_room(1024 * MIB), "the headroom has room for small ones then");
}

/// The same of blocks. Where they can lie nowhere else they get all of the limit.
#[test]
fn large_blocks_that_may_lie_elsewhere_leave_a_part_of_the_limit_to_small_ones() {
    let settings = ManagerSettings { device_limit: 1024 * MIB, headroom: 0, ..ManagerSettings::default() };
    for answer in [OomAnswer::Spill, OomAnswer::FailOnce, OomAnswer::Fail] {
        let manager = Manager::new(Model::new(4096 * MIB, 4096 * MIB), settings.clone());
        manager.gpu().answer_oom_with(answer);
        let large = (0..52).map_while(|_| manager.allocate(20 << 20, S).ok()).count();
        let (used, all) = (manager.usage().reserved.device, 1024 * MIB);
        match answer {
            OomAnswer::Spill => assert_eq!((large, all - used), (52, 16 * MIB)),
            OomAnswer::FailOnce => assert_eq!((large, all - used), (50, 24 * MIB), "it asks again"),
            OomAnswer::Fail | OomAnswer::Retry => assert_eq!((large, all - used), (51, 4 * MIB)),
        }
        for _ in 0..3 {
            let small = manager.allocate(1 << 20, S).expect("there is room");
            assert_eq!(manager.block(small).expect("it lives").tiers.host, 0);
        }
    }
}

/// Hazard (latency): a program that fits is past its device once it was paused.
#[test]
fn what_had_all_of_the_limit_has_it_again_when_it_comes_back() {
    let settings = ManagerSettings { device_limit: 1024 * MIB, headroom: 0, ..ManagerSettings::default() };
    let manager = Manager::new(Model::new(4096 * MIB, 4096 * MIB), settings);
    manager.gpu().answer_oom_with(OomAnswer::Fail);
    let at: Vec<u64> = (0..52).map_while(|_| manager.allocate(20 << 20, S).ok()).collect();
    for (to, host) in [(Tier::Host, 1020 * MIB), (Tier::Device, 0)] {
        for block in &at {
            let order = MoveOrder::new(*block..block + 20 * MIB, to);
            manager.move_range(&order, Duration::from_secs(60)).expect("nothing is in flight");
        }
        assert_eq!(manager.usage().live.host, host);
    }
}

#[test]
fn small_blocks_may_use_a_part_of_the_headroom() {
    let settings = ManagerSettings { headroom: 64 * MIB, keep_idle: 0, ..ManagerSettings::default() };
    let manager = Manager::new(Model::new(164 * MIB, 200 * MIB), settings);
    take(&manager, 120 * MIB);
    assert_eq!(manager.usage().reserved.device, 100 * MIB);
    (0..20).for_each(|_| take(&manager, 2 * MIB));
    assert_eq!(manager.usage().reserved.device, 108 * MIB, "an eighth of the headroom");
}

#[test]
fn small_pieces_may_use_a_part_of_the_headroom() {
    let settings = ManagerSettings { headroom: 64 * MIB, keep_idle: 0, ..ManagerSettings::default() };
    let manager = Manager::new(Model::new(164 * MIB, 100 * MIB), settings);
    let make = |mib: u64| {
        let leaves = manager.leaves_headroom(mib * MIB);
        if leaves {
            manager.gpu().create(Tier::Device, (mib * MIB) as usize).expect("there is memory");
        }
        leaves
    };
    assert!(make(98) && !make(20) && make(2), "the headroom is left");
    assert!(!make(4), "not to large ones");
    let small = (0..40).take_while(|_| make(2)).count();
    assert_eq!(small, 4, "an eighth of the headroom");
}
