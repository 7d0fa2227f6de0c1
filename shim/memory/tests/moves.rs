//! Hazard (wrong result): a migration loses or mixes a block's bytes, touches them while work uses
//! them, or fails and stays half done.

mod support;

use std::time::Duration;

use support::model::{MIB, Model};
use support::world::{Step, World};
use wm_driver::{StreamId, Tier};
use wm_memory::{ManagerSettings, MoveOrder, MoveRefusal, Order, TierBytes};

const S: Order = Order::Stream(StreamId(0));
const MB: usize = MIB as usize;

fn settings() -> ManagerSettings {
    ManagerSettings { headroom: 0, overflow: vec![Tier::Host], ..ManagerSettings::default() }
}

/// Blocks of these sizes on a device with nothing left to do.
fn world(blocks: &[usize]) -> World {
    let mut world = World::new(Model::new(256 * MIB, 256 * MIB), settings());
    blocks.iter().for_each(|bytes| world.run(&Step::Allocate { bytes: *bytes, order: S }));
    world.manager.gpu().drain_all();
    world
}

/// Moves all of a block, handle by handle.
fn move_all(world: &mut World, index: usize, to: Tier) {
    for part in 0..=255 {
        let refusal = world.relocate(index, part, to, None);
        assert!(matches!(refusal, None | Some(MoveRefusal::Unfit)), "{refusal:?}");
        world.check();
    }
}

fn on(device: u64, host: u64) -> TierBytes {
    TierBytes { device: device * MIB, peer: 0, host: host * MIB }
}

#[test]
fn a_block_goes_out_and_comes_back_in_the_memory_that_it_left() {
    let mut world = world(&[32 * MB]);
    move_all(&mut world, 0, Tier::Host);
    let usage = world.manager.usage();
    assert_eq!((usage.live, usage.idle, usage.reserved), (on(0, 32), on(32, 0), on(32, 32)));
    let created = world.manager.gpu().calls("create");
    move_all(&mut world, 0, Tier::Device);
    let usage = world.manager.usage();
    assert_eq!((usage.live, usage.idle, usage.reserved), (on(32, 0), on(0, 32), on(32, 32)));
    assert_eq!(world.manager.gpu().calls("create"), created);
    assert_eq!((usage.moves.in_bytes, usage.moves.out_bytes), (32 * MIB, 32 * MIB));
    world.end();
}

/// Hazard: moves at half of the link's rate, since mapping memory of the host takes most of the
/// time that copying it does.
#[test]
fn memory_of_the_host_is_mapped_where_it_is_filled_once() {
    let mut world = world(&[32 * MB]);
    let mut calls = Vec::new();
    for to in [Tier::Host, Tier::Device, Tier::Host, Tier::Device] {
        let before = ["reserve", "map", "allow"].map(|name| world.manager.gpu().calls(name));
        move_all(&mut world, 0, to);
        let after = ["reserve", "map", "allow"].map(|name| world.manager.gpu().calls(name));
        let handles = world.manager.gpu().resolve(world.manager.blocks()[0].address, 32 * MIB).len() as u64;
        calls.push([0, 1, 2].map(|at| (after[at] - before[at]) / handles));
    }
    // Where it is filled, and in its place.
    assert_eq!(calls, [[1, 2, 2], [1, 2, 2], [0, 1, 1], [1, 2, 2]]);
    world.end();
}

#[test]
fn memory_that_work_may_touch_stays_and_nothing_waits_for_it() {
    let mut world = world(&[32 * MB]);
    world.run(&Step::Touch { index: 0, stream: StreamId(1) });
    assert_eq!(world.relocate(0, 0, Tier::Host, None), Some(MoveRefusal::InUse));
    assert_eq!(world.manager.gpu().calls("wait_any"), 0);
    world.run(&Step::Run { stream: StreamId(1), part: 255 });
    assert_eq!(world.relocate(0, 0, Tier::Host, None), None);
    assert_eq!(world.manager.usage().moves.refused, 1);
    world.end();
}

