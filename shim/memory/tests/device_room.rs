//! Hazard (out of memory): a block goes to the host although the device's limit leaves room once
//! others have left, or blocks come back to a device whose limit leaves none.

mod support;

use support::model::{MIB, Model};
use wm_driver::{Gpu, StreamId, Tier};
use wm_memory::{Manager, ManagerSettings, Order};

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
