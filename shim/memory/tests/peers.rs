//! Hazard (out of memory): a spill takes more of another GPU's memory than that GPU or the user
//! allows, or leaves it unused although it is free.

mod support;

use support::model::{MIB, Model};
use wm_driver::{StreamId, Tier};
use wm_memory::{Manager, ManagerSettings, Order};

const S: Order = Order::Stream(StreamId(0));
const MB: usize = MIB as usize;

fn take(manager: &Manager<Model>, bytes: usize, order: Order) -> u64 {
    manager.allocate(bytes, order).expect("there is room")
}

/// Hazard: another GPU is left without memory for its own contexts, or has room that is not used
/// because not all of a block fits there.
#[test]
fn another_gpu_keeps_its_headroom_and_gives_the_rest() {
    let settings = ManagerSettings {
        headroom: 32 * MIB,
        overflow: vec![Tier::Peer(1), Tier::Host],
        ..ManagerSettings::default()
    };
    let manager = Manager::new(Model::new(96 * MIB, 256 * MIB), settings);
    let tiers = |bytes: usize| manager.block(take(&manager, bytes, S)).expect("a live block").tiers;
    assert_eq!(tiers(64 * MB).device, 64 * MIB);
    assert_eq!(tiers(160 * MB).peer, 160 * MIB);
    // 96 MiB are left there, of which it keeps 32.
    let parted = tiers(96 * MB);
    assert!(
        (32 * MIB..=64 * MIB).contains(&parted.peer) && parted.host == 96 * MIB - parted.peer,
        "{parted:?}"
    );
    (0..4).for_each(|_| assert!(tiers(16 * MB).elsewhere() == 16 * MIB));
    let live = manager.usage().live;
    assert!((208 * MIB..=224 * MIB).contains(&live.peer), "{live:?}");
    manager.audit().expect("the books balance");
}

/// Hazard: memory that another GPU keeps is lost to it when a call fails, or a request is refused
/// because its release failed.
#[test]
fn what_another_gpu_keeps_is_released_whatever_fails() {
    let mut met = Vec::new();
    for k in 1.. {
        let settings = ManagerSettings {
            headroom: 32 * MIB,
            overflow: vec![Tier::Peer(1), Tier::Host],
            ..ManagerSettings::default()
        };
        let manager = Manager::new(Model::new(64 * MIB, 256 * MIB), settings);
        take(&manager, 32 * MB, S);
        manager.gpu().fail_in(k, 1);
        let is_met = manager.allocate(16 * MB, S).is_ok();
        if !manager.gpu().fail_no_more() {
            break;
        }
        met.push(is_met);
        manager.audit().expect("the books balance");
        assert_eq!(
            manager.block(take(&manager, 16 * MB, S)).expect("a live block").tiers.elsewhere(),
            16 * MIB
        );
        manager.gpu().drain_all();
        manager.discard();
        assert_eq!(manager.gpu().objects(), [0; 4], "call {k}");
    }
    assert_eq!(met.last(), Some(&true), "the last call is that release: {met:?}");
}

#[test]
fn a_limit_holds_for_each_other_gpu() {
    let overflow = vec![Tier::Peer(1), Tier::Peer(2), Tier::Host];
    let settings =
        ManagerSettings { headroom: 0, overflow, peer_limit: 64 * MIB, ..ManagerSettings::default() };
    let manager = Manager::new(Model::new(32 * MIB, 256 * MIB), settings);
    let blocks: Vec<u64> = (0..6).map(|_| take(&manager, 32 * MB, S)).collect();
    let live = manager.usage().live;
    assert_eq!((live.device, live.peer, live.host), (32 * MIB, 128 * MIB, 32 * MIB));
    blocks.iter().for_each(|block| manager.free(*block, S).expect("live"));
}
