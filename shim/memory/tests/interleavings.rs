//! Hazard (data race): two threads are in the manager at once. The crate's own sources run on
//! shuttle's locks and atomics under random and adversarial schedules; the model GPU yields at
//! every driver call.
//!
//! The sources are taken in by path, so that this runs in every test run and no build flag can
//! forget it.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    missing_docs,
    reason = "the crate's sources, under another root"
)]

mod sync {
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
}

#[path = "../src/books/mod.rs"]
mod books;
#[path = "../src/containers/mod.rs"]
mod containers;
#[path = "../src/manager/mod.rs"]
mod manager;
#[path = "../src/ordering/mod.rs"]
mod ordering;
#[path = "../src/policy/mod.rs"]
mod policy;
#[path = "../src/state/mod.rs"]
mod state;
#[path = "../src/vocabulary/mod.rs"]
mod vocabulary;

#[path = "support/adopted_pieces.rs"]
mod adopted_pieces;
#[path = "support/model/mod.rs"]
mod model;
#[path = "support/two_devices.rs"]
mod two_devices;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use books::directory::{Directory, DirectoryWriter};
use manager::Manager;
use manager::host_budget::HostBudget;
use model::{MIB, Model};
use shuttle::thread;
use vocabulary::block::Block;
use vocabulary::moves::{MoveOrder, RangeMove, SpareSource};
use vocabulary::order::Order;
use vocabulary::settings::ManagerSettings;
use vocabulary::share::{BlockChunk, Quiet, ShareOutcome, TakenBack};
use vocabulary::tiers::TierBytes;
use wm_driver::{Gpu, Handle, StreamId, Tier};

const MB: usize = MIB as usize;
const SCHEDULES: usize = 120;

type Places = Vec<(u64, Range<u64>)>;

/// A manager, and the physical bytes of every block that some thread holds.
struct Shared {
    manager: Manager<Model>,
    held: Mutex<Places>,
}

impl Shared {
    fn new(device: u64, settings: ManagerSettings) -> Arc<Self> {
        let model = Model::with_hook(device, device, thread::yield_now);
        Arc::new(Self { manager: Manager::new(model, settings), held: Mutex::default() })
    }

    /// Allocates, and checks that no other thread holds any of the physical bytes.
    fn take(&self, bytes: usize, order: Order) -> Option<(u64, Places)> {
        let address = self.manager.allocate(bytes, order).ok()?;
        let places = self.manager.gpu().resolve(address, bytes as u64);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for (handle, range) in &places {
            let clash = held
                .iter()
                .any(|(other, taken)| handle == other && range.start < taken.end && taken.start < range.end);
            assert!(!clash, "two threads hold one byte of handle {handle}");
        }
        held.extend(places.iter().cloned());
        order.stream().map(|stream| self.manager.gpu().touch(stream, address, bytes as u64));
        Some((address, places))
    }

    fn give(&self, address: u64, places: &[(u64, Range<u64>)], order: Order) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).retain(|place| !places.contains(place));
        self.manager.free(address, order).expect("a live block");
    }

    /// Takes a chunk back that no other process uses. Its block may have been freed.
    fn take_back(&self, chunk: BlockChunk, memory: Handle) {
        self.manager.gpu().take_back(memory);
        let done = self.manager.take_back_chunks(&[chunk], Quiet::Look, Duration::from_secs(60));
        if done != [TakenBack::Private] {
            self.manager.gpu().leave_to_others(memory);
        }
    }

    fn must_take_and_give(&self, bytes: usize, order: Order) {
        let (address, places) = self.take(bytes, order).expect("there is room for all threads at once");
        self.give(address, &places, order);
    }

    fn end(&self) {
        self.manager.audit().expect("the books balance");
        self.manager.gpu().drain_all();
        self.manager.trim(0);
        self.manager.give_back_elsewhere();
        assert_eq!(self.manager.usage().reserved.total(), 0);
        self.manager.discard();
        assert_eq!(self.manager.gpu().objects(), [0; 4]);
    }
}

fn settings(overflow: Vec<Tier>) -> ManagerSettings {
    ManagerSettings { headroom: 0, stitch_views: 1, overflow, ..ManagerSettings::default() }
}

fn stream(name: u64) -> Order {
    Order::Stream(StreamId(name))
}

fn under_all_schedulers(scenario: fn()) {
    shuttle::check_random(scenario, SCHEDULES);
    shuttle::check_pct(scenario, SCHEDULES, 3);
}

