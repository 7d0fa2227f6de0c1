//! Hazard (data race): this process writes memory that it shares with other processes, gives it to
//! another block, or never returns it; or a chunk is half shared; or no memory is left for a
//! private copy.

mod support;

use std::time::Duration;

use support::model::{GRANULARITY, MIB, Model};
use support::world::{Step, World};
use wm_driver::{Gpu, StreamId, Tier};
use wm_memory::{
    BlockChunk, ManagerSettings, MoveOrder, MoveRefusal, Order, Quiet, RangeMove, ShareOutcome, TakenBack,
    Unparked,
};

const S: Order = Order::Stream(StreamId(0));
const MB: usize = MIB as usize;
const LONG: Duration = Duration::from_secs(60);

fn settings() -> ManagerSettings {
    ManagerSettings { headroom: 0, overflow: vec![], chunked: true, ..ManagerSettings::default() }
}

/// Blocks of these sizes on a device of so many MiB with nothing left to do.
fn world_of(device: u64, settings: ManagerSettings, blocks: &[usize]) -> World {
    let mut world = World::new(Model::new(device * MIB, 64 * MIB), settings);
    blocks.iter().for_each(|bytes| world.run(&Step::Allocate { bytes: *bytes, order: S }));
    assert_eq!(world.live(), blocks.len());
    world.manager.gpu().drain_all();
    world
}

fn world(blocks: &[usize]) -> World {
    world_of(256, settings(), blocks)
}

const ALL_SHARED: [ShareOutcome; 4] = [ShareOutcome::Shared; 4];

fn parked(world: &World) -> u64 {
    world.manager.usage().parked / MIB
}

#[test]
fn a_block_shares_its_chunks_and_gets_them_back() {
    for donates in [false, true] {
        let mut world = world(&[7 * MB, 7 * MB]);
        let outcomes = world.share(1, 0, donates, None);
        world.check();
        let count = outcomes.iter().filter(|outcome| **outcome == ShareOutcome::Shared).count() as u64;
        assert!(outcomes.len() == 3 && count >= if donates { 2 } else { 3 }, "{outcomes:?}");
        let usage = world.manager.usage();
        // Memory that was given away is not held here any more; memory that was replaced is idle.
        let idle = if donates { 0 } else { 2 * count };
        assert_eq!((usage.shared, usage.live.device), (2 * count * MIB, 14 * MIB));
        assert!(usage.idle.device >= idle * MIB);
        let calls = world.manager.gpu().calls("copy");
        let moved = world.unshare(1, 0, None).expect("a block").expect("nothing is in the way");
        world.check();
        assert_eq!((moved.count, moved.refusal), (count, None));
        assert_eq!(world.manager.gpu().calls("copy") - calls, count);
        assert_eq!(world.manager.usage().shared, 0);
        world.end();
    }
}

#[test]
fn it_is_looked_once_whether_work_is_over_and_nothing_is_looked_for_where_nothing_is_shared() {
    let mut world = world(&[8 * MB]);
    assert_eq!(world.share(0, 0, false, None), ALL_SHARED);
    assert_eq!(world.manager.gpu().calls("is_settled"), 1);
    world.unshare(0, 0, None).expect("a block").expect("nothing is in the way");
    world.unshare(0, 0, None).expect("a block").expect("nothing is shared");
    assert_eq!(world.manager.gpu().calls("is_settled"), 2);
    world.end();
}

#[test]
fn what_work_may_touch_stays_as_it_is() {
    let mut world = world(&[8 * MB]);
    world.run(&Step::Touch { index: 0, stream: StreamId(1) });
    assert_eq!(world.share(0, 0, false, None), [ShareOutcome::Refused(MoveRefusal::InUse); 4]);
    world.manager.gpu().drain_all();
    assert_eq!(world.share(0, 0, false, None), ALL_SHARED);
    let block = world.manager.blocks()[0].address;
    let reads = world.manager.gpu().touch(StreamId(1), block, 8 * MIB);
    assert!(reads > 0);
    assert_eq!(world.unshare(0, 0, None), Some(Err(MoveRefusal::InUse)));
    world.manager.gpu().drain_all();
    // During a capture the GPU cannot be queried. A caller that has waited need not.
    world.run(&Step::Capture { stream: StreamId(2), on: true });
    assert!(matches!(world.unshare(0, 0, None), Some(Err(MoveRefusal::Driver(_)))));
    let moved =
        world.manager.unshare(block..block + 8 * MIB, true, Quiet::Seen, LONG).expect("it is not asked");
    assert_eq!((moved.count, moved.refusal), (4, None));
    world.manager.audit().expect("the books balance");
    world.manager.discard();
}