#[test]
fn what_others_rely_on_stays() {
    let first = |world: &World| world.manager.blocks()[0].address;
    let passed_on = |world: &World| drop(world.manager.backing(first(world)));
    let told = |world: &World| world.manager.keep_in_place(&(first(world) + 5..first(world) + 6));
    for fix in [&passed_on as &dyn Fn(&World), &told] {
        let mut world = world(&[32 * MB, 32 * MB]);
        fix(&world);
        assert_eq!(world.relocate(0, 0, Tier::Host, None), Some(MoveRefusal::InPlace));
        assert_eq!(world.relocate(1, 0, Tier::Host, None), None, "the rest moves");
        world.run(&Step::Free { index: 0, order: S });
        world.run(&Step::Allocate { bytes: 32 * MB, order: S });
        world.manager.gpu().drain_all();
        assert_eq!(world.relocate(1, 0, Tier::Host, None), None, "the next block at its address does");
        world.end();
    }
}

#[test]
fn memory_that_peers_reach_moves() {
    let mut world = world(&[32 * MB]);
    world.manager.refresh_access().expect("no failure");
    assert_eq!(world.relocate(0, 0, Tier::Host, None), None);
    world.end();
}

#[test]
fn the_users_limits_hold_for_moves() {
    let small = ManagerSettings { host_limit: 8 * MIB, ..settings() };
    let none = ManagerSettings { overflow: vec![], ..settings() };
    for (settings, refusal) in [(small, MoveRefusal::Full), (none, MoveRefusal::Unfit)] {
        let mut world = World::new(Model::new(256 * MIB, 256 * MIB), settings);
        world.run(&Step::Allocate { bytes: 128 * MB, order: S });
        world.manager.gpu().drain_all();
        let last = (0..=255).filter_map(|part| world.relocate(0, part, Tier::Host, None)).last();
        assert_eq!(last, Some(refusal));
        world.check();
        world.end();
    }
}

/// Every call of a move fails once, alone and together with those that would undo it.
#[test]
fn a_move_that_fails_leaves_the_block_as_it_was() {
    for count in [1, 2, 3, 6] {
        for k in 1.. {
            let mut world = world(&[32 * MB, 3 * MB, 500_000]);
            world.manager.gpu().fail_in(k, 0);
            let before = world.manager.usage();
            let refusal = world.relocate(0, 0, Tier::Host, Some((k, count)));
            world.check();
            let after = world.manager.usage();
            if refusal.is_some() {
                assert_eq!(before.live, after.live, "call {k} failed");
                assert!(after.quarantined > 0 || before.reserved == after.reserved, "call {k} failed");
                world.manager.trim(0);
                world.manager.give_back_elsewhere();
                assert_eq!(world.relocate(0, 0, Tier::Host, None), None, "the next try works: call {k}");
            }
            world.check();
            world.end();
            if refusal.is_none() && k > 12 {
                break;
            }
        }
    }
}

/// Where the driver does nothing any more, the block cannot be had: an access is an error, and no
/// other block's bytes.
#[test]
fn what_the_driver_does_not_give_back_is_told_as_lost_and_nothing_else_moves() {
    let world = world(&[32 * MB, 32 * MB]);
    let address = world.manager.blocks()[0].address;
    let calls = |name| world.manager.gpu().calls(name);
    // Up to the first unmapping all is well: is_settled, memory_info, create, reserve, map, allow,
    // copy, wait_any, unmap.
    world.manager.gpu().fail_in(10, 100);
    let moved = world.manager.move_handle(address, Tier::Host);
    assert_eq!(calls("unmap"), 1 + 1, "the block's, and the spare's, which failed");
    assert!(matches!(moved, Err(MoveRefusal::Lost(_))), "{moved:?}");
    world.manager.gpu().fail_no_more();
    assert!(!world.manager.gpu().is_mapped(address, 1));
    let other = world.manager.blocks()[1].address;
    assert_eq!(world.manager.move_handle(other, Tier::Host), Err(MoveRefusal::Fixed));
    world.manager.audit().expect("the books balance");
}

/// The copy goes on after its move was given up: the memory that it reads and the memory that it
/// writes stay mapped until it is over, even if the program frees its blocks.
#[test]
fn a_copy_that_takes_too_long_is_left_to_end() {
    for spare in [false, true] {
        let mut world = world(&[32 * MB, 32 * MB]);
        if spare {
            move_all(&mut world, 1, Tier::Host);
            move_all(&mut world, 1, Tier::Device);
        }
        world.run(&Step::SlowCopies(true));
        assert_eq!(world.relocate(0, 0, Tier::Host, None), Some(MoveRefusal::Slow));
        assert_eq!(world.relocate(0, 0, Tier::Host, None), Some(MoveRefusal::InUse), "the copy is work, too");
        (0..2).for_each(|_| world.run(&Step::Free { index: 0, order: Order::Device }));
        world.run(&Step::Trim { keep: 0 });
        assert!(world.manager.usage().reserved.total() > 0, "what the copy uses is not given back");
        world.run(&Step::SlowCopies(false));
        world.run(&Step::Trim { keep: 0 });
        assert_eq!(world.manager.usage().reserved.total(), 0);
        world.end();
    }
}

