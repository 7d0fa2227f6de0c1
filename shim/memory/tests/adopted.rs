//! Hazard (wrong result): memory that the program made itself loses its bytes when it moves, counts
//! as a block or twice, gets an access that the program did not grant, or is taken apart with the
//! manager's own.

mod support;

use support::model::{MIB, Model};
use support::world::{Step, World};
use wm_driver::{Gpu, Handle, StreamId, Tier};
use wm_memory::{FreeError, Manager, ManagerSettings, MoveOrder, MoveRefusal, Order, RangeMove};

const S: Order = Order::Stream(StreamId(0));
/// Where there is no block, a piece moves alone.
const ALONE: usize = 0;

fn settings() -> ManagerSettings {
    ManagerSettings { headroom: 0, overflow: vec![Tier::Host], ..ManagerSettings::default() }
}

/// An adopted piece of 8 MiB on a device.
fn world() -> (World, u64) {
    let mut world = World::new(Model::new(64 * MIB, 64 * MIB), settings());
    let address = world.make_piece(4, Tier::Device).expect("there is room");
    assert!(world.adopt(0));
    (world, address)
}

#[test]
fn a_piece_goes_out_and_comes_back_and_only_its_place_tells() {
    let (mut world, address) = world();
    let clean = |world: &World| world.manager.usage().moves.clean_bytes;
    for round in 0..3 {
        assert_eq!(world.move_piece(0, ALONE, Tier::Host, None), None);
        world.check();
        let usage = world.manager.usage();
        assert_eq!((usage.pieces.held.host, usage.pieces.held.device), (8 * MIB, 0));
        assert_eq!((usage.live.total(), usage.idle.device), (0, 8 * MIB), "its former memory is ours");
        assert_eq!(clean(&world), round * 8 * MIB, "what was not written is not copied again");
        assert_eq!(world.move_piece(0, ALONE, Tier::Device, None), None);
        world.check();
    }
    assert_eq!(world.manager.gpu().calls("create"), 2, "the piece's, and one of the host");
    assert_eq!(world.manager.gpu().calls("allow_alone"), 6);
    assert!(world.manager.blocks().is_empty(), "a piece is listed as a piece");
    assert_eq!(world.manager.large_blocks(1)[0].address, address);
    world.end();
}

#[test]
fn the_device_gets_room_for_a_block_and_the_piece_comes_back_where_that_leaves() {
    let (mut world, address) = world();
    world.run(&Step::Allocate { bytes: 56 << 20, order: S });
    world.manager.gpu().drain_all();
    assert_eq!(world.manager.device_room(), 0);
    let moved = world.manager.move_handle(address, Tier::Host).expect("nothing is in the way");
    assert_eq!((moved.address, moved.bytes), (address, 8 * MIB));
    assert_eq!(world.manager.device_room(), 8 * MIB);
    world.run(&Step::Allocate { bytes: 8 << 20, order: S });
    assert_eq!(world.manager.usage().live.device, 64 * MIB, "in the memory that the piece left");
    world.manager.gpu().drain_all();
    assert_eq!(world.manager.move_handle(address, Tier::Device), Err(MoveRefusal::Full));
    world.check();
    world.end();
}

/// Every call of a move fails once, alone and together with those that would undo it.
#[test]
fn a_move_that_fails_leaves_the_piece_as_it_was() {
    for (to, back) in [(Tier::Host, Tier::Device), (Tier::Device, Tier::Host)] {
        for count in [1, 2, 3, 6] {
            for k in 1.. {
                let (mut world, _) = world();
                let before = if to == Tier::Host { None } else { Some(back) };
                before.into_iter().for_each(|tier| assert_eq!(world.move_piece(0, ALONE, tier, None), None));
                let refusal = world.move_piece(0, ALONE, to, Some((k, count)));
                world.check();
                let place = world.manager.usage().pieces.held.on(to);
                assert_eq!(place, if refusal.is_none() { 8 * MIB } else { 0 }, "call {k} failed");
                world.manager.trim(0);
                world.manager.give_back_elsewhere();
                assert_eq!(world.move_piece(0, ALONE, to, None), None, "the next try works");
                world.end();
                if refusal.is_none() && k > 14 {
                    break;
                }
            }
        }
    }
}

#[test]
fn memory_that_was_mapped_elsewhere_is_unmapped_there_before_a_piece_gets_it() {
    let mut world = World::new(Model::new(128 * MIB, 64 * MIB), settings());
    // A view maps the memory of both: whichever a piece gets, it is in a second extent.
    (0..2).for_each(|_| world.run(&Step::Allocate { bytes: 8 << 20, order: S }));
    (0..2).for_each(|_| world.run(&Step::Free { index: 0, order: Order::Device }));
    world.make_piece(4, Tier::Host).expect("there is room");
    assert!(world.adopt(0));
    world.manager.gpu().drain_all();
    assert_eq!(world.move_piece(0, ALONE, Tier::Device, None), None);
    world.check();
    // The program releases it, and no mapping of ours keeps it alive.
    world.run(&Step::DropPiece { index: 0 });
    assert_eq!(world.manager.usage().pieces.held.total(), 0);
    world.end();
}

