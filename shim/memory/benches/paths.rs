//! The cost of one allocation on each path in bookkeeping alone: the model GPU's calls take next to
//! nothing.

#[path = "../tests/support/model/mod.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the benches use a part of it")]
mod model;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use divan::Bencher;
use model::{MIB, Model};
use wm_driver::StreamId;
use wm_memory::{Manager, ManagerSettings, Order};

const S: Order = Order::Stream(StreamId(1));
const MB: usize = MIB as usize;

fn manager() -> Manager<Model> {
    let settings = ManagerSettings { headroom: 0, overflow: vec![], ..ManagerSettings::default() };
    Manager::new(Model::new(64 << 30, 0), settings)
}

/// A manager that already holds as many blocks as a training program does.
fn populated() -> Manager<Model> {
    let manager = manager();
    let sizes = [512, 40_000, 2 * MB, 9 * MB, 28 * MB];
    for size in sizes.iter().cycle().take(800) {
        manager.allocate(*size, S).expect("room");
    }
    manager
}

/// Allocates one block and frees it: two hits of the free cache.
#[divan::bench]
fn hit_and_free(bencher: Bencher) {
    let manager = populated();
    bencher.bench_local(|| {
        let address = manager.allocate(4 * MB, S).expect("room");
        manager.free(address, S).expect("live");
    });
}

/// Sizes that do not repeat soon, so that the free cache never has them: flush, best fit, split,
/// coalesce.
#[divan::bench]
fn split_and_coalesce(bencher: Bencher) {
    let manager = populated();
    let first = manager.allocate(64 * MB, S).expect("room");
    manager.free(first, S).expect("live");
    let mut sizes = (0..4096).map(|step| 5 * MB + step * 512).cycle();
    bencher.bench_local(|| {
        let size = sizes.next().expect("endless");
        let address = manager.allocate(size, S).expect("room");
        manager.free(address, S).expect("live");
    });
}

/// A block of 256 MiB from handles that lie between live blocks, its extent made anew each time.
#[divan::bench]
fn stitch(bencher: Bencher) {
    bencher
        .with_inputs(fragmented)
        .bench_local_refs(|manager| manager.allocate(256 * MB, S).expect("stitched"));
}

/// The block around an address, among as many as a training program holds.
#[divan::bench(threads = [1, 2])]
fn look_up(bencher: Bencher) {
    let manager = populated();
    let inside = addresses(&manager);
    bencher.with_inputs(|| next(&inside)).bench_values(|address| manager.block(address));
}

/// The same while another thread allocates and frees without a pause.
#[divan::bench(threads = [1, 2])]
fn look_up_while_another_thread_allocates(bencher: Bencher) {
    let manager = populated();
    let (inside, done) = (addresses(&manager), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let address = manager.allocate(4 * MB, S).expect("room");
                manager.free(address, S).expect("live");
            }
        });
        bencher.with_inputs(|| next(&inside)).bench_values(|address| manager.block(address));
        done.store(true, Ordering::Relaxed);
    });
}

/// An address in the middle of each block.
fn addresses(manager: &Manager<Model>) -> Vec<u64> {
    manager.blocks().iter().map(|block| block.address + block.bytes / 2).collect()
}

/// Any of them, not the one after the last.
fn next(addresses: &[u64]) -> u64 {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    addresses[TURN.fetch_add(7919, Ordering::Relaxed) % addresses.len()]
}

fn fragmented() -> Manager<Model> {
    let settings = ManagerSettings { headroom: 0, overflow: vec![], ..ManagerSettings::default() };
    let manager = Manager::new(Model::new(512 * MIB, 0), settings);
    let blocks: Vec<u64> = (0..16).filter_map(|_| manager.allocate(32 * MB, S).ok()).collect();
    blocks.iter().step_by(2).for_each(|address| manager.free(*address, S).expect("live"));
    manager
}

fn main() {
    divan::main();
}