#[test]
fn what_is_no_chunk_of_one_block_is_not_shared() {
    let plain = ManagerSettings { chunked: false, overflow: vec![Tier::Host], ..settings() };
    let world = world_of(64 << 10, plain, &[64 * MB, 2 * MB, 1_300_000, 1_300_000]);
    let (manager, model) = (&world.manager, world.manager.gpu());
    let blocks = manager.blocks();
    let of = |bytes: u64| blocks.iter().find(|block| block.bytes == bytes).expect("allocated").address;
    // Its memory comes in handles of 8 MiB.
    let foreign = model.create(Tier::Device, GRANULARITY as usize).expect("room");
    let outcome = |address| {
        manager.share_chunks(&[(manager.chunk_at(address), foreign)], Quiet::Look, LONG).outcomes[0]
    };
    assert_eq!(outcome(of(64 * MIB)), ShareOutcome::Refused(MoveRefusal::Unfit));
    assert_eq!(outcome(of(64 * MIB) + 512), ShareOutcome::Refused(MoveRefusal::Unfit));
    assert_eq!(outcome(0x1000), ShareOutcome::Refused(MoveRefusal::NoBlock));
    model.release(foreign).expect("the caller's");
    world.end();
    let mut world = world_of(256, settings(), &[3 * MB, 1_200_000]);
    let address = world.manager.blocks()[0].address;
    let foreign = world.manager.gpu().import_like(address);
    let outcome = |address, handle| {
        world.manager.share_chunks(&[(world.manager.chunk_at(address), handle)], Quiet::Look, LONG).outcomes
            [0]
    };
    assert_eq!(
        outcome(address + 2 * MIB, foreign),
        ShareOutcome::Refused(MoveRefusal::Shared),
        "others may lie there"
    );
    assert_eq!(outcome(address + 512, foreign), ShareOutcome::Refused(MoveRefusal::Unfit));
    assert_eq!(
        world
            .manager
            .share_chunks(&[(world.manager.chunk_at(address), foreign)], Quiet::Look, Duration::ZERO)
            .outcomes,
        [ShareOutcome::NotTried]
    );
    assert_eq!(outcome(address, foreign), ShareOutcome::Shared);
    assert_eq!(outcome(address, foreign), ShareOutcome::Refused(MoveRefusal::Unfit), "it is shared already");
    world.manager.keep_in_place(&(address..address + 1));
    assert_eq!(outcome(address, foreign), ShareOutcome::Refused(MoveRefusal::InPlace));
    assert!(world.manager.backing(address).is_none(), "others' memory is not passed on as ours");
    world.unshare(0, 0, None).expect("a block").expect("it is undone all the same");
    assert!(world.manager.backing(address).is_some());
    world.end();
}

/// Hazard (data race): a block that is not tracked is mapped for reading only, since it got the
/// address of one that was freed between the check and the share.
#[test]
fn a_chunk_of_a_block_that_has_ended_is_not_shared() {
    let mut world = world(&[8 * MB]);
    let address = world.manager.blocks()[0].address;
    let chunk = world.manager.chunk_at(address);
    world.run(&Step::Free { index: 0, order: S });
    world.run(&Step::Allocate { bytes: 8 * MB, order: S });
    assert_eq!(world.manager.blocks()[0].address, address, "the next block has the address of the last one");
    world.manager.gpu().drain_all();
    let foreign = world.manager.gpu().import_like(address);
    let outcomes = world.manager.share_chunks(&[(chunk, foreign)], Quiet::Look, LONG).outcomes;
    assert_eq!(outcomes, [ShareOutcome::Refused(MoveRefusal::NoBlock)]);
    let outcomes = world.manager.donate_chunks(&[chunk], Quiet::Look, LONG, |_, _| Ok(())).outcomes;
    assert_eq!(outcomes, [ShareOutcome::Refused(MoveRefusal::NoBlock)]);
    world.manager.gpu().release(foreign).expect("the caller's still");
    world.end();
}

