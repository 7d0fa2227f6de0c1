//! Hazard (latency): host memory for a pause is made while calls of the program wait, or is made
//! twice for a handle that two blocks lie on, or again for what the host has already.

mod support;

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
    // It stays where the program gives memory back, and goes when it is not held any more.
    manager.hold_elsewhere();
    manager.trim(0);
    assert_eq!(manager.usage().idle.host, made, "it is for a pause");
    manager.let_go_elsewhere();
    manager.trim(0);
    assert_eq!(manager.usage().idle.host, 0);
    manager.make_spares_ahead(&blocks, |_| true);
    let order = |range| MoveOrder { range, to: Tier::Host, alone: false, discards: false };
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

/// Hazard (latency): each block that leaves waits for a call of the GPU of its own, which says that
/// nothing was written.
#[test]
fn one_call_tells_of_many_blocks_what_was_written() {
    const BLOCKS: u64 = 64;
    let settings = ManagerSettings { overflow: vec![Tier::Host], headroom: 0, ..ManagerSettings::default() };
    let manager = Manager::new(Model::new(256 * MIB, 512 * MIB), settings);
    let block = |_| {
        let address = manager.allocate(2 * MIB as usize, Order::Stream(StreamId(0))).expect("there is room");
        address..address + 2 * MIB
    };
    let blocks: Vec<_> = (0..BLOCKS).map(block).collect();
    let move_all = |to| {
        let order = |range: &std::ops::Range<u64>| {
            RangeMove::new(MoveOrder { range: range.clone(), to, alone: false, discards: false }, u64::MAX)
        };
        let mut ranges: Vec<RangeMove> = blocks.iter().map(order).collect();
        let before = manager.gpu().calls("fingerprints");
        manager.swap(&mut ranges, || false).expect("nothing is in the way");
        assert!(ranges.iter().all(RangeMove::is_over));
        manager.gpu().calls("fingerprints") - before
    };
    assert_eq!(move_all(Tier::Host), 0, "the host has no copies");
    let noted = move_all(Tier::Device);
    let taken = move_all(Tier::Host);
    assert!(noted + taken < BLOCKS / 2, "{noted} calls at the way back, {taken} at the next way out");
    assert_eq!(manager.usage().moves.clean_bytes, BLOCKS * 2 * MIB);
    manager.audit().expect("the books balance");
}
