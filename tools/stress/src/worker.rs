//! One thread: it draws an operation, makes its calls, and draws the next, until the run ends; then
//! it frees its blocks.

use wm_abi::*;
use wm_driver::Api;

use crate::block::{Block, Home, Source, owner};
use crate::driver::Result;
use crate::place::{self, Place};
use crate::random::{self, Choices, Random};
use crate::tally::Operation;
use crate::world::World;

/// The weights of operations while less memory is held than the phase wishes.
const RISING: [(Operation, usize); 13] = weights(400, 100);
/// And while no more fits into it.
const FALLING: [(Operation, usize); 13] = weights(100, 400);

/// How often each operation is drawn, of about a thousand times.
const fn weights(allocate: usize, free: usize) -> [(Operation, usize); 13] {
    [
        (Operation::Allocate, allocate),
        (Operation::Free, free),
        (Operation::Check, 120),
        (Operation::Mark, 70),
        (Operation::Move, 80),
        (Operation::Copy, 40),
        (Operation::Read, 40),
        (Operation::Write, 40),
        (Operation::Hand, 50),
        (Operation::Take, 50),
        (Operation::WaitStream, 15),
        (Operation::Renew, 8),
        (Operation::WaitDevice, 2),
    ]
}

/// A thread's staging memory on the host, bytes.
pub(crate) const STAGING: usize = 256 << 10;

