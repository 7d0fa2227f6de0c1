//! Hazard (wrong result): the CPU gets a block that the GPU still uses, or keeps access to memory
//! that serves other blocks; a change that fails half way loses bytes, or leaves the block stuck.

mod support;

use std::time::Duration;

use support::model::{MIB, Model};
use support::world::{Step, World};
use wm_abi::CUresult;
use wm_driver::{StreamId, Tier};
use wm_memory::{FreeError, ManagerSettings, MoveRefusal, Order, Processor, TierBytes};

const S: Order = Order::Stream(StreamId(0));
const MB: usize = MIB as usize;
const SHORT: Duration = Duration::from_millis(5);

fn settings() -> ManagerSettings {
    ManagerSettings { headroom: 0, overflow: vec![Tier::Host], ..ManagerSettings::default() }
}

/// A device with nothing left to do, and a unified block of 40 MiB beside a plain one.
fn world() -> World {
    let mut world = World::new(Model::new(256 * MIB, 256 * MIB), settings());
    world.allocate_unified(40 * MB, Order::Device).expect("there is room");
    world.run(&Step::Allocate { bytes: 3 * MB, order: S });
    world.manager.gpu().drain_all();
    world
}

fn on(device: u64, host: u64) -> TierBytes {
    TierBytes { device: device * MIB, peer: 0, host: host * MIB }
}

#[test]
fn a_block_is_the_cpus_on_the_host_and_the_gpus_on_the_device() {
    let mut world = world();
    let mut created = None;
    for _ in 0..4 {
        assert_eq!(world.hand_over(0, Processor::Cpu, None), None);
        assert_eq!(world.manager.usage().live, on(3, 40));
        world.check();
        assert_eq!(world.hand_over(0, Processor::Cpu, None), None, "it is the CPU's already");
        assert_eq!(world.hand_over(0, Processor::Gpu, None), None);
        assert_eq!(world.manager.usage().live, on(43, 0));
        world.check();
        let made = world.manager.gpu().calls("create");
        assert_eq!(*created.get_or_insert(made), made, "memory of the host is made once");
    }
    let moves = world.manager.usage().moves;
    assert_eq!((moves.in_bytes, moves.out_bytes), (160 * MIB, 160 * MIB));
    world.end();
}

#[test]
fn the_cpus_access_is_one_call_for_the_whole_block() {
    let mut world = world();
    assert_eq!(world.hand_over(0, Processor::Cpu, None), None);
    assert_eq!(world.manager.gpu().calls("allow_cpu"), 1);
    world.end();
}

#[test]
fn ranges_that_are_in_no_such_block_change_nothing() {
    let mut world = world();
    let blocks = world.manager.blocks();
    let (block, plain) = match &blocks[..] {
        [one, other] if one.bytes == 40 * MIB => (one.address, other.address),
        [one, other] => (other.address, one.address),
        other => panic!("{other:?}"),
    };
    let end = block + 40 * MIB;
    for range in [plain..plain + 1, block..end + 1, block - 1..block + 1, block..block, end..end + 1, 0..8] {
        let given = world.manager.hand_over(&range, Processor::Cpu, SHORT);
        assert_eq!(given, Err(MoveRefusal::NoBlock), "{range:x?}");
    }
    assert_eq!(world.manager.hand_over(&(end - 1..end), Processor::Gpu, SHORT), Ok(()));
    world.check();
    world.end();
}

#[test]
fn work_under_way_is_waited_for_and_nothing_changes_if_it_does_not_end() {
    let mut world = world();
    world.run(&Step::Touch { index: 1, stream: StreamId(1) });
    let calls = world.manager.gpu().calls("copy");
    assert_eq!(world.hand_over(0, Processor::Cpu, None), Some(MoveRefusal::InUse));
    assert_eq!(world.manager.gpu().calls("copy"), calls);
    world.run(&Step::SynchronizeAll);
    assert_eq!(world.hand_over(0, Processor::Cpu, None), None);
    world.check();
    world.end();
}

/// Hazard: a capture or another process forbids all changes, and the CPU's block is lost for the
/// GPU.
#[test]
fn where_memory_is_fixed_the_way_back_needs_no_move() {
    let mut world = world();
    assert_eq!(world.hand_over(0, Processor::Cpu, None), None);
    let block = world.manager.large_blocks(40 * MIB)[0].address;
    world.manager.keep_in_place(&(block..block + 1));
    assert_eq!(world.hand_over(0, Processor::Gpu, None), None);
    assert_eq!(world.manager.usage().live, on(3, 40));
    world.check();
    assert_eq!(world.hand_over(0, Processor::Cpu, None), Some(MoveRefusal::InPlace));
    world.end();
}

