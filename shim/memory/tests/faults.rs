//! Hazard (error handling): a driver call fails half-way through a change. Every call of every
//! path fails once, alone and together with the calls that would undo it. No memory may be lost,
//! and the next try must work.

mod support;

use support::model::{MIB, Model};
use support::world::{Step, World};
use wm_driver::{StreamId, Tier};
use wm_memory::{ManagerSettings, Order, Usage};

const S: Order = Order::Stream(StreamId(0));
const T: Order = Order::Stream(StreamId(1));
const MB: usize = MIB as usize;

fn settings(overflow: Vec<Tier>) -> ManagerSettings {
    ManagerSettings { stitch_views: 1, headroom: 0, overflow, ..ManagerSettings::default() }
}

/// 256 MiB of device memory in blocks of 32 MiB, every other one of them free; `frees` says in
/// which order.
fn fragmented(overflow: Vec<Tier>, frees: Order) -> World {
    let mut world = World::new(Model::new(256 * MIB, 256 * MIB), settings(overflow));
    (0..8).for_each(|_| world.run(&Step::Allocate { bytes: 32 * MB, order: S }));
    (0..4).for_each(|index| world.run(&Step::Free { index, order: frees }));
    world
}

/// Runs `action` with the k-th call failing, for every k that it reaches, and `count - 1` calls
/// after it.
fn at_every_call(count: u64, prepare: impl Fn() -> World, action: impl Fn(&mut World) -> bool) {
    for k in 1.. {
        let mut world = prepare();
        let before = world.manager.usage();
        world.manager.gpu().fail_in(k, count);
        let done = action(&mut world);
        let reached = world.manager.gpu().fail_no_more();
        world.check();
        if !done {
            assert_unchanged(&before, &world.manager.usage(), k);
            assert!(action(&mut world), "the retry works after a failure of call {k}");
        }
        world.check();
        world.end();
        if !reached {
            return assert!(k > 1, "the action makes no call at all");
        }
    }
}

fn assert_unchanged(before: &Usage, after: &Usage, k: u64) {
    assert_eq!(before.live, after.live, "call {k} failed");
    if after.quarantined == 0 {
        assert_eq!(before.reserved, after.reserved, "call {k} failed");
    }
}

fn allocates(bytes: usize, order: Order) -> impl Fn(&mut World) -> bool {
    move |world| world.allocate(bytes, order).is_ok()
}

#[test]
fn making_the_first_extent() {
    for count in [1, 4, 100] {
        let fresh = || World::new(Model::new(256 * MIB, 0), settings(vec![]));
        at_every_call(count, fresh, allocates(100 * MB, S));
        at_every_call(count, fresh, allocates(1000, S));
    }
}

#[test]
fn stitching_free_handles() {
    for count in [1, 3, 20, 100] {
        at_every_call(count, || fragmented(vec![], S), allocates(120 * MB, S));
    }
}

/// The request takes all of it, so that no free run next to it remembers the points that a rollback
/// forgets.
#[test]
fn stitching_memory_that_another_stream_freed() {
    for count in [1, 2, 50] {
        at_every_call(count, || fragmented(vec![], S), allocates(128 * MB, T));
        at_every_call(count, || fragmented(vec![], Order::Device), allocates(128 * MB, T));
    }
}

#[test]
fn waiting_for_memory_that_any_stream_may_use() {
    for count in [1, 2, 50] {
        at_every_call(count, || fragmented(vec![], S), allocates(120 * MB, Order::Device));
        at_every_call(count, || fragmented(vec![], Order::Device), allocates(120 * MB, Order::Device));
    }
}

#[test]
fn overflowing() {
    for count in [1, 3, 100] {
        at_every_call(count, || fragmented(vec![Tier::Host], S), allocates(200 * MB, S));
    }
}

#[test]
fn giving_back() {
    for count in [1, 2, 100] {
        at_every_call(
            count,
            || {
                let world = fragmented(vec![], S);
                world.manager.gpu().drain_all();
                world.manager.passed_all();
                world
            },
            |world| {
                world.manager.trim(0);
                world.manager.give_back_elsewhere();
                world.manager.usage().reserved.total() == 128 * MIB
            },
        );
    }
}

#[test]
fn refreshing_access() {
    at_every_call(1, || fragmented(vec![], S), |world| world.manager.refresh_access().is_ok());
}

/// A context that is gone answers every call with an error: discarding must neither panic nor keep
/// anything.
#[test]
fn discarding_when_everything_fails() {
    let world = fragmented(vec![Tier::Host], T);
    world.manager.gpu().fail_in(1, u64::MAX >> 1);
    world.manager.discard();
    let usage = world.manager.usage();
    assert_eq!((usage.live.total(), usage.reserved.total(), usage.extents), (0, 0, 0));
    assert!(world.manager.blocks().is_empty());
    world.manager.gpu().fail_no_more();
    assert!(world.manager.allocate(MB, S).is_ok(), "the manager of the next context starts afresh");
}
