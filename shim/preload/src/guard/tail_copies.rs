//! One device's copies for canaries: the pattern goes out to a block's tail, tails come back into
//! cells.
//!
//! Nothing here waits for the program's work. The pattern is written, and a freed block's tail is
//! fetched, in the stream of the call; the bytes are compared when they have arrived. Checks at a
//! wait of the host go through a stream of our own, in which nothing but small copies is ever
//! queued.
//!
//! A cell holds the pattern until a tail is copied into it. So a difference in a cell is an
//! overrun, even if it is not known yet whether the copy is complete.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use wm_abi::{CUcontext, CUdevice};
use wm_driver::gpu::Result;
use wm_driver::{Cells, Device, Event, Gpu, StreamId, lock, lock_soon};
use wm_memory::guard::{LONGEST_TAIL, tail};

use super::counters::Unwatched;
use super::guarded_block::GuardedBlock;
use super::pattern::{self, Damage};
use crate::process::streams;

/// Tails that can be under way at once: 512 KiB of pinned memory.
pub(super) const CELLS: usize = 512;

/// Bytes of a cell: a tail, and room to keep cells apart.
pub(super) const CELL: usize = LONGEST_TAIL.next_power_of_two();

/// The cell that the pattern is copied from.
const PATTERN: usize = 0;

/// The longest that `cuMemAlloc` waits for a copy of a few hundred bytes. Bounded, because a copy
/// may have to queue behind work that only ends when this thread goes on.
const MOMENT: Duration = Duration::from_millis(100);

/// The operations of a GPU that canaries need: copies in streams, and events behind them.
pub(super) trait TailGpu: Send + Sync + 'static {
    /// Pinned memory of the host, in cells.
    type Cells: Send + Sync;

    fn ordinal(&self) -> CUdevice;
    /// The context in which the library's own streams live.
    fn context(&self) -> CUcontext;
    /// Is any stream of the process being captured?
    fn is_capturing(&self) -> bool;
    /// A new stream that no work of the program is in.
    fn own_stream(&self) -> Result<StreamId>;
    /// [`CELLS`] cells of [`CELL`] bytes, all with the pattern in them.
    fn cells(&self) -> Result<Self::Cells>;
    fn cell<'a>(&self, cells: &'a Self::Cells, cell: usize) -> &'a [AtomicU8];
    /// Copies `bytes` of a cell to the device, behind the work that is in the stream.
    fn copy_in(
        &self,
        stream: StreamId,
        to: u64,
        cells: &Self::Cells,
        cell: usize,
        bytes: usize,
    ) -> Result<()>;
    /// Copies `bytes` of the device to a cell, behind the work that is in the stream.
    fn copy_out(
        &self,
        stream: StreamId,
        cells: &Self::Cells,
        cell: usize,
        from: u64,
        bytes: usize,
    ) -> Result<()>;
    /// An event behind all work that is in the stream now.
    fn record(&self, stream: StreamId) -> Result<Event>;
    fn is_done(&self, event: &Event) -> Result<bool>;
    /// Blocks the thread until the event is passed.
    fn wait(&self, event: &Event) -> Result<()>;
    /// Lets later work of the stream wait for the event.
    fn order(&self, stream: StreamId, event: &Event) -> Result<()>;
    fn recycle(&self, event: Event);
}

impl TailGpu for Device {
    type Cells = Cells;

    fn ordinal(&self) -> CUdevice {
        Device::ordinal(self)
    }

    fn context(&self) -> CUcontext {
        Device::context(self)
    }

    fn is_capturing(&self) -> bool {
        streams().capturing()
    }

    fn own_stream(&self) -> Result<StreamId> {
        Device::own_stream(self)
    }

    fn cells(&self) -> Result<Cells> {
        Device::cells(self, CELLS, CELL, pattern::byte)
    }

    fn cell<'a>(&self, cells: &'a Cells, cell: usize) -> &'a [AtomicU8] {
        cells.cell(cell)
    }

    fn copy_in(&self, stream: StreamId, to: u64, cells: &Cells, cell: usize, bytes: usize) -> Result<()> {
        Device::copy_in(self, stream, to, cells, cell, bytes)
    }

    fn copy_out(&self, stream: StreamId, cells: &Cells, cell: usize, from: u64, bytes: usize) -> Result<()> {
        Device::copy_out(self, stream, cells, cell, from, bytes)
    }

    fn record(&self, stream: StreamId) -> Result<Event> {
        Gpu::record(self, stream)
    }

    fn is_done(&self, event: &Event) -> Result<bool> {
        Gpu::is_done(self, event)
    }

    fn wait(&self, event: &Event) -> Result<()> {
        Device::wait(self, event)
    }

    fn order(&self, stream: StreamId, event: &Event) -> Result<()> {
        Gpu::order(self, stream, event)
    }

    fn recycle(&self, event: Event) {
        Gpu::recycle(self, event);
    }
}

