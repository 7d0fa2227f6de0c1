//! One device's copies for canaries: the pattern goes out to a block's tail, tails come back into cells.
//!
//! Nothing here waits for the program's work. The pattern is written, and a freed block's tail is fetched, in the stream of
//! the call; what arrives is compared later. Looks at a wait of the host go through a stream of our own, in which nothing but
//! small copies is ever queued.
//!
//! A cell holds the pattern until a tail is copied into it. So a difference in a cell is an overrun, even if it is not known yet
//! whether the copy is complete.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wm_driver::gpu::Result;
use wm_driver::{Cells, Device, Event, Gpu, StreamId};
use wm_memory::guard::{LONGEST_TAIL, tail};

use super::counters::Unwatched;
use super::guarded_block::GuardedBlock;
use super::pattern::{self, Damage};

/// Tails that can be under way at once: 512 KiB of pinned memory.
const CELLS: usize = 512;

/// Bytes of a cell: a tail, and room to keep cells apart.
const CELL: usize = LONGEST_TAIL.next_power_of_two();

/// The cell that the pattern is copied from.
const PATTERN: usize = 0;

/// The longest that `cuMemAlloc` waits for a copy of a few hundred bytes. Bounded, because a copy may have to queue behind
/// work that only ends when this thread goes on.
const MOMENT: Duration = Duration::from_millis(100);

static DEVICES: Mutex<Vec<PerDevice>> = Mutex::new(Vec::new());

/// A device, and what copies for it, unless the driver refused what it needs.
struct PerDevice {
    device: &'static Device,
    copies: Option<Arc<TailCopies>>,
}

impl PerDevice {
    fn is_of(&self, device: &Device) -> bool {
        self.device.ordinal() == device.ordinal()
    }
}

pub(super) struct TailCopies {
    device: &'static Device,
    own: StreamId,
    cells: Cells,
    free: Mutex<Vec<usize>>,
    late: Mutex<VecDeque<DeferredLook>>,
}

/// A freed block whose tail is on its way.
pub(super) struct DeferredLook {
    cell: usize,
    /// Done when the tail has arrived. Without one, that is known only after the whole device was waited for.
    event: Option<Event>,
    pub(super) block: GuardedBlock,
    /// The call that freed it.
    pub(super) freed_by: &'static str,
}

impl TailCopies {
    /// The device's copies, made at its first guarded block. `None` where the driver refuses; it is asked once.
    pub(super) fn of(device: &'static Device) -> Option<Arc<Self>> {
        let known = |devices: &[PerDevice]| {
            devices.iter().find(|entry| entry.is_of(device)).map(|p| p.copies.clone())
        };
        let found = known(&devices());
        found.unwrap_or_else(|| {
            let copies = Self::new(device).ok().map(Arc::new);
            let mut devices = devices();
            // Another thread may have been faster; its copies may be in use already.
            known(&devices).unwrap_or_else(|| {
                devices.push(PerDevice { device, copies: copies.clone() });
                copies
            })
        })
    }

    /// The device's copies, if there are any.
    pub(super) fn existing(device: &Device) -> Option<Arc<Self>> {
        devices().iter().find(|entry| entry.is_of(device))?.copies.clone()
    }

    fn new(device: &'static Device) -> Result<Self> {
        let cells = device.cells(CELLS, CELL, pattern::byte)?;
        let free = (0..CELLS).filter(|cell| *cell != PATTERN).collect();
        Ok(Self { device, own: device.own_stream()?, cells, free: Mutex::new(free), late: Mutex::default() })
    }

    /// Those of every device.
    pub(super) fn all() -> Vec<Arc<Self>> {
        devices().iter().filter_map(|entry| entry.copies.clone()).collect()
    }

    /// The contexts of these devices are gone, and with them what the tail copies had in the driver.
    pub(super) fn close(gone: impl Fn(&Device) -> bool) {
        devices().retain(|entry| !gone(entry.device));
    }

    /// Writes the pattern behind a block, behind the work in a stream.
    pub(super) fn write(&self, stream: StreamId, address: u64, bytes: usize) -> Result<()> {
        let tail = tail(address, bytes);
        let length = (tail.end - tail.start) as usize;
        self.device.copy_in(stream, tail.start, &self.cells, PATTERN, length)
    }

    /// Writes the pattern in our own stream, and gives that a moment: whatever the program starts next would otherwise race
    /// with it. `false`: it is under way.
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