/// Hazard: a reservation goes while a mapping is left in it. One of its handles could not be
/// unmapped before, the other one is the spare of a move that is given up.
#[test]
fn the_spare_of_a_move_that_is_given_up_lay_beside_what_could_not_be_unmapped() {
    let chunked = ManagerSettings { chunked: true, ..settings() };
    let mut world = World::new(Model::new(8 * MIB, 256 * MIB), chunked);
    [8 * MB, 4 * MB].iter().for_each(|bytes| world.run(&Step::Allocate { bytes: *bytes, order: S }));
    world.manager.gpu().drain_all();
    world.run(&Step::Free { index: 1, order: Order::Device });
    world.run(&Step::SynchronizeAll);
    assert_eq!(world.manager.usage().reserved, on(8, 4));
    let unmapped = world.manager.gpu().calls("unmap");
    // The free has asked whether it is past.
    world.manager.gpu().fail_in(1, 1);
    world.manager.relieve_host(2 * MIB);
    world.manager.gpu().fail_no_more();
    assert_eq!((world.manager.gpu().calls("unmap") - unmapped, world.manager.usage().quarantined), (1, 2));
    world.run(&Step::SlowCopies(true));
    assert_eq!(world.relocate(0, 0, Tier::Host, None), Some(MoveRefusal::Slow));
    world.check();
    world.run(&Step::SlowCopies(false));
    world.end();
}

/// A stitched extent shares its handles with the one that they come from: both are to have the new
/// memory.
#[test]
fn other_mappings_of_what_moves_follow() {
    let mut world = world(&[32 * MB; 8]);
    (0..4).for_each(|index| world.run(&Step::Free { index, order: S }));
    world.run(&Step::Allocate { bytes: 120 * MB, order: S });
    let (mapped, held) = (world.manager.gpu().mapped_bytes(), world.manager.gpu().held(Tier::Device));
    assert!(
        mapped > held,
        "the block is stitched from handles that other extents map too: {mapped} of {held}"
    );
    world.manager.gpu().drain_all();
    let index = world.live() - 1;
    move_all(&mut world, index, Tier::Host);
    world.run(&Step::Free { index, order: S });
    (0..4).for_each(|_| world.run(&Step::Allocate { bytes: 30 * MB, order: S }));
    world.end();
}

#[test]
fn small_blocks_move_together_and_what_is_free_between_them_is_not_copied() {
    let mut world = world(&[300_000; 6]);
    world.run(&Step::Free { index: 1, order: S });
    world.manager.gpu().drain_all();
    let (address, cached) = (world.manager.blocks()[0].address, world.manager.usage().cached);
    assert!(cached > 0, "the freed block waits for a request of its size");
    let moved = world.manager.move_handle(address, Tier::Host).expect("a move");
    assert_eq!((moved.copied, world.manager.usage().cached), (5 * 300_032, 0));
    assert_eq!(world.manager.usage().live.host, 5 * 300_032);
}

/// Bytes that were not copied since the host had them, and calls that started a copy.
fn clean(world: &World) -> (u64, u64) {
    (world.manager.usage().moves.clean_bytes / MIB, world.manager.gpu().calls("copy"))
}

#[test]
fn only_chunks_that_were_written_since_they_came_are_copied_out() {
    let mut world = world(&[32 * MB, 32 * MB]);
    for to in [Tier::Host, Tier::Device] {
        (0..2).for_each(|index| move_all(&mut world, index, to));
    }
    let (bytes, copies) = clean(&world);
    assert_eq!(bytes, 0);
    move_all(&mut world, 0, Tier::Host);
    assert_eq!(clean(&world), (32, copies), "all of it is clean");
    // Its first word, the one in its middle and its last.
    world.run(&Step::Touch { index: 1, stream: StreamId(0) });
    world.manager.gpu().drain_all();
    move_all(&mut world, 1, Tier::Host);
    assert_eq!(clean(&world).0, 32 + 32 - 3 * 2);
    for to in [Tier::Device, Tier::Host] {
        (0..2).for_each(|index| move_all(&mut world, index, to));
    }
    assert_eq!(clean(&world).0, 58 + 64, "what was copied is clean the next time");
    world.end();
}

