//! Hazard (use after free): a guard lets a late access reach the next block, or costs without
//! bound.

mod support;

use support::model::{GRANULARITY, MIB, Model};
use support::world::{Step, World};
use wm_driver::StreamId;
use wm_memory::{BlockGuard, Manager, ManagerSettings, Order, guard};

const STREAM: StreamId = StreamId(0);
const S: Order = Order::Stream(STREAM);

fn manager() -> Manager<Model> {
    let settings =
        ManagerSettings { headroom: 0, stitch_views: 0, overflow: vec![], ..ManagerSettings::default() };
    Manager::new(Model::new(256 * MIB, 0), settings)
}

fn fenced(manager: &Manager<Model>, bytes: u64) -> u64 {
    manager.allocate_guarded(bytes as usize, S, BlockGuard::Page).expect("there is room")
}

#[test]
fn a_freed_block_is_unmapped_once_the_gpu_is_past_it() {
    let manager = manager();
    let block = fenced(&manager, 5 * MIB);
    manager.gpu().touch(STREAM, block, 5 * MIB);
    manager.free(block, S).expect("live");
    manager.end_views(0);
    assert!(manager.gpu().is_mapped(block, 5 * MIB), "the GPU is not done with it");
    let mark = manager.mark(STREAM);
    manager.gpu().drain(STREAM);
    manager.reached(&mark);
    manager.end_views(0);
    assert!(!manager.gpu().is_mapped(block, 5 * MIB));
}

#[test]
fn its_memory_serves_the_next_at_once_and_at_another_address() {
    let manager = manager();
    let first = fenced(&manager, 200 * MIB);
    manager.gpu().touch(STREAM, first, 200 * MIB);
    manager.free(first, S).expect("live");
    let second = fenced(&manager, 200 * MIB);
    assert_ne!(first, second);
    assert_eq!(manager.usage().reserved.device, 200 * MIB);
}

#[test]
fn a_program_that_never_waits_leaves_as_many_views_as_it_is_ahead() {
    let manager = manager();
    for _ in 0..1000 {
        let block = fenced(&manager, 3 * MIB);
        manager.gpu().touch(STREAM, block, 3 * MIB);
        manager.free(block, S).expect("live");
        manager.gpu().run_some(STREAM, u8::MAX);
    }
    let usage = manager.usage();
    assert!(usage.idle_views <= 80, "{} views are left", usage.idle_views);
    assert_eq!(usage.reserved.device, 4 * MIB, "one block's memory served all");
}

#[test]
fn a_handle_that_is_far_too_large_is_taken_only_when_nothing_else_is_left() {
    let manager = manager();
    let large = manager.allocate(256 << 20, S).expect("all of the device");
    manager.free(large, S).expect("live");
    let made = manager.gpu().calls("create");
    let blocks: Vec<u64> = (0..64).map(|_| fenced(&manager, MIB)).collect();
    let fences: Vec<u64> = blocks.iter().map(|block| block + MIB).collect();
    assert!(fences.iter().all(|fence| !manager.gpu().is_mapped(*fence, GRANULARITY)));
    assert_eq!(manager.gpu().calls("create"), made, "the first block's memory serves all");
}

#[test]
fn small_blocks_have_no_fence_and_share_their_handle() {
    let manager = manager();
    for _ in 0..100 {
        manager.allocate_guarded(1000, S, BlockGuard::Page).expect("there is room");
    }
    assert_eq!(manager.usage().reserved.device, GRANULARITY);
}

#[test]
fn a_block_with_a_tail_is_found_again_by_its_size() {
    let manager = manager();
    let take = || manager.allocate_guarded(5_000_000, S, BlockGuard::Tail).expect("there is room");
    let first = take();
    let block = manager.block(first + 4_999_999).expect("inside");
    assert_eq!((block.address, block.bytes), (first, 5_000_000));
    assert!(manager.block(guard::tail(first, 5_000_000).end).is_none());
    manager.free(first, S).expect("live");
    let calls = manager.gpu().all_calls();
    assert_eq!((take(), manager.gpu().all_calls()), (first, calls));
}

/// Hazard: a block begins where a guarded one has left free memory, which need not be on a unit.
#[test]
fn a_block_on_the_memory_of_guarded_ones_is_aligned() {
    let stream = |stream| Order::Stream(StreamId(stream));
    let allocate = |bytes, order| Step::Allocate { bytes, order: stream(order) };
    let free = |index, order| Step::Free { index, order: stream(order) };
    let steps = [
        allocate(1, 0),
        allocate(1, 0),
        allocate(1_300_000, 0),
        free(0, 1),
        free(931_511_600, 1),
        free(15_721_111_812_251_611_543, 1),
        allocate(17_825_792, 1),
        free(8_481_101_349_813_221_205, 2),
        allocate(1_300_000, 2),
        allocate(1_300_000, 2),
        free(14_989_817_667_193_077_498, 0),
        free(12_466_883_337_978_820_084, 1),
        allocate(4000, 1),
    ];
    let settings = ManagerSettings {
        stitch_views: 0,
        headroom: 0,
        keep_idle: 0,
        overflow: vec![],
        movable: true,
        ..ManagerSettings::default()
    };
    let mut world = World::guarded(Model::new(512 * MIB, 400 * MIB), settings, Some(BlockGuard::Page));
    steps.iter().for_each(|step| world.run(step));
    world.end();
}
