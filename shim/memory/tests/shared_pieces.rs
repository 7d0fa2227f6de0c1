//! Hazard (data race): memory that the program made itself, and that other processes have too, can
//! be written, or is the program's again without a copy; it counts twice, or not at all.

mod support;

use support::model::{MIB, Model};
use support::world::World;
use wm_driver::{Gpu, Tier};
use wm_memory::{ManagerSettings, ShareOutcome};

const BYTES: u64 = 8 * MIB;

/// An adopted piece of 8 MiB on a device.
fn world(device: u64) -> (World, u64) {
    let settings = ManagerSettings { headroom: 0, overflow: vec![Tier::Host], ..ManagerSettings::default() };
    let mut world = World::new(Model::new(device, 64 * MIB), settings);
    let address = world.make_piece(4, Tier::Device).expect("there is room");
    assert!(world.adopt(0));
    (world, address)
}

#[test]
fn a_piece_is_shared_whole_and_gets_memory_of_its_own_again() {
    for donates in [false, true] {
        let (mut world, address) = world(64 * MIB);
        assert_eq!(world.share_piece(0, donates, None), Some(ShareOutcome::Shared));
        world.check();
        let usage = world.manager.usage();
        assert_eq!((usage.shared, usage.pieces.held.device), (BYTES, BYTES));
        // The memory that it had is idle where it got other memory.
        assert_eq!(usage.idle.device, if donates { 0 } else { BYTES });
        assert_eq!(usage.together.reserved.device, usage.idle.device);
        assert!(!world.manager.gpu().is_writable(address));
        assert!(world.unshare_piece(0, None));
        world.check();
        let usage = world.manager.usage();
        assert_eq!((usage.shared, usage.together.reserved.device), (0, BYTES));
        assert!(world.manager.gpu().is_writable(address));
        assert_eq!(world.manager.gpu().calls("copy"), 1, "all of it at once");
        world.end();
    }
}

#[test]
fn a_shared_piece_is_not_disowned() {
    let (mut world, address) = world(64 * MIB);
    assert_eq!(world.share_piece(0, false, None), Some(ShareOutcome::Shared));
    assert_eq!(world.manager.disown(address), None);
    assert!(world.manager.has_adopted(address));
    world.check();
    assert!(world.unshare_piece(0, None));
    world.disown(0, None);
    assert!(!world.manager.has_adopted(address));
    world.check();
    world.end();
}

#[test]
fn where_the_device_is_full_its_copy_is_the_hosts() {
    let (mut world, _) = world(8 * MIB);
    assert_eq!(world.share_piece(0, false, None), Some(ShareOutcome::Shared));
    world.manager.trim(0);
    world.manager.give_back_elsewhere();
    let other = world.make_piece(4, Tier::Device).expect("the memory that the piece had");
    assert!(world.unshare_piece(0, None));
    world.check();
    let usage = world.manager.usage();
    assert_eq!((usage.pieces.held.host, usage.pieces.held.device), (BYTES, BYTES), "{other:#x} stays");
    world.end();
}

#[test]
fn a_failure_leaves_the_piece_shared_or_not() {
    for donates in [false, true] {
        for k in 1..12 {
            let (mut world, _) = world(64 * MIB);
            let outcome = world.share_piece(0, donates, Some((k, 2)));
            world.check();
            let is_shared = outcome == Some(ShareOutcome::Shared);
            assert_eq!(world.manager.usage().shared, if is_shared { BYTES } else { 0 }, "{outcome:?}");
            world.unshare_piece(0, Some((k, 2)));
            world.check();
            world.end();
        }
    }
}

/// Hazard (use after free): the memory that lies at the piece's address goes with the context.
#[test]
fn a_piece_that_is_shared_when_its_context_ends_keeps_what_lies_there() {
    let (mut world, address) = world(64 * MIB);
    assert_eq!(world.share_piece(0, false, None), Some(ShareOutcome::Shared));
    world.manager.discard();
    world.manager.audit().expect("the books balance");
    assert!(!world.manager.has_adopted(address) && !world.manager.has_shared(address));
    let left = world.manager.disown(address).expect("it is remembered");
    let model = world.manager.gpu();
    assert_eq!(model.resolve(address, BYTES), [(left.memory.0, 0..BYTES)]);
    assert!(!model.is_writable(address), "it is still others' memory");
    model.unmap(address, BYTES as usize).expect("no failure");
    model.unreserve(address, BYTES as usize).expect("no failure");
    model.release(left.memory).expect("no failure");
    assert_eq!(model.objects(), [0; 4]);
}