/// Hazard (wrong report): memory is copied again, and no figure has the reason.
#[test]
fn what_is_copied_for_lack_of_a_fingerprint_is_counted() {
    let mut world = world(&[32 * MB]);
    let unprinted = |world: &World| world.manager.usage().moves.unprinted_bytes / MIB;
    move_all(&mut world, 0, Tier::Host);
    assert_eq!(unprinted(&world), 0, "the host had no copy");
    for (refused_in, refused_out, expected) in [(true, false, 32), (false, true, 64), (false, false, 64)] {
        world.manager.gpu().refuse_fingerprints(refused_in);
        move_all(&mut world, 0, Tier::Device);
        world.manager.gpu().refuse_fingerprints(refused_out);
        let before = clean(&world).0;
        move_all(&mut world, 0, Tier::Host);
        let is_clean = !refused_in && !refused_out;
        assert_eq!((unprinted(&world), clean(&world).0 - before), (expected, if is_clean { 32 } else { 0 }));
    }
    world.end();
}

/// One call serves many handles, once a call was seen to be short.
#[test]
fn fingerprints_of_many_handles_are_taken_at_once() {
    let world = world(&[64 * MB]);
    let block = world.manager.blocks()[0].address;
    let prints = || world.manager.gpu().calls("fingerprints");
    let mut calls = Vec::new();
    for to in [Tier::Host, Tier::Device, Tier::Host] {
        let order = MoveOrder::new(block..block + 64 * MIB, to);
        let before = prints();
        let moved = world.manager.move_range(&order, Duration::from_secs(60)).expect("moves");
        assert!(moved.count > 1 && moved.bytes == 64 * MIB, "{moved:?}");
        calls.push(prints() - before);
    }
    assert!(calls[0] == 0 && calls[1] > 0 && calls[2] > 0 && calls[1] + calls[2] < 64, "{calls:?}");
    assert_eq!(clean(&world).0, 64);
}

/// Memory that was used for something else has the bytes of nothing.
#[test]
fn a_kept_copy_that_was_used_again_is_none() {
    let uses: [fn(&mut World); 2] = [
        |world| assert_eq!(world.manager.give_back_elsewhere(), 32 * MIB),
        // Another block goes out into the only idle memory of the host.
        |world| {
            move_all(world, 1, Tier::Host);
            move_all(world, 1, Tier::Device);
        },
    ];
    for (number, reuse) in uses.iter().enumerate() {
        let tight = ManagerSettings { host_limit: 32 * MIB, ..settings() };
        let mut world = World::new(Model::new(256 * MIB, 256 * MIB), tight);
        (0..2).for_each(|_| world.run(&Step::Allocate { bytes: 32 * MB, order: S }));
        world.manager.gpu().drain_all();
        move_all(&mut world, 0, Tier::Host);
        move_all(&mut world, 0, Tier::Device);
        reuse(&mut world);
        let (before, copies) = clean(&world);
        move_all(&mut world, 0, Tier::Host);
        let (after, more) = clean(&world);
        assert!(after == before && more > copies, "use {number}: {before} to {after}");
        world.end();
    }
}

/// Host memory of its own first, and memory that has no bytes of others before memory that has.
#[test]
fn each_handle_leaves_into_its_own_copy() {
    let mut world = world(&[32 * MB; 3]);
    for to in [Tier::Host, Tier::Device] {
        (0..2).for_each(|index| move_all(&mut world, index, to));
    }
    // The third one gets new memory, although there are idle handles.
    let created = world.manager.gpu().calls("create");
    move_all(&mut world, 2, Tier::Host);
    assert!(world.manager.gpu().calls("create") > created);
    (0..2).rev().for_each(|index| move_all(&mut world, index, Tier::Host));
    assert_eq!(clean(&world).0, 64);
    assert_eq!(world.manager.usage().reserved.host, 96 * MIB);
    world.end();
}