#[test]
fn what_is_the_cpus_neither_moves_nor_is_passed_on() {
    let mut world = world();
    assert_eq!(world.hand_over(0, Processor::Cpu, None), None);
    assert_eq!(world.relocate(0, 0, Tier::Device, None), Some(MoveRefusal::OnCpu));
    let block = world.manager.large_blocks(40 * MIB)[0].address;
    assert_eq!(world.manager.backing(block), None);
    assert_eq!(world.hand_over(0, Processor::Gpu, None), None);
    assert_eq!(world.relocate(0, 0, Tier::Host, None), None, "backing has fixed nothing");
    world.end();
}

#[test]
fn a_device_without_room_leaves_the_gpus_block_on_the_host() {
    let mut world = World::new(Model::new(64 * MIB, 256 * MIB), settings());
    world.allocate_unified(40 * MB, Order::Device).expect("there is room");
    assert_eq!(world.hand_over(0, Processor::Cpu, None), None);
    world.run(&Step::Allocate { bytes: 60 * MB, order: S });
    world.manager.gpu().drain_all();
    assert_eq!(world.hand_over(0, Processor::Gpu, None), None);
    assert!(world.manager.usage().live.host >= 36 * MIB);
    world.check();
    world.end();
}

#[test]
fn a_host_without_room_leaves_the_block_on_the_device() {
    let mut world =
        World::new(Model::new(256 * MIB, 256 * MIB), ManagerSettings { host_limit: 16 * MIB, ..settings() });
    world.allocate_unified(40 * MB, Order::Device).expect("there is room");
    assert_eq!(world.hand_over(0, Processor::Cpu, None), Some(MoveRefusal::Full));
    assert_eq!(world.manager.usage().live, on(40, 0), "what had left is back");
    world.check();
    world.end();
}

/// Hazard: another block gets memory that the CPU may still write.
#[test]
fn a_freed_block_of_the_cpus_serves_others_without_it() {
    for order in [Order::Device, S] {
        let mut world = world();
        assert_eq!(world.hand_over(0, Processor::Cpu, None), None);
        world.run(&Step::Free { index: 0, order });
        let whole = 0..u64::MAX;
        assert_eq!(world.manager.gpu().bytes_on_cpu(&whole), 0);
        world.end();
    }
}

#[test]
fn a_free_that_fails_can_be_repeated() {
    let mut world = world();
    let block = world.manager.large_blocks(40 * MIB)[0].address;
    assert_eq!(world.hand_over(0, Processor::Cpu, None), None);
    for k in 1..=3 {
        world.manager.gpu().fail_in(k, 1);
        let freed = world.manager.free(block, Order::Device);
        world.manager.gpu().fail_no_more();
        assert_eq!(freed, Err(FreeError::OnCpu(CUresult::UNKNOWN)));
        world.check();
    }
    world.run(&Step::Free { index: 0, order: Order::Device });
    world.end();
}

/// Every call of a change fails once, alone and together with those that would undo it. The block
/// can always be handed over afterwards, with its bytes.
#[test]
fn a_change_that_fails_can_be_repeated() {
    for to in [Processor::Cpu, Processor::Gpu] {
        for count in [1, 2, 3, 6] {
            for k in 1.. {
                let mut world = world();
                if to == Processor::Gpu {
                    assert_eq!(world.hand_over(0, Processor::Cpu, None), None);
                }
                let before = world.manager.gpu().all_calls();
                let refusal = world.hand_over(0, to, Some((k, count)));
                let is_over = world.manager.gpu().all_calls() - before < k;
                world.check();
                assert_eq!(world.hand_over(0, to, None), None, "{to:?}, {k}, {count}: after {refusal:?}");
                world.check();
                world.end();
                if is_over {
                    assert!(refusal.is_none() && k > 20, "no call failed");
                    break;
                }
            }
        }
    }
}

/// Threads that want one block for different processors, and one that frees it meanwhile.
#[test]
fn changes_of_one_block_wait_for_each_other() {
    let world = world();
    let block = world.manager.large_blocks(40 * MIB)[0].address;
    let long = Duration::from_secs(60);
    std::thread::scope(|scope| {
        for to in [Processor::Cpu, Processor::Gpu, Processor::Cpu] {
            let manager = &world.manager;
            scope.spawn(move || {
                for _ in 0..20 {
                    assert_eq!(manager.hand_over(&(block..block + 1), to, long), Ok(()));
                }
            });
        }
    });
    let on_cpu = world.manager.gpu().bytes_on_cpu(&(block..block + 40 * MIB));
    assert!([0, 40 * MIB].contains(&on_cpu), "{on_cpu}");
    std::thread::scope(|scope| {
        let manager = &world.manager;
        scope.spawn(move || while manager.hand_over(&(block..block + 1), Processor::Cpu, long).is_ok() {});
        scope.spawn(move || manager.free(block, Order::Device).expect("a live block"));
    });
    world.manager.audit().expect("the books balance");
    assert_eq!(world.manager.gpu().bytes_on_cpu(&(0..u64::MAX)), 0);
}