    /// Fetches the tails of blocks and compares them; the host waits for these copies alone. Shorter than `blocks` where
    /// cells ran out or the driver refused.
    pub(super) fn look(&self, blocks: &[GuardedBlock]) -> Vec<Option<Damage>> {
        let cells = self.take_cells(blocks.len());
        let sent =
            cells.iter().zip(blocks).take_while(|(cell, block)| self.fetch(self.own, **cell, block).is_ok());
        let sent = sent.count();
        let arrived = self.device.record(self.own).and_then(|event| {
            let waited = self.device.wait(&event);
            self.device.recycle(event);
            waited
        });
        let seen = if arrived.is_ok() { sent } else { 0 };
        let damages = cells.iter().zip(blocks).take(seen).map(|(cell, block)| self.compare(*cell, block));
        let damages: Vec<_> = damages.collect();
        if arrived.is_ok() {
            self.give_cells(cells);
        }
        damages
    }

    /// Fetches the tail of a block that is freed in `stream`, behind the work there. `by_us`: the pattern may still be under
    /// way in our own stream.
    pub(super) fn look_after_free(
        &self,
        stream: StreamId,
        by_us: bool,
        block: GuardedBlock,
        freed_by: &'static str,
    ) -> std::result::Result<(), Unwatched> {
        if by_us {
            self.order_behind_own(stream).map_err(|_| Unwatched::Refused)?;
        }
        let cell = self.take_cells(1).pop().ok_or(Unwatched::Busy)?;
        if self.fetch(stream, cell, &block).is_err() {
            self.give_cells(vec![cell]);
            return Err(Unwatched::Refused);
        }
        let event = self.device.record(stream).ok();
        lock(&self.late).push_back(DeferredLook { cell, event, block, freed_by });
        Ok(())
    }

    fn order_behind_own(&self, stream: StreamId) -> Result<()> {
        let event = self.device.record(self.own)?;
        let ordered = self.device.order(stream, &event);
        self.device.recycle(event);
        ordered
    }

    /// Deferred looks whose tail has arrived, and what differs in it.
    pub(super) fn arrived(&self, most: usize) -> Vec<(DeferredLook, Option<Damage>)> {
        let asked: Vec<DeferredLook> = {
            let mut late = lock(&self.late);
            let count = late.len().min(most);
            late.drain(..count).collect()
        };
        let is_done = |late: &DeferredLook| {
            late.event.as_ref().is_some_and(|event| self.device.is_done(event) == Ok(true))
        };
        let (done, open): (Vec<DeferredLook>, Vec<DeferredLook>) = asked.into_iter().partition(is_done);
        lock(&self.late).extend(open);
        done.into_iter().map(|late| self.close_look(late)).collect()
    }

    fn close_look(&self, mut late: DeferredLook) -> (DeferredLook, Option<Damage>) {
        let damage = self.compare(late.cell, &late.block);
        self.give_cells(vec![late.cell]);
        late.event.take().into_iter().for_each(|event| self.device.recycle(event));
        (late, damage)
    }

    /// What has arrived of late looks, without a call of the driver.
    pub(super) fn at_the_end(&self) -> Vec<(DeferredLook, Option<Damage>)> {
        let late: Vec<DeferredLook> = lock(&self.late).drain(..).collect();
        let compared = |late: DeferredLook| {
            let damage = self.compare(late.cell, &late.block);
            (late, damage)
        };
        late.into_iter().map(compared).collect()
    }

    fn fetch(&self, stream: StreamId, cell: usize, block: &GuardedBlock) -> Result<()> {
        let tail = tail(block.address, block.bytes);
        self.device.copy_out(stream, &self.cells, cell, tail.start, (tail.end - tail.start) as usize)
    }

    /// What differs in a cell; afterwards it holds the pattern again.
    fn compare(&self, cell: usize, block: &GuardedBlock) -> Option<Damage> {
        let tail = tail(block.address, block.bytes);
        let damage = pattern::damage(self.cells.cell(cell), (tail.end - tail.start) as usize);
        if damage.is_some() {
            self.cells.write(cell, pattern::byte);
        }
        damage
    }

    fn take_cells(&self, most: usize) -> Vec<usize> {
        let mut free = lock(&self.free);
        let kept = free.len().saturating_sub(most);
        free.split_off(kept)
    }

    fn give_cells(&self, cells: Vec<usize>) {
        lock(&self.free).extend(cells);
    }
}

fn devices() -> MutexGuard<'static, Vec<PerDevice>> {
    lock(&DEVICES)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
