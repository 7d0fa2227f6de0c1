//! Hazard (use after free): memory that has left for a file is given to a request, or its addresses
//! are; or the books count memory that is not there. Hazard (wrong result): a failed call leaves a
//! handle between its memory and none.

mod support;

use proptest::prelude::*;
use support::model::{MIB, Model};
use wm_driver::{StreamId, Tier};
use wm_memory::{Manager, ManagerSettings, MoveRefusal, Order};

const S: Order = Order::Stream(StreamId(0));

fn manager(host: u64) -> Manager<Model> {
    let settings = ManagerSettings {
        overflow: vec![Tier::Host],
        headroom: 0,
        movable: true,
        stitch_views: 8,
        ..ManagerSettings::default()
    };
    Manager::new(Model::new(256 * MIB, host), settings)
}

/// The handles of all blocks, by address.
fn handles(manager: &Manager<Model>) -> Vec<u64> {
    let ranges =
        manager.large_blocks(0).into_iter().map(|block| block.address..block.address + block.tiers.total());
    let mut starts: Vec<u64> =
        ranges.flat_map(|range| manager.used_memory(&range)).map(|used| used.range.start).collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

fn free(manager: &Manager<Model>, address: u64) {
    manager.free(address, S).expect("it lives");
}

proptest! {
    /// Blocks of any size, of which some are freed while their memory is away.
    #[test]
    fn what_left_comes_back_and_the_books_balance(
        sizes in proptest::collection::vec(1..40_u64, 1..12),
        freed in proptest::collection::vec(any::<bool>(), 12),
        on_host in any::<bool>(),
        failing in proptest::option::of(0..30_u64),
    ) {
        let manager = manager(512 * MIB);
        let blocks: Vec<u64> = sizes
            .iter()
            .filter_map(|mib| manager.allocate((mib * MIB / 2) as usize, S).ok())
            .collect();
        manager.gpu().drain_all();
        let all = handles(&manager);
        if on_host {
            // Half of them have left for the host before.
            all.iter().step_by(2).for_each(|address| {
                manager.move_handle(*address, Tier::Host).expect("there is room");
            });
        }
        if let Some(later) = failing {
            manager.gpu().fail_in(later, 1);
        }
        let away: Vec<u64> = all.iter().copied().filter(|address| manager.put_away(*address).is_ok()).collect();
        manager.audit().map_err(TestCaseError::fail)?;
        prop_assert!(failing.is_some() || away.len() == all.len(), "{} of {}", away.len(), all.len());
        manager.gpu().fail_no_more();
        manager.relieve(u64::MAX);
        manager.give_back_elsewhere();
        let usage = manager.usage();
        if away.len() == all.len() {
            prop_assert_eq!((usage.reserved.device, usage.reserved.host), (0, 0), "nothing is held");
        }
        // Whatever lies there, no move touches it, and no request gets it.
        for address in &away {
            prop_assert!(manager.move_handle(*address, Tier::Device).is_err());
        }
        let mut lives = Vec::new();
        for (block, is_freed) in blocks.iter().zip(&freed) {
            if *is_freed { free(&manager, *block) } else { lives.push(*block) }
        }
        manager.gpu().drain_all();
        manager.audit().map_err(TestCaseError::fail)?;
        for address in &away {
            let back = manager.bring_back(*address).expect("there is room");
            prop_assert!(back.is_none() || back == Some(Tier::Device), "{:?}", back);
        }
        manager.audit().map_err(TestCaseError::fail)?;
        for block in &lives {
            manager.gpu().write(*block, *block);
        }
        for block in &lives {
            prop_assert_eq!(manager.gpu().read(*block), Some(*block), "it has memory of its own");
            free(&manager, *block);
        }
        manager.gpu().drain_all();
        manager.trim(0);
        manager.give_back_elsewhere();
        manager.audit().map_err(TestCaseError::fail)?;
        prop_assert_eq!(manager.usage().reserved.total(), 0);
    }
}

#[test]
fn where_the_device_is_full_it_comes_back_on_the_host_and_where_that_is_full_it_stays_away() {
    let manager = manager(32 * MIB);
    let block = manager.allocate(64 << 20, S).expect("there is room");
    manager.gpu().drain_all();
    let all = handles(&manager);
    assert!(all.iter().all(|address| manager.put_away(*address).is_ok()));
    assert_eq!(manager.put_away(block), Err(MoveRefusal::Unfit), "it is away");
    manager.relieve(u64::MAX);
    let others: Vec<u64> = (0..30).map_while(|_| manager.allocate(8 << 20, S).ok()).collect();
    manager.gpu().drain_all();
    let come = |manager: &Manager<Model>| {
        let came = all.iter().map(|address| manager.bring_back(*address));
        came.filter(|back| !matches!(back, Err(MoveRefusal::Full | MoveRefusal::NoBlock))).count()
    };
    let first = come(&manager);
    assert!(first < all.len(), "{first} of {} came", all.len());
    manager.audit().expect("the books balance");
    others.iter().for_each(|other| free(&manager, *other));
    manager.gpu().drain_all();
    manager.relieve(u64::MAX);
    assert_eq!(first + come(&manager), all.len());
    manager.gpu().write(block, 7);
    assert_eq!(manager.gpu().read(block), Some(7));
    manager.audit().expect("the books balance");
}

/// Hazard (use after free): a block is freed while its memory is copied to a file, and its memory
/// is unmapped under the copy.
#[test]
fn borrowed_memory_that_is_freed_stays_mapped_and_goes_later() {
    let manager = manager(32 * MIB);
    let blocks: Vec<u64> = (0..3).map(|_| manager.allocate(16 << 20, S).expect("there is room")).collect();
    manager.gpu().drain_all();
    free(&manager, blocks[0]);
    assert_eq!(manager.trim(0), 16 << 20);
    let borrowed = manager.borrow_memory();
    let another = manager.borrow_memory();
    assert!(!borrowed.has(blocks[0]) && borrowed.has(blocks[1]));
    free(&manager, blocks[1]);
    manager.gpu().drain_all();
    assert_eq!([manager.trim(0), manager.relieve(u64::MAX), manager.give_back_elsewhere()], [0; 3]);
    assert!(manager.gpu().is_mapped(blocks[1], 16 << 20));
    drop(borrowed);
    assert_eq!(manager.trim(0), 0, "another borrows it still");
    drop(another);
    assert_eq!(manager.trim(0), 16 << 20);
    assert!(!manager.gpu().is_mapped(blocks[1], 16 << 20) && manager.gpu().is_mapped(blocks[2], 16 << 20));
    manager.audit().expect("the books balance");
}