#[test]
fn memory_of_a_freed_block_is_used_for_nothing_until_it_is_given_up() {
    let mut world = world(&[8 * MB, 8 * MB]);
    assert_eq!(world.share(0, 0, false, None), ALL_SHARED);
    world.manager.gpu().drain_all();
    world.manager.trim(0);
    world.manager.give_back_elsewhere();
    world.run(&Step::Free { index: 0, order: S });
    assert_eq!((parked(&world), world.manager.usage().shared), (8, 0));
    // At each of these sizes the world checks that no block lies on the parked memory.
    [8, 2, 8, 100].iter().for_each(|mib| world.run(&Step::Allocate { bytes: mib * MB, order: S }));
    assert_eq!(parked(&world), 8);
    let reserved = world.manager.usage().reserved;
    world.manager.gpu().drain_all();
    assert_eq!(world.unpark(None), Unparked { bytes: 8 * MIB, left: 0 });
    assert_eq!((parked(&world), world.manager.usage().reserved), (0, reserved));
    world.check();
    world.end();
}

/// Hazard (error handling): a graph was made for a block that is gone; the next one there is
/// shared, and then a write into it is refused.
#[test]
fn what_a_graph_names_is_not_shared_and_what_is_shared_already_can_be_written() {
    let mut world = world(&[8 * MB, 8 * MB]);
    let ranges: Vec<_> =
        world.manager.blocks().iter().map(|block| block.address..block.address + 8).collect();
    world.manager.keep_in_graphs(&ranges[..1]);
    let in_graph = ShareOutcome::Refused(MoveRefusal::InGraph);
    assert_eq!(world.share(0, 0, false, None)[..2], [in_graph, ShareOutcome::Shared]);
    assert_eq!(world.share(1, 0, false, None), ALL_SHARED);
    world.manager.keep_in_graphs(&ranges[1..]);
    let moved = world.unshare(1, 0, None).expect("a block").expect("nothing is in the way");
    assert_eq!((moved.count, moved.refusal), (4, None));
    world.manager.release_from_graphs(&ranges);
    assert_eq!(world.share(1, 0, false, None), ALL_SHARED);
    world.end();
}

/// Hazard (wrong result): a pause moves memory of which others than this process's streams know
/// where it is.
#[test]
fn what_stays_in_place_is_not_moved_by_a_pause_because_it_is_shared() {
    let settings = ManagerSettings { overflow: vec![Tier::Host], ..settings() };
    let mut world = world_of(256, settings, &[8 * MB]);
    assert_eq!(world.share(0, 0, false, None), ALL_SHARED);
    let range = world.manager.blocks().iter().map(|block| block.address..block.address + 8 * MIB).next();
    let range = range.expect("a block");
    world.manager.keep_in_place(&range);
    let order = MoveOrder { unmaps: true, unshares: true, ..MoveOrder::new(range.clone(), Tier::Host) };
    let mut ranges = [RangeMove::new(order, u64::MAX)];
    let _lacks = world.manager.swap_paused(&mut ranges, || false);
    assert_eq!((ranges[0].moved.bytes, ranges[0].moved.refusal), (0, Some(MoveRefusal::InPlace)));
    assert_eq!(world.manager.put_away(range.start), Err(MoveRefusal::InPlace));
    let moved = world.unshare(0, 0, None).expect("a block").expect("nothing is in the way");
    assert_eq!((moved.count, moved.refusal), (4, None), "before a write it is private all the same");
    world.end();
}

