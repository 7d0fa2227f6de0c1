//! Hazard (out-of-bounds access): an overrun that is reported twice, too late, or not at all; a
//! block that is accused of nothing.
//!
//! The GPU is a model whose memory is a map of bytes, and whose copies are made at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

use wm_abi::{CUresult, CUstream};
use wm_driver::gpu::Result;
use wm_driver::{Event, StreamId};
use wm_memory::guard::tail;

use super::super::guarded_block::CallOrigin;
use super::super::pattern;
use super::super::tail_copies::{CELL, CELLS};
use super::*;

const CONTEXT: CUcontext = CUcontext(16);
const STREAM: CUstream = CUstream(32);
const IN_STREAM: CallOrder = CallOrder::Stream(CONTEXT, STREAM);
const BYTES: usize = 1000;

#[derive(Default)]
struct Model {
    memory: Mutex<BTreeMap<u64, u8>>,
    captures: AtomicBool,
    /// Copies fail.
    refuses: AtomicBool,
    /// No event is passed.
    is_busy: AtomicBool,
    events: AtomicU64,
}

impl Model {
    fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    fn answer(&self) -> Result<()> {
        if self.refuses.load(Relaxed) { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
    }

    /// A kernel writes one byte past the end of the block at an address.
    fn overrun(&self, address: u64) {
        let past = tail(address, BYTES).start;
        *self.memory.lock().expect("no panic").entry(past).or_default() ^= 1;
    }
}

impl TailGpu for Model {
    type Cells = Vec<AtomicU8>;

    fn ordinal(&self) -> CUdevice {
        0
    }

    fn context(&self) -> CUcontext {
        CONTEXT
    }

    fn is_capturing(&self) -> bool {
        self.captures.load(Relaxed)
    }

    fn own_stream(&self) -> Result<StreamId> {
        Ok(StreamId(u64::MAX))
    }

    fn cells(&self) -> Result<Self::Cells> {
        self.answer().map(|()| (0..CELLS * CELL).map(|at| AtomicU8::new(pattern::byte(at % CELL))).collect())
    }

    fn cell<'a>(&self, cells: &'a Self::Cells, cell: usize) -> &'a [AtomicU8] {
        &cells[cell * CELL..(cell + 1) * CELL]
    }

    fn copy_in(&self, _: StreamId, to: u64, cells: &Self::Cells, cell: usize, bytes: usize) -> Result<()> {
        let mut memory = self.memory.lock().expect("no panic");
        let bytes = self.cell(cells, cell).iter().take(bytes).map(|byte| byte.load(Relaxed));
        memory.extend((to..).zip(bytes));
        self.answer()
    }

    fn copy_out(&self, _: StreamId, cells: &Self::Cells, cell: usize, from: u64, bytes: usize) -> Result<()> {
        let memory = self.memory.lock().expect("no panic");
        for (at, byte) in self.cell(cells, cell).iter().take(bytes).enumerate() {
            byte.store(memory.get(&(from + at as u64)).copied().unwrap_or(0), Relaxed);
        }
        self.answer()
    }

    fn record(&self, _: StreamId) -> Result<Event> {
        Ok(Event(self.events.fetch_add(1, Relaxed)))
    }

    fn is_done(&self, _: &Event) -> Result<bool> {
        Ok(!self.is_busy.load(Relaxed))
    }

    fn wait(&self, _: &Event) -> Result<()> {
        Ok(())
    }

    fn order(&self, _: StreamId, _: &Event) -> Result<()> {
        Ok(())
    }

    fn recycle(&self, _: Event) {
        self.events.fetch_sub(1, Relaxed);
    }
}

type TestCanaries = Canaries<Model>;

fn watch(canaries: &TestCanaries, gpu: &'static Model, address: u64, call: CallOrder) {
    let origin = CallOrigin::of("cuMemAlloc");
    let block = || Some(GuardedBlock { device: 0, address, bytes: BYTES, id: address, origin });
    canaries.watch(gpu, block, (address, BYTES), Order::Device, call);
}

fn free(canaries: &TestCanaries, gpu: &'static Model, address: u64, call: CallOrder) {
    canaries.check_before_free(gpu, address, Order::Device, call, "a free");
}

fn wait(canaries: &TestCanaries, gpu: &'static Model, target: &SyncTarget) {
    let moment = canaries.moment(target);
    canaries.waited(gpu, &moment);
}

/// Blocks with an overrun, and blocks that were not watched.
fn counts(canaries: &TestCanaries) -> (u64, u64) {
    (canaries.counters.overrun.load(Relaxed), canaries.counters.unwatched.load(Relaxed))
}

#[test]
fn an_overrun_is_found_by_the_next_wait_and_reported_once() {
    let (canaries, gpu) = (TestCanaries::new(), Model::new());
    watch(&canaries, gpu, 0x1000, CallOrder::Device);
    watch(&canaries, gpu, 0x2000, CallOrder::Device);
    wait(&canaries, gpu, &SyncTarget::Event);
    assert_eq!(counts(&canaries), (0, 0));
    gpu.overrun(0x2000);
    wait(&canaries, gpu, &SyncTarget::Event);
    wait(&canaries, gpu, &SyncTarget::Context(CONTEXT));
    free(&canaries, gpu, 0x2000, CallOrder::Device);
    assert_eq!(counts(&canaries), (1, 0));
}