/// The copies of each device.
pub(super) struct CopiesByDevice<G: TailGpu>(Mutex<Vec<PerDevice<G>>>);

/// A device and its copies; `None` if the driver refused memory, streams or events for them.
struct PerDevice<G: TailGpu> {
    device: &'static G,
    copies: Option<Arc<TailCopies<G>>>,
}

impl<G: TailGpu> CopiesByDevice<G> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn known(&self, device: &G) -> Option<Option<Arc<TailCopies<G>>>> {
        let devices = lock(&self.0);
        let known = devices.iter().find(|entry| entry.device.ordinal() == device.ordinal());
        known.map(|entry| entry.copies.clone())
    }

    /// The device's copies, made at its first guarded block. `None` if the driver refuses; it is
    /// asked once.
    pub(super) fn of(&self, device: &'static G) -> Option<Arc<TailCopies<G>>> {
        self.known(device).unwrap_or_else(|| {
            let copies = TailCopies::new(device).ok().map(Arc::new);
            // Two threads may have made copies at once: the first to insert wins, since its copies
            // may be in use already.
            let mut devices = lock(&self.0);
            match devices.iter().find(|entry| entry.device.ordinal() == device.ordinal()) {
                Some(first) => first.copies.clone(),
                None => {
                    devices.push(PerDevice { device, copies: copies.clone() });
                    copies
                }
            }
        })
    }

    /// The device's copies, if any were made.
    pub(super) fn existing(&self, device: &G) -> Option<Arc<TailCopies<G>>> {
        self.known(device).flatten()
    }

    /// The process ends: compares all deferred checks' cells, without a call of the driver, and
    /// reports the damaged ones. Allocates nothing, and waits for no lock without a bound.
    pub(super) fn finish(&self, mut report: impl FnMut(&DeferredCheck, &Damage)) {
        let nth = |number: usize| {
            let devices = lock_soon(&self.0)?;
            devices.get(number).map(|entry| entry.copies.clone())
        };
        for copies in (0..).map_while(nth).flatten() {
            while let Some(late) = lock_soon(&copies.late).and_then(|mut late| late.pop_front()) {
                copies.compare_cell(late.cell, &late.block).iter().for_each(|damage| report(&late, damage));
            }
        }
    }

    /// Forgets devices that have lost the context in which their copies are made.
    pub(super) fn close(&self, has_ended: impl Fn(&G) -> bool) {
        lock(&self.0).retain(|entry| !has_ended(entry.device));
    }
}

pub(super) struct TailCopies<G: TailGpu> {
    device: &'static G,
    own: StreamId,
    cells: G::Cells,
    free: Mutex<Vec<usize>>,
    late: Mutex<VecDeque<DeferredCheck>>,
}

/// A freed block whose tail is on its way.
pub(super) struct DeferredCheck {
    cell: usize,
    /// Done when the tail has arrived. Without one, that is known only after the whole device was
    /// waited for.
    event: Option<Event>,
    pub(super) block: GuardedBlock,
    /// The call that freed it.
    pub(super) freed_by: &'static str,
}

impl<G: TailGpu> TailCopies<G> {
    fn new(device: &'static G) -> Result<Self> {
        let cells = device.cells()?;
        let free = (0..CELLS).filter(|cell| *cell != PATTERN).collect();
        Ok(Self { device, own: device.own_stream()?, cells, free: Mutex::new(free), late: Mutex::default() })
    }

    /// Writes the pattern behind a block, behind the work in a stream.
    pub(super) fn write(&self, stream: StreamId, address: u64, bytes: usize) -> Result<()> {
        let tail = tail(address, bytes);
        let length = (tail.end - tail.start) as usize;
        self.device.copy_in(stream, tail.start, &self.cells, PATTERN, length)
    }

    /// Writes the pattern in our own stream and waits [`MOMENT`] at most for it: work that the
    /// program starts next would otherwise race with it. `false`: the copy is still under way.
    pub(super) fn write_now(&self, address: u64, bytes: usize) -> Result<bool> {
        self.write(self.own, address, bytes)?;
        let event = self.device.record(self.own)?;
        let end = Instant::now() + MOMENT;
        let mut done = self.device.is_done(&event);
        while done == Ok(false) && Instant::now() < end {
            std::thread::yield_now();
            done = self.device.is_done(&event);
        }
        self.device.recycle(event);
        done
    }

