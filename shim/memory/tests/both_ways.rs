//! Hazard (wrong result): memory that leaves the device and memory that comes to it at the same
//! time get in each other's way.

mod support;

use support::model::MIB;
use support::scene::{Filled, Scene, both_ways, order, settings};
use wm_driver::{LinkWay, Tier};
use wm_memory::{MoveRefusal, SpareSource};

/// Hazard (process crash): a handle is unmapped before its move ends, beside copies the
/// other way, and stays so where a later call fails or these copies take too long.
#[test]
fn what_was_unmapped_ahead_is_mapped_again_whatever_happens() {
    let scene = || {
        let scene = Scene::new(128, settings());
        let blocks = [scene.filled(64, 1), scene.filled(64, 500), scene.filled(64, 900)];
        // The pace of copies is known afterwards, so several are under way at a time.
        for to in [Tier::Host, Tier::Device] {
            scene.go(&order(&blocks[0], to));
        }
        (scene, blocks)
    };
    let check = |scene: Scene, blocks: [Filled; 3]| {
        blocks.iter().for_each(|block| scene.check(block));
        scene.0.swap(&mut both_ways(&blocks[1], &blocks[2]), || false).expect("nothing is in the way");
        blocks.iter().for_each(|block| scene.check(block));
        scene.end();
    };
    for k in 1..300 {
        let (scene, blocks) = scene();
        scene.0.gpu().fail_in(k, 3);
        let moved = scene.0.swap(&mut both_ways(&blocks[1], &blocks[2]), || false);
        scene.0.gpu().fail_no_more();
        assert!(!matches!(moved, Err(MoveRefusal::Lost(_))), "call {k}");
        check(scene, blocks);
    }
    let mut unmapped = 0;
    for moved in 0..32 {
        let (scene, blocks) = scene();
        let before = scene.0.usage().moves;
        let is_late = || scene.0.usage().moves.out_bytes - before.out_bytes >= moved * 2 * MIB;
        let is_over = || {
            scene.0.gpu().copies_take_long_which_go(is_late().then_some(LinkWay::Out));
            false
        };
        let mut ranges = both_ways(&blocks[1], &blocks[2]);
        let source = SpareSource::Made;
        scene.0.swap_within(&mut ranges, source, is_over, is_late).expect("nothing is in the way");
        // What came is counted before what was to leave beside it is given up.
        unmapped += u64::from(ranges[1].moved.bytes >= ranges[0].moved.bytes && ranges[1].moved.bytes > 0);
        scene.0.gpu().copies_take_long_which_go(None);
        check(scene, blocks);
    }
    assert!(unmapped > 0, "nothing was unmapped ahead");
}
