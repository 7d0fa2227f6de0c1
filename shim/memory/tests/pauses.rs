//! Hazard (latency): host memory for a pause is made while calls of the program wait, or is made
//! twice for a handle that two blocks lie on, or again for what the host has already.

mod support;

use std::ops::Range;

use support::model::{MIB, Model};
use wm_driver::{StreamId, Tier};
use wm_memory::{Manager, ManagerSettings, MoveOrder, Order, RangeMove, SpareSource};

#[test]
fn what_leaves_in_a_pause_has_its_memory_before_the_gate_closes() {
    let settings = ManagerSettings { overflow: vec![Tier::Host], headroom: 0, ..ManagerSettings::default() };
    let manager = Manager::new(Model::new(256 * MIB, 512 * MIB), settings);
    let block = |mib: u64| {
        let bytes = mib * MIB;
        let address = manager.allocate(bytes as usize, Order::Stream(StreamId(0))).expect("there is room");
        manager.gpu().write(address, address ^ mib);
        address..address + bytes
    };
    let mut blocks = [1, 1, 64, 3].map(block);
    blocks.sort_by_key(|block| block.start);
    let ahead = manager.make_spares_ahead(&blocks, |_| false);
    assert_eq!(manager.usage().idle.host, 0, "it was not to go on");
    assert!(ahead.lacking >= 69 * MIB && !ahead.is_full, "{ahead:?}");
    manager.make_spares_ahead(&blocks, |_| true);
    let made = manager.usage().idle.host;
    assert_eq!(made, ahead.lacking);
    let ahead = manager.make_spares_ahead(&blocks, |_| true);
    assert_eq!((manager.usage().idle.host, ahead.lacking), (made, 0), "none too many");
    // It stays where the program gives memory of the device back.
    manager.trim(0);
    assert_eq!(manager.usage().idle.host, made, "it is for a pause");
    manager.give_back_elsewhere();
    assert_eq!(manager.usage().idle.host, 0);
    manager.make_spares_ahead(&blocks, |_| true);
    let order = |range| MoveOrder::new(range, Tier::Host);
    let mut ranges = blocks.clone().map(|block| RangeMove::new(order(block), u64::MAX));
    let lacks = manager.swap_within(&mut ranges, SpareSource::Idle, || false, || false);
    assert!(lacks.expect("nothing is in the way").is_empty() && ranges.iter().all(RangeMove::is_over));
    let usage = manager.usage();
    assert_eq!((usage.idle.host, usage.live.device), (0, 0), "as much as was needed");
    manager.audit().expect("the books balance");
    for block in &blocks {
        let mib = (block.end - block.start) / MIB;
        assert_eq!(manager.gpu().read(block.start), Some(block.start ^ mib));
    }
}

/// Hazard (latency): memory of the host is made although another owner in the process has as much
/// that lies idle. Hazard (resource leak): what that owner gave up is lost.
#[test]
fn memory_that_lies_idle_elsewhere_in_the_process_is_taken_before_any_is_made() {
    for host_limit in [u64::MAX, 2 * MIB] {
        let (overflow, headroom) = (vec![Tier::Host], 0);
        let settings = ManagerSettings { overflow, headroom, host_limit, ..ManagerSettings::default() };
        let manager = Manager::new(Model::new(256 * MIB, 512 * MIB), settings);
        let stream = Order::Stream(StreamId(0));
        let address = manager.allocate(2 * MIB as usize, stream).expect("there is room");
        let _host = (host_limit < u64::MAX).then(|| manager.charge(Tier::Host, 2 * MIB, true));
        let block = address..address + 2 * MIB;
        let given = manager.gpu().has_idle_elsewhere(2 * MIB);
        let made = manager.gpu().calls("create");
        let ahead = manager.make_spares_ahead(std::slice::from_ref(&block), |_| true);
        assert_eq!(manager.gpu().calls("create"), made, "none is made");
        let (idle, held) = (manager.usage().idle.host, manager.gpu().held(Tier::Host));
        if host_limit == u64::MAX {
            assert_eq!((ahead.lacking, idle, held), (0, 2 * MIB, 2 * MIB), "{given:?}");
        } else {
            assert_eq!((ahead.is_full, idle, held), (true, 0, 0), "{given:?} is the driver's again");
        }
        manager.audit().expect("the books balance");
    }
}

/// A manager with blocks of 2 MiB, and their ranges.
fn with_blocks(count: u64) -> (Manager<Model>, Vec<Range<u64>>) {
    let settings = ManagerSettings { overflow: vec![Tier::Host], headroom: 0, ..ManagerSettings::default() };
    let manager = Manager::new(Model::new(256 * MIB, 512 * MIB), settings);
    let block = |_| {
        let address = manager.allocate(2 * MIB as usize, Order::Stream(StreamId(0))).expect("there is room");
        manager.gpu().write(address, !address);
        address..address + 2 * MIB
    };
    let blocks = (0..count).map(block).collect();
    manager.gpu().drain_all();
    (manager, blocks)
}

