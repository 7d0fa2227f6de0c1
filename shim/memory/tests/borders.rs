//! Hazard (wrong result): one copy call touches two tiers because the caller was not told the
//! border between them.

mod support;

use support::model::{MIB, Model};
use wm_driver::{StreamId, Tier};
use wm_memory::{Manager, ManagerSettings, Order};

#[test]
fn borders_are_told_inside_the_range_that_is_asked_about() {
    let settings = ManagerSettings { headroom: 0, overflow: vec![Tier::Host], ..ManagerSettings::default() };
    let manager = Manager::new(Model::new(20 * MIB, 256 * MIB), settings);
    let bytes = 50 * MIB;
    let block = manager.allocate(bytes as usize, Order::Stream(StreamId(0))).expect("there is room");
    let tiers = manager.block(block).expect("live").tiers;
    let border = block + tiers.device;
    assert!(tiers.device > 0 && tiers.host > 0, "{tiers:?}");
    assert_eq!(manager.borders(block..block + bytes), [border]);
    assert_eq!(manager.borders(border - 1..border + 1), [border]);
    for range in [block..border, border..block + bytes, block..block, block - 1..block - 1] {
        assert!(manager.borders(range).is_empty());
    }
}
