//! The operations of threads on blocks. After each operation a block's contents are its owner's
//! mark, and all its uses so far are behind it in its home stream: a thread that takes the block
//! over needs no other state.

use wm_abi::*;
use wm_driver::Api;

use crate::block::{Block, Home, Source};
use crate::driver::{Failure, Result};
use crate::random::{self, Choices};
use crate::worker::{STAGING, Worker};

/// One block in so many is large: it fits no hole, so that it must be put together.
const LARGE: usize = 64;
/// A large block is this part of the capacity at most.
const LARGE_PART: u64 = 6;

impl Worker<'_> {
    /// A new block, marked. Where there is no room for it, one or two go.
    pub(crate) fn allocate(&mut self) -> Result {
        let capacity = self.place().budget.capacity;
        let part = if self.random.one_in(LARGE) { LARGE_PART } else { self.world.part };
        let bytes = random::size(&mut self.random, (capacity / part).max(1));
        if !self.place().budget.reserve(bytes, self.share()) {
            return self.make_room();
        }
        match self.obtain(bytes) {
            Ok(block) => self.admit(block),
            Err(failure) if failure.is_out_of_memory() => {
                self.place().budget.give_back(bytes);
                self.world.tally.refuse();
                self.make_room()
            }
            Err(failure) => Err(failure),
        }
    }

    fn make_room(&mut self) -> Result {
        let some = self.blocks.len().min(2);
        (0..some).try_for_each(|_| self.free_one())
    }

    fn obtain(&mut self, bytes: u64) -> Result<Block> {
        let (source, home, named) = (Source::any(&mut self.random), self.any_home(), self.random.one_in(4));
        let (driver, place) = (&self.world.driver, self.place());
        let size = bytes as usize;
        let pool = if source == Source::Pool { place.pool } else { place.default_pool };
        let address = match source {
            Source::Plain => driver.mem_alloc(size)?,
            Source::Ordered if !named => self.within(home, |stream| driver.mem_alloc_async(size, stream))?,
            Source::Ordered | Source::Pool => {
                self.within(home, |stream| driver.mem_alloc_from_pool_async(size, pool, stream))?
            }
        };
        Ok(Block { place: self.here(), address, bytes, source, home, mark: 0 })
    }

    fn admit(&mut self, mut block: Block) -> Result {
        self.own(&mut block)?;
        self.blocks.push(block);
        Ok(())
    }

    /// A new owner for one of the blocks.
    pub(crate) fn mark(&mut self) -> Result {
        let mut block = self.pick()?;
        self.own(&mut block)?;
        self.blocks.push(block);
        Ok(())
    }

    /// Marks a block as this thread's anew, by a kernel or a memset.
    fn own(&mut self, block: &mut Block) -> Result {
        block.mark = self.fresh_mark();
        let (by_kernel, driver) = (!self.random.one_in(4), &self.world.driver);
        self.within(block.home, |stream| match by_kernel {
            true => self.place().mark(driver, stream, block, block.owner()),
            false => self.set(block, stream),
        })?;
        self.spoil(block)
    }

    /// As the kernel does it: whole words, then the last bytes one by one.
    fn set(&self, block: &Block, stream: CUstream) -> Result {
        let (driver, words) = (&self.world.driver, block.bytes / 4);
        if words > 0 {
            // SAFETY: a block of this thread's.
            unsafe { driver.memset_d32_async(block.address, block.mark, words as usize, stream) }?;
        }
        for at in words * 4..block.bytes {
            let byte = block.mark.to_le_bytes()[at as usize % 4];
            // SAFETY: as above.
            unsafe { driver.memset_d8_async(block.address + at, byte, 1, stream) }?;
        }
        Ok(())
    }

    pub(crate) fn check(&mut self) -> Result {
        let block = self.pick()?;
        self.look_at(&block)?;
        self.blocks.push(block);
        Ok(())
    }

    fn look_at(&self, block: &Block) -> Result {
        self.within(block.home, |stream| self.place().check(&self.world.driver, stream, block))
    }

    /// Copies a part of a block out, waits, and compares.
    pub(crate) fn read(&mut self) -> Result {
        let block = self.pick()?;
        let (at, bytes) = self.part_of(&block);
        let (driver, staging) = (&self.world.driver, self.staging);
        self.within(block.home, |stream| {
            // SAFETY: the thread's own staging memory and block; the copy is waited for.
            unsafe { driver.memcpy_dtoh_async(staging.cast(), block.address + at, bytes, stream) }
        })?;
        self.wait(block.place, block.home)?;
        // SAFETY: the thread's own staging memory; the copy into it is over.
        let content = unsafe { std::slice::from_raw_parts(staging, bytes) };
        let marks = block.mark.to_le_bytes();
        let wrong = content.iter().enumerate().position(|(index, byte)| *byte != marks[index % 4]);
        if let Some(wrong) = wrong {
            let (address, mark) = (block.address + at + wrong as u64, block.owner());
            let found = content[wrong];
            return Err(Failure::of(format!(
                "read: {address:#x}, of a block of {mark:#x}, holds {found:#x}"
            )));
        }
        self.blocks.push(block);
        Ok(())
    }

    /// Copies the owner's mark into a part of a block once more.
    pub(crate) fn write(&mut self) -> Result {
        let block = self.pick()?;
        let (at, bytes) = self.part_of(&block);
        let (driver, staging) = (&self.world.driver, self.staging);
        // SAFETY: the thread's own staging memory; no copy uses it, since each is waited for.
        let content = unsafe { std::slice::from_raw_parts_mut(staging, bytes) };
        let marks = block.mark.to_le_bytes();
        content.iter_mut().enumerate().for_each(|(index, byte)| *byte = marks[index % 4]);
        self.within(block.home, |stream| {
            // SAFETY: as in `read`.
            unsafe { driver.memcpy_htod_async(block.address + at, staging.cast(), bytes, stream) }
        })?;
        self.wait(block.place, block.home)?;
        self.blocks.push(block);
        Ok(())
    }

    /// Offset and size of a part that fits the staging memory.
    fn part_of(&mut self, block: &Block) -> (u64, usize) {
        let bytes = block.bytes.min(STAGING as u64);
        let words = (block.bytes - bytes) / 4 + 1;
        (self.random.below(words as usize) as u64 * 4, bytes as usize)
    }

    /// Waits on the host for a stream: for itself, or for an event in it.
    fn wait(&mut self, place: usize, home: Home) -> Result {
        if self.random.one_in(2) {
            return self.within(home, |stream| self.world.driver.stream_synchronize(stream));
        }
        let event = self.event()?;
        self.within(home, |stream| self.world.driver.event_record(event, stream))?;
        self.world.driver.event_synchronize(event)?;
        self.put_back(place, event)
    }

    pub(crate) fn wait_stream(&mut self) -> Result {
        let home = self.any_home();
        self.wait(self.here(), home)
    }

    /// One block's contents, and with them its mark, become another's; the two may be on different
    /// devices.
    pub(crate) fn copy(&mut self) -> Result {
        if self.blocks.len() < 2 {
            return self.check();
        }
        let (one, other) = (self.pick()?, self.pick()?);
        let (from, mut to) = if one.bytes >= other.bytes { (one, other) } else { (other, one) };
        self.enter(to.place)?;
        self.link(&from, from.home, to.place, to.home)?;
        let (driver, bytes, places) = (&self.world.driver, to.bytes as usize, &self.world.places);
        let (there, here) = (places[from.place].context, places[to.place].context);
        // SAFETY: two blocks of this thread's, and the smaller one's size.
        self.within(to.home, |stream| unsafe {
            match from.place == to.place {
                true => driver.memcpy_dtod_async(to.address, from.address, bytes, stream),
                false => driver.memcpy_peer_async(to.address, here, from.address, there, bytes, stream),
            }
        })?;
        to.mark = from.mark;
        self.link(&to, to.home, from.place, from.home)?;
        self.blocks.extend([from, to]);
        Ok(())
    }

    /// Later work of `to` on device `place` comes behind the work of `from` on the block's device.
    /// Ends on device `place`.
    fn link(&mut self, block: &Block, from: Home, place: usize, to: Home) -> Result {
        self.enter(block.place)?;
        let event = self.event()?;
        let driver = &self.world.driver;
        self.within(from, |stream| driver.event_record(event, stream))?;
        self.enter(place)?;
        self.within(to, |stream| driver.stream_wait_event(stream, event))?;
        self.put_back(block.place, event)
    }

    /// A block goes on in another stream, behind an event.
    pub(crate) fn move_one(&mut self) -> Result {
        let mut block = self.pick()?;
        let home = self.any_home();
        self.move_to(&mut block, home)?;
        self.blocks.push(block);
        Ok(())
    }

    fn move_to(&mut self, block: &mut Block, home: Home) -> Result {
        if home != block.home {
            self.link(block, block.home, block.place, home)?;
            block.home = home;
        }
        Ok(())
    }

    /// Leaves a block to the next thread that receives one.
    pub(crate) fn hand(&mut self) -> Result {
        let mut block = self.pick()?;
        if block.home == Home::Thread {
            let home = self.any_slot();
            self.move_to(&mut block, home)?;
        }
        self.exchange().push(block);
        Ok(())
    }

    /// Takes a block that another thread left; sometimes it is given a new owner at once.
    pub(crate) fn receive(&mut self) -> Result {
        let Some(mut block) = self.exchange().pop() else { return Ok(()) };
        self.look_at(&block)?;
        if self.random.one_in(2) {
            self.own(&mut block)?;
        }
        self.blocks.push(block);
        Ok(())
    }

    fn exchange(&self) -> std::sync::MutexGuard<'_, Vec<Block>> {
        self.place().exchange.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn renew(&mut self) -> Result {
        let slot = 1 + self.random.below(self.place().streams() - 1);
        let (event, place) = (self.event()?, self.place());
        place.renew(&self.world.driver, slot, event, &mut self.random)?;
        self.put_back(self.here(), event)
    }

    pub(crate) fn free_one(&mut self) -> Result {
        let block = self.pick()?;
        self.free(block)
    }

    /// Checks a block and frees it at once behind the check, in one of the ways that its source
    /// allows.
    pub(crate) fn free(&mut self, mut block: Block) -> Result {
        self.look_at(&block)?;
        let driver = &self.world.driver;
        match (block.source, self.random.below(4)) {
            (Source::Plain, 0..3) => driver.mem_free(block.address)?,
            // The driver's rule for memory of pools: the program answers for it that all uses are
            // over.
            (Source::Ordered | Source::Pool, 0) => {
                self.wait(block.place, block.home)?;
                driver.mem_free(block.address)?;
            }
            (_, way) => {
                if way == 1 {
                    let home = self.any_home();
                    self.move_to(&mut block, home)?;
                }
                self.within(block.home, |stream| driver.mem_free_async(block.address, stream))?;
            }
        }
        self.place().budget.give_back(block.bytes);
        Ok(())
    }
}