    /// Fetches the tails of blocks and compares them; the host waits for these copies alone.
    /// Shorter than `blocks` where cells ran out or the driver refused.
    pub(super) fn compare(&self, blocks: &[GuardedBlock]) -> Vec<Option<Damage>> {
        let cells = self.reserve_cells(blocks.len());
        let sent =
            cells.iter().zip(blocks).take_while(|(cell, block)| self.fetch(self.own, **cell, block).is_ok());
        let sent = sent.count();
        let arrived = self.device.record(self.own).and_then(|event| {
            let waited = self.device.wait(&event);
            self.device.recycle(event);
            waited
        });
        let seen = if arrived.is_ok() { sent } else { 0 };
        let damages =
            cells.iter().zip(blocks).take(seen).map(|(cell, block)| self.compare_cell(*cell, block));
        let damages: Vec<_> = damages.collect();
        if arrived.is_ok() {
            self.give_cells(cells);
        }
        damages
    }

    /// Fetches the tail of a block that is freed in `stream`, behind the work there. `by_us`: our
    /// own stream may still have to write the pattern.
    pub(super) fn compare_after_free(
        &self,
        stream: StreamId,
        by_us: bool,
        block: GuardedBlock,
        freed_by: &'static str,
    ) -> std::result::Result<(), Unwatched> {
        if by_us {
            self.order_behind_own(stream).map_err(|_| Unwatched::Refused)?;
        }
        let cell = self.reserve_cells(1).pop().ok_or(Unwatched::Busy)?;
        if self.fetch(stream, cell, &block).is_err() {
            self.give_cells(vec![cell]);
            return Err(Unwatched::Refused);
        }
        let event = self.device.record(stream).ok();
        lock(&self.late).push_back(DeferredCheck { cell, event, block, freed_by });
        Ok(())
    }

    fn order_behind_own(&self, stream: StreamId) -> Result<()> {
        let event = self.device.record(self.own)?;
        let ordered = self.device.order(stream, &event);
        self.device.recycle(event);
        ordered
    }

    /// Deferred checks whose tail has arrived, each with the difference from the pattern.
    pub(super) fn arrived(&self, most: usize) -> Vec<(DeferredCheck, Option<Damage>)> {
        let asked: Vec<DeferredCheck> = {
            let mut late = lock(&self.late);
            let count = late.len().min(most);
            late.drain(..count).collect()
        };
        let is_done = |late: &DeferredCheck| {
            late.event.as_ref().is_some_and(|event| self.device.is_done(event) == Ok(true))
        };
        let (done, open): (Vec<DeferredCheck>, Vec<DeferredCheck>) = asked.into_iter().partition(is_done);
        lock(&self.late).extend(open);
        done.into_iter().map(|late| self.finish_comparison(late)).collect()
    }

    fn finish_comparison(&self, mut late: DeferredCheck) -> (DeferredCheck, Option<Damage>) {
        let damage = self.compare_cell(late.cell, &late.block);
        self.give_cells(vec![late.cell]);
        late.event.take().into_iter().for_each(|event| self.device.recycle(event));
        (late, damage)
    }

    fn fetch(&self, stream: StreamId, cell: usize, block: &GuardedBlock) -> Result<()> {
        let tail = tail(block.address, block.bytes);
        self.device.copy_out(stream, &self.cells, cell, tail.start, (tail.end - tail.start) as usize)
    }

    /// The difference between a cell and the pattern; afterwards the cell holds the pattern again.
    fn compare_cell(&self, cell: usize, block: &GuardedBlock) -> Option<Damage> {
        let tail = tail(block.address, block.bytes);
        let damage = pattern::damage(self.device.cell(&self.cells, cell), (tail.end - tail.start) as usize);
        if damage.is_some() {
            let bytes = self.device.cell(&self.cells, cell).iter().enumerate();
            bytes.for_each(|(at, byte)| byte.store(pattern::byte(at), Relaxed));
        }
        damage
    }

    fn reserve_cells(&self, most: usize) -> Vec<usize> {
        let mut free = lock(&self.free);
        let kept = free.len().saturating_sub(most);
        free.split_off(kept)
    }

    fn give_cells(&self, cells: Vec<usize>) {
        lock(&self.free).extend(cells);
    }
}