#[test]
fn a_block_of_a_stream_is_checked_only_after_a_wait_for_it() {
    let (canaries, gpu) = (TestCanaries::new(), Model::new());
    watch(&canaries, gpu, 0x1000, IN_STREAM);
    gpu.overrun(0x1000);
    wait(&canaries, gpu, &SyncTarget::Event);
    wait(&canaries, gpu, &SyncTarget::Stream(CONTEXT, CUstream(33)));
    assert_eq!(counts(&canaries), (0, 0), "the pattern may not be there yet");
    wait(&canaries, gpu, &SyncTarget::Stream(CONTEXT, STREAM));
    assert_eq!(counts(&canaries), (1, 0));
}

#[test]
fn a_free_of_mem_alloc_checks_at_once_and_one_of_a_pools_block_does_not() {
    let (canaries, gpu) = (TestCanaries::new(), Model::new());
    watch(&canaries, gpu, 0x1000, CallOrder::Device);
    watch(&canaries, gpu, 0x2000, IN_STREAM);
    [0x1000, 0x2000].into_iter().for_each(|address| gpu.overrun(address));
    free(&canaries, gpu, 0x1000, CallOrder::Device);
    assert_eq!(counts(&canaries), (1, 0));
    free(&canaries, gpu, 0x2000, CallOrder::Device);
    assert_eq!(counts(&canaries), (1, 1));
}

#[test]
fn a_free_in_a_stream_is_reported_when_its_tail_has_arrived() {
    let (canaries, gpu) = (TestCanaries::new(), Model::new());
    watch(&canaries, gpu, 0x1000, IN_STREAM);
    gpu.overrun(0x1000);
    gpu.is_busy.store(true, Relaxed);
    free(&canaries, gpu, 0x1000, IN_STREAM);
    wait(&canaries, gpu, &SyncTarget::Event);
    assert_eq!(counts(&canaries), (0, 0));
    gpu.is_busy.store(false, Relaxed);
    wait(&canaries, gpu, &SyncTarget::Event);
    assert_eq!(counts(&canaries), (1, 0));
    assert_eq!(gpu.events.load(Relaxed), 0, "every event is given back");
}

#[test]
fn a_tail_that_no_wait_came_for_is_compared_at_the_end() {
    let (canaries, gpu) = (TestCanaries::new(), Model::new());
    watch(&canaries, gpu, 0x1000, IN_STREAM);
    gpu.overrun(0x1000);
    gpu.is_busy.store(true, Relaxed);
    free(&canaries, gpu, 0x1000, IN_STREAM);
    canaries.finish();
    assert_eq!(counts(&canaries), (1, 0));
}

#[test]
fn more_frees_than_cells_are_counted_and_not_waited_for() {
    let (canaries, gpu) = (TestCanaries::new(), Model::new());
    gpu.is_busy.store(true, Relaxed);
    let addresses = (1..=CELLS as u64).map(|index| index * 0x1000);
    addresses.clone().for_each(|address| watch(&canaries, gpu, address, IN_STREAM));
    addresses.for_each(|address| free(&canaries, gpu, address, IN_STREAM));
    assert_eq!(counts(&canaries), (0, 1), "one cell holds the pattern");
}

#[test]
fn captures_and_refusals_leave_blocks_unwatched() {
    let (canaries, gpu) = (TestCanaries::new(), Model::new());
    gpu.captures.store(true, Relaxed);
    watch(&canaries, gpu, 0x1000, CallOrder::Device);
    gpu.captures.store(false, Relaxed);
    gpu.refuses.store(true, Relaxed);
    watch(&canaries, gpu, 0x2000, CallOrder::Device);
    gpu.overrun(0x1000);
    free(&canaries, gpu, 0x1000, CallOrder::Device);
    assert_eq!(counts(&canaries), (0, 2));
}

#[test]
fn a_device_that_ended_has_no_block_to_check() {
    let (canaries, gpu) = (TestCanaries::new(), Model::new());
    watch(&canaries, gpu, 0x1000, CallOrder::Device);
    gpu.overrun(0x1000);
    canaries.end_context(CUcontext(17));
    canaries.end_device(0);
    watch(&canaries, gpu, 0x3000, CallOrder::Device);
    wait(&canaries, gpu, &SyncTarget::Context(CONTEXT));
    assert_eq!(counts(&canaries), (0, 0));
}

#[test]
fn a_free_waits_for_a_check_of_another_thread() {
    let (canaries, gpu) = (TestCanaries::new(), Model::new());
    watch(&canaries, gpu, 0x1000, CallOrder::Device);
    let blocks = canaries.watched().choose(0, 1);
    let checking = Checking { canaries: &canaries, blocks: &blocks };
    std::thread::scope(|scope| {
        let freeing = scope.spawn(|| free(&canaries, gpu, 0x1000, CallOrder::Device));
        std::thread::yield_now();
        assert!(!freeing.is_finished());
        drop(checking);
    });
    assert!(matches!(canaries.watched().begin_free(0x1000), Taken::Unknown));
}