#[test]
fn parked_memory_stays_mapped_while_work_may_read_it() {
    let mut world = world(&[8 * MB]);
    assert_eq!(world.share(0, 0, false, None), ALL_SHARED);
    let address = world.manager.blocks()[0].address;
    world.manager.gpu().touch(StreamId(0), address, 8 * MIB);
    world.run(&Step::Free { index: 0, order: S });
    assert_eq!(world.unpark(None), Unparked { bytes: 0, left: 8 * MIB });
    world.run(&Step::Trim { keep: 0 });
    world.manager.gpu().drain_all();
    assert_eq!(world.unpark(None), Unparked { bytes: 8 * MIB, left: 0 });
    world.end();
}

#[test]
fn where_the_device_is_full_private_memory_is_the_hosts_or_none() {
    for (overflow, host) in [(vec![Tier::Host], 8), (vec![], 0)] {
        let mut world = world_of(24, ManagerSettings { overflow, ..settings() }, &[8 * MB]);
        assert_eq!(world.share(0, 0, false, None), ALL_SHARED);
        world.manager.trim(0);
        world.manager.give_back_elsewhere();
        world.run(&Step::Allocate { bytes: 24 * MB, order: S });
        world.manager.gpu().drain_all();
        let moved = world.unshare(0, 0, None).expect("a block").expect("nothing is in the way");
        let refusal = if host > 0 { None } else { Some(MoveRefusal::Full) };
        assert_eq!((moved.bytes, moved.refusal), (host * MIB, refusal));
        assert_eq!(world.manager.usage().live.host, host * MIB);
        world.check();
        world.manager.gpu().drain_all();
        world.end();
    }
}

#[test]
fn what_is_discarded_is_not_copied() {
    let mut world = world(&[8 * MB]);
    assert_eq!(world.share(0, 0, false, None), ALL_SHARED);
    let address = world.manager.blocks()[0].address;
    let moved = world
        .manager
        .unshare(address + 2 * MIB..address + 5 * MIB, true, Quiet::Look, LONG)
        .expect("no work");
    assert_eq!((moved.count, moved.next, world.manager.gpu().calls("copy")), (2, address + 5 * MIB, 1));
    assert_eq!(
        world.manager.shared_in(address..address + 8 * MIB),
        [address..address + 2 * MIB, address + 6 * MIB..address + 8 * MIB]
    );
    world.manager.audit().expect("the books balance");
    world.manager.discard();
    assert_eq!(world.manager.gpu().objects(), [0; 4]);
}

/// Every call fails once, alone and together with those that would undo it.
#[test]
fn a_failure_leaves_every_chunk_shared_or_not() {
    for donates in [false, true] {
        for count in [1, 2, 5] {
            for k in 1..24 {
                let mut world = world(&[8 * MB, 3 * MB]);
                world.share(0, 0, donates, Some((k, count)));
                world.check();
                let shared = world.manager.usage().shared / MIB;
                world.unshare(0, 0, Some((k, count)));
                world.check();
                world.share(0, 128, donates, None);
                world.run(&Step::Free { index: 0, order: S });
                world.unpark(Some((k, count)));
                world.check();
                assert!(shared <= 8);
                world.end();
            }
        }
    }
}

/// Hazard (latency): memory that no other process uses any more is copied before it is written.
#[test]
fn chunks_that_others_have_left_are_taken_back_where_they_are() {
    for donates in [false, true] {
        let mut world = world(&[8 * MB, 8 * MB]);
        let shared = world.share(0, 0, donates, None);
        let count = shared.iter().filter(|outcome| **outcome == ShareOutcome::Shared).count();
        let held = world.manager.held_on_device();
        world.run(&Step::Touch { index: 0, stream: StreamId(1) });
        let busy = TakenBack::Refused(MoveRefusal::InUse);
        assert_eq!(world.take_back(0, 0, None), vec![busy; count], "readers are under way");
        world.manager.gpu().drain_all();
        assert_eq!(world.take_back(0, 0, None), vec![TakenBack::Private; count]);
        world.check();
        let more = world.manager.held_on_device() - held;
        assert_eq!((world.manager.usage().shared, more), (0, count as u64 * 2 * MIB));
        // It is memory as any other: it is shared again, and freed.
        world.share(0, 0, donates, None);
        world.check();
        world.end();
    }
}