fn spawn(shared: &Arc<Shared>, work: impl FnOnce(&Shared) + Send + 'static) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || work(&shared))
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

/// Memory that another thread's plan holds for a moment must be waited for, not reported as
/// missing.
#[test]
fn no_allocation_fails_that_would_fit_once_others_are_done() {
    under_all_schedulers(|| {
        let shared = Shared::new(64 * MIB, settings(vec![]));
        let work = |order| {
            move |shared: &Shared| {
                shared.must_take_and_give(30 * MB, order);
                shared.must_take_and_give(26 * MB, order);
            }
        };
        join([spawn(&shared, work(stream(1))), spawn(&shared, work(stream(2)))]);
        shared.end();
    });
}

#[test]
fn trimming_never_takes_what_another_thread_is_getting() {
    under_all_schedulers(|| {
        let shared = Shared::new(256 * MIB, settings(vec![Tier::Host]));
        let work = |order| {
            move |shared: &Shared| {
                for bytes in [40 * MB, 1000, 3 * MB] {
                    shared.must_take_and_give(bytes, order);
                }
            }
        };
        let trim = |shared: &Shared| {
            shared.manager.trim(0);
            shared.manager.give_back_elsewhere();
            shared.manager.relieve(10 * MIB);
        };
        join([spawn(&shared, work(stream(1))), spawn(&shared, work(Order::Device)), spawn(&shared, trim)]);
        shared.end();
    });
}

#[test]
fn blocks_pass_between_streams_and_threads() {
    under_all_schedulers(|| {
        let shared = Shared::new(128 * MIB, settings(vec![Tier::Host]));
        let blocks: Vec<_> = (0..3).filter_map(|_| shared.take(24 * MB, stream(1))).collect();
        let free = move |shared: &Shared| {
            blocks.iter().for_each(|(address, places)| shared.give(*address, places, stream(1)));
        };
        let take = |shared: &Shared| shared.must_take_and_give(60 * MB, stream(2));
        let retire = |shared: &Shared| {
            shared.manager.refresh_access().expect("no failure was asked for");
            shared.manager.retire_stream(StreamId(3));
        };
        join([spawn(&shared, free), spawn(&shared, take), spawn(&shared, retire)]);
        shared.end();
    });
}

/// Access is granted range by range, without the lock: nothing may be unmapped meanwhile.
#[test]
fn ranges_stay_mapped_while_access_is_refreshed() {
    under_all_schedulers(|| {
        let shared = Shared::new(128 * MIB, ManagerSettings { stitch_views: 0, ..settings(vec![]) });
        for bytes in [16 * MB, 18 * MB, 40 * MB] {
            shared.must_take_and_give(bytes, stream(1));
        }
        shared.manager.gpu().drain_all();
        shared.manager.passed_all();
        let refresh = |shared: &Shared| shared.manager.refresh_access().expect("no failure was asked for");
        let trim = |shared: &Shared| assert!(shared.manager.trim(8 * MIB) <= 128 * MIB);
        let view = |shared: &Shared| {
            shared.must_take_and_give(50 * MB, stream(1));
            shared.manager.gpu().drain(StreamId(1));
            shared.manager.passed(StreamId(1));
            shared.must_take_and_give(60 * MB, stream(1));
        };
        join([spawn(&shared, refresh), spawn(&shared, trim), spawn(&shared, view)]);
        shared.end();
    });
}

#[test]
fn a_context_that_goes_while_plans_are_under_way_leaves_nothing_behind() {
    under_all_schedulers(|| {
        let shared = Shared::new(256 * MIB, settings(vec![]));
        let allocate = |shared: &Shared| {
            for bytes in [20 * MB, 700, 20 * MB] {
                if let Ok(address) = shared.manager.allocate(bytes, stream(1)) {
                    let _gone_by_now = shared.manager.free(address, stream(1));
                }
            }
        };
        let discard = |shared: &Shared| {
            shared.manager.gpu().renew_context();
            shared.manager.discard();
        };
        join([spawn(&shared, allocate), spawn(&shared, allocate), spawn(&shared, discard)]);
        assert_eq!(shared.manager.gpu().left_over(), 0, "memory of the old context");
        shared.end();
    });
}

/// A block whose every field tells its id.
fn telling(id: u64, address: u64, device: u64) -> Block {
    let tiers = TierBytes { device, peer: 0, host: id * 512 };
    Block { address, bytes: id as usize, id, order: stream(id), tiers }
}

fn check_whole(directory: &Directory, address: u64) {
    if let Some(block) = directory.look_up(address) {
        let told = telling(block.id, block.address, block.tiers.device);
        assert_eq!(block, told, "fields of two blocks");
        assert!((block.address..block.address + block.tiers.total()).contains(&address));
    }
}

/// One piece is given out again and again; then it goes, and its slot and its addresses go to
/// others.
fn change(writer: &mut DirectoryWriter) {
    let (base, whole) = (1 << 40, 6 * MIB);
    let piece = writer.insert(base, whole);
    for id in [1, 2] {
        writer.publish(piece, &telling(id, base, whole - id * 512));
        writer.unpublish(piece);
    }
    writer.remove(piece, base);
    for (id, address) in [(3, base + 4 * MIB), (4, base + MIB)] {
        let piece = writer.insert(address, MIB);
        writer.publish(piece, &telling(id, address, MIB - id * 512));
    }
}

#[test]
fn a_reader_never_sees_a_block_that_mixes_two() {
    under_all_schedulers(|| {
        let mut writer = DirectoryWriter::default();
        let directory = Arc::clone(writer.directory());
        let read = move || {
            for offset in [5 * MIB - 1, MIB, 4 * MIB] {
                check_whole(&directory, (1 << 40) + offset);
            }
        };
        join([thread::spawn(move || change(&mut writer)), thread::spawn(read.clone()), thread::spawn(read)]);
    });
}

/// A thread's own block is there from its allocation to its free, and not a moment longer, while
/// neighbours come and go.
#[test]
fn a_block_is_found_exactly_while_it_lives() {
    under_all_schedulers(|| {
        let shared = Shared::new(64 * MIB, settings(vec![]));
        let work = |order| {
            move |shared: &Shared| {
                for bytes in [700, 5 * MB, 700] {
                    let (address, places) = shared.take(bytes, order).expect("there is room");
                    let block = shared.manager.block(address + bytes as u64 - 1).expect("it is live");
                    assert_eq!((block.address, block.bytes, block.order), (address, bytes, order));
                    shared.give(address, &places, order);
                    let now = shared.manager.block(address);
                    assert!(now.is_none_or(|other| other.id != block.id), "it is not live");
                }
            }
        };
        let trim = |shared: &Shared| assert!(shared.manager.trim(0) <= 64 * MIB);
        join([spawn(&shared, work(stream(1))), spawn(&shared, work(stream(2))), spawn(&shared, trim)]);
        shared.end();
    });
}

/// Hazard (data race): memory migrates while other threads allocate, free, give back, or report a
/// block's place. They submit no work.
#[test]
fn memory_moves_beside_threads_that_change_everything_else() {
    under_all_schedulers(|| {
        let shared = Shared::new(64 * MIB, settings(vec![Tier::Host]));
        let address = shared.manager.allocate(20 * MB, stream(1)).expect("there is room");
        shared.manager.gpu().write(address, 7);
        let relocate = move |shared: &Shared| {
            for to in [Tier::Host, Tier::Device] {
                let _ = shared.manager.move_handle(address, to);
                let range = address..address + 20 * MIB;
                let order = MoveOrder::new(range, to);
                let _ = shared.manager.move_range(&order, Duration::from_secs(60));
            }
        };
        let change = |shared: &Shared| {
            for bytes in [500, 20 * MB] {
                let other = shared.manager.allocate(bytes, stream(2)).expect("there is room");
                shared.manager.free(other, stream(2)).expect("a live block");
            }
            shared.manager.trim(0);
            shared.manager.give_back_elsewhere();
        };
        let tell = move |shared: &Shared| {
            let told = shared.manager.backing(address).expect("a live block");
            let first = shared.manager.gpu().resolve(address, 1)[0].0;
            assert_eq!(told.handles[0].0.0, first, "what was told stays true");
        };
        join([spawn(&shared, relocate), spawn(&shared, change), spawn(&shared, tell)]);
        assert_eq!(shared.manager.gpu().read(address), Some(7));
        let block = shared.manager.block(address).expect("a live block");
        assert_eq!(block.tiers.total(), 20 * MIB);
        shared.manager.free(address, stream(1)).expect("a live block");
        shared.end();
    });
}

/// Hazard (resource leak): memory is made for moves while the others take memory, give it back, and
/// end the context.
#[test]
fn what_a_move_lacks_is_made_beside_threads_that_change_everything_else() {
    under_all_schedulers(|| {
        let shared = Shared::new(64 * MIB, settings(vec![Tier::Host]));
        let address = shared.manager.allocate(20 * MB, stream(1)).expect("there is room");
        let relocate = move |shared: &Shared| {
            let range = address..address + 20 * MIB;
            let order = MoveOrder::new(range, Tier::Host);
            let (mut ranges, mut source) = ([RangeMove::new(order, u64::MAX)], SpareSource::Idle);
            for _ in 0..3 {
                let lacks = shared.manager.swap_within(&mut ranges, source, || false, || false);
                let Ok(lacks) = lacks else { return };
                match shared.manager.make_spares(&mut ranges, &lacks, source, || true) {
                    Some(next) => source = next,
                    None => return,
                }
            }
        };
        let change = |shared: &Shared| {
            shared.must_take_and_give(50 * MB, stream(2));
            shared.manager.trim(0);
            shared.manager.give_back_elsewhere();
        };
        let discard = |shared: &Shared| shared.manager.discard();
        join([spawn(&shared, relocate), spawn(&shared, change)]);
        shared.manager.gpu().drain_all();
        join([spawn(&shared, relocate), spawn(&shared, discard)]);
        shared.end();
    });
}

/// Hazard (use after free): a chunk is given to another block while it is being shared, since its
/// own block was freed meanwhile; or it is given up while it is unshared or taken back.
#[test]
fn chunks_are_shared_beside_threads_that_change_everything_else() {
    under_all_schedulers(|| {
        let shared = Shared::new(64 * MIB, ManagerSettings { chunked: true, ..settings(vec![]) });
        let blocks = [(); 2].map(|()| shared.manager.allocate(4 * MB, stream(1)).expect("there is room"));
        shared.manager.gpu().write(blocks[0], 7);
        let chunks = blocks.map(|block| {
            [block, block + 2 * MIB]
                .map(|at| (shared.manager.chunk_at(at), shared.manager.gpu().import_like(at)))
        });
        let share = move |shared: &Shared| {
            for chunks in chunks {
                let done = shared.manager.share_chunks(&chunks, Quiet::Look, Duration::from_secs(60));
                for ((_, handle), outcome) in chunks.iter().zip(&done.outcomes) {
                    if *outcome != ShareOutcome::Shared {
                        shared.manager.gpu().release(*handle).expect("the caller's");
                    }
                }
            }
            // Others have left one chunk of each block.
            for [_, (chunk, handle)] in chunks {
                shared.take_back(chunk, handle);
            }
            let _ = shared.manager.unshare(
                blocks[0]..blocks[0] + 3 * MIB,
                false,
                Quiet::Look,
                Duration::from_secs(60),
            );
        };
        let change = |shared: &Shared| {
            for bytes in [500, 4 * MB] {
                let (address, places) = shared.take(bytes, Order::Device).expect("there is room");
                shared.manager.gpu().write(address, 1);
                shared.give(address, &places, Order::Device);
            }
            shared.manager.trim(0);
            shared.manager.give_back_elsewhere();
        };
        let free = move |shared: &Shared| {
            shared.manager.free(blocks[1], Order::Device).expect("a live block");
            shared.manager.unpark(Duration::from_secs(60));
        };
        join([spawn(&shared, share), spawn(&shared, change), spawn(&shared, free)]);
        assert_eq!(shared.manager.gpu().read(blocks[0]), Some(7));
        shared.manager.free(blocks[0], Order::Device).expect("a live block");
        shared.manager.gpu().drain_all();
        assert_eq!(shared.manager.unpark(Duration::from_secs(60)).left, 0);
        shared.end();
    });
}

/// Hazard: memory is unmapped while a kernel of the library's own reads it, since another thread
/// freed its block and gave memory back.
#[test]
fn what_is_being_read_stays_mapped_beside_threads_that_free_it() {
    under_all_schedulers(|| {
        let shared = Shared::new(64 * MIB, settings(vec![]));
        let address = shared.manager.allocate(2 * MB, Order::Device).expect("there is room");
        let id = shared.manager.block(address).expect("it lives").id;
        let read = move |shared: &Shared| {
            shared.manager.keep_mapped(|| {
                let lives = shared.manager.block(address).is_some_and(|block| block.id == id);
                for _ in 0..3 {
                    assert!(!lives || shared.manager.gpu().is_writable(address));
                    thread::yield_now();
                }
            });
        };
        let free = move |shared: &Shared| {
            shared.manager.free(address, Order::Device).expect("a live block");
            shared.manager.trim(0);
            shared.manager.give_back_elsewhere();
        };
        join([spawn(&shared, read), spawn(&shared, free)]);
        shared.end();
    });
}

/// Hazard: a context that ends while memory moves takes apart the memory that the move is using, or
/// the move takes apart memory of another context.
#[test]
fn a_context_that_ends_waits_for_a_move() {
    under_all_schedulers(|| {
        let shared = Shared::new(64 * MIB, settings(vec![Tier::Host]));
        let address = shared.manager.allocate(4 * MB, stream(1)).expect("there is room");
        let relocate = move |shared: &Shared| {
            let _ = shared.manager.move_handle(address, Tier::Host);
        };
        let discard = |shared: &Shared| shared.manager.discard();
        join([spawn(&shared, relocate), spawn(&shared, discard)]);
        shared.end();
    });
}