/// More written ranges than copies that are made for a handle: what is clean between them is copied
/// with them, and what is clean outside is not. The handle has blocks of half a chunk and ten gaps.
#[test]
fn many_written_ranges_are_copied_as_one() {
    let large = ManagerSettings { movable: true, ..settings() };
    let mut world = World::new(Model::new(1024 * MIB, 1024 * MIB), large);
    world.run(&Step::Allocate { bytes: 512 * MB, order: S });
    let whole = world.manager.blocks()[0].address;
    world.run(&Step::Free { index: 0, order: S });
    (0..64).for_each(|_| world.run(&Step::Allocate { bytes: MB, order: S }));
    let half = |world: &World, index| (world.block(index) - whole) / MIB;
    let is_gap = |half: u64| half < 30 && half % 3 == 2;
    while let Some(index) = (0..world.live()).find(|index| is_gap(half(&world, *index))) {
        world.run(&Step::Free { index, order: S });
    }
    world.manager.gpu().drain_all();
    let moved = |world: &World, to| world.manager.move_handle(whole, to).expect("a move");
    let touch = |world: &mut World, is_written: fn(u64) -> bool| {
        let written: Vec<usize> =
            (0..world.live()).filter(|index| is_written(half(world, *index) / 2)).collect();
        written.iter().for_each(|index| world.run(&Step::Touch { index: *index, stream: StreamId(0) }));
        world.manager.gpu().drain_all();
    };
    let first = moved(&world, Tier::Host);
    assert_eq!((first.bytes, first.copied), (64 * MIB, 54 * MIB));
    moved(&world, Tier::Device);
    touch(&mut world, |chunk| [3, 9].contains(&chunk));
    assert_eq!(moved(&world, Tier::Host).copied, 4 * MIB);
    moved(&world, Tier::Device);
    // Ten ranges between the gaps, and eight chunks.
    touch(&mut world, |chunk| chunk < 15 || chunk % 2 == 0);
    let copies = world.manager.gpu().calls("copy");
    assert_eq!(moved(&world, Tier::Host).copied, 62 * MIB, "all but the last chunk");
    assert_eq!(world.manager.gpu().calls("copy"), copies + 1);
    world.end();
}

/// Two chunks that differ and have one fingerprint.
#[test]
fn verified_bytes_win_over_fingerprints() {
    for verify_moves in [true, false] {
        let settings = ManagerSettings { verify_moves, ..settings() };
        let mut world = World::new(Model::new(256 * MIB, 256 * MIB), settings);
        world.run(&Step::Allocate { bytes: 32 * MB, order: S });
        world.manager.gpu().drain_all();
        let block = world.manager.blocks()[0].address;
        if verify_moves {
            world.manager.gpu().make_fingerprints_equal();
        }
        [Tier::Host, Tier::Device].iter().for_each(|to| move_all(&mut world, 0, *to));
        world.run(&Step::Touch { index: 0, stream: StreamId(0) });
        world.manager.gpu().drain_all();
        move_all(&mut world, 0, Tier::Host);
        let found = world.manager.gpu().found_unequal();
        let moves = world.manager.usage().moves;
        assert_eq!(moves.clean_bytes, 32 * MIB - 3 * 2 * MIB);
        if verify_moves {
            // Its first word, the one in its middle and its last.
            let chunks: Vec<u64> = found.iter().map(|(_, bytes)| (bytes.start - block) / (2 * MIB)).collect();
            assert_eq!((chunks, moves.unequal_bytes), (vec![0, 8, 15], 3 * 2 * MIB));
            assert!(found.iter().all(|(named, _)| *named == block), "{found:?} of {block}");
        } else {
            assert_eq!((found, moves.unequal_bytes), (vec![], 0));
        }
        world.end();
    }
}

/// What cannot be compared is copied.
#[test]
fn where_bytes_cannot_be_read_they_are_copied() {
    let settings = ManagerSettings { verify_moves: true, ..settings() };
    let mut world = World::new(Model::new(256 * MIB, 256 * MIB), settings);
    world.run(&Step::Allocate { bytes: 2 * MB, order: S });
    world.manager.gpu().drain_all();
    [Tier::Host, Tier::Device].iter().for_each(|to| move_all(&mut world, 0, *to));
    world.manager.gpu().fail_reads();
    move_all(&mut world, 0, Tier::Host);
    let moves = world.manager.usage().moves;
    assert_eq!((moves.clean_bytes, moves.unequal_bytes), (0, 0));
    world.end();
}

/// A fingerprint that the driver refuses says nothing: all is copied.
#[test]
fn where_fingerprints_fail_all_is_copied() {
    for fails_in in [Tier::Device, Tier::Host] {
        let mut world = world(&[32 * MB]);
        for to in [Tier::Host, Tier::Device, Tier::Host] {
            world.manager.gpu().refuse_fingerprints(to == fails_in);
            move_all(&mut world, 0, to);
        }
        assert_eq!(clean(&world).0, 0, "{fails_in:?}");
        world.end();
    }
}