#[test]
fn no_chunk_is_taken_back_that_is_not_shared_or_of_another_block() {
    let mut world = world(&[8 * MB, 8 * MB]);
    assert_eq!(world.share(0, 0, false, None), ALL_SHARED);
    let manager = &world.manager;
    let blocks: Vec<_> = manager.blocks().iter().map(|block| block.address).collect();
    let [shared, other] = blocks[..] else { panic!("two blocks") };
    let (shared, other) = if manager.has_shared(shared) { (shared, other) } else { (other, shared) };
    let of = |chunk| manager.take_back_chunks(&[chunk], Quiet::Look, LONG)[0];
    let chunk = manager.chunk_at(shared);
    assert_eq!(of(manager.chunk_at(other)), TakenBack::Refused(MoveRefusal::Unfit));
    assert_eq!(of(BlockChunk { address: shared + 512, ..chunk }), TakenBack::Refused(MoveRefusal::Unfit));
    let of_earlier = BlockChunk { block: chunk.block + 100, ..chunk };
    assert_eq!(of(of_earlier), TakenBack::Refused(MoveRefusal::NoBlock));
    let none = manager.take_back_chunks(&[chunk], Quiet::Look, Duration::ZERO);
    assert_eq!(none, [TakenBack::NotTried]);
    world.check();
    world.end();
}

#[test]
fn a_failure_leaves_every_chunk_taken_back_or_shared() {
    for count in [1, 2, 5] {
        for k in 1..12 {
            let mut world = world(&[8 * MB]);
            assert_eq!(world.share(0, 0, true, None).len(), 4);
            world.take_back(0, 0, Some((k, count)));
            world.check();
            world.unshare(0, 0, None).expect("a block").expect("nothing is in the way");
            world.check();
            world.end();
        }
    }
}

#[test]
fn access_is_refreshed_for_reading_only() {
    let mut world = world(&[8 * MB, 8 * MB]);
    assert_eq!(world.share(0, 0, false, None), ALL_SHARED);
    world.run(&Step::Refresh);
    world.end();
}

#[test]
fn all_goes_with_the_context() {
    for donates in [false, true] {
        let mut world = world(&[8 * MB, 8 * MB]);
        world.share(0, 0, donates, None);
        world.share(1, 128, donates, None);
        world.run(&Step::Free { index: 0, order: S });
        world.manager.discard();
        assert_eq!(world.manager.gpu().objects()[..3], [0; 3]);
        let usage = world.manager.usage();
        assert_eq!((usage.shared, usage.parked, usage.reserved.total()), (0, 0, 0));
    }
}

/// Another mapping of a shared handle, in an extent that is stitched from it, is for reading only
/// too.
#[test]
fn other_mappings_of_a_chunk_follow() {
    let mut world = world_of(32, settings(), &[8 * MB; 4]);
    world.run(&Step::Free { index: 0, order: S });
    world.run(&Step::Free { index: 0, order: S });
    world.run(&Step::Allocate { bytes: 16 * MB, order: S });
    world.manager.gpu().drain_all();
    let (mapped, held) = (world.manager.gpu().mapped_bytes(), world.manager.gpu().held(Tier::Device));
    assert!(mapped > held, "the handles are mapped twice: {mapped} of {held}");
    let index = world.live() - 1;
    assert_eq!(world.share(index, 0, false, None), ALL_SHARED);
    world.check();
    world.run(&Step::Free { index, order: S });
    (0..3).for_each(|_| world.run(&Step::Allocate { bytes: 4 * MB, order: S }));
    world.end();
}

#[test]
fn equal_blocks_have_equal_chunks_wherever_they_lie() {
    let sizes = [3 * MB, 1_100_000, 5 * MB, 300, 2 * MB, 70 * MB, 1_900_000, 2 * MB + 512];
    let mut world = world(&sizes);
    world.run(&Step::Free { index: 2, order: S });
    world.run(&Step::Allocate { bytes: 2 * MB, order: S });
    let model = world.manager.gpu();
    for block in world.manager.blocks().iter().filter(|block| block.bytes >= GRANULARITY) {
        let whole = block.bytes / GRANULARITY;
        assert!((0..whole).all(|chunk| model.is_chunk(block.address + chunk * GRANULARITY)), "{block:?}");
    }
    world.end();
}