/// Moves all blocks as a pause and a resume do.
fn move_all(manager: &Manager<Model>, blocks: &[Range<u64>], to: Tier) {
    let order =
        |range: &Range<u64>| MoveOrder { unmaps: to == Tier::Host, ..MoveOrder::new(range.clone(), to) };
    let mut ranges: Vec<RangeMove> =
        blocks.iter().map(|range| RangeMove::new(order(range), u64::MAX)).collect();
    manager.swap_paused(&mut ranges, || false).expect("nothing is in the way");
    assert!(ranges.iter().all(|range| range.is_over() && range.moved.refusal.is_none()));
    manager.audit().expect("the books balance");
}

/// Hazard (latency): each block that leaves waits for a call of the GPU of its own, which says that
/// nothing was written.
#[test]
fn one_call_tells_of_many_blocks_what_was_written() {
    const BLOCKS: u64 = 64;
    let (manager, blocks) = with_blocks(BLOCKS);
    let prints = |to| {
        let before = manager.gpu().calls("fingerprints");
        move_all(&manager, &blocks, to);
        manager.gpu().calls("fingerprints") - before
    };
    assert_eq!(prints(Tier::Host), 0, "the host has no copies");
    let [noted, taken] = [Tier::Device, Tier::Host].map(prints);
    assert!(noted + taken < BLOCKS / 2, "{noted} calls at the way back, {taken} at the next way out");
    assert_eq!(manager.usage().moves.clean_bytes, BLOCKS * 2 * MIB);
}

/// Hazard (latency): memory of the host is mapped for the GPU in a pause, which takes as long as to
/// copy it, and nothing uses it there.
#[test]
fn a_pause_maps_nothing_and_a_resume_unmaps_nothing_of_the_host() {
    let (manager, blocks) = with_blocks(8);
    let calls = |to| {
        let count = || ["map", "allow", "unmap", "copy"].map(|call| manager.gpu().calls(call));
        let before = count();
        move_all(&manager, &blocks, to);
        let after = count();
        [0, 1, 2, 3].map(|at| after[at] - before[at])
    };
    // Nothing is mapped in the device memory's place, so that it is filled there.
    let rounds = [Tier::Host, Tier::Device, Tier::Host].map(calls);
    assert_eq!(rounds[1..], [[8, 8, 0, 8], [0, 0, 8, 0]], "of {rounds:?}");
    let is_mapped = |block: &Range<u64>| manager.gpu().is_mapped(block.start, 2 * MIB);
    assert!(!blocks.iter().any(is_mapped));
    manager.map_unmapped().expect("nothing fails");
    manager.audit().expect("the books balance");
    for block in &blocks {
        assert_eq!(manager.gpu().read(block.start), Some(!block.start));
    }
}

/// Hazard (use after free): memory that is mapped at no block's address is given to a request, or
/// its addresses are. Hazard (resource leak): what was freed in a pause stays for ever.
#[test]
fn what_is_freed_in_a_pause_is_free_after_it() {
    let (manager, blocks) = with_blocks(8);
    move_all(&manager, &blocks, Tier::Host);
    for block in &blocks[..4] {
        manager.free(block.start, Order::Device).expect("it lives");
        manager.audit().expect("the books balance");
    }
    manager.trim(0);
    manager.give_back_elsewhere();
    assert!(manager.usage().reserved.host >= 8 * MIB, "the bytes of blocks");
    move_all(&manager, &blocks[4..6], Tier::Device);
    manager.map_unmapped().expect("nothing fails");
    manager.audit().expect("the books balance");
    for block in &blocks[4..] {
        assert_eq!(manager.gpu().read(block.start), Some(!block.start));
        manager.free(block.start, Order::Device).expect("it lives");
    }
    manager.trim(0);
    manager.give_back_elsewhere();
    assert_eq!(manager.usage().reserved.total(), 0);
}

/// Hazard (error handling): memory of the host that the driver refused to map once stays unmapped.
#[test]
fn a_driver_that_fails_to_map_is_told_and_the_next_try_maps_all() {
    let (manager, blocks) = with_blocks(4);
    move_all(&manager, &blocks, Tier::Host);
    manager.gpu().fail_in(2, 1);
    assert!(manager.map_unmapped().is_err());
    manager.audit().expect("the books balance");
    manager.gpu().fail_no_more();
    manager.map_unmapped().expect("nothing fails");
    for block in &blocks {
        assert_eq!(manager.gpu().read(block.start), Some(!block.start));
    }
}