/// A thread of the run.
pub(crate) struct Worker<'a> {
    pub(crate) world: &'a World,
    pub(crate) random: Random,
    pub(crate) blocks: Vec<Block>,
    /// Pinned host memory of [`STAGING`] bytes.
    pub(crate) staging: *mut u8,
    number: usize,
    marks: u32,
    /// Events that are free, by device.
    events: Vec<Vec<CUevent>>,
    /// The device whose context is current.
    here: usize,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(world: &'a World, number: usize) -> Result<Self> {
        let here = number % world.places.len();
        world.driver.ctx_set_current(world.places[here].context)?;
        let staging = place::pinned(&world.driver, STAGING)?;
        let (random, events) =
            (random::of_thread(world.seed, number), world.places.iter().map(|_| Vec::new()).collect());
        Ok(Self { world, random, blocks: Vec::new(), staging, number, marks: 0, events, here })
    }

    /// Works until the run ends or something fails; a run without failure leaves nothing behind.
    pub(crate) fn run(mut self) {
        while !self.world.has_ended() {
            if let Err(failure) = self.step() {
                self.world.fail(failure);
            }
        }
        if !self.world.has_failed()
            && let Err(failure) = self.leave()
        {
            self.world.fail(failure);
        }
    }

    fn step(&mut self) -> Result {
        let operation = self.draw()?;
        self.world.tally.count(operation);
        match operation {
            Operation::Allocate => self.allocate(),
            Operation::Check => self.check(),
            Operation::Mark => self.mark(),
            Operation::Read => self.read(),
            Operation::Write => self.write(),
            Operation::Copy => self.copy(),
            Operation::Move => self.move_one(),
            Operation::Hand => self.hand(),
            Operation::Take => self.receive(),
            Operation::Free => self.free_one(),
            Operation::WaitStream => self.wait_stream(),
            Operation::WaitDevice => self.world.driver.ctx_synchronize(),
            Operation::Renew => self.renew(),
        }
    }

    /// The next operation, one that there is a block for, on a device that is sometimes another
    /// one.
    fn draw(&mut self) -> Result<Operation> {
        if self.world.places.len() > 1 && self.random.one_in(16) {
            let place = self.random.below(self.world.places.len());
            self.enter(place)?;
        }
        let budget = &self.place().budget;
        let rising = (budget.held() as f64) < budget.capacity as f64 * self.share();
        let drawn = self.random.weighted(if rising { &RISING } else { &FALLING });
        let alone = [
            Operation::Allocate,
            Operation::Take,
            Operation::WaitStream,
            Operation::WaitDevice,
            Operation::Renew,
        ];
        let possible = !self.blocks.is_empty() || alone.contains(&drawn);
        Ok(if possible { drawn } else { Operation::Allocate })
    }

    /// The share of the device that is to be held now.
    pub(crate) fn share(&self) -> f64 {
        self.world.wish.share(self.world.tally.sum())
    }

    pub(crate) fn place(&self) -> &'a Place {
        &self.world.places[self.here]
    }

    pub(crate) fn here(&self) -> usize {
        self.here
    }

    /// Makes a device's context current.
    pub(crate) fn enter(&mut self, place: usize) -> Result {
        if place != self.here {
            self.world.driver.ctx_set_current(self.world.places[place].context)?;
            self.here = place;
        }
        Ok(())
    }

    /// Makes calls in the stream that a home stands for, on the current device.
    pub(crate) fn within<T>(&self, home: Home, body: impl FnOnce(CUstream) -> Result<T>) -> Result<T> {
        match home {
            Home::Thread => body(CUstream::PER_THREAD),
            Home::Slot(slot) => body(*self.place().stream(&self.world.driver, slot)?),
        }
    }

    /// A stream of the current device; now and then the thread's own.
    pub(crate) fn any_home(&mut self) -> Home {
        if self.random.one_in(12) { Home::Thread } else { self.any_slot() }
    }

    pub(crate) fn any_slot(&mut self) -> Home {
        Home::Slot(self.random.below(self.place().streams()))
    }

    /// An event of the current device.
    pub(crate) fn event(&mut self) -> Result<CUevent> {
        if let Some(event) = self.events[self.here].pop() {
            return Ok(event);
        }
        self.world.driver.event_create(CU_EVENT_DISABLE_TIMING)
    }

    /// An event that was waited for, in a stream or by the host, can be recorded again; or
    /// destroyed.
    pub(crate) fn put_back(&mut self, place: usize, event: CUevent) -> Result {
        if self.random.one_in(32) {
            return self.world.driver.event_destroy(event);
        }
        self.events[place].push(event);
        Ok(())
    }

    /// A mark that no other block of the run bears.
    pub(crate) fn fresh_mark(&mut self) -> u32 {
        const MARKS: u32 = 1 << 24;
        self.marks = (self.marks + 1) % MARKS;
        (self.number as u32 + 1) << 24 | self.marks
    }

    /// Takes out one of the blocks, and goes to its device.
    pub(crate) fn pick(&mut self) -> Result<Block> {
        let at = self.random.below(self.blocks.len());
        let block = self.blocks.swap_remove(at);
        self.enter(block.place)?;
        Ok(block)
    }

    /// Frees everything, checked once more.
    fn leave(&mut self) -> Result {
        while let Some(block) = self.blocks.pop() {
            self.enter(block.place)?;
            self.free(block)?;
        }
        for event in self.events.drain(..).flatten() {
            self.world.driver.event_destroy(event)?;
        }
        // SAFETY: every copy that used it was waited for.
        unsafe { self.world.driver.mem_free_host(self.staging.cast()) }
    }

    /// Writes into a block of another owner, if this run is to show that the checks find it.
    pub(crate) fn spoil(&mut self, block: &Block) -> Result {
        let Some(times) = self.world.sabotage else { return Ok(()) };
        if !self.random.one_in(times) {
            return Ok(());
        }
        let driver = &self.world.driver;
        self.within(block.home, |stream| self.place().mark(driver, stream, block, owner(u32::MAX)))
    }
}

impl Source {
    /// One of them, the usual ones more often.
    pub(crate) fn any(random: &mut Random) -> Self {
        random.weighted(&[(Self::Ordered, 10), (Self::Plain, 5), (Self::Pool, 1)])
    }
}

impl Worker<'_> {
    /// Frees the blocks that threads handed over and that no thread took.
    pub(crate) fn inherit(mut self) -> Result {
        for place in &self.world.places {
            self.blocks.append(&mut place.exchange.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        }
        self.leave()
    }
}