/// Hazard (wrong result): the program has its memory again, and nothing is mapped there.
#[test]
fn a_piece_that_a_pause_left_unmapped_is_mapped_before_it_is_the_programs() {
    let (mut world, address) = world();
    let order = MoveOrder { unmaps: true, ..MoveOrder::new(address..address + 8 * MIB, Tier::Host) };
    world.manager.swap(&mut [RangeMove::new(order, u64::MAX)], || false).expect("nothing is in the way");
    assert!(!world.manager.gpu().is_mapped(address, 8 * MIB));
    world.disown(0, None);
    world.check();
    world.end();
}

#[test]
fn a_piece_is_no_block_for_calls_that_take_blocks() {
    let (mut world, address) = world();
    let manager = world.manager;
    assert_eq!(manager.free(address, Order::Device), Err(FreeError::NotOurs));
    assert_eq!(manager.free(address + 4096, Order::Device), Err(FreeError::NotOurs));
    assert!(manager.backing(address).is_none());
    assert_eq!((manager.largest_block(), manager.elsewhere().len()), (0, 0));
    world.check();
    world.end();
}

/// Hazard (API conformance): peers get access to memory that the program did not grant them.
#[test]
fn peers_get_no_access_with_those_of_blocks() {
    let (mut world, _) = world();
    world.run(&Step::Allocate { bytes: 8 << 20, order: S });
    let before = world.manager.gpu().calls("allow");
    world.manager.refresh_access().expect("no failure");
    assert_eq!(world.manager.gpu().calls("allow") - before, 1, "the block's range alone");
    world.end();
}

#[test]
fn what_the_program_pins_stays_and_what_graphs_name() {
    let (mut world, address) = world();
    let manager = world.manager;
    let range = address + 4096..address + 8192;
    let range = std::slice::from_ref(&range);
    manager.keep_in_graphs(range);
    assert_eq!(world.move_piece(0, ALONE, Tier::Host, None), Some(MoveRefusal::InGraph));
    manager.release_from_graphs(range);
    assert_eq!(world.move_piece(0, ALONE, Tier::Host, None), None);
    manager.keep_in_place(&range[0]);
    assert_eq!(world.move_piece(0, ALONE, Tier::Device, None), Some(MoveRefusal::InPlace));
    world.end();
}

#[test]
fn two_owners_of_one_address_are_refused() {
    let (mut world, address) = world();
    let manager = world.manager;
    let charge = manager.charge(Tier::Device, 8 * MIB, false).expect("it is not limited");
    for at in [address, address + 4 * MIB, address - 4 * MIB, address + 1] {
        assert!(!manager.adopt(&charge, at, Handle(99)), "at {at:#x}");
    }
    let odd = manager.charge(Tier::Device, 3 * MIB, false).expect("it is not limited");
    assert!(!manager.adopt(&odd, address + 64 * MIB, Handle(99)));
    drop((charge, odd));
    world.check();
    world.end();
}

/// Hazard (use after free): the memory of a piece ends with the context, or is forgotten.
#[test]
fn a_piece_outlives_the_context_with_the_memory_that_it_has_then() {
    for to in [Tier::Device, Tier::Host] {
        let manager = Manager::new(Model::new(64 * MIB, 64 * MIB), settings());
        let model = manager.gpu();
        let charge = manager.charge(Tier::Device, 8 * MIB, true).expect("there is room");
        let memory = model.create(Tier::Device, 8 << 20).expect("no failure");
        charge.made(false);
        let address = model.reserve(8 << 20).expect("no failure");
        model.map(address, 8 << 20, memory).expect("no failure");
        model.allow(address, 8 << 20).expect("no failure");
        model.write(address, 77);
        assert!(manager.adopt(&charge, address, memory));
        let _there = manager.move_handle(address, to);
        manager.discard();
        assert!(!manager.has_adopted(address) && manager.block(address).is_none());
        manager.audit().expect("the books balance");
        assert_eq!((model.read(address), charge.tier()), (Some(77), to));
        let disowned = manager.disown(address).expect("it is remembered");
        assert_eq!((disowned.tier, disowned.memory == memory), (to, to == Tier::Device));
        assert_eq!(manager.disown(address), None);
        model.unmap(address, 8 << 20).expect("no failure");
        model.unreserve(address, 8 << 20).expect("no failure");
        model.release(disowned.memory).expect("no failure");
        drop(charge);
        assert_eq!((model.objects(), manager.usage().together.reserved.total()), ([0; 4], 0));
    }
}
